"""The complex normal distribution of several variables, proper or improper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl

from .._support import checks
from .._support.torch_names import has_values
from ..linalg import cholesky, log_determinant

_ROUNDING = 1e-6


class ComplexNormal(Distribution):
    r"""Complex normal :math:`CN(\mu, \Sigma, P)` with covariance :math:`\Sigma` and pseudo-covariance P.

    .. math:: \Sigma = E (z - \mu)(z - \mu)^H, \qquad P = E (z - \mu)(z - \mu)^\top

    The density is that of the 2N real variables, with

    .. math:: \mathrm{Cov} \begin{pmatrix} \mathrm{Re}\, z \\ \mathrm{Im}\, z \end{pmatrix} = \frac12 \begin{pmatrix}
        \mathrm{Re}(\Sigma + P) & \mathrm{Im}(P - \Sigma) \\
        \mathrm{Im}(\Sigma + P) & \mathrm{Re}(\Sigma - P) \end{pmatrix}

    :param loc: the mean, (..., N), complex.
    :param covariance_matrix: (..., N, N), Hermitian positive definite; or None where a root is given.
    :param pseudo_covariance: P beside it, (..., N, N), symmetric; default: zero, a proper (circular) distribution.
    :param covariance_root: a root R of :math:`\Sigma = R R^H + \mathrm{diag}(v)`, (..., N, D).
    :param has_real_weights: whether :math:`z - \mu = R w` with real standard normal w, so that
        :math:`P = R R^\top + \mathrm{diag}(p)`; default: circular ones, and no :math:`R R^\top`.
    :param diagonal: v, (..., N) or (..., 1), real and positive; default: zero.
    :param pseudo_diagonal: p beside it, (..., N) or (..., 1), with :math:`|p| \le v`; default: zero.
    :raises ValueError: where both or neither of covariance and root are given, or for a mean or P that does not fit.

    Source: T B.3, density with the errata.

    >>> unit = ComplexNormal(torch.zeros(1, dtype=torch.complex128), torch.eye(1, dtype=torch.complex128))
    >>> unit.log_prob(torch.zeros(1, dtype=torch.complex128)).exp() * math.pi
    tensor(1., dtype=torch.float64)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        *,
        pseudo_covariance: Tensor | None = None,
        covariance_root: Tensor | None = None,
        has_real_weights: bool = False,
        diagonal: Tensor | None = None,
        pseudo_diagonal: Tensor | None = None,
    ) -> None:
        if not checks.tensor(loc, "loc").is_complex() or loc.dim() == 0:
            raise ValueError(
                f"expected a complex mean (..., N), got {loc.dtype} {tuple(loc.shape)}; use a real normal distribution"
            )
        if (covariance_matrix is None) == (covariance_root is None):
            raise ValueError("expected one of covariance_matrix and covariance_root, got both or neither; pass one")
        size = loc.shape[-1]
        if covariance_matrix is not None:
            _check_hermitian(covariance_matrix, size)
        if covariance_root is not None:
            _check_numbers("covariance_root", covariance_root, (size,), 2)
        if pseudo_covariance is not None:
            if covariance_matrix is None:
                raise ValueError(
                    "expected pseudo_covariance beside covariance_matrix, got it beside a root; use has_real_weights"
                )
            _check_numbers("pseudo_covariance", pseudo_covariance, (size, size), 2)
        if checks.flag("has_real_weights", has_real_weights) and covariance_root is None:
            raise ValueError(
                "expected covariance_root for has_real_weights, got a dense covariance; pass its pseudo one"
            )
        if diagonal is not None:
            _check_variances(diagonal, size)
        if pseudo_diagonal is not None:
            _check_pseudo_variances(pseudo_diagonal, diagonal, size)
        self.loc = loc
        self._dense = loc.new_zeros(0) if covariance_matrix is None else covariance_matrix.to(loc.dtype)
        self._pseudo = None if pseudo_covariance is None else pseudo_covariance.to(loc.dtype)
        self.covariance_root = None if covariance_root is None else covariance_root.to(loc.dtype)
        self.has_real_weights = has_real_weights
        self.diagonal = diagonal
        self.pseudo_diagonal = None if pseudo_diagonal is None else pseudo_diagonal.to(loc.dtype)
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def is_proper(self) -> bool:
        """Whether there is no pseudo-covariance."""
        return self._pseudo is None and not self.has_real_weights and self.pseudo_diagonal is None

    @property
    def mean(self) -> Tensor:
        """The mean, (..., N), complex."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variances :math:`E|z - \\mu|^2`, (..., N), real."""
        if self.covariance_root is None:
            variance = self._dense.diagonal(dim1=-2, dim2=-1).real
        else:
            variance = (self.covariance_root.real**2 + self.covariance_root.imag**2).sum(-1)
        return variance if self.diagonal is None else variance + self.diagonal

    @property
    def pseudo_variance(self) -> Tensor:
        """The pseudo-variances :math:`E(z - \\mu)^2`, (..., N), complex."""
        if self.covariance_root is not None and self.has_real_weights:
            pseudo = self.covariance_root.square().sum(-1)
        elif self._pseudo is not None:
            pseudo = self._pseudo.diagonal(dim1=-2, dim2=-1)
        else:
            pseudo = torch.zeros_like(self.loc)
        return pseudo if self.pseudo_diagonal is None else pseudo + self.pseudo_diagonal

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance, (..., N, N), Hermitian."""
        root = self.covariance_root
        covariance = self._dense if root is None else root @ root.mH
        return covariance if self.diagonal is None else covariance + self._on_diagonal(self.diagonal)

    @property
    def pseudo_covariance(self) -> Tensor:
        """The pseudo-covariance, (..., N, N), symmetric; zero for a proper distribution."""
        if self.covariance_root is not None and self.has_real_weights:
            pseudo = self.covariance_root @ self.covariance_root.mT
        else:
            size = self.loc.shape[-1]
            pseudo = (
                self.loc.new_zeros(size, size).expand(*self.loc.shape, size) if self._pseudo is None else self._pseudo
            )
        return pseudo if self.pseudo_diagonal is None else pseudo + self._on_diagonal(self.pseudo_diagonal)

    @property
    def embedded_covariance(self) -> Tensor:
        """The covariance of the real parts and, behind them, the imaginary parts, (..., 2 N, 2 N)."""
        root = self.covariance_root
        if root is None or not self.has_real_weights:
            return _embedded(self.covariance_matrix, self.pseudo_covariance)
        parts = torch.cat([root.real, root.imag], dim=-2)
        own = parts @ parts.mT
        if self.diagonal is None:
            return own
        added, pseudo = self._on_diagonal(self.diagonal + 0j), self.pseudo_diagonal
        return own + _embedded(added, torch.zeros_like(added) if pseudo is None else self._on_diagonal(pseudo))

    def _on_diagonal(self, values: Tensor) -> Tensor:
        return torch.diag_embed(values.expand(*values.shape[:-1], self.loc.shape[-1]))

    def plus_noise(self, noise: Tensor, pseudo_noise: Tensor | None = None) -> ComplexNormal:
        """The distribution plus independent noise of variances and pseudo-variances (..., N) or (..., 1)."""
        checks.finite(checks.floating(noise, "noise").detach(), "noise")
        total = noise if self.diagonal is None else self.diagonal + noise
        pseudo = self.pseudo_diagonal
        if pseudo_noise is not None:
            pseudo = pseudo_noise if pseudo is None else pseudo + pseudo_noise
        return ComplexNormal(
            self.loc,
            self._dense if self.covariance_root is None else None,
            pseudo_covariance=self._pseudo,
            covariance_root=self.covariance_root,
            has_real_weights=self.has_real_weights,
            diagonal=total,
            pseudo_diagonal=pseudo,
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density at ``value`` (..., N), of shape (...)."""
        _check_numbers("value", value, (self.loc.shape[-1],), 1)
        difference = value - self.loc
        if not self.is_proper:
            factor = cholesky(self.embedded_covariance)
            quadratic = _white(factor, _parts(difference).unsqueeze(-1)).square().sum((-2, -1))
            return -0.5 * (quadratic + log_determinant(factor)) - self.loc.shape[-1] * math.log(2.0 * math.pi)
        factor = cholesky(self.covariance_matrix)
        white = _white(factor, difference.unsqueeze(-1)).squeeze(-1)
        quadratic = (white.real**2 + white.imag**2).sum(-1)
        return -(quadratic + log_determinant(factor) + self.loc.shape[-1] * math.log(math.pi))

    def entropy(self) -> Tensor:
        r"""The entropy :math:`\log|\pi e \Sigma|`, or half the log determinant of the 2N real variables, (...)."""
        if self.is_proper:
            return log_determinant(cholesky(self.covariance_matrix)) + self.loc.shape[-1] * (math.log(math.pi) + 1.0)
        log_det = log_determinant(cholesky(self.embedded_covariance))
        return 0.5 * log_det + self.loc.shape[-1] * (math.log(2.0 * math.pi) + 1.0)

    def mahalanobis(self, value: Tensor) -> Tensor:
        r"""The squared Mahalanobis distance (..., N) of every variable from its mean by its marginal: chi-squared(2).

        .. math:: 2\, \frac{v |d|^2 - \mathrm{Re}(\bar p\, d^2)}{v^2 - |p|^2}, \qquad d = z - \mu
        """
        _check_numbers("value", value, (self.loc.shape[-1],), 1)
        difference, variance, pseudo = value - self.loc, self.variance, self.pseudo_variance
        squares = variance * _squared(difference) - (pseudo.conj() * difference.square()).real
        return 2.0 * squares / _gap(variance, pseudo)

    def in_region(self, value: Tensor, level: float = 0.95) -> Tensor:
        """Whether every variable lies in the ellipse that has probability ``level`` under its marginal, (..., N)."""
        checks.share("level", level)
        return self.mahalanobis(value) <= -2.0 * math.log1p(-level)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Reparametrized draws, ``(*sample_shape, ..., N)``."""
        dense_pseudo = self.covariance_root is None and self._pseudo is not None
        if dense_pseudo:
            root = cholesky(self.embedded_covariance)
            root = torch.complex(*root.tensor_split(2, dim=-2))
        else:
            root = cholesky(self._dense) if self.covariance_root is None else self.covariance_root
        shape = (*checks.shape(sample_shape, "sample_shape"), *self.loc.shape[:-1], root.shape[-1], 1)
        is_real = dense_pseudo or self.has_real_weights
        weights = torch.randn(shape, dtype=self.variance.dtype if is_real else root.dtype, device=root.device)
        draws = self.loc + (root @ weights.to(root.dtype)).squeeze(-1)
        if self.diagonal is None or dense_pseudo:
            return draws
        noise = torch.randn_like(draws)
        if self.pseudo_diagonal is None:
            return draws + self.diagonal.sqrt() * noise
        modulus = self.pseudo_diagonal.abs()
        linear = 0.5 * ((self.diagonal + modulus).sqrt() + (self.diagonal - modulus).clamp_min(0.0).sqrt())
        conjugate = self.pseudo_diagonal / (2.0 * linear).clamp_min(torch.finfo(linear.dtype).tiny)
        return draws + linear * noise + conjugate * noise.conj()


def _embedded(covariance: Tensor, pseudo: Tensor) -> Tensor:
    """The covariance of real parts and imaginary parts."""
    total, difference = covariance + pseudo, covariance - pseudo
    top = torch.cat([total.real, -difference.imag], dim=-1)
    bottom = torch.cat([total.imag, difference.real], dim=-1)
    return 0.5 * torch.cat([top, bottom], dim=-2)


def _squared(values: Tensor) -> Tensor:
    return values.real.square() + values.imag.square()


def _gap(variance: Tensor, pseudo: Tensor) -> Tensor:
    """Four times the determinant of the covariance of real and imaginary part."""
    modulus = pseudo.abs()
    return (variance - modulus) * (variance + modulus)


def _parts(values: Tensor) -> Tensor:
    return torch.cat([values.real, values.imag], dim=-1)


def _white(factor: Tensor, values: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(factor, values, upper=False)


def _check_pseudo_variances(pseudo: Any, diagonal: Tensor | None, size: int) -> None:
    """Raise where pseudo-variances are not numbers (..., size) or (..., 1) that are at most the variances."""
    _check_numbers("pseudo_diagonal", pseudo, (), 1)
    if pseudo.shape[-1] not in (1, size):
        raise ValueError(f"expected pseudo_diagonal of shape (..., {size}), got {tuple(pseudo.shape)}; reshape it")
    if diagonal is None or bool((pseudo.detach().abs() > (1.0 + _ROUNDING) * diagonal.detach()).any()):
        raise ValueError(
            "expected pseudo-variances of a modulus of at most the variances in diagonal, got larger ones; correct them"
        )


def _check_variances(diagonal: Any, size: int) -> None:
    """Raise where variances are not a real tensor of shape (..., size) or (..., 1), or some are negative."""
    if checks.floating(diagonal, "diagonal").dim() == 0 or diagonal.shape[-1] not in (1, size):
        raise ValueError(f"expected diagonal of shape (..., {size}), got {tuple(diagonal.shape)}; pass variances")
    if bool((diagonal < 0).any()):
        raise ValueError(f"expected variances of at least 0, got {float(diagonal.min()):g}; square standard deviations")


def _check_hermitian(value: Any, size: int) -> None:
    """Raise where ``value`` is not a matrix (..., N, N) that is its own adjoint, up to rounding."""
    _check_numbers("covariance_matrix", value, (size, size), 2)
    if not has_values() or not value.numel():
        return
    known = value.detach()
    gap, largest = float((known - known.mH).abs().max()), float(known.abs().max())
    if gap > torch.finfo(known.dtype).eps ** 0.5 * largest:
        raise ValueError(
            f"expected a Hermitian covariance_matrix, got one that differs from its adjoint by {gap:.3g}; correct it"
        )


def _check_numbers(name: str, value: Any, sizes: tuple[int, ...], dims: int) -> None:
    """Raise where ``value`` is not a tensor of numbers of at least ``dims`` dimensions, whose last begin with sizes."""
    if not checks.tensor(value, name).is_complex():
        checks.floating(value, name)
    if value.dim() < dims or value.shape[-dims:][: len(sizes)] != sizes:
        wanted = ", ".join(["...", *map(str, sizes), *["D"] * (dims - len(sizes))])
        raise ValueError(f"expected {name} of shape ({wanted}), got {tuple(value.shape)}; reshape it")


@register_kl(ComplexNormal, ComplexNormal)
def _kl_complex_normal(p: ComplexNormal, q: ComplexNormal) -> Tensor:
    difference = q.loc - p.loc
    if p.is_proper and q.is_proper:
        return _twice_kl(p.covariance_matrix, q.covariance_matrix, difference)
    return 0.5 * _twice_kl(p.embedded_covariance, q.embedded_covariance, _parts(difference))


def _twice_kl(p: Tensor, q: Tensor, difference: Tensor) -> Tensor:
    """Twice the divergence of real normals of these covariances, (..., n, n), which is that of proper complex ones."""
    factor_p, factor_q = cholesky(p), cholesky(q)
    batch = torch.broadcast_shapes(factor_p.shape[:-2], difference.shape[:-1])
    columns = difference.unsqueeze(-1).expand(*batch, -1, 1)
    white = _white(factor_q, torch.cat([factor_p.expand(*batch, *p.shape[-2:]), columns], dim=-1))
    trace_and_quadratic = white.abs().square().sum((-2, -1))
    return log_determinant(factor_q) - log_determinant(factor_p) - difference.shape[-1] + trace_and_quadratic

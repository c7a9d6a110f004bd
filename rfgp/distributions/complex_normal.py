"""The circular complex normal distribution of several variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl

from .. import _checks
from ..linalg import cholesky, log_determinant


class ComplexNormal(Distribution):
    r"""Proper complex normal :math:`CN(\mu, \Sigma)`: :math:`E (z - \mu)(z - \mu)^H = \Sigma`, no pseudo-covariance.

    .. math:: p(z) = \pi^{-n} |\Sigma|^{-1} \exp(-(z - \mu)^H \Sigma^{-1} (z - \mu))

    :param loc: the mean, (..., N), complex.
    :param covariance_matrix: (..., N, N), Hermitian positive definite; or None where a root is given.
    :param covariance_root: a root R of :math:`\Sigma = R R^H + \mathrm{diag}(v)`, (..., N, D).
    :param diagonal: v, (..., N) or (..., 1), real and positive; default: zero.
    :raises ValueError: where both or neither of covariance and root are given, or the mean is real.

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
        covariance_root: Tensor | None = None,
        diagonal: Tensor | None = None,
    ) -> None:
        if not _checks.tensor(loc, "loc").is_complex() or loc.dim() == 0:
            raise ValueError(
                f"expected a complex mean (..., N), got {loc.dtype} {tuple(loc.shape)}; use a real normal distribution"
            )
        if (covariance_matrix is None) == (covariance_root is None):
            raise ValueError("expected one of covariance_matrix and covariance_root, got both or neither; pass one")
        size = loc.shape[-1]
        if covariance_matrix is not None:
            _check_numbers("covariance_matrix", covariance_matrix, (size, size), 2)
        if covariance_root is not None:
            _check_numbers("covariance_root", covariance_root, (size,), 2)
        if diagonal is not None:
            _check_variances(diagonal, size)
        self.loc = loc
        self._dense = loc.new_zeros(0) if covariance_matrix is None else covariance_matrix.to(loc.dtype)
        self.covariance_root = None if covariance_root is None else covariance_root.to(loc.dtype)
        self.diagonal = diagonal
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

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
    def covariance_matrix(self) -> Tensor:
        """The covariance, (..., N, N), Hermitian."""
        root = self.covariance_root
        covariance = self._dense if root is None else root @ root.mH
        if self.diagonal is None:
            return covariance
        return covariance + torch.diag_embed(self.diagonal.expand(*self.diagonal.shape[:-1], self.loc.shape[-1]))

    def plus_noise(self, noise: Tensor) -> ComplexNormal:
        """The distribution with independent circular noise added.

        :param noise: its variances, (..., N) or (..., 1).
        """
        _checks.floating(noise, "noise")
        total = noise if self.diagonal is None else self.diagonal + noise
        dense = self._dense if self.covariance_root is None else None
        return ComplexNormal(self.loc, dense, covariance_root=self.covariance_root, diagonal=total)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density at ``value`` (..., N), of shape (...)."""
        _check_numbers("value", value, (self.loc.shape[-1],), 1)
        factor = cholesky(self.covariance_matrix)
        white = torch.linalg.solve_triangular(factor, (value - self.loc).unsqueeze(-1), upper=False).squeeze(-1)
        quadratic = (white.real**2 + white.imag**2).sum(-1)
        return -(quadratic + log_determinant(factor) + self.loc.shape[-1] * math.log(math.pi))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Reparametrized draws, ``(*sample_shape, ..., N)``."""
        root = cholesky(self._dense) if self.covariance_root is None else self.covariance_root
        shape = (*_checks.shape(sample_shape, "sample_shape"), *self.loc.shape[:-1], root.shape[-1], 1)
        draws = self.loc + (root @ torch.randn(shape, dtype=root.dtype, device=root.device)).squeeze(-1)
        if self.diagonal is None:
            return draws
        return draws + self.diagonal.sqrt() * torch.randn_like(draws)


def _check_variances(diagonal: Any, size: int) -> None:
    """Raise where variances are not a real tensor of shape (..., size) or (..., 1), or some are negative."""
    if _checks.floating(diagonal, "diagonal").dim() == 0 or diagonal.shape[-1] not in (1, size):
        raise ValueError(f"expected diagonal of shape (..., {size}), got {tuple(diagonal.shape)}; pass variances")
    if bool((diagonal < 0).any()):
        raise ValueError(f"expected variances of at least 0, got {float(diagonal.min()):g}; square standard deviations")


def _check_numbers(name: str, value: Any, sizes: tuple[int, ...], dims: int) -> None:
    """Raise where ``value`` is not a tensor of numbers of at least ``dims`` dimensions, whose last begin with sizes."""
    if not _checks.tensor(value, name).is_complex():
        _checks.floating(value, name)
    if value.dim() < dims or value.shape[-dims:][: len(sizes)] != sizes:
        wanted = ", ".join(["...", *map(str, sizes), *["D"] * (dims - len(sizes))])
        raise ValueError(f"expected {name} of shape ({wanted}), got {tuple(value.shape)}; reshape it")


@register_kl(ComplexNormal, ComplexNormal)
def _kl_complex_normal(p: ComplexNormal, q: ComplexNormal) -> Tensor:
    factor_p, factor_q = cholesky(p.covariance_matrix), cholesky(q.covariance_matrix)
    both = torch.cat([factor_p, (q.loc - p.loc).unsqueeze(-1)], dim=-1)
    white = torch.linalg.solve_triangular(factor_q, both, upper=False)
    trace_and_quadratic = (white.real**2 + white.imag**2).sum((-2, -1))
    return log_determinant(factor_q) - log_determinant(factor_p) - p.loc.shape[-1] + trace_and_quadratic

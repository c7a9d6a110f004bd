"""The Gaussian posterior of the weights of a feature model, real or complex, from its sufficient statistics."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import torch
from torch import Tensor

from ...linalg import cholesky_, is_ill_conditioned
from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ...linalg.complex_numbers import squared_modulus
from .factor import OutputFactor

_COLUMNS = 128


class PointVariance:
    r"""Variances of functions at points, from their scalar features.

    .. math:: v_t(x) = |\psi(x) R_t|^2 \qquad \text{or} \qquad v_t(x) = \sum_k (\psi(x) R)_k^2 M_{kt}

    Roots are kept in blocks of columns, without the zero rows of a block.

    :param roots: a root (n, K) for each function; or one root, with ``mixing``.
    :param mixing: M, (K, T); default: the squares of a root are summed.
    """

    def __init__(self, roots: Sequence[Tensor], mixing: Tensor | None = None) -> None:
        self._blocks = [_blocks(root) for root in roots]
        self._mixing = mixing

    def to(self, dtype: torch.dtype) -> Self:
        """The same in another real precision."""
        result = object.__new__(type(self))
        result._blocks = [[(start, cast(block, dtype)) for start, block in blocks] for blocks in self._blocks]
        result._mixing = None if self._mixing is None else self._mixing.to(dtype)
        return result

    def matrices(self, width: int) -> list[Tensor]:
        """The matrices (n, n), for ``width`` scalar features, whose quadratic forms the variances are."""
        result = []
        count = len(self._blocks) if self._mixing is None else self._mixing.shape[-1]
        for output in range(count):
            blocks, column = self._blocks[0 if self._mixing is not None else output], 0
            total = blocks[0][1].new_zeros(width, width)
            for start, block in blocks:
                rows, end = slice(start, start + len(block)), column + block.shape[-1]
                right = block if self._mixing is None else block * self._mixing[column:end, output]
                total[rows, rows] += right @ block.mT
                column = end
            result.append(total)
        return result

    def __call__(self, features: Tensor) -> Tensor:
        """The variances (N, T) at points with scalar features (N, n) of the dtype of the roots."""
        if self._mixing is None:
            return torch.stack([_sum_of_squares(features, blocks) for blocks in self._blocks], dim=-1)
        products = [features[:, start : start + len(block)] @ block for start, block in self._blocks[0]]
        return torch.cat(products, dim=-1).square_() @ self._mixing


def _blocks(root: Tensor) -> list[tuple[int, Tensor]]:
    """Blocks of columns, each with the first of its rows that are not zero, from there to the last."""
    blocks = []
    for block in root.split(_COLUMNS, dim=-1):
        used = block.any(dim=-1).nonzero().squeeze(-1)
        if len(used):
            first, last = int(used[0]), int(used[-1])
            blocks.append((first, block[first : last + 1].contiguous()))
    return blocks


def _sum_of_squares(features: Tensor, blocks: Sequence[tuple[int, Tensor]]) -> Tensor:
    """The squared norms (N,) of the rows of features times a root."""
    total = features.new_zeros(features.shape[0], dtype=features.dtype.to_real())
    for start, block in blocks:
        total += torch.linalg.vector_norm(features[:, start : start + len(block)] @ block, dim=-1).square_()
    return total


def cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Real or complex values in a real precision, or the complex one that goes with it."""
    return values.to(dtype.to_complex() if values.is_complex() else dtype)


class GaussianPosterior(abc.ABC):
    """A Gaussian distribution :math:`N(m, B^{-1})` of the weights of features: the contract of every posterior.

    A subclass has a ``mean``, (..., D, K), and defines :meth:`solve`, :meth:`function_root` and :meth:`deviations`.
    Methods about functions take scalar features of inputs, (..., N, n), and an :class:`OutputFactor`, in float64.

    >>> posterior = WeightPosterior(torch.eye(2), torch.ones(2, 1))
    >>> posterior.function_variance(torch.eye(2), OutputFactor.kronecker(torch.eye(1), 2))
    tensor([0.5000, 0.5000])
    """

    mean: Tensor

    @abc.abstractmethod
    def solve(self, rhs: Tensor) -> Tensor:
        """B^-1 times columns (..., D, K)."""

    @abc.abstractmethod
    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        """A root (..., N T, K) of the covariance of T outputs at N inputs, rows interleaved."""

    @abc.abstractmethod
    def deviations(self, num_samples: int) -> Tensor:
        """Draws of the weights minus their mean, (..., D, S); circular complex ones for complex features."""

    @property
    def batch_shape(self) -> torch.Size:
        """The batch dimensions of the covariance."""
        return self.mean.shape[:-2]

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether rounding may cost the mean more than half of its digits."""
        return False

    @property
    def log_determinant(self) -> Tensor:
        """log|B|, (...)."""
        identity = torch.eye(self.mean.shape[-2], dtype=torch.float64, device=self.mean.device)
        return -torch.linalg.slogdet(self.solve(identity.expand(*self.batch_shape, *identity.shape))).logabsdet

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        """The variances (..., N T) of T outputs at N inputs."""
        return squared_modulus(self.function_root(scalar, outputs)).sum(-1)

    def variance_width(self, outputs: OutputFactor) -> int:
        """How many numbers :meth:`function_variance` holds for one input."""
        return outputs.num_columns * outputs.num_outputs

    def block_covariances(self, scalar: Tensor, outputs: OutputFactor, size: int = 1) -> Tensor:
        """The covariances (..., N / m, m T, m T) of T outputs at every m (``size``) consecutive inputs."""
        if size * outputs.num_outputs == 1:
            return self.function_variance(scalar, outputs)[..., None, None]
        root = self.function_root(scalar, outputs).unflatten(-2, (-1, size * outputs.num_outputs))
        return root @ root.mH

    def output_directions(self, outputs: OutputFactor) -> tuple[Tensor, Tensor] | None:
        r"""M, (T, R), and :math:`\gamma`, (R,), if covariances at one input are :math:`M \mathrm{diag}(w) M^\top`."""
        return None

    def direction_covariances(self, scalar: Tensor, size: int) -> Tensor:
        """The covariances (g, R, m, m) along M at every m inputs, where there are :meth:`output_directions`."""
        raise ValueError("expected a separable posterior, got another; use block_covariances")

    def num_point_roots(self, outputs: OutputFactor) -> int:
        """How many n x n roots :meth:`point_variance` holds."""
        return outputs.num_outputs * self.batch_shape.numel()

    @torch.no_grad()
    def point_variance(self, outputs: OutputFactor) -> PointVariance:
        """The variances of :meth:`function_variance` with roots made once, for many points; without gradients."""
        identity = torch.eye(outputs.num_scalar, dtype=torch.float64, device=self.mean.device)
        root = self.function_root(identity, outputs).unflatten(-2, (outputs.num_scalar, -1)).movedim(-2, -3)
        roots = root.flatten(0, -3).unbind(0)
        if root.shape[-1] > outputs.num_scalar:
            roots = tuple(torch.linalg.qr(wide.mH, mode="r").R.mH for wide in roots)
        return PointVariance(roots)


class WeightPosterior(GaussianPosterior):
    r"""Posterior :math:`N(m, B^{-1})` of weights w with prior N(0, I), observed through features with Gaussian noise.

    .. math:: B = I + \Phi^H S^{-1} \Phi = L L^H, \qquad m = B^{-1} \Phi^H S^{-1} y

    The function :math:`f(x) = \phi(x) w` has mean :math:`\Phi_* m` and covariance :math:`\Phi_* B^{-1} \Phi_*^H`.
    Complex features give a proper complex posterior.

    :param grams: pairs of coefficients and (..., D, D) matrices whose sum is :math:`\Phi^H S^{-1} \Phi`, in float64 or
        complex128; or that sum itself.
    :param cross: :math:`\Phi^H S^{-1} y`, (..., D, K).
    :raises ValueError: where B is not positive definite to working precision.

    Source: T Eq. B.18 to B.20.

    >>> posterior = WeightPosterior(torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    >>> posterior.mean.T
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, grams: Tensor | Sequence[tuple[Tensor | float, Tensor]], cross: Tensor) -> None:
        self.factor = factor_of(precision_matrix([(1.0, grams)] if isinstance(grams, Tensor) else grams))
        dtype = torch.promote_types(self.factor.dtype, cross.dtype)
        self.mean = torch.cholesky_solve(cross.to(dtype), self.factor.to(dtype))

    @classmethod
    def stacked(cls, systems: Iterable[tuple[list[tuple[Tensor | float, Tensor]], Tensor]], count: int) -> Self:
        """A batch of ``count`` posteriors, from systems that are made one at a time, to save memory."""
        result = object.__new__(cls)
        if torch.is_grad_enabled():
            parts = [cls(*system) for system in systems]
            result.factor = torch.stack([part.factor for part in parts])
            result.mean = torch.stack([part.mean for part in parts])
            return result
        means = []
        for index, (grams, cross) in enumerate(systems):
            if index == 0:
                work = torch.empty_like(grams[0][1])
                result.factor = work.new_empty(count, *work.shape).mT
            for term, (coefficient, matrix) in enumerate(grams):
                if term == 0:
                    torch.mul(matrix, coefficient, out=work)
                else:
                    work.add_(matrix, alpha=float(coefficient))
            work.diagonal().add_(1.0)
            means.append(torch.cholesky_solve(cross, cholesky_(work, result.factor[index])))
        result.mean = torch.stack(means)
        return result

    @property
    def batch_shape(self) -> torch.Size:
        return self.factor.shape[:-2]

    def of_batch(self, index: int) -> Self:
        """One of a batch of posteriors."""
        result = object.__new__(type(self))
        result.factor, result.mean = self.factor[index], self.mean[index]
        return result

    @property
    def log_determinant(self) -> Tensor:
        return log_determinant_of(self.factor)

    def solve(self, rhs: Tensor) -> Tensor:
        dtype = torch.promote_types(self.factor.dtype, rhs.dtype)
        return torch.cholesky_solve(rhs.to(dtype), self.factor.to(dtype))

    @property
    def is_ill_conditioned(self) -> bool:
        return is_ill_conditioned(torch.linalg.vector_norm(self.factor, dim=-1).square())

    def covariance_root(self, features: Tensor) -> Tensor:
        r"""The root :math:`\Phi_* L^{-H}`, (..., N, D), of the covariance of the function at features (..., N, D)."""
        return _root(self.factor, features)

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        scale = _scale_of(outputs)
        if scale is None:
            return self.covariance_root(outputs.features(scalar.double()))
        return scale * self._root_of_one(scalar)

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        scale = _scale_of(outputs)
        if scale is None:
            return super().function_variance(scalar, outputs)
        return scale.squeeze(-1).square() * squared_modulus(self._root_of_one(scalar)).sum(-1)

    def _root_of_one(self, scalar: Tensor) -> Tensor:
        """A root (..., N, n) for one output without a scale; a batch of posteriors makes no copies of the features."""
        if self.factor.dim() == 2 or scalar.dim() > 2:
            return self.covariance_root(scalar)
        roots = [_root(factor, scalar) for factor in self.factor.flatten(0, -3)]
        return torch.stack(roots).unflatten(0, self.factor.shape[:-2])

    def deviations(self, num_samples: int) -> Tensor:
        shape = (*self.factor.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.factor.dtype, device=self.factor.device)
        return torch.linalg.solve_triangular(self.factor.mH, noise, upper=True)


class RootPosterior(GaussianPosterior):
    """Weights N(m, L L^T) by a root, with m (..., D) and L (..., D, D), or its diagonal (..., D); real or complex.

    That of learned distributions, and of the prior.
    """

    def __init__(self, mean: Tensor, root: Tensor) -> None:
        self.mean, self.root, self.is_diagonal = mean.unsqueeze(-1), root, root.dim() == mean.dim()

    @classmethod
    def prior(cls, shape: torch.Size | tuple[int, ...], is_complex: bool, device: torch.device) -> Self:
        """N(0, I) for weights of a shape (..., D)."""
        zeros = torch.zeros(shape, dtype=torch.complex128 if is_complex else torch.float64, device=device)
        return cls(zeros, torch.ones_like(zeros))

    def double(self) -> Self:
        """The same in float64, as covariances take it."""
        return type(self)(self.mean.squeeze(-1).double(), self.root.double())

    def solve(self, rhs: Tensor) -> Tensor:
        return self._times(self.root.conj().unsqueeze(-1) * rhs if self.is_diagonal else self.root.mH @ rhs)

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        features = outputs.features(scalar.to(torch.promote_types(scalar.dtype, self.root.dtype)))
        return features * self.root.unsqueeze(-2) if self.is_diagonal else features @ self.root

    def deviations(self, num_samples: int) -> Tensor:
        shape = (*self.mean.shape[:-1], num_samples)
        return self._times(torch.randn(shape, dtype=self.mean.dtype, device=self.mean.device))

    def _times(self, columns: Tensor) -> Tensor:
        return self.root.unsqueeze(-1) * columns if self.is_diagonal else self.root @ columns


def _scale_of(outputs: OutputFactor) -> Tensor | None:
    """The scale (..., 1, 1) of one output; None for several."""
    root = outputs.covariance_root
    return root if root is not None and root.shape[-2:] == (1, 1) else None


def _root(factor: Tensor, features: Tensor) -> Tensor:
    if factor.dim() == 2 and features.dim() > 2:  # one solve for all batches, where a batch would copy the factor
        return _root(factor, features.flatten(0, -2)).unflatten(0, features.shape[:-1])
    return torch.linalg.solve_triangular(factor, features.to(factor.dtype).mH, upper=False).mH


def precision_matrix(grams: Sequence[tuple[Tensor | float, Tensor]]) -> Tensor:
    r"""The matrix :math:`B = I + \sum_k c_k G_k`, (..., D, D), of pairs of coefficients and (..., D, D) matrices."""
    precision = functools.reduce(torch.add, [coefficient * matrix for coefficient, matrix in grams])
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return precision


@torch.no_grad()
def refined_mean(posterior: GaussianPosterior, gradient: Callable[[Tensor], Tensor]) -> Tensor:
    r"""The mean m after one step of iterative refinement where B is ill-conditioned.

    :param gradient: takes m and returns :math:`\Phi^H S^{-1} (y - \Phi m) - m`, from the rows and not from their sums.
    """
    mean = posterior.mean.detach()
    return mean + posterior.solve(gradient(mean)) if posterior.is_ill_conditioned else mean

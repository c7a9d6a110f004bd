"""The Gaussian posterior of the weights of a feature model, real or complex, from its sufficient statistics."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ..linalg import cholesky, cholesky_, is_ill_conditioned, log_determinant
from .factor import OutputFactor
from .point_variance import PointVariance


class GaussianPosterior(abc.ABC):
    """A Gaussian posterior of weights, as predictions take it, whatever form its covariance has.

    Its ``mean`` has shape (..., D, K).

    >>> isinstance(WeightPosterior(torch.eye(2), torch.ones(2, 1)), GaussianPosterior)
    True
    """

    mean: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """The batch dimensions of the posterior."""
        return torch.Size()

    @property
    @abc.abstractmethod
    def log_determinant(self) -> Tensor:
        """log|B|, shape (...)."""

    @property
    @abc.abstractmethod
    def is_ill_conditioned(self) -> bool:
        """Whether rounding may cost the mean more than half of its digits."""

    @abc.abstractmethod
    def solve(self, rhs: Tensor) -> Tensor:
        """B^-1 times columns (..., D, K)."""

    @abc.abstractmethod
    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        """A root (..., N T, K) of the covariance of T outputs at N inputs, rows interleaved.

        :param scalar: the scalar features of the inputs, (..., N, n).
        :param outputs: how these become the features of the outputs, in float64.
        """

    @abc.abstractmethod
    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        """The variances (..., N T) of T outputs at N inputs; the arguments are those of :meth:`function_root`."""

    @abc.abstractmethod
    def point_variance(self, outputs: OutputFactor) -> PointVariance:
        """The variances of :meth:`function_variance` with roots made once, for many points; without gradients.

        :param outputs: how scalar features become those of the outputs, in float64.
        """

    @abc.abstractmethod
    def deviations(self, num_samples: int) -> Tensor:
        """Draws of the weights minus their mean, (..., D, num_samples).

        :param num_samples: the number of draws.
        """


class WeightPosterior(GaussianPosterior):
    r"""Posterior :math:`N(m, B^{-1})` of weights w with prior N(0, I), observed through features with Gaussian noise.

    .. math:: B = I + \Phi^H S^{-1} \Phi = L L^H, \qquad m = B^{-1} \Phi^H S^{-1} y

    The function :math:`f(x) = \phi(x) w` then has mean :math:`\Phi_* m` and covariance
    :math:`\Phi_* B^{-1} \Phi_*^H = (\Phi_* L^{-H}) (\Phi_* L^{-H})^H`. Complex features give a proper complex
    posterior.

    :param grams: pairs of coefficients and (..., D, D) matrices whose sum is :math:`\Phi^H S^{-1} \Phi`, in float64 or
        complex128; or that sum itself.
    :param cross: :math:`\Phi^H S^{-1} y`, (..., D, K).
    :raises ValueError: where B is not positive definite to working precision.

    Source: T Eq. B.18 to B.20.

    >>> posterior = WeightPosterior(torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    >>> posterior.mean
    tensor([[0.5000],
            [0.5000]], dtype=torch.float64)
    """

    def __init__(self, grams: Tensor | Sequence[tuple[Tensor | float, Tensor]], cross: Tensor) -> None:
        self.factor = cholesky(precision_matrix([(1.0, grams)] if isinstance(grams, Tensor) else grams))
        dtype = torch.promote_types(self.factor.dtype, cross.dtype)
        self.mean = torch.cholesky_solve(cross.to(dtype), self.factor.to(dtype))

    @classmethod
    def stacked(cls, systems: Iterable[tuple[list[tuple[Tensor | float, Tensor]], Tensor]], count: int) -> Self:
        """A batch of posteriors, from systems that are made one at a time.

        Without gradients one matrix of working memory serves all of them beside the factors.

        :param systems: the arguments of each posterior.
        :param count: how many there are.
        """
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
        """The batch dimensions of the posterior."""
        return self.factor.shape[:-2]

    @property
    def log_determinant(self) -> Tensor:
        """log|B|, shape (...)."""
        return log_determinant(self.factor)

    def solve(self, rhs: Tensor) -> Tensor:
        """B^-1 times columns (..., D, K)."""
        return torch.cholesky_solve(rhs, self.factor.to(rhs.dtype))

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether rounding may cost the mean more than half of its digits."""
        return is_ill_conditioned(torch.linalg.vector_norm(self.factor, dim=-1).square())

    def covariance_root(self, features: Tensor) -> Tensor:
        r"""The root :math:`\Phi_* L^{-H}` of the posterior covariance of the function, (..., N, D).

        :param features: (..., N, D).
        """
        return _root(self.factor, features)

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        """A root (..., N T, K) of the covariance of T outputs at N inputs, rows interleaved.

        :param scalar: the scalar features of the inputs, (..., N, n).
        :param outputs: how these become the features of the outputs, in float64.
        """
        scale = _scale_of(outputs)
        if scale is None:
            return self.covariance_root(outputs.features(scalar.double()))
        return scale * self._root_of_one(scalar)

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        """The variances (..., N T) of T outputs at N inputs; the arguments are those of :meth:`function_root`."""
        scale = _scale_of(outputs)
        root = self.function_root(scalar, outputs) if scale is None else self._root_of_one(scalar)
        variance = (root.abs() if root.is_complex() else root).square().sum(-1)
        return variance if scale is None else scale.squeeze(-1).square() * variance

    @torch.no_grad()
    def point_variance(self, outputs: OutputFactor) -> PointVariance:
        """The variances of :meth:`function_variance` with a root made once, for many points; without gradients.

        :param outputs: how scalar features become those of the outputs, in float64; a batch of posteriors has one
            output.
        """
        identity = torch.eye(self.factor.shape[-1], dtype=self.factor.dtype, device=self.factor.device)
        scale = _scale_of(outputs)
        if scale is not None:
            factors, scales = (
                self.factor.flatten(0, -3) if self.factor.dim() > 2 else self.factor[None],
                scale.flatten(),
            )
            roots = [torch.linalg.solve_triangular(factor.mH, identity, upper=True) for factor in factors]
            return PointVariance([s * root for s, root in zip(scales.expand(len(roots)), roots, strict=True)])
        weights = outputs.scalar_weights(torch.linalg.solve_triangular(self.factor.mH, identity, upper=True))
        return PointVariance([torch.linalg.qr(root.mH, mode="r").R.mH for root in weights.unbind(-2)])

    def _root_of_one(self, scalar: Tensor) -> Tensor:
        """A root (..., N, n) for one output without a scale; a batch of posteriors makes no copies of the features."""
        if self.factor.dim() == 2 or scalar.dim() > 2:
            return self.covariance_root(scalar)
        roots = [_root(factor, scalar) for factor in self.factor.flatten(0, -3)]
        return torch.stack(roots).unflatten(0, self.factor.shape[:-2])

    def deviations(self, num_samples: int) -> Tensor:
        """Draws of the weights minus their mean, (..., D, num_samples); circular complex ones for complex features.

        :param num_samples: the number of draws.
        """
        shape = (*self.factor.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.factor.dtype, device=self.factor.device)
        return torch.linalg.solve_triangular(self.factor.mH, noise, upper=True)


def _scale_of(outputs: OutputFactor) -> Tensor | None:
    """The scale (..., 1, 1) of one output; None for several."""
    root = outputs.covariance_root
    return root if root is not None and root.shape[-2:] == (1, 1) else None


def _root(factor: Tensor, features: Tensor) -> Tensor:
    if factor.dim() == 2 and features.dim() > 2:  # one solve for all batches, where a batch would copy the factor
        return _root(factor, features.flatten(0, -2)).unflatten(0, features.shape[:-1])
    return torch.linalg.solve_triangular(factor, features.to(factor.dtype).mH, upper=False).mH


def precision_matrix(grams: Sequence[tuple[Tensor | float, Tensor]]) -> Tensor:
    r"""The matrix :math:`B = I + \sum_k c_k G_k`, (..., D, D).

    :param grams: pairs of coefficients and (..., D, D) matrices.
    """
    precision = functools.reduce(torch.add, [coefficient * matrix for coefficient, matrix in grams])
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return precision


@torch.no_grad()
def refined_mean(posterior: Any, gradient: Callable[[Tensor], Tensor]) -> Tensor:
    r"""The mean m after one step of iterative refinement where B is ill-conditioned.

    :param posterior: a :class:`WeightPosterior`, or a KroneckerPosterior.
    :param gradient: takes m and returns :math:`\Phi^H S^{-1} (y - \Phi m) - m`, from the rows and not from their sums.
    """
    mean: Tensor = posterior.mean.detach()
    return mean + posterior.solve(gradient(mean)) if posterior.is_ill_conditioned else mean

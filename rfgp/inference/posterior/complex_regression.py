"""Regression of complex targets by way of their real and imaginary parts, where these are not circular."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gpytorch.means import Mean, MultitaskMean, ZeroMean
from torch import Tensor

from ...functionals import Operator
from ...likelihoods import ComplexNormal, MultivariateNormal
from ..noise import NoiseModel
from .covariance import ResidualCovariance
from .factor import OutputFactor
from .posterior import GaussianPosterior
from .regression import Regression

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class PlaneFeatures:
    r"""A kernel with features as one of two real outputs, the real and the imaginary part of a complex function.

    A kernel of two outputs stays as it is. A scalar kernel has the proper prior :math:`f(x) = \phi(x) w` with circular
    complex weights :math:`w = u + i v`; complex features become the real ones :math:`[\mathrm{Re}\, \phi, \mathrm{Im}\,
    \phi]`.
    """

    is_complex = False
    has_output_factor = True

    def __init__(self, kernel: FeatureKernel) -> None:
        self.kernel = kernel

    def __getattr__(self, name: str) -> Any:
        if name == "kernel":
            raise AttributeError(name)
        return getattr(self.kernel, name)

    @property
    def num_scalar_features(self) -> int:
        """The number of real columns."""
        return int(self.kernel.num_scalar_features) * (2 if self.kernel.is_complex else 1)

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features, or the real and imaginary parts of complex ones side by side, (..., N, n)."""
        features: Tensor = self.kernel.scalar_features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that the features depend on."""
        parameters: Iterator[torch.nn.Parameter] = self.kernel.feature_parameters()
        return parameters

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that sums over rows depend on."""
        parameters: Iterator[torch.nn.Parameter] = self.kernel.summed_parameters()
        return parameters

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        """The factor of two outputs."""
        factor: Tensor | OutputFactor = self.kernel.output_factor(operator)
        if isinstance(factor, OutputFactor):
            return factor
        root = 0.5**0.5 * factor.double()
        if not self.kernel.is_complex:
            identity = torch.eye(2, dtype=root.dtype, device=root.device)
            return OutputFactor.kronecker(root * identity, self.num_scalar_features)
        turn = torch.tensor([[1.0], [-1.0j]], dtype=torch.complex128, device=root.device)
        return OutputFactor.spectral((root * turn).expand(self.kernel.num_scalar_features, 2, 1))

    def residual_covariance(self, x: Tensor) -> ResidualCovariance | None:
        """The residual covariance of both outputs."""
        residual: ResidualCovariance | None = self.kernel.residual_covariance(x)
        if residual is None or self.kernel.has_output_factor:
            return residual
        return residual.times(0.5 * torch.eye(2, dtype=x.dtype, device=x.device))


class ComplexRegression(Regression):
    r"""A regression of complex targets :math:`y = f + \epsilon` with a pseudo-covariance, by their two real parts.

    Its posterior mean is widely linear, :math:`A y + B \bar y`.
    """

    has_point_predictor: ClassVar[bool] = False

    def __init__(self, kernel: FeatureKernel, mean: Mean, noise: NoiseModel, has_grid: bool = False) -> None:
        both = mean if isinstance(mean, MultitaskMean) else MultitaskMean([mean, ZeroMean()], num_tasks=2)
        super().__init__(PlaneFeatures(kernel), both, noise, has_grid=has_grid)

    def distribution(
        self, x: Tensor, posterior: GaussianPosterior, operator: Operator | None = None
    ) -> MultivariateNormal | ComplexNormal:
        """The complex distribution of the function at x (..., N, d), or the real one of an operator at x (N, d)."""
        if operator is not None:
            return super().distribution(x, posterior, operator)
        factor = self.factor()
        mean = torch.view_as_complex(self._values(x, factor, posterior.mean, None).squeeze(-1).contiguous())
        parts = posterior.function_root(self.kernel.scalar_features(x), factor).unflatten(-2, (-1, 2))
        root = torch.complex(parts[..., 0, :], parts[..., 1, :])
        residual = self.kernel.residual_covariance(x)
        if residual is None:
            return ComplexNormal(mean, covariance_root=root, has_real_weights=True)
        blocks = residual.dense()
        real, imaginary = blocks.diagonal(dim1=-2, dim2=-1).unbind(-1)
        pseudo = torch.complex(real - imaginary, 2.0 * blocks[..., 0, 1])
        return ComplexNormal(
            mean, covariance_root=root, has_real_weights=True, diagonal=real + imaginary, pseudo_diagonal=pseudo
        )

    def leverages(self, x: Tensor, posterior: GaussianPosterior) -> Tensor:
        """The posterior variances of the complex function at inputs (N, d), without the residual variance, (N,)."""
        return super().leverages(x, posterior).unflatten(-1, (-1, 2)).sum(-1)

    def functions(self, weights: Tensor, x: Tensor) -> Tensor:
        """The complex functions of real weights (..., K, S) at x (..., N, d), (S, ..., N)."""
        return torch.view_as_complex(super().functions(weights, x).contiguous())

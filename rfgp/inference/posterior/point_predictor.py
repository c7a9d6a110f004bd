"""Means and variances of a regression at single points, from features that are made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._support import checks
from ...linalg import joined, row_chunks
from ..sums.mean_basis import mean_values
from .draws import detached
from .factor import OutputFactor
from .posterior import GaussianPosterior, PointVariance, cast
from .regression import Regression

_LARGEST_ROOTS = 2**31
"""More bytes than that are not kept beside the posterior of very many outputs or classes."""


class PointMoments(NamedTuple):
    """Means and variances of T functions at N points, (N, T); the variance is None where it was not asked for.

    >>> PointMoments(torch.zeros(3), torch.ones(3)).variance
    tensor([1., 1., 1.])
    """

    mean: Tensor
    variance: Tensor | None


class PointPredictor:
    r"""Functions of weights with a known posterior, as means and variances at single points.

    .. math:: E f_t(x) = \psi(x) W_t + m_t(x), \qquad \mathrm{Var} f_t(x) = |\psi(x) R_t|^2 + r_t(x)

    It computes the roots :math:`R_t` of the posterior once. It has no training data and no gradients, can be pickled,
    and does not change with the model.

    :param regression: a regression without blocks or complex parts.
    :param dtype: of features, products and results; default: that of the kernel.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> model.point_predictor()(x).variance.shape
    torch.Size([100, 1])
    """

    @torch.no_grad()
    def __init__(
        self,
        regression: Regression,
        posterior: GaussianPosterior,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.dtype = dtype
        self._kernel, self._mean = detached(regression.kernel).to(dtype), detached(regression.mean).to(dtype)
        self._factor = regression.factor()
        self._weights = cast(weights_by_output(self._factor, posterior), dtype)
        self._variance: PointVariance = posterior.point_variance(self._factor).to(dtype)
        self._is_batched, self._is_complex = regression.noise.is_batched, regression.noise.is_complex

    @property
    def num_outputs(self) -> int:
        """The number of outputs, or of classes."""
        return self._weights.shape[-1]

    @torch.no_grad()
    def __call__(self, x: Tensor, variance: bool = True) -> PointMoments:
        """Means and, if ``variance``, variances at points x (N, d), which are converted to the dtype of the predictor.

        :raises ValueError: for bad inputs.
        """
        points = checks.finite(checks.inputs(x)).to(self.dtype)
        width, count = self._kernel.num_scalar_features, points.shape[0]  # len would be a number in torch.export
        chunks = row_chunks(count, max(width, self.num_outputs), self._weights.element_size())
        parts = [self._chunk(points[rows], variance) for rows in chunks]
        means, variances = zip(*parts, strict=True)
        return PointMoments(joined(means, count), joined(variances, count) if variance else None)

    def _chunk(self, x: Tensor, has_variance: bool) -> tuple[Tensor, Any]:
        features = self._kernel.scalar_features(x)
        values = checks.no_overflow(features.to(self._weights.dtype) @ self._weights, x)
        values = values if self._is_complex or not values.is_complex() else values.real
        mean = self._plus_mean(values, x)
        if not has_variance:
            return mean, None
        variance, residual = self._variance(features), self._residual(x)
        return mean, variance if residual is None else variance + residual

    def _plus_mean(self, values: Tensor, x: Tensor) -> Tensor:
        """Values (N, T) plus the mean functions at x (N, d)."""
        mean = mean_values(self._mean, x)
        return values + (mean.squeeze(-1).mT if mean.dim() > 2 else mean)

    def _residual(self, x: Tensor) -> Tensor | None:
        """The residual variance, (N, 1), or (N, T)."""
        residual: Tensor | None = self._kernel.residual_variance(x)
        if residual is None:
            return None
        return residual.mT if residual.dim() > 1 else residual.reshape(x.shape[0], -1)

    @torch.no_grad()
    def prior_variance(self, x: Tensor) -> Tensor:
        """The variances (N, T) of the prior at points (N, d), a few hundred at most."""
        points = checks.finite(checks.inputs(x)).to(self.dtype)
        variance, residual = self._factor.prior_variances(self._kernel.scalar_features(points)), self._residual(points)
        variance = variance.squeeze(-1).mT if variance.dim() > 2 else variance
        variance = variance.to(self.dtype).expand(-1, self.num_outputs)
        return variance if residual is None else variance + residual


def weights_by_output(factor: OutputFactor, posterior: GaussianPosterior) -> Tensor:
    """The means of the weights of the scalar features, for every output or class, (n, T)."""
    weights = factor.scalar_weights(posterior.mean).squeeze(-1)
    return weights.flatten(0, -3).movedim(0, -2).flatten(-2) if weights.dim() > 2 else weights


def has_point_predictor(regression: Regression, posterior: GaussianPosterior) -> bool:
    """Whether a :class:`PointPredictor` serves a regression, and its roots are not too large to be kept."""
    if not regression.has_point_predictor:
        return False
    factor = regression.factor()
    return 8 * posterior.num_point_roots(factor) * factor.num_scalar**2 <= _LARGEST_ROOTS


class PointMixture:
    r"""The mixture of several predictors of the same functions, each of weight 1/J, as means and variances.

    .. math:: m = \frac1J \sum_j m_j, \qquad v = \frac1J \sum_j v_j + \frac1J \sum_j |m_j - m|^2

    :param parts: predictors of one dtype.

    Source: errata, identity 9.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood(), num_draws=2)
    >>> fitted = model.condition(torch.randn(30, 2), torch.randn(30))
    >>> rfgp.predict_map(fitted, torch.randn(5, 2)).mean.shape
    torch.Size([5])
    """

    def __init__(self, parts: Sequence[PointPredictor]) -> None:
        self.parts = list(parts)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parts."""
        return self.parts[0].dtype

    @property
    def num_outputs(self) -> int:
        """The number of outputs, or of classes."""
        return self.parts[0].num_outputs

    @torch.no_grad()
    def __call__(self, x: Tensor, variance: bool = True) -> PointMoments:
        """Means and variances at points; the arguments are those of :meth:`PointPredictor.__call__`."""
        moments = [part(x, variance) for part in self.parts]
        means = torch.stack([part.mean for part in moments])
        mean = means.mean(0)
        if not variance:
            return PointMoments(mean, None)
        inner = torch.stack([part.variance for part in moments if part.variance is not None]).mean(0)
        return PointMoments(mean, inner + (means - mean).abs().square().mean(0))

    def prior_variance(self, x: Tensor) -> Tensor:
        """The mean (N, T) of the variances of the priors at points (N, d)."""
        return torch.stack([part.prior_variance(x) for part in self.parts]).mean(0)

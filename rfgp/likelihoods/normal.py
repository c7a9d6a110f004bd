"""GPyTorch's multivariate normal distributions with their true variances."""

from __future__ import annotations

from typing import Any, TypeVar

import gpytorch
from torch import Tensor

from .._support.gpytorch_names import TRUE_VARIANCES, is_interleaved
from .._support.torch_names import has_values

_Any = TypeVar("_Any")


class MultivariateNormal(gpytorch.distributions.MultivariateNormal):
    """GPyTorch's MultivariateNormal without its lower bound ``gpytorch.settings.min_variance`` on the variances.

    Negative variances, from rounding, become zero with a warning. An ExactGP has true variances where its ``forward``
    returns this class.

    >>> import torch
    >>> MultivariateNormal(torch.zeros(2), 1e-12 * torch.eye(2)).variance
    tensor([1.0000e-12, 1.0000e-12])
    """

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance, of the shape of the mean."""
        if self.islazy and not has_values():
            return _diagonal(self)
        with TRUE_VARIANCES:
            return super().variance


class MultitaskMultivariateNormal(gpytorch.distributions.MultitaskMultivariateNormal, MultivariateNormal):
    """GPyTorch's MultitaskMultivariateNormal with true variances: :class:`MultivariateNormal` for several outputs.

    >>> import torch
    >>> MultitaskMultivariateNormal(torch.zeros(1, 2), 1e-12 * torch.eye(2)).variance
    tensor([[1.0000e-12, 1.0000e-12]])
    """

    @property
    def mean(self) -> Tensor:
        """The means of all outputs, (..., N, T)."""
        if is_interleaved(self) and not has_values():
            return self.loc.reshape(*self.loc.shape[:-1], *self.event_shape)
        mean: Tensor = super().mean
        return mean

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance, of the shape of the mean."""
        if self.islazy and is_interleaved(self) and not has_values():
            return _diagonal(self)
        return super().variance

    def __getitem__(self, idx: Any) -> MultivariateNormal:
        return unclamped(super().__getitem__(idx))

    def to_data_independent_dist(self, jitter_val: float = 1e-4) -> MultivariateNormal:
        """A batch of N normal distributions of the T outputs, without the covariances between points."""
        return unclamped(super().to_data_independent_dist(jitter_val))


def _diagonal(distribution: gpytorch.distributions.MultivariateNormal) -> Tensor:
    """The variances as they are, in the shape of the mean."""
    diagonal = distribution.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
    values: Tensor = diagonal.reshape(*diagonal.shape[:-1], *distribution.event_shape)
    return values.expand(*distribution.batch_shape, *distribution.event_shape)


def unclamped(distribution: _Any) -> _Any:
    """The same distribution with its true variances, where it is one of GPyTorch's normal distributions.

    >>> import torch
    >>> latent = gpytorch.distributions.MultivariateNormal(torch.zeros(2), 1e-12 * torch.eye(2))
    >>> unclamped(latent).variance
    tensor([1.0000e-12, 1.0000e-12])
    """
    known: Any = distribution
    if isinstance(known, MultivariateNormal) or not isinstance(known, gpytorch.distributions.MultivariateNormal):
        return distribution
    parts = known.mean, known.lazy_covariance_matrix
    if isinstance(known, gpytorch.distributions.MultitaskMultivariateNormal):
        known = MultitaskMultivariateNormal(*parts, interleaved=is_interleaved(known))
    else:
        known = MultivariateNormal(*parts)
    result: _Any = known
    return result

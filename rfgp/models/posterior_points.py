"""Means and variances at single points by the posterior of any model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._support import checks
from ..inference import PointMoments
from ..likelihoods import MultitaskMultivariateNormal

_ROWS = 4096


class PosteriorPoints:
    """Means and variances at points as ``model.posterior(x)`` has them, some thousand rows at a time.

    :param model: any model with ``posterior(x)``.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> PosteriorPoints(model)(x).mean.shape
    torch.Size([100, 1])
    """

    def __init__(self, model: Any) -> None:
        if isinstance(model, type) or not hasattr(model, "posterior"):
            got = model.__name__ if isinstance(model, type) else type(model).__name__
            raise ValueError(f"expected a model with posterior(x), got {got}; such as a WeightSpaceGP")
        self.model = model

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters of the model."""
        known = getattr(self.model, "covar_module", self.model)
        return next(p.dtype for p in known.parameters() if p.is_floating_point())

    @torch.no_grad()
    def __call__(self, x: Tensor, variance: bool = True) -> PointMoments:
        """Means and, unless turned off, variances (N, T) at points (N, d), which are converted to the model's dtype.

        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        checks.flag("variance", variance)
        parts = [self._chunk(chunk, variance) for chunk in checks.inputs(x).to(self.dtype).split(_ROWS)]
        means, variances = zip(*parts, strict=True)
        return PointMoments(torch.cat(means), torch.cat(variances) if variance else None)

    def _chunk(self, x: Tensor, has_variance: bool) -> tuple[Tensor, Any]:
        posterior = self.model.posterior(x)
        is_multitask = isinstance(posterior, MultitaskMultivariateNormal)
        return _by_row(posterior.mean, is_multitask), _by_row(
            posterior.variance, is_multitask
        ) if has_variance else None


def _by_row(values: Tensor, is_multitask: bool) -> Tensor:
    """Values (N, T) of those of a distribution: (N,), (N, T) for tasks, or (C, N) for classes."""
    if values.dim() == 1:
        return values.unsqueeze(-1)
    return values if is_multitask else values.mT

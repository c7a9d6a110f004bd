"""Models of GPyTorch that stand beside ours: the exact one, and SVGP."""

from __future__ import annotations

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from torch import Tensor


class ExactModel(ExactGP):
    """The exact model with any kernel, a batch of models for a batch of targets.

    :param mean: a constant one unless given.
    """

    def __init__(self, x: Tensor, y: Tensor, likelihood: Likelihood, kernel: Kernel, mean: Mean | None = None) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean or ConstantMean(batch_shape=y.shape[:-1]), kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SVGP(ApproximateGP):
    """Variational inference with inducing points that are learned, for one output or for classes.

    :param mean: a constant one unless given.
    """

    def __init__(self, inducing: Tensor, kernel: Kernel, num_classes: int = 0, mean: Mean | None = None) -> None:
        batch = torch.Size([num_classes] if num_classes else [])
        distribution = CholeskyVariationalDistribution(inducing.shape[-2], batch_shape=batch)
        strategy = VariationalStrategy(self, inducing.expand(*batch, -1, -1).clone(), distribution)
        super().__init__(IndependentMultitaskVariationalStrategy(strategy, num_classes) if num_classes else strategy)
        self.mean_module, self.covar_module = mean or ConstantMean(batch_shape=batch), kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

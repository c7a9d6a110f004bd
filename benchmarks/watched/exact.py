"""GPyTorch's own exact model, of any kernel."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from torch import Tensor


class ExactModel(gpytorch.models.ExactGP):
    """The model of GPyTorch's first example."""

    def __init__(self, x: Tensor, y: Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood().to(x))
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean().to(x), kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def training_step(model: ExactModel, kind: type = gpytorch.mlls.ExactMarginalLogLikelihood) -> Callable[[], object]:
    """A function that evaluates an objective, the evidence unless told, and its gradient."""
    objective = kind(model.likelihood, model)
    x, y = model.train_inputs[0], model.train_targets
    return lambda: torch.autograd.grad(objective(model(x), y), list(model.parameters()))

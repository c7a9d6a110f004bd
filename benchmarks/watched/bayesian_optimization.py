"""Models of BoTorch: what its import, batches of points and one more observation cost."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor

import rfgp

from .exact import ExactModel, training_step
from .ratio import ratio

DIMS, BATCHES = 6, 64


def rows(count: int) -> tuple[Tensor, Tensor]:
    """Inputs in a unit cube, and targets."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, DIMS, generator=generator, dtype=torch.float64)
    return x, torch.sin(5.0 * x).sum(-1) + 0.1 * torch.randn(count, generator=generator, dtype=torch.float64)


def exact_model(num_rows: int, width: int) -> ExactModel:
    """An ``ExactGP`` with an approximated Gaussian kernel."""
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=DIMS)).double()
    return ExactModel(*rows(num_rows), rfgp.approximate(exact, width, input_dim=DIMS, seed=0))


class Batches:
    """Predictions of 64 batches of points, times that of one batch of as many."""

    params, param_names = (1, 4), ("points",)
    unit = "ratio"

    @torch.no_grad()
    def track_to_one_batch(self, points: int) -> float:
        model = exact_model(2000, 512).eval()
        x, _ = rows(BATCHES * points)

        def predicted(x: Tensor) -> tuple[Tensor, Tensor]:
            latent = model(x)
            return latent.mean, latent.variance

        return ratio(lambda: predicted(x.unflatten(0, (BATCHES, points))), lambda: predicted(x))


class Observations:
    """One more observation by ``condition_on_observations``, times a fit to all."""

    params, param_names = (512, 2048), ("features",)
    unit = "ratio"

    def track_to_fit(self, width: int) -> float:
        from rfgp.botorch import WeightSpaceModel

        x, y = rows(2000)
        y = y.unsqueeze(-1)

        def fitted() -> WeightSpaceModel:
            model = WeightSpaceModel(x, y, num_features=width, seed=0)
            model.posterior(x[:1])
            return model

        known = fitted()
        return ratio(lambda: known.condition_on_observations(x[:1], y[:1]), fitted)


def track_step_after_import_of_botorch() -> float:
    """A training step as ``import botorch`` sets GPyTorch, without fast computations of densities, times one with."""
    step = training_step(exact_model(4000, 256))

    def with_fast_computations(are_on: bool) -> None:
        with gpytorch.settings.fast_computations(log_prob=are_on):
            step()

    return ratio(lambda: with_fast_computations(False), lambda: with_fast_computations(True))


track_step_after_import_of_botorch.unit = "ratio"

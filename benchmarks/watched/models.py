"""Functions, updates, grids and states of models beside the least that they need."""

from __future__ import annotations

import io
from collections.abc import Callable

import gpytorch
import torch
from torch import Tensor

import rfgp
from rfgp.functionals import observations

from .fits import WIDTH, model_of
from .ratio import ratio

ROWS, FUNCTIONS, FREQUENCIES = 2_000, 500, 401


class Models:
    """A model in float64 that has seen its rows."""

    unit = "ratio"

    @torch.no_grad()
    def setup(self) -> None:
        """The model, its rows and its posterior."""
        self.model, self.x, self.y = model_of(ROWS, torch.float64)
        self.model.condition(self.x, self.y)
        self.posterior = self.model.weight_posterior()

    @torch.no_grad()
    def track_functions_to_draws_by_hand(self) -> float:
        def by_hand() -> Tensor:
            noise = torch.randn(WIDTH, FUNCTIONS, dtype=torch.float64)
            weights = self.posterior.mean + torch.linalg.solve_triangular(self.posterior.factor.mT, noise, upper=True)
            return self.model.covar_module.features(self.x) @ weights

        return ratio(lambda: self.model.sample_functions(FUNCTIONS)(self.x), by_hand)

    def track_update_by_one_row_to_product(self) -> float:
        left, right = self.x.new_ones(WIDTH, ROWS), self.x.new_ones(ROWS, WIDTH)
        return ratio(
            lambda: [self.model.update(self.x[:1], self.y[:1]) for _ in range(3)],
            lambda: [left @ right for _ in range(3)],
        )

    def track_state_to_factor(self) -> float:
        """``torch.save`` of the state, times that of as many numbers."""

        def saved(state: Callable[[], object]) -> None:
            for _ in range(20):
                torch.save(state(), io.BytesIO())

        return ratio(lambda: saved(self.model.state_dict), lambda: saved(lambda: self.posterior.factor))


@torch.no_grad()
def track_grid_sums_to_product() -> float:
    """Sums on a grid of frequencies, times a dense Gram product."""
    _, x, y = model_of(ROWS, torch.float64)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    grid = rfgp.approximate(exact, FREQUENCIES, method="fourier_grid", train_inputs=x[:, :2], seed=0)
    model = rfgp.WeightSpaceGP(grid, gpytorch.likelihoods.GaussianLikelihood().double())
    dense = torch.randn(ROWS, FREQUENCIES, dtype=torch.float64)
    return ratio(lambda: model.condition(x[:, :2], y), lambda: dense.mT @ dense)


track_grid_sums_to_product.unit = "ratio"


@torch.no_grad()
def track_integrals_to_exact_matrix() -> float:
    """A fit to points, derivatives, segments and boxes with predictions, times the exact matrix and its factor."""
    first, second = torch.rand(2, 100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.cat(
        [
            observations.points(first),
            observations.derivatives(first, second - 0.5),
            observations.segments(first, second, integral=True),
            observations.boxes(first, first + 0.2),
        ]
    )
    y, noise = torch.sin(3.0 * x[:, 0]), x.new_full((len(x),), 1e-2)
    function = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    function.base_kernel.lengthscale = 0.4
    exact = rfgp.kernels.ObservationKernel(function, 2).double()

    def fit() -> Tensor:
        likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise)
        model = rfgp.WeightSpaceGP(rfgp.approximate(exact, WIDTH, seed=0), likelihood)
        return model.condition(x, y, noise).posterior(x).variance

    return ratio(fit, lambda: torch.linalg.cholesky(exact(x).to_dense() + noise.diag()))


track_integrals_to_exact_matrix.unit = "ratio"

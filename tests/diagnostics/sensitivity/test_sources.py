"""Sensitivity of estimators and exact models, in their own units, by distributions of any kind."""

from __future__ import annotations

import gpytorch
import numpy as np
import pandas
import pytest
import scipy.stats
import torch

import rfgp
from rfgp.diagnostics.sensitivity import Uniform, main_effects, propagate, sobol_indices
from rfgp.diagnostics.sensitivity.sampled import SampledFunctions
from rfgp.models import WeightSpaceGP
from rfgp.sklearn import RandomFeatureGPRegressor

TERMS = np.array([4.0, 1.0, 0.0])
"""Variances of the terms of the function below over the unit cube, but for their sum."""


def runs(num_rows=120):
    x = np.random.default_rng(0).uniform(size=(num_rows, 3))
    return x * [1.0, 10.0, 100.0], 50.0 + np.sqrt(12.0) * (2.0 * x[:, 0] + x[:, 1])


def inputs():
    return [Uniform(0.0, 1.0), scipy.stats.uniform(0.0, 10.0), "uniform(0, 100)"]


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood().double())
        self.mean_module = gpytorch.means.ConstantMean().double()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=3)
        kernel.lengthscale = torch.tensor([2.0, 20.0, 1000.0])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel).double()
        self.covar_module.outputscale, self.likelihood.noise, self.mean_module.constant = 100.0, 1e-3, 55.0

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def models():
    x, y = runs()
    exact = Exact(torch.from_numpy(x), torch.from_numpy(y)).eval()
    average = RandomFeatureGPRegressor(average=True).fit(x, y)
    return {"estimator": RandomFeatureGPRegressor("rbf", random_state=0).fit(x, y), "average": average, "exact": exact}


@pytest.fixture(scope="module")
def fitted():
    return models()


@pytest.mark.parametrize("name", ["estimator", "average", "exact"])
def test_indices_and_propagation_are_those_of_the_function(fitted, name):
    indices = sobol_indices(fitted[name], inputs(), second_order=False, num_functions=50)
    assert np.allclose(indices.total.value, TERMS / TERMS.sum(), atol=0.01)
    assert indices.variance.value == pytest.approx(TERMS.sum(), rel=0.02)
    low, _ = indices.first.interval(0.95)
    assert low[2] <= 1e-6  # the interval of an index of zero has zero
    spread = propagate(fitted[name], inputs(), num_functions=50)
    assert float(spread.mean) == pytest.approx(50.0 + 1.5 * np.sqrt(12.0), rel=0.005)
    assert float(spread.std) == pytest.approx(np.sqrt(TERMS.sum()), rel=0.03)
    assert str(spread).splitlines()[0].startswith("mean ") and "what the inputs contribute" in str(spread)


def test_effects_in_units_of_the_table(fitted):
    effects = main_effects(fitted["estimator"], inputs(), num_functions=20)
    middle = 50.0 + np.sqrt(12.0) * (2.0 * effects.grid[:, 0] + 0.5)
    assert torch.allclose(effects.effect.value[:, 0], middle, rtol=0.005)


def test_what_is_refused(fitted):
    with pytest.raises(ValueError, match="expected a distribution for the input x1, got 'unifrm"):
        sobol_indices(fitted["exact"], ["unifrm 0 1", "normal(1, 2)", "normal(1, 2)"])
    with pytest.raises(ValueError, match="did you mean 'uniform'"):
        sobol_indices(fitted["exact"], ["unifrm(0, 1)", "normal(1, 2)", "normal(1, 2)"])
    with pytest.raises(ValueError, match=r"expected a fitted rfgp\.WeightSpaceGP, gpytorch\.models\.ExactGP"):
        sobol_indices(gpytorch.kernels.RBFKernel(), inputs())
    table = pandas.DataFrame({"a": ["u", "v"] * 10, "b": range(20)})
    other = RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=2).fit(table, range(20))
    with pytest.raises(ValueError, match="got one of a data frame with other cells; encode it"):
        propagate(other, inputs()[:2])


def test_functions_that_are_drawn_have_the_moments_of_the_posterior():
    """What landmarks of some columns leave over is drawn at every point beside the weights."""
    x = torch.rand(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, active_dims=[0, 2])).double()
    kernel = rfgp.approximate(exact, 10, method="landmarks", train_inputs=x, seed=0)
    model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double()).condition(x, 5.0 + x[:, 0])
    points, count = x[:6] + 0.3, 4000
    torch.manual_seed(0)
    drawn, posterior = SampledFunctions(model, count).drawn(points), model.posterior(points)
    assert float(kernel.residual_variance(points).max()) > 0.1
    error = (drawn.mean(0) - posterior.mean) / (posterior.variance / count).sqrt()
    assert float(error.abs().max()) < 4.5
    assert float((drawn.var(0) / posterior.variance - 1.0).abs().max()) < 4.5 * (2.0 / count) ** 0.5

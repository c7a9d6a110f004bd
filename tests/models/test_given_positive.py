"""Models given signs: truncated normals, functions that rise, errors and coverage with few rows."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import ConstantKernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from scipy import stats

import rfgp
from rfgp.functionals.observations import derivatives, points
from rfgp.kernels import CurlFreeKernel, ObservationKernel
from rfgp.models import WeightSpaceGP, given_positive

pytestmark = pytest.mark.usefixtures("float64_default")
GRID = torch.linspace(0.0, 10.0, 51, dtype=torch.float64).unsqueeze(-1)


def observed(lengthscale, noise, input_dim=1, num_features=80, outputscale=4.0, constant=9.0):
    """A model of rows of observations with known parameters."""
    scaled = ScaleKernel(RBFKernel())
    scaled.outputscale, scaled.base_kernel.lengthscale = outputscale, lengthscale
    level = ConstantKernel()
    level.constant = torch.tensor(constant)
    kernel = rfgp.approximate(ObservationKernel(scaled + level, input_dim), num_features, seed=0)
    likelihood = GaussianLikelihood()
    likelihood.noise = noise
    return WeightSpaceGP(kernel, likelihood)


def rising(grid=GRID, dim=0, sign=1.0):
    direction = torch.zeros(grid.shape[1])
    direction[dim] = sign
    return derivatives(grid, direction)


@torch.no_grad()
def test_independent_signs_have_moments_of_truncated_normals():
    """Points that are far apart, for a kernel that does not reach from one to the other."""
    kernel = rfgp.approximate(RBFKernel(), 2, method="landmarks", train_inputs=torch.tensor([[0.0], [100.0]]), seed=0)
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.5
    x = torch.tensor([[0.0], [100.0]])
    model = WeightSpaceGP(kernel, likelihood).condition(x, torch.tensor([-1.0, -0.2]))
    before, found = model.posterior(x), given_positive(model, x).posterior(x)
    for place in range(2):
        mean, spread = float(before.mean[place]), float(before.stddev[place])
        expected = stats.truncnorm(-mean / spread, math.inf, loc=mean, scale=spread)
        np.testing.assert_allclose(float(found.mean[place]), expected.mean(), rtol=1e-6)
        np.testing.assert_allclose(float(found.variance[place]), expected.var(), rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("distance", [30.0, 300.0, 3000.0])
def test_signs_that_data_contradict_have_moments_of_the_tail(distance):
    """Of as many standard deviations below zero, where the normal density is nearly an exponential one."""
    linear, likelihood, x = LinearKernel(), GaussianLikelihood(), torch.ones(1, 1)
    linear.variance, likelihood.noise = 1.0, 1.0
    kernel = rfgp.approximate(linear, 1, input_dim=1)
    model = WeightSpaceGP(kernel, likelihood).condition(x, torch.tensor([-distance * 2.0**0.5]))
    before, found = model.posterior(x), given_positive(model, x).posterior(x)
    squared = float(before.variance / before.mean.square())
    mean = float(before.stddev) * squared**0.5 * (1.0 - 2.0 * squared + 10.0 * squared**2)
    variance = float(before.variance) * squared * (1.0 - 6.0 * squared + 50.0 * squared**2)
    np.testing.assert_allclose(float(found.mean), mean, rtol=1e-5)
    np.testing.assert_allclose(float(found.variance), variance, rtol=1e-5)


@torch.no_grad()
def test_correlated_signs_are_those_of_an_integral_up_to_a_hundredth():
    """Which is what expectation propagation costs with two signs of a correlation of a fifth."""
    x = torch.tensor([[0.0], [0.8]])
    kernel = rfgp.approximate(RBFKernel(), 2, method="landmarks", train_inputs=x, seed=0)
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.5
    model = WeightSpaceGP(kernel, likelihood).condition(x, torch.tensor([-0.8, -0.8]))
    before, found = model.posterior(x), given_positive(model, x).posterior(x)
    values = torch.linspace(0.0, 5.0, 2001)
    places = torch.cartesian_prod(values, values)
    density = torch.distributions.MultivariateNormal(before.mean, before.covariance_matrix).log_prob(places).exp()
    density[(places == 0.0).any(-1)] *= 0.5  # the trapezoidal rule
    mean = (density @ places) / density.sum()
    variance = (density @ (places - mean).square()) / density.sum()
    assert float(before.covariance_matrix[0, 1] / before.variance.prod().sqrt()) > 0.2
    torch.testing.assert_close(found.mean, mean, rtol=0.01, atol=0.0)
    torch.testing.assert_close(found.stddev, variance.sqrt(), rtol=0.01, atol=0.0)


FUNCTIONS = {
    "line": lambda x: 0.3 * x,
    "exponential": lambda x: torch.exp(0.4 * x - 2.0),
    "logarithm": torch.log1p,
}


@torch.no_grad()
def test_few_rows_of_functions_that_rise_are_predicted_better():
    generator, gains, covered = torch.Generator().manual_seed(0), [], []
    for function in FUNCTIONS.values():
        for _ in range(12):
            x = 10.0 * torch.rand(12, 1, generator=generator)
            y = function(x.squeeze(-1)) + 0.7 * torch.randn(12, generator=generator)
            model = observed(2.5, 0.49).condition(points(x), y)
            monotone, truth, errors = given_positive(model, rising()), function(GRID.squeeze(-1)), []
            assert float(monotone.posterior(rising()).mean.min()) > -1e-9
            for each in (model, monotone):
                found = each.posterior(points(GRID))
                errors.append(float((found.mean - truth).square().mean().sqrt()))
            assert float(found.mean.diff().min()) > -1e-3
            gains.append(errors[1] / errors[0] - 1.0)
            covered.append(float(((found.mean - truth).abs() < 1.96 * found.stddev).double().mean()))
    gain, share = np.array(gains), np.array(covered)
    assert gain.mean() < -3.0 * gain.std() / len(gain) ** 0.5
    assert share.mean() > 0.95 - 3.0 * share.std() / len(share) ** 0.5


@torch.no_grad()
def test_intervals_cover_random_functions_that_rise():
    """Of the prior itself, those that rise on the grid."""
    generator = torch.Generator().manual_seed(1)
    model = observed(5.0, 0.25, num_features=60)
    kernel = model.covar_module
    weights = torch.randn(kernel.num_scalar_features, 4000, generator=generator)
    functions = kernel.features(points(GRID)) @ weights
    chosen = (kernel.features(rising()) @ weights > 0.0).all(0).nonzero().squeeze(-1)[:40]
    assert len(chosen) == 40
    shares = []
    for number in chosen.tolist():
        some = torch.randperm(len(GRID), generator=generator)[:8]
        y = functions[some, number] + 0.5 * torch.randn(8, generator=generator)
        found = given_positive(model.condition(points(GRID[some]), y), rising()).posterior(points(GRID))
        shares.append(float(((found.mean - functions[:, number]).abs() < 1.645 * found.stddev).double().mean()))
    shares = np.array(shares)
    assert abs(shares.mean() - 0.9) < 3.0 * shares.std() / len(shares) ** 0.5


@torch.no_grad()
def test_functions_fall_and_rise_in_chosen_inputs():
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(25, 2, generator=generator)
    y = 2.0 * x[:, 0] + torch.sin(6.0 * x[:, 1]) + 0.5 * torch.randn(25, generator=generator)
    places = torch.quasirandom.SobolEngine(2, seed=0).draw(100).double()
    model = observed(0.3, 0.25, input_dim=2, num_features=200).condition(points(x), y)
    for sign in (1.0, -1.0):
        wanted = rising(places, 0, sign)
        found = given_positive(model, wanted)
        assert float(model.posterior(wanted).mean.min()) < -0.5
        assert float(found.posterior(wanted).mean.min()) > -1e-9
        assert float(found.posterior(rising(places, 1)).mean.min()) < -0.5


@torch.no_grad()
def test_the_copy_is_a_model_like_any_other(tmp_path):
    generator = torch.Generator().manual_seed(3)
    x = 10.0 * torch.rand(10, 1, generator=generator)
    rows, y = points(x), torch.randn(10, generator=generator)
    model = observed(2.0, 0.5).condition(rows, y)
    before = model.posterior(rows).mean.clone()
    found = given_positive(model, rising())
    torch.testing.assert_close(model.posterior(rows).mean, before, rtol=0.0, atol=0.0)
    rfgp.save(found, tmp_path / "model.pt")
    torch.testing.assert_close(rfgp.load(tmp_path / "model.pt").posterior(rows).mean, found.posterior(rows).mean)
    assert found.sample_functions(3)(rows).shape == (3, 10)
    more = rows[:1], torch.tensor([3.0])
    assert float(found.update(*more).posterior(rows[:1]).mean) > float(before[0])
    steep = observed(2.0, 0.5).condition(rows, x.squeeze(-1))
    unchanged = given_positive(steep, rising(GRID[20:30]))
    torch.testing.assert_close(unchanged.posterior(rows).mean, steep.posterior(rows).mean, rtol=0.0, atol=0.0)


def test_models_without_a_joint_normal_posterior_are_refused():
    x = torch.rand(30, 1)
    kernel = rfgp.approximate(ScaleKernel(MaternKernel()), 8, method="landmarks", train_inputs=x, seed=0)
    known = WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(torch.ones(30)))
    near = WeightSpaceGP(kernel, GaussianLikelihood(), block_size=10)
    drawn = rfgp.approximate(RBFKernel(), 8, input_dim=1, seed=0)
    several = WeightSpaceGP(drawn, GaussianLikelihood(), num_draws=2)
    field = rfgp.approximate(CurlFreeKernel(RBFKernel()), 8, input_dim=2, seed=0)
    flow = WeightSpaceGP(field, GaussianLikelihood()).condition(torch.rand(30, 2), torch.rand(30, 2))
    waves = rfgp.approximate(RBFKernel(), 8, input_dim=1, method="fourier:complex", seed=0)
    complex_features = WeightSpaceGP(waves, GaussianLikelihood()).condition(x, torch.rand(30))
    for model, sentence in (
        (flow, "expected a model of one output"),
        (complex_features, "expected real features"),
        (known, "expected a GaussianLikelihood"),
        (near, "expected a model without blocks"),
        (several, "expected a model without blocks"),
        (WeightSpaceGP(drawn, GaussianLikelihood()), "expected a fitted model"),
        (gpytorch.kernels.RBFKernel(), "expected a WeightSpaceGP"),
    ):
        with pytest.raises(ValueError, match=sentence):
            given_positive(model, torch.rand(4, 2) if model is flow else x)

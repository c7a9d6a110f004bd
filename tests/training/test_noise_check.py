"""The noise that little data have taught is raised where rows are predicted badly from near ones, and else kept."""

import re
import warnings

import gpytorch
import pytest
import torch

import rfgp
from rfgp.training.exact_regression import exact_regression
from rfgp.training.noise_check import has_one_noise, noise_factor
from rfgp.training.objectives import WeightSpaceObjective

NOISE = 0.05


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rows(count=1500, copies=1):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 2, generator=generator).repeat_interleave(copies, 0)[:count]
    return x, torch.sin(6.0 * x[:, 0]) + NOISE**0.5 * torch.randn(count, generator=generator)


def form(noise, x, y):
    kernel = rfgp.approximate(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), 32, input_dim=2, seed=0)
    kernel.base_kernel.lengthscale = 0.3
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = noise
    return exact_regression(WeightSpaceObjective(rfgp.WeightSpaceGP(kernel, likelihood), x, y, None))


def test_a_noise_that_is_right_is_kept():
    x, y = rows()
    assert noise_factor(form(NOISE, x, y), torch.arange(len(x)))[0] == 1.0


@pytest.mark.parametrize("too_small", [8.0, 64.0])
def test_a_noise_that_has_collapsed_is_raised(too_small):
    x, y = rows()
    factor, density = noise_factor(form(NOISE / too_small, x, y), torch.arange(len(x)))
    assert too_small / 2.0 <= factor <= 2.0 * too_small
    assert density == pytest.approx(noise_factor(form(NOISE, x, y), torch.arange(len(x)))[1], abs=0.1)


def test_rows_that_are_the_same_many_times():
    x, y = rows(copies=100)
    assert noise_factor(form(NOISE / 32.0, x, y), torch.arange(len(x)))[0] in (16.0, 32.0, 64.0)


def test_only_a_learned_noise_of_one_variance_is_looked_at():
    x, y = rows(100)
    known = form(NOISE, x, y)
    assert has_one_noise(known)
    known.model.likelihood.raw_noise.requires_grad_(False)
    assert not has_one_noise(known)


def test_the_summary_says_what_was_done():
    x, y = rows(3000)
    kernel = rfgp.approximate(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), 64, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    summary = rfgp.fit(model, x, y, strategy="subset", progress=False)
    assert "noise as it is, rows given those near them" in str(summary)


@pytest.mark.parametrize(("num_features", "frequency"), [(64, 20.0), (256, 6.0), (64, 0.0)])
def test_features_that_teach_a_function_as_noise_are_told(num_features, frequency):
    x, _ = rows(800)
    noise = 0.02**0.5 * torch.randn(800, generator=torch.Generator().manual_seed(1))
    y = torch.sin(frequency * x[:, 0]) * torch.cos(frequency * x[:, 1]) + noise
    kernel = rfgp.approximate(
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel()), num_features, input_dim=2, seed=0
    )
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rfgp.fit(model, x, y, max_evaluations=25, progress=False)
    told = [str(warning.message) for warning in caught if "cannot follow" in str(warning.message)]
    assert bool(told) == (frequency > 10.0)
    assert all("64 features" in text and "take more features, or landmarks" in text for text in told)


@pytest.mark.parametrize("size", [9, 65])
@pytest.mark.parametrize("loss", [0.5, 2.0])
def test_the_noise_is_raised_where_few_or_many_neighbors_want_it_more_than_the_others_lose(monkeypatch, size, loss):
    def densities(regression, groups):
        wants_more = torch.arange(17.0)
        return wants_more if groups.numbers.shape[1] == size else -loss * wants_more

    monkeypatch.setattr("rfgp.training.noise_check._densities_of_larger", densities)
    x, y = rows(200)
    factor, density = noise_factor(form(NOISE, x, y), torch.arange(200))
    assert factor == (2.0**16 if loss < 1.0 else 1.0)
    assert density == (4.0 if loss < 1.0 else 0.0)


@pytest.mark.parametrize(("strategy", "count"), [("subset", 700), ("blocks", 1500)])
def test_a_function_without_noise_is_learned_from_some_rows(strategy, count):
    """All rows, or more of them, may have no Cholesky factor with the noise that few rows have taught, by rounding."""
    x = 4.0 * torch.rand(count + 200, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64) - 2.0
    y = 1e3 * x.sum(-1)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3)).double()
    features = rfgp.approximate(kernel, 128, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(features, gpytorch.likelihoods.GaussianLikelihood().double(), block_size=128)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rfgp.fit(model, x[:count], y[:count], strategy=strategy, max_evaluations=80, progress=False)
    (message,) = {str(one.message) for one in told if one.category is UserWarning} or {""}
    expected = re.match("the noise that was learned is multiplied by .*no Cholesky factor", message)
    assert expected or (strategy == "blocks" and not message)
    assert float((model.posterior(x[count:]).mean - y[count:]).abs().max()) < 1e-3 * float(y.std())

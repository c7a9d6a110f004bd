"""Fourier grids with more features than dense matrices are formed for, beside the dense algebra of the same model."""

import copy
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean

import rfgp
from rfgp.inference.posterior import wide_grid
from rfgp.inference.posterior.wide_grid import WidePosterior
from rfgp.inference.sums import grid_statistics
from rfgp.linalg import lanczos, toeplitz_precision
from rfgp.models import WeightSpaceGP

DTYPE, WIDTH = torch.float64, 81


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A preconditioner that leaves most features to the iterations."""
    monkeypatch.setattr(toeplitz_precision, "_HEAD", 20)


def widen(monkeypatch):
    monkeypatch.setattr(grid_statistics, "MOST_DENSE", 60)


def points(rows, columns, seed=0):
    return torch.rand(rows, columns, dtype=DTYPE, generator=torch.Generator().manual_seed(seed))


def problem(rows=600, columns=2):
    x = points(rows, columns)
    noise = torch.randn(rows, dtype=DTYPE, generator=torch.Generator().manual_seed(1))
    return x, torch.sin(7.0 * x[:, 0]) + x[:, -1] + 0.2 * noise


def model(x, likelihood=None, width=WIDTH, **options):
    exact = ScaleKernel(MaternKernel(nu=1.5).double().initialize(lengthscale=0.4)).double().initialize(outputscale=1.7)
    kernel = rfgp.approximate(exact, width, method="fourier_grid", train_inputs=x)
    likelihood = likelihood or GaussianLikelihood().double().initialize(noise=0.05)
    return WeightSpaceGP(kernel, likelihood, ConstantMean().double().initialize(constant=0.3), **options)


def results(fitted, x):
    evidence, posterior = fitted.log_marginal_likelihood(), fitted.posterior(x)
    learned = [p for p in fitted.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(evidence, learned, allow_unused=True)
    return [evidence, posterior.mean, posterior.variance, *(part for part in gradient if part is not None)]


@pytest.mark.parametrize("is_fixed", [False, True])
def test_all_is_that_of_dense_algebra_where_the_columns_are_a_basis(is_fixed, monkeypatch):
    x, y = problem()
    likelihood = FixedNoiseGaussianLikelihood(0.02 + 0.1 * points(len(x), 1, 3)[:, 0]) if is_fixed else None
    dense, wide = (model(x, copy.deepcopy(likelihood)) for _ in range(2))
    inside = points(15, 2, 6)
    wanted = results(dense.condition(x, y), inside)
    widen(monkeypatch)
    monkeypatch.setattr(toeplitz_precision, "_CHANGE", 1e-14)
    monkeypatch.setattr(toeplitz_precision, "_TOLERANCE", 1e-7)
    monkeypatch.setattr(toeplitz_precision, "_AT_ONCE", WIDTH)
    monkeypatch.setattr(lanczos, "_CHECKED", 100)
    monkeypatch.setattr(
        wide_grid, "random_columns", lambda precision, _: math.sqrt(WIDTH) * torch.eye(WIDTH, dtype=DTYPE)
    )
    found = results(wide.condition(x, y), inside)
    assert isinstance(wide.weight_posterior(), WidePosterior)
    for value, of_dense in zip(found, wanted, strict=True):
        torch.testing.assert_close(value, of_dense, rtol=1e-5, atol=1e-5)


def test_random_columns_keep_their_standard_errors(monkeypatch):
    x, y = problem()
    inside = points(200, 2, 6)
    evidence, mean, variance, *gradient = results(model(x).condition(x, y), inside)
    widen(monkeypatch)
    wide = model(x).condition(x, y)
    found, found_mean, found_variance, *found_gradient = results(wide, inside)
    posterior = wide.weight_posterior()
    assert abs(float((found - evidence).detach())) < 4.0 * posterior.evidence_error < 40.0
    torch.testing.assert_close(found_mean, mean, rtol=1e-6, atol=1e-6)
    ratios = (found_variance / variance).detach()
    assert float((ratios - 1.0).abs().max()) < 4.0 * math.sqrt(2.0 / 64)
    assert abs(float(ratios.mean()) - 1.0) < 0.1
    flat, of_dense = (torch.cat([part.flatten() for part in parts]) for parts in (found_gradient, gradient))
    assert float(torch.cosine_similarity(flat, of_dense, dim=0)) > 0.99
    with torch.no_grad():
        torch.manual_seed(0)
        draws = wide.sample_functions(100)(inside)
        missing = wide.covar_module.residual_variance(inside)
    spread = (draws - found_mean).square().mean(0) / (variance - missing)
    assert float((spread - 1.0).abs().max()) < 5.0 * math.sqrt(2.0 / 100)
    right = points(WIDTH, 2, 8)
    torch.testing.assert_close(posterior.precision.product(posterior.solve(right)), right, rtol=0.0, atol=1e-4)


def test_gradients_are_those_of_the_estimated_evidence(monkeypatch):
    widen(monkeypatch)
    x, y = problem()
    wide = model(x).condition(x, y)
    raw = wide.covar_module.base_kernel.raw_lengthscale
    (slope,) = torch.autograd.grad(wide.log_marginal_likelihood(), raw)
    values, step = [], 1e-4
    with torch.no_grad():
        for shift in (step, -2.0 * step):
            raw += shift
            values.append(float(wide.log_marginal_likelihood()))
    assert (values[0] - values[1]) / (2.0 * step) == pytest.approx(float(slope), rel=1e-4)


def test_maps_are_series_of_the_posterior(monkeypatch):
    widen(monkeypatch)
    x, y = problem()
    with torch.no_grad():
        fitted = model(x).condition(x, y)
        places = torch.cat([points(50, 2, 6), torch.full((1, 2), 5.0, dtype=DTYPE)])
        found, posterior = rfgp.predict_map(fitted, places), fitted.posterior(places)
    torch.testing.assert_close(found.mean, posterior.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.variance, posterior.variance, rtol=1e-9, atol=1e-9)


def test_rows_come_and_go_and_parameters_are_learned(monkeypatch, tmp_path):
    widen(monkeypatch)
    x, y = problem(200)
    whole = model(x).condition(x, y)
    with torch.no_grad():
        parts = model(x).condition(x[:150], y[:150]).update(x[150:], y[150:])
        torch.testing.assert_close(parts.posterior(x[:5]).mean, whole.posterior(x[:5]).mean, rtol=1e-6, atol=1e-6)
        left = parts.downdate(x[:50], y[:50]).posterior(x[:5]).mean
        torch.testing.assert_close(left, model(x).condition(x[50:], y[50:]).posterior(x[:5]).mean, rtol=1e-6, atol=1e-6)
        with pytest.raises(ValueError, match="rows of the model to take away"):
            parts.downdate(x[:50], y[:50])
        torch.testing.assert_close(parts.posterior(x[:5]).mean, left)
    before = float(whole.log_marginal_likelihood().detach())
    assert rfgp.fit(whole, x, y, max_evaluations=60, progress=False).log_marginal_likelihood > before
    assert float(whole.likelihood.noise.detach()) == pytest.approx(0.04, rel=0.4)
    rfgp.save(whole, tmp_path / "model")
    loaded = rfgp.load(tmp_path / "model")
    torch.testing.assert_close(loaded.posterior(x[:5]).mean, whole.posterior(x[:5]).mean)


def test_what_needs_dense_matrices_is_refused_and_changes_nothing(monkeypatch):
    widen(monkeypatch)
    x, y = problem(200)
    fitted = model(x).condition(x, y)
    wanted = fitted.posterior(x[:5]).mean.detach()
    calls = {
        "leave_one_out": lambda: fitted.leave_one_out(x, y),
        "refit_error": lambda: fitted.refit_error(x, y),
        "bound": lambda: model(x, residual="vfe"),
        "training": lambda: rfgp.fit(fitted, x, y, strategy="leave_one_out", progress=False),
    }
    for call in calls.values():
        with pytest.raises(ValueError, match=r"at most 60 features of a Fourier grid .* fewer features"):
            call()
    torch.testing.assert_close(fitted.posterior(x[:5]).mean.detach(), wanted)
    fitted.likelihood.noise = 1e-3
    monkeypatch.setattr(toeplitz_precision, "_MOST_STEPS", 5)
    with pytest.raises(ValueError, match="conjugate gradients"):
        fitted.posterior(x[:5])

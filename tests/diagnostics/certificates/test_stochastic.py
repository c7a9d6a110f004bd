"""Estimates of log determinants and divergences against dense ones, in standard errors."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch.distributions import MultivariateNormal, kl_divergence

import rfgp
from rfgp.diagnostics.certificates import log_determinant, stochastic_kl

ROWS = 200


def problem():
    x = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kernel = ScaleKernel(MaternKernel(nu=1.5)).double()
    kernel.base_kernel.lengthscale = 0.4
    return x, kernel, torch.linspace(0.02, 0.1, ROWS, dtype=torch.float64)


def within(estimate, value, errors=4.0):
    return abs(estimate.value - float(value)) <= errors * estimate.standard_error


@pytest.mark.parametrize("num_landmarks", [5, 60])
def test_log_determinants(num_landmarks):
    x, kernel, noise = problem()
    dense = torch.logdet(kernel(x, x).to_dense().detach() + torch.diag(noise))
    found = log_determinant(kernel, FixedNoiseGaussianLikelihood(noise), x, num_landmarks=num_landmarks)
    assert within(found, dense) and found.standard_error < 0.05 * ROWS and found.num_probes == 16


def test_more_landmarks_make_it_more_certain():
    x, kernel, noise = problem()
    parts = kernel, FixedNoiseGaussianLikelihood(noise), x
    few, many = (log_determinant(*parts, num_landmarks=count) for count in (5, 60))
    assert many.standard_error < 0.5 * few.standard_error and many.iterations <= few.iterations


@pytest.mark.parametrize("method", ["landmarks", "fourier", "fourier:complex"])
@pytest.mark.parametrize("direction", ["approximate_from_exact", "exact_from_approximate"])
def test_divergences_in_both_directions(method, direction):
    x, kernel, noise = problem()
    made = rfgp.approximate(kernel, 60, method=method, train_inputs=x, seed=0)
    exact, approximate = (
        MultivariateNormal(torch.zeros(ROWS).double(), part + torch.diag(noise))
        for part in (kernel(x, x).to_dense().detach(), made(x, x).to_dense().detach())
    )
    if method == "landmarks":
        features = made.features(x).detach()
        approximate = MultivariateNormal(torch.zeros(ROWS).double(), features @ features.mT + torch.diag(noise))
    pair = (approximate, exact) if direction == "approximate_from_exact" else (exact, approximate)
    found = stochastic_kl(made, FixedNoiseGaussianLikelihood(noise), x, direction=direction)
    assert within(found, kl_divergence(*pair)) and found.value > 0.0


def test_standard_errors_are_those_of_repetitions():
    x, kernel, noise = problem()
    made = rfgp.approximate(kernel, 60, method="fourier", input_dim=2, seed=0)
    parts = made, FixedNoiseGaussianLikelihood(noise), x
    found = [stochastic_kl(*parts, num_probes=4, seed=seed) for seed in range(12)]
    spread = torch.tensor([each.value for each in found]).std()
    stated = torch.tensor([each.standard_error for each in found]).square().mean().sqrt()
    assert 0.4 < float(spread / stated) < 1.8  # the standard deviation of 12 values has an error of 21 %


def test_a_plateau_is_not_the_end():
    """Features that take little noise for a signal: many small eigenvalues are found late."""
    generator = torch.Generator().manual_seed(1)
    x, noise = torch.rand(ROWS, 3, generator=generator, dtype=torch.float64), torch.full((ROWS,), 1e-3).double()
    kernel = MaternKernel(nu=1.5).double()
    kernel.lengthscale = 1.0
    made = rfgp.approximate(kernel, 150, method="fourier", train_inputs=x, seed=0)
    exact, approximate = (
        MultivariateNormal(torch.zeros(ROWS).double(), part(x, x).to_dense().detach() + torch.diag(noise))
        for part in (kernel, made)
    )
    parts = made, FixedNoiseGaussianLikelihood(noise), x
    found = stochastic_kl(*parts, num_probes=4)
    assert found.is_converged and within(found, kl_divergence(approximate, exact))
    with pytest.warns(UserWarning, match="not converged after 10 iterations"):
        assert not stochastic_kl(*parts, max_iterations=10).is_converged
    with pytest.warns(UserWarning, match="raise max_iterations"):
        assert not log_determinant(*parts, num_landmarks=5, max_iterations=10).is_converged


def test_bad_calls():
    x, kernel, noise = problem()
    likelihood = FixedNoiseGaussianLikelihood(noise)
    made = rfgp.approximate(kernel, 16, input_dim=2, seed=0)
    bad = {
        "num_probes": lambda: log_determinant(kernel, likelihood, x, num_probes=1),
        "direction": lambda: stochastic_kl(made, likelihood, x, direction="both"),
        "with random features": lambda: stochastic_kl(kernel, likelihood, x),
        "noise of 5 rows": lambda: log_determinant(kernel, likelihood, x[:5]),
    }
    for match, call in bad.items():
        with pytest.raises(ValueError, match=match):
            call()

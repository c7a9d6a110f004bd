"""Certified posterior means and variances against exact ones, in float64 and with more digits."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from certified import ComposedTrial, Trial, long_kernel
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean

import rfgp
from rfgp.diagnostics import exact_posterior
from rfgp.diagnostics.certificates import certified_posterior, certify
from rfgp.diagnostics.certificates.kernel_matrix import KernelMatrix
from rfgp.diagnostics.certificates.preconditioner import LandmarkPreconditioner

KERNELS = {
    "gaussian": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)),
    "matern 1/2": lambda: MaternKernel(nu=0.5),
    "matern 3/2": lambda: ScaleKernel(ScaleKernel(MaternKernel(nu=1.5))),
    "matern 5/2": lambda: MaternKernel(nu=2.5, active_dims=(0, 2)),
    "rational quadratic": lambda: ScaleKernel(RQKernel()),
    "sum": lambda: LinearKernel() + RBFKernel(active_dims=(0, 1)),
    "polynomial": lambda: PolynomialKernel(power=2),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def rows(count=120, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    y = torch.sin(5.0 * x.sum(-1)) + 0.1 * torch.randn(count, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype), 1.5 * torch.rand(20, 3, generator=generator, dtype=torch.float64).to(dtype)


def gaussian_noise(level=0.01, dtype=torch.float64):
    likelihood = GaussianLikelihood().to(dtype)
    likelihood.noise = level
    return likelihood


@pytest.mark.smoke
def test_bounds_hold_in_random_trials():
    trials = [Trial(seed) for seed in range(12)]
    assert max(trial.ratios().max() for trial in trials) <= 1.0
    assert max(trial.misses().max() for trial in trials) <= 0.0


def test_bounds_hold_for_sums_and_products_with_rows_very_near_to_each_other():
    trials = [ComposedTrial(seed) for seed in range(12)]
    assert max(trial.ratios().max() for trial in trials) <= 1.0
    assert max(trial.misses().max() for trial in trials) <= 0.0


@pytest.mark.parametrize("make", [RQKernel, PeriodicKernel, RBFKernel, lambda: RQKernel() + MaternKernel()])
def test_kernels_of_differences_are_as_accurate_far_from_zero(make):
    x = (rows()[0] * 2.0**10).round() / 2.0**10
    here, there = (KernelMatrix(make(), x + at) for at in (0.0, 2.0**20))
    ones = torch.ones(len(x), 1).double()
    torch.testing.assert_close(there.times(ones), here.times(ones), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(there.rounding(ones), here.rounding(ones), rtol=1e-3, atol=0.0)


@every_kernel
def test_means_and_variances_are_the_exact_ones(name):
    x, y, points = rows()
    kernel, mean = KERNELS[name]().double(), ConstantMean().double()
    mean.constant = 0.7
    exact = exact_posterior(kernel, gaussian_noise(), x, y, points, mean)
    found = certified_posterior(kernel, gaussian_noise(), x, y, mean, tolerance=1e-3, num_landmarks=20)
    assert found.relative_bound <= 1e-3
    assert bool(((found.mean(points) - exact.mean).abs() <= found.error_bound(points)).all())
    bounds = found.variance_bounds(points, tolerance=1e-4)
    prior = kernel(points, diag=True)
    assert bool((bounds.upper - bounds.lower <= 1e-4 * prior).all())
    assert bool(((bounds.lower <= exact.variance) & (exact.variance <= bounds.upper)).all())


@every_kernel
def test_products_are_those_of_the_dense_matrix(name):
    x = rows(1_100)[0]
    kernel = KERNELS[name]().double()
    matrix, columns = KernelMatrix(kernel, x), torch.randn(1_100, 3, dtype=torch.float64)
    dense, points = kernel(x, x).to_dense(), matrix.select(x[:7])
    assert torch.allclose(matrix.times(columns), dense @ columns, rtol=1e-9, atol=1e-5)
    assert torch.allclose(matrix.cross_times(points, columns), dense[:7] @ columns, rtol=1e-9, atol=1e-5)
    assert torch.allclose(matrix.columns(points), dense[:, :7], atol=1e-7)
    assert torch.allclose(matrix.deviations.square(), dense.diagonal())


def test_values_are_as_near_as_the_rounding_says():
    for trial in [*map(Trial, range(8)), *map(ComposedTrial, range(8))]:
        matrix = KernelMatrix(trial.kernel, trial.x)
        errors = np.abs(matrix.columns(trial.points).numpy() - long_kernel(trial.kernel, trial.x, trial.points))
        assert (errors <= matrix.column_rounding(trial.points).numpy()).all()


def test_landmarks_bound_a_residual():
    x, y, _ = rows()
    kernel, noise = KERNELS["matern 3/2"]().double(), torch.linspace(0.01, 0.1, 120, dtype=torch.float64)
    matrix = KernelMatrix(kernel, x)
    preconditioner = LandmarkPreconditioner(matrix, x[:30], noise)
    norm = (y @ torch.linalg.solve(kernel(x, x).to_dense() + torch.diag(noise), y)).sqrt()
    columns = torch.stack([y, 2.0 * y], dim=-1)
    bound, plain = preconditioner.norm_bound(columns), preconditioner.white_norm(columns)
    solved = (columns * preconditioner.solve(columns)).sum(0).sqrt()
    assert bool((bound >= torch.stack([norm, 2.0 * norm])).all()) and bool((bound < 0.6 * plain).all())
    assert torch.allclose(bound, solved, rtol=1e-8)


@pytest.mark.parametrize("knows", [True, False])
def test_noise_of_every_row_and_a_linear_mean(knows):
    x, y, points = rows()
    noise = torch.linspace(0.01, 0.5, 120, dtype=torch.float64)
    likelihood = FixedNoiseGaussianLikelihood(noise if knows else noise[:3], learn_additional_noise=True).double()
    likelihood.second_noise = 0.02
    kernel, mean = KERNELS["gaussian"]().double(), LinearMean(3).double()
    parts = kernel, likelihood, x, y
    given = None if knows else noise
    exact = exact_posterior(*parts, points, mean, given)
    found = certified_posterior(*parts, mean, given, num_landmarks=20)
    assert bool(((found.mean(points) - exact.mean).abs() <= found.error_bound(points)).all())


def test_float32_rows_and_parameters():
    x, y, points = rows(dtype=torch.float32)
    kernel, likelihood = KERNELS["gaussian"](), gaussian_noise(dtype=torch.float32)
    exact = exact_posterior(kernel, likelihood, x, y, points)
    found = certified_posterior(kernel, likelihood, x, y, tolerance=1e-6, num_landmarks=60)
    assert found.mean(points).dtype == torch.float64
    assert bool(((found.mean(points) - exact.mean).abs() <= found.error_bound(points)).all())


def test_it_goes_on_from_where_it_is():
    x, y, points = rows()
    parts = KERNELS["matern 3/2"]().double(), gaussian_noise(), x, y
    with pytest.warns(UserWarning, match="above the tolerance"):
        found = certified_posterior(*parts, num_landmarks=20, max_iterations=3)
    first, before = found.relative_bound, found.error_bound(points)
    assert found.iterations == 3 and len(found.history) == 4
    found.tighten(1e-3)
    assert first > 1e-3 >= found.relative_bound and bool((found.error_bound(points) < before).all())
    whole = certified_posterior(*parts, num_landmarks=20)
    assert found.iterations <= whole.iterations + 1 and found.seconds > 0.0
    done = found.iterations
    assert found.tighten(1e-3).iterations == done


def test_a_tolerance_below_rounding_ends():
    x, y, points = rows()
    parts = KERNELS["gaussian"]().double(), gaussian_noise(1e-4), x, y
    exact = exact_posterior(*parts, points).mean
    with pytest.warns(UserWarning, match="not below rounding"):
        found = certified_posterior(*parts, tolerance=1e-15, num_landmarks=20)
    assert bool(((found.mean(points) - exact).abs() <= found.error_bound(points)).all())


def test_a_time_limit_leaves_a_certificate():
    x, y, points = rows()
    parts = KERNELS["matern 3/2"]().double(), gaussian_noise(), x, y
    with pytest.warns(UserWarning, match="after 1 iterations"):
        found = certified_posterior(*parts, num_landmarks=20, max_seconds=1e-9)
    assert bool(((found.mean(points) - exact_posterior(*parts, points).mean).abs() <= found.error_bound(points)).all())


def test_constant_targets_need_no_iteration():
    x, _, points = rows()
    mean = ConstantMean().double()
    mean.constant = 2.0
    found = certified_posterior(
        KERNELS["gaussian"]().double(), gaussian_noise(), x, torch.full_like(x[:, 0], 2.0), mean
    )
    assert found.iterations == 0 and bool((found.mean(points) == 2.0).all())


@pytest.mark.parametrize("method", ["landmarks", "fourier_orthogonal"])
def test_the_error_of_a_model_is_between_its_bounds(method):
    x, y, points = rows()
    exact = KERNELS["matern 3/2"]().double()
    kernel = rfgp.approximate(exact, 24, method=method, train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gaussian_noise(), ConstantMean().double()).condition(x, y)
    mean = exact_posterior(exact, model.likelihood, x, y, points, model.mean_module).mean
    found = certify(model, x, y, points, tolerance=0.05, num_landmarks=10)
    error = (found.model_mean - mean).abs()
    assert bool(((found.smallest_error <= error) & (error <= found.largest_error)).all())
    assert float(found.smallest_error.max()) > 0.0
    assert bool(((found.exact_mean - mean).abs() <= found.error_bound).all())


def test_bad_calls():
    x, y, _ = rows(20)
    kernel, likelihood = KERNELS["gaussian"]().double(), gaussian_noise()
    bad = {
        "kernel": lambda: certified_posterior(None, likelihood, x, y),
        "likelihood": lambda: certified_posterior(kernel, None, x, y),
        "one kernel of one output": lambda: certified_posterior(
            gpytorch.kernels.MultitaskKernel(kernel, num_tasks=2), likelihood, x, y
        ),
        "one output": lambda: certified_posterior(
            kernel, gpytorch.likelihoods.DirichletClassificationLikelihood((y > 0).long()), x, (y > 0).long()
        ),
        "tolerance": lambda: certified_posterior(kernel, likelihood, x, y, tolerance=0.0),
        "num_landmarks": lambda: certified_posterior(kernel, likelihood, x, y, num_landmarks=0),
        "max_iterations": lambda: certified_posterior(kernel, likelihood, x, y, max_iterations=0),
        "max_seconds": lambda: certified_posterior(kernel, likelihood, x, y, max_seconds=-1.0),
        "mean": lambda: certified_posterior(kernel, likelihood, x, y, 3.0),
        "WeightSpaceGP": lambda: certify(kernel, x, y, x),
        "finite": lambda: certified_posterior(kernel, likelihood, torch.full_like(x, torch.nan), y),
        "x": lambda: certified_posterior(kernel, likelihood, x, y).mean(x[:, :2]),
    }
    for match, call in bad.items():
        with pytest.raises(ValueError, match=match):
            call()


def test_sums_of_many_blocks_are_as_near_as_the_rounding_says(monkeypatch):
    """A block adds less than half of the last digit, and is lost: the error grows with the number of blocks."""
    monkeypatch.setattr("rfgp.diagnostics.certificates.kernel_matrix._BLOCK", 8)
    matrix = KernelMatrix(RBFKernel().double(), torch.zeros(16_000, 1, dtype=torch.float64))
    columns = torch.full((16_000, 1), 0.45 * torch.finfo(torch.float64).eps / 8, dtype=torch.float64)
    columns[:8] = torch.eye(8, 1, dtype=torch.float64)
    points = matrix.select(torch.zeros(1, 1))
    rest = 15_992 * float(columns[8])
    error = abs(float(matrix.cross_times(points, columns) - 1.0) - rest)
    assert 0.9 * rest < error <= float(matrix.rounding(columns, points))

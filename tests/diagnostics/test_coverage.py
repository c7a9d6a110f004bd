"""What a divergence says about coverage, and the warning of trained models."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from problems import ExactModel

import rfgp
from rfgp.approximation.selection import rank_methods
from rfgp.diagnostics import coverage_at_least, kl_reading, warn_of_lost_posterior
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_bound_is_reached_where_means_alone_differ(level):
    """With equal variances u = 1 + E d^2 / v, and KL = E d^2 / (2 v) >= (u - 1 - log u) / 2."""
    z = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level)))
    for ratio in (1.01, 1.5, 4.0, 100.0):
        narrow = 0.5 * (ratio - 1.0 - math.log(ratio))  # a variance too small by the ratio, and equal means
        exact = math.erf(z / math.sqrt(2.0 * ratio))
        assert coverage_at_least(narrow, level) == pytest.approx(exact, rel=1e-9)
        assert coverage_at_least(0.5 * (ratio - 1.0), level) < exact  # a mean that is off


def test_the_bound_falls_from_the_level_to_zero_and_is_convex():
    grid = [0.05 * i for i in range(400)]
    values = torch.tensor([coverage_at_least(kl) for kl in grid])
    assert values[0] == 0.95 and coverage_at_least(math.inf) == 0.0 < coverage_at_least(1e8) < 1e-3
    assert bool((values.diff() < 0.0).all()) and bool((values.diff().diff() > 0.0).all())


def test_no_method_covers_less_than_the_bound():
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    for kernel in (RBFKernel(), MaternKernel(nu=1.5)):
        kernel.lengthscale = 0.5
        for width in (16, 128):
            for candidate in rank_methods(kernel, width, x, methods=["fourier", "fourier_orthogonal", "landmarks"]):
                assert candidate.coverage >= coverage_at_least(candidate.kl_per_point)


@pytest.mark.parametrize(
    ("divergence", "words"),
    [(0.005, "as good as exact"), (0.05, "close"), (0.3, "doubtful"), (1.0, "poor"), (9.0, "say nothing")],
)
def test_readings_are_plain(divergence, words):
    reading = kl_reading(divergence)
    assert words in reading and f"at least {math.floor(100 * coverage_at_least(divergence))}%" in reading
    assert reading == kl_reading(torch.tensor(divergence, dtype=torch.float64))


@pytest.mark.parametrize("value", [-0.1, math.nan, "a", None])
def test_bad_divergences_raise(value):
    for use in (coverage_at_least, kl_reading):
        with pytest.raises(ValueError, match=r"^expected a divergence per point of at least 0, got"):
            use(value)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_bad_levels_raise(level):
    with pytest.raises(ValueError, match=r"^expected a level between 0 and 1, got"):
        coverage_at_least(0.1, level)


def rows(num_rows=200):
    x = torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(0))
    return x, torch.sin(6.0 * x).sum(-1)


def model(method, width=32, **options):
    x, y = rows()
    exact, likelihood = MaternKernel(nu=1.5), GaussianLikelihood()
    exact.lengthscale, likelihood.noise = 0.5, 0.01
    kernel = rfgp.approximate(exact, width, method=method, train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, likelihood, **options).condition(x, y)


def test_models_with_too_few_features_are_warned_of():
    x, _ = rows()
    with pytest.warns(UserWarning, match=r"^KL .* per point: .* cover at least .* take more features, or landmarks"):
        loss = warn_of_lost_posterior(model("fourier"), x)
    assert loss.kl_per_point > 0.5
    with pytest.warns(UserWarning, match=r"^KL"):
        larger = warn_of_lost_posterior(model("fourier"), x, num_rows=10**5)
    assert larger.kl_per_point > loss.kl_per_point


def test_models_that_are_near_enough_and_those_without_an_answer_are_not():
    x, y = rows()
    tasks = MultitaskKernel(RBFKernel(), num_tasks=2)
    kernel = rfgp.approximate(tasks, 256, input_dim=2, seed=0)
    several = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x, torch.stack([y, -y], dim=-1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_lost_posterior(model("landmarks", 150), x).kl_per_point < 0.5
        assert warn_of_lost_posterior(several, x).kl_per_point < 0.5
        assert warn_of_lost_posterior(ExactModel(x, y, GaussianLikelihood(), RBFKernel()), x) is None
        assert warn_of_lost_posterior(model("landmarks", 16, block_size=50), x) is None

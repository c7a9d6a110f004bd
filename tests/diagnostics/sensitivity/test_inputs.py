"""Distributions of inputs: characteristic functions, moments, quantiles and draws."""

from __future__ import annotations

import math
import re

import gpytorch
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from quadrature import nodes
from torch import distributions

import rfgp
from rfgp.diagnostics.sensitivity import Empirical, Estimate, InputDistribution, Normal, Uniform, sobol_indices
from rfgp.diagnostics.sensitivity.given import checked_inputs, distribution
from rfgp.diagnostics.sensitivity.inputs import outside

pytestmark = pytest.mark.usefixtures("float64_default")
KNOWN = [Uniform(-1.0, 2.0), Uniform(100.0, 101.0), Normal(3.0, 0.5), Empirical([1.0, 2.0, 6.0, 6.0])]


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_characteristic_functions_and_moments_equal_quadrature(known):
    x, weights = nodes(known)
    w = torch.tensor([0.0, 1e-9, 1e-3, 0.07, 0.3, -2.0, 5.0])
    waves = torch.exp(1j * w[:, None] * x)
    torch.testing.assert_close(known.characteristic(w), (waves * weights).sum(-1), rtol=1e-10, atol=1e-12)
    centered = torch.exp(1j * w[:, None] * (x - known.mean))
    moment = ((x - known.mean) * centered * weights).sum(-1)
    torch.testing.assert_close(known.centered_moment(w), moment, rtol=1e-10, atol=1e-12)
    assert known.mean == pytest.approx(float((weights * x).sum()), rel=1e-12)
    assert known.variance == pytest.approx(float((weights * (x - known.mean).square()).sum()), rel=1e-10)
    differences = known.at_differences(w, w[:3])
    expected = known.characteristic(w[:, None] - w[:3]) * torch.exp(-1j * (w[:, None] - w[:3]) * known.mean)
    torch.testing.assert_close(differences.to(expected.dtype), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_draws_have_the_moments(known):
    draws = known.sample(20_000, torch.Generator().manual_seed(0))
    error = (known.variance / 20_000) ** 0.5
    assert abs(float(draws.mean()) - known.mean) < 4.0 * error
    assert float(draws.var()) == pytest.approx(known.variance, rel=0.1)
    assert torch.isfinite(known.quantile(torch.tensor([0.0, 0.5, 1.0]))).all()
    assert known.grid(5).diff().std() < 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(1.0, 1.0),
        lambda: Uniform(0.0, float("inf")),
        lambda: Uniform("low", 1.0),
        lambda: Normal(0.0, 0.0),
        lambda: Normal(float("nan"), 1.0),
        lambda: Empirical([]),
        lambda: Empirical([1.0, 1.0]),
        lambda: Empirical([1.0, float("nan")]),
        lambda: Empirical([[1.0, 2.0]]),
        lambda: Empirical("values"),
        lambda: checked_inputs([]),
        lambda: checked_inputs([1.0]),
        lambda: checked_inputs(Uniform(0.0, 1.0)),
        lambda: Uniform(0.0, 1.0).sample(0),
        lambda: Estimate(torch.zeros(()), torch.zeros(3)).quantile(0.0),
        lambda: Estimate(torch.zeros(()), torch.zeros(3)).interval(1.0),
    ],
)
def test_bad_distributions_are_refused(make):
    with pytest.raises(ValueError, match=r"expected .+[,;] got .+; \S+ \S.*"):
        make()


def test_columns_of_data_frames_with_any_index():
    column = pd.Series([3.0, 1.0, 2.0], index=[1000, 1001, 1002])
    assert Empirical(column).values.tolist() == [1.0, 2.0, 3.0] and Empirical(column[::-1]).mean == 2.0


def test_inputs_have_names():
    assert list(checked_inputs([Uniform(0, 1), Normal(0, 1)])) == ["x1", "x2"]
    assert list(checked_inputs({"load": Normal(5, 0.1)})) == ["load"]
    assert all(isinstance(known, InputDistribution) for known in KNOWN)


def test_estimates_have_intervals():
    estimate = Estimate(torch.tensor([1.0, 2.0]), torch.linspace(0.0, 1.0, 101)[:, None] * torch.tensor([1.0, 2.0]))
    low, high = estimate.interval(0.9)
    torch.testing.assert_close(low, torch.tensor([0.05, 0.1]))
    torch.testing.assert_close(high, torch.tensor([0.95, 1.9]))
    assert estimate[1].value == 2.0 and estimate[1].samples.shape == (101,)
    torch.testing.assert_close(estimate.mean, torch.tensor([0.5, 1.0]))


def test_intervals_of_shares_are_inside_the_unit_interval():
    spread = torch.zeros(101, 1)  # with which a share is none of nothing
    low, high = Estimate(torch.ones(1), torch.linspace(-0.2, 1.3, 101)[:, None], spread).interval()
    assert float(low) == 0.0 and float(high) == 1.0


@pytest.mark.parametrize(
    ("known", "rtol"),
    [
        (scipy.stats.lognorm(0.5), 1e-9),
        (scipy.stats.lognorm(1.0), 1e-7),
        (scipy.stats.lognorm(1.5), 1e-5),
        (scipy.stats.gumbel_r(0.4, 0.1), 1e-9),
        (scipy.stats.triang(0.3), 1e-7),
        (scipy.stats.beta(2, 3), 1e-9),
        (scipy.stats.randint(0, 2), 1e-9),
    ],
    ids=lambda value: getattr(getattr(value, "dist", None), "name", None),
)
def test_quadrature_holds_the_variance_of_quantiles(known, rtol):
    found = distribution(known)
    assert found.mean == pytest.approx(known.mean(), rel=rtol)
    assert found.variance == pytest.approx(known.var(), rel=rtol)
    low, high = known.ppf([0.1, 0.9])
    share, of_variance = outside(found, low, high)
    expected = 1.0 - (known.cdf(high) - known.cdf(low) + (known.pmf(low) if hasattr(known, "pmf") else 0.0))
    square = known.expect(lambda x: (x - known.mean()) ** 2, lb=low, ub=high) / known.var()
    assert share == pytest.approx(expected, abs=2e-3) and of_variance == pytest.approx(1.0 - square, abs=3e-3)


class OpenTurnsGumbel:
    """A stand-in with the method by which a distribution of OpenTURNS has quantiles: rows (n, 1) for levels (n,)."""

    def computeQuantile(self, levels):
        return 0.4 - 0.1 * np.log(-np.log(np.asarray(levels)))[:, None]

    def __repr__(self):
        return "Gumbel(beta = 0.1, gamma = 0.4)"


NEW_NORMAL = scipy.stats.Normal(mu=0.5, sigma=0.2)
RUNS = np.random.default_rng(0).random(40)
HISTOGRAM = scipy.stats.rv_histogram(np.histogram(RUNS, 5))
DENSITY = scipy.stats.gaussian_kde(RUNS)
DENSITY_QUANTILE = np.vectorize(
    lambda level: scipy.optimize.brentq(lambda x: DENSITY.integrate_box_1d(-np.inf, x) - level, -2.0, 3.0)
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (NEW_NORMAL, scipy.stats.norm(0.5, 0.2).ppf),
        (scipy.stats.truncate(NEW_NORMAL, 0, 1), scipy.stats.truncnorm(-2.5, 2.5, 0.5, 0.2).ppf),
        (scipy.stats.make_distribution(scipy.stats.norm)() * 0.1 + 0.5, scipy.stats.norm(0.5, 0.1).ppf),
        (scipy.stats.norm, scipy.stats.norm().ppf),
        (HISTOGRAM, HISTOGRAM.ppf),
        (DENSITY, DENSITY_QUANTILE),
        (OpenTurnsGumbel(), scipy.stats.gumbel_r(0.4, 0.1).ppf),
        (distributions.Laplace(0.4, 0.1), scipy.stats.laplace(0.4, 0.1).ppf),
        (distributions.Gamma(5.0, 1e4), scipy.stats.gamma(5, scale=1e-4).ppf),
        (distributions.Beta(2.0, 3.0), scipy.stats.beta(2, 3).ppf),
        (distributions.Beta(1000.0, 3000.0), scipy.stats.beta(1000, 3000).ppf),
        (distributions.Beta(0.5, 0.5), scipy.stats.beta(0.5, 0.5).ppf),
        (distributions.FisherSnedecor(4.0, 9.0), scipy.stats.f(4, 9).ppf),
        (distributions.StudentT(3.0, 1e5, 0.1), scipy.stats.t(3, 1e5, 0.1).ppf),
        (distributions.StudentT(1.0), scipy.stats.t(1).ppf),
        ("gumbel(.4, .1)", scipy.stats.gumbel_r(0.4, 0.1).ppf),
        ("truncnormal(.5, .2, 0, inf)", scipy.stats.truncnorm(-2.5, np.inf, 0.5, 0.2).ppf),
        ("weibull(2, .5)", scipy.stats.weibull_min(2, scale=0.5).ppf),
        ("gamma(5, .1)", scipy.stats.gamma(5, scale=0.1).ppf),
        ("beta(2, 3)", scipy.stats.beta(2, 3).ppf),
        ("loguniform(.1, 10)", scipy.stats.loguniform(0.1, 10).ppf),
        ({"distribution": "gumbel", "mode": 0.4, "scale": 0.1}, scipy.stats.gumbel_r(0.4, 0.1).ppf),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.every_case
def test_quantiles_are_those_of_the_distribution(given, expected):
    found, level = distribution(given), torch.tensor([[1e-4, 0.01, 0.2], [0.5, 0.9, 0.999]])
    values = torch.as_tensor(expected(level.numpy()))
    torch.testing.assert_close(found.quantile(level), values, rtol=3e-6, atol=1e-7 * values.std().item())
    assert " object at " not in repr(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (scipy.stats.Normal, "expected a distribution for load, got the class Normal; make one by its parameters"),
        (scipy.stats.beta, "expected a distribution of one number for load, got beta_gen, whose ppf raises TypeError"),
        (scipy.stats.norm([0.0, 1.0]), "whose ppf has 2 values for one; pass a distribution for each input"),
        (scipy.stats.Normal(mu=[0.0, 1.0], sigma=1.0), "whose icdf has 2 values for one"),
        (scipy.stats.gaussian_kde(np.arange(40.0).reshape(2, 20) % 7), "whose integrate_box_1d raises ValueError"),
        (distributions.Beta(torch.ones(3), 1.0), "got Beta, whose log_prob has 3 values for one"),
        (distributions.Dirichlet(torch.ones(2)), r"got Dirichlet, whose values have shape \(2,\)"),
        (distributions.Poisson(3.0), "expected a distribution with quantiles for load, got the discrete Poisson"),
        (distributions.VonMises(0.0, 1.0), "expected a density of total one for load, got VonMises"),
        ("gumbel(.4, -1)", r"expected finite quantiles of Gumbel\(0.4, -1\), got nan; check its parameters"),
        ("truncnorm(.5, .2, 0, 1)", "got 'truncnorm'; did you mean 'truncnormal'?"),
        (np.ones(3), "expected a distribution for load, got ndarray; such as"),
    ],
)
def test_what_has_no_quantiles_of_one_number_is_refused(given, message):
    with pytest.raises(ValueError, match=rf"^(?=expected ).*{message}"):
        distribution(given, "load")


def test_waves_of_a_discrete_distribution_are_sums():
    found, w = distribution(scipy.stats.randint(0, 3)), torch.tensor([0.7, 5.0])
    expected = torch.exp(1j * w[:, None] * torch.arange(3.0)).mean(-1)
    torch.testing.assert_close(found.characteristic(w), expected, rtol=0.0, atol=2.0 / 512)


def test_what_lies_outside_the_training_inputs_is_told():
    x = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x.sum(-1))
    found = sobol_indices(model, {"length": Uniform(0.0, 1.0), "load": "lognormal(-1.5, 0.8)"}, num_functions=4)
    load = scipy.stats.lognorm(0.8, scale=math.exp(-1.5))
    low, high = 2.0**-5, 1.0  # the range of x in powers of two, which a model keeps
    assert x[:, 1].min() > 0.03125 and x[:, 1].max() < 1.0
    assert found.outside[0, 1] == pytest.approx(load.cdf(low) + load.sf(high), abs=1e-3)
    assert found.outside[1, 1] > 0.2 and found.outside[1, 0] < 0.2
    assert re.search(r"% of load, with \d+% of its variance, is outside the training inputs", found.table())

"""Dependent inputs: Gaussian copulas, what they do to propagation, and Shapley effects against closed forms."""

import math
from itertools import combinations

import pandas as pd
import pytest
import scipy.stats
import torch
from gpytorch.kernels import PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean

import rfgp
from rfgp.diagnostics.sensitivity import (
    Empirical,
    GaussianCopula,
    Normal,
    Uniform,
    derivative_sensitivities,
    main_effects,
    propagate,
    shapley_effects,
    sobol_indices,
)
from rfgp.diagnostics.sensitivity.sources import FunctionSource

pytestmark = pytest.mark.usefixtures("float64_default")
STANDARD_ERRORS = 5.0
CORRELATION = torch.tensor([[1.0, 0.6, 0.2], [0.6, 1.0, -0.3], [0.2, -0.3, 1.0]], dtype=torch.float64)


class Known(FunctionSource):
    """A function, or several outputs (N, T), without any doubt about it."""

    bounds, has_outputs = None, False

    def __init__(self, function, has_outputs=False):
        self.function, self.has_outputs = function, has_outputs

    def functions(self, num_functions):
        def values(x):
            found = self.function(x).reshape(len(x), -1)
            return found.repeat(1, 1 + num_functions)

        return [values]

    def moments(self, x):
        return self.function(x), torch.zeros_like(self.function(x))


def linear(slopes):
    return Known(lambda x: x @ slopes)


def exact_effects(slopes, correlation):
    """The effects of a linear function of a normal vector, by all subsets."""
    dim, cross = len(slopes), correlation @ slopes

    def explained(subset):
        known = list(subset)
        return float(cross[known] @ torch.linalg.solve(correlation[known][:, known], cross[known])) if known else 0.0

    effects = []
    for k in range(dim):
        others = [j for j in range(dim) if j != k]
        parts = [
            (explained((*subset, k)) - explained(subset)) / math.comb(dim - 1, size)
            for size in range(dim)
            for subset in combinations(others, size)
        ]
        effects.append(sum(parts) / dim)
    return torch.tensor(effects) / (slopes @ cross)


def is_close(found, expected):
    return bool(((found.effects.value - expected).abs() <= STANDARD_ERRORS * found.standard_error + 1e-12).all())


@pytest.mark.parametrize("rho", [-0.8, 0.0, 0.5])
def test_effects_of_two_normal_inputs_are_those_of_owen_and_prieur(rho):
    slopes, stds = torch.tensor([2.0, 1.0]), (0.5, 2.0)
    inputs = GaussianCopula([Normal(1.0, stds[0]), Normal(-1.0, stds[1])], [[1.0, rho], [rho, 1.0]])
    found = shapley_effects(linear(slopes), inputs, num_functions=2)
    first, second = (float(slope) * std for slope, std in zip(slopes, stds, strict=True))
    variance = first**2 + second**2 + 2.0 * rho * first * second
    shared = 0.5 * rho**2 * (second**2 - first**2) + rho * first * second
    expected = torch.tensor([first**2 + shared, second**2 + rho * first * second - (shared - rho * first * second)])
    assert is_close(found, expected / variance)
    assert (found.standard_error < 0.02).all()
    assert float(found.variance.value) == pytest.approx(variance, rel=0.05)
    assert float(found.effects.value.sum()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("dim", [3, 9])
def test_effects_of_many_normal_inputs_are_those_of_all_subsets_or_of_random_orders(dim):
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(dim, dim, generator=generator)
    covariance = root @ root.mT + torch.eye(dim)
    scale = covariance.diagonal().rsqrt()
    correlation = scale[:, None] * covariance * scale
    slopes = torch.randn(dim, generator=generator)
    inputs = GaussianCopula([Normal(0.0, 1.0)] * dim, correlation)
    found, expected = shapley_effects(linear(slopes), inputs, num_functions=1), exact_effects(slopes, correlation)
    assert is_close(found, expected)
    assert (found.standard_error < 0.05).all()
    assert not is_close(found, expected.flip(0))


def test_effects_of_independent_inputs_are_between_first_order_and_total_indices_and_sum_to_one():
    model = Known(lambda x: torch.sin(6.0 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2)
    inputs = {"a": Uniform(0.0, 1.0), "b": Uniform(0.0, 1.0), "c": Normal(0.5, 0.2)}
    found, indices = shapley_effects(model, inputs, num_functions=1), sobol_indices(model, inputs, num_functions=1)
    margin = STANDARD_ERRORS * found.standard_error
    assert (found.effects.value >= indices.first.value - margin).all()
    assert (found.effects.value <= indices.total.value + margin).all()
    assert float(found.effects.value.sum()) == pytest.approx(1.0, abs=1e-12)
    half = 0.5 * (indices.first.value + indices.total.value)[:2]  # of an interaction of two, each has half
    assert ((found.effects.value[:2] - half).abs() <= margin[:2] + 0.01).all()


@pytest.mark.parametrize("kernel", [RBFKernel, lambda: PolynomialKernel(power=2)], ids=["waves", "sampled functions"])
def test_effects_of_a_model_have_the_posterior_of_its_functions(kernel):
    x = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    features = rfgp.approximate(ScaleKernel(kernel()), 64, input_dim=3, seed=0)
    likelihood = GaussianLikelihood().initialize(noise=0.01)
    model = rfgp.WeightSpaceGP(features, likelihood, ConstantMean()).condition(x, 2.0 * x[:, 0] + x[:, 0] * x[:, 1])
    torch.manual_seed(0)
    found = shapley_effects(model, [Uniform(0.0, 1.0)] * 3, num_functions=50)
    indices = sobol_indices(model, [Uniform(0.0, 1.0)] * 3, num_functions=50)
    for first, effect, total in (
        (indices.first.value, found.effects.value, indices.total.value),
        (indices.first.mean, found.effects.mean, indices.total.mean),
    ):
        margin = STANDARD_ERRORS * found.standard_error + 0.005
        assert (effect >= first - margin).all() and (effect <= total + margin).all()
    assert torch.allclose(found.effects.samples.sum(-1), torch.ones(50))
    low, high = found.effects.interval()
    assert float(low[0]) > 0.8 and float(low[2]) == 0.0 and (low < high).all()


def test_an_input_that_a_function_does_not_have_matters_by_its_correlation():
    inputs = GaussianCopula({"used": Uniform(0.0, 1.0), "unused": Uniform(0.0, 1.0)}, [[1.0, 0.9], [0.9, 1.0]])
    found = shapley_effects(Known(lambda x: x[:, 0]), inputs, num_functions=1)
    assert 0.3 < float(found.effects.value[1]) < float(found.effects.value[0])
    first, second = found.table().splitlines()[1:]
    assert first.startswith("used") and second.startswith("unused")


def test_every_output_has_effects():
    slopes = torch.tensor([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
    inputs = GaussianCopula([Normal(0.0, 1.0)] * 3, CORRELATION)
    found = shapley_effects(Known(lambda x: x @ slopes, has_outputs=True), inputs, num_functions=2)
    assert found.effects.value.shape == found.standard_error.shape == (2, 3)
    for t in range(2):
        assert torch.allclose(found.effects.value[t], exact_effects(slopes[:, t], CORRELATION), atol=0.03)
    assert "output 2" in found.table() and str(found) == found.table()


def test_samples_have_the_marginals_and_the_rank_correlation():
    values = [0.0, 1.0, 5.0]
    copula = GaussianCopula({"a": Uniform(2.0, 3.0), "b": Normal(1.0, 4.0), "c": Empirical(values)}, CORRELATION)
    x = copula.sample(20_000, torch.Generator().manual_seed(0)).numpy()
    assert scipy.stats.kstest(x[:, 0], scipy.stats.uniform(2.0, 1.0).cdf).pvalue > 1e-3
    assert scipy.stats.kstest(x[:, 1], scipy.stats.norm(1.0, 4.0).cdf).pvalue > 1e-3
    assert set(x[:, 2]) == set(values)
    rank = scipy.stats.spearmanr(x[:, 0], x[:, 1]).statistic
    assert abs(rank - 6.0 / math.pi * math.asin(0.3)) < STANDARD_ERRORS / math.sqrt(len(x))


def test_propagation_knows_the_correlation():
    slopes = torch.tensor([1.0, 1.0, 2.0])
    inputs = GaussianCopula([Normal(0.0, 1.0)] * 3, CORRELATION)
    found = propagate(
        linear(slopes), inputs, num_points=4000, num_functions=1, generator=torch.Generator().manual_seed(0)
    )
    variance = float(slopes @ CORRELATION @ slopes)
    assert abs(float(found.mean)) < STANDARD_ERRORS * math.sqrt(variance / 4000)
    assert abs(float(found.input_std) ** 2 / variance - 1.0) < STANDARD_ERRORS * math.sqrt(2.0 / 4000)
    expected = scipy.stats.norm.ppf(0.95) * math.sqrt(variance)
    assert abs(float(found.quantile(0.95).value) - expected) < STANDARD_ERRORS * 2.1 * math.sqrt(variance / 4000)


def test_a_data_frame_says_which_correlation_is_whose():
    names = ["a", "b", "c"]
    turned = pd.DataFrame(CORRELATION.numpy(), names, names).loc[["c", "a", "b"], ["b", "c", "a"]]
    copula = GaussianCopula(dict.fromkeys(names, Normal(0.0, 1.0)), turned)
    assert torch.equal(copula.correlation, CORRELATION)


@pytest.mark.parametrize("what", [sobol_indices, main_effects, derivative_sensitivities])
def test_what_needs_independent_inputs_says_so(what):
    copula = GaussianCopula([Normal(0.0, 1.0)] * 3, CORRELATION)
    with pytest.raises(ValueError, match=r"expected independent inputs, got a GaussianCopula.*use shapley_effects"):
        what(linear(torch.ones(3)), copula)


BAD = {
    "shape": (torch.eye(2), r"of shape \(3, 3\), got \(2, 2\)"),
    "not symmetric": (torch.eye(3) + torch.triu(torch.ones(3, 3), 1) * 0.1, "expected a symmetric correlation"),
    "covariance": (2.0 * torch.eye(3), "with ones on its diagonal"),
    "indefinite": (torch.tensor([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]), "positive definite"),
    "nan": (torch.full((3, 3), torch.nan), "correlation"),
    "names": (pd.DataFrame(torch.eye(3).numpy(), list("abd"), list("abd")), "name each input"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_correlations_are_refused(case):
    correlation, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        GaussianCopula(dict.fromkeys("abc", Normal(0.0, 1.0)), correlation)


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="expected num_points of at least 16, got 15"):
        shapley_effects(linear(torch.ones(2)), [Normal(0.0, 1.0)] * 2, num_points=15)

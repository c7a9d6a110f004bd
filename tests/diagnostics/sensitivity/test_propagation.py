"""Uncertain inputs through a model, and tables of results."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean
from quadrature import Quadrature

import rfgp
from rfgp.diagnostics.sensitivity import (
    Empirical,
    Normal,
    Propagation,
    Uniform,
    derivative_sensitivities,
    main_effects,
    propagate,
    sobol_indices,
)

pytestmark = pytest.mark.usefixtures("float64_default")


def fitted(target=lambda x: 3.0 * x[:, 0], count=60):
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(RBFKernel(), 64, input_dim=2, seed=0)
    likelihood = GaussianLikelihood()
    likelihood.noise = 1e-4
    return rfgp.WeightSpaceGP(kernel, likelihood).condition(x, target(x))


def test_moments_are_those_of_the_law_of_total_variance():
    inputs = [Uniform(0.0, 1.0), Normal(0.5, 0.1)]
    model = fitted()
    known = propagate(model, inputs, num_points=20_000, num_functions=2, generator=torch.Generator().manual_seed(1))
    exact = Quadrature(lambda x: torch.stack([model.posterior(x).mean, model.posterior(x).variance]).detach(), inputs)
    mean, model_variance = exact.mean()
    input_variance = exact.variance((0, 1))[0]
    assert abs(float(known.mean - mean)) < 4.0 * math.sqrt(float(input_variance) / 20_000)
    assert float(known.input_std) == pytest.approx(math.sqrt(float(input_variance)), rel=0.03)
    assert float(known.model_std) == pytest.approx(math.sqrt(float(model_variance)), rel=0.05)
    torch.testing.assert_close(known.std.square(), known.input_std.square() + known.model_std.square())


def test_quantiles_and_probabilities_are_those_of_a_known_function():
    inputs = {"length": Uniform(0.0, 1.0), "load": Uniform(0.0, 1.0)}
    known = propagate(fitted(), inputs, num_points=10_000, generator=torch.Generator().manual_seed(1))
    assert float(known.quantile(0.9).mean) == pytest.approx(2.7, abs=0.06)
    chance = known.exceedance(1.5)
    assert float(chance.mean) == pytest.approx(0.5, abs=0.02) and 0.0 < float(chance.std) < 0.02
    assert known.points.shape == (10_000, 2) and known.values.shape == (200, 10_000)


def test_what_landmarks_lack_is_in_all_results():
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    kernel = RBFKernel()
    kernel.lengthscale = 0.3
    made = rfgp.approximate(kernel, 12, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(made, GaussianLikelihood()).condition(x, x[:, 0])
    torch.manual_seed(0)
    known = propagate(model, x, num_functions=2000)
    variance = known.values.var(0).mean()
    assert float(variance) == pytest.approx(float(known.model_std.square()), rel=4.0 * (2.0 / 2000) ** 0.5)
    assert bool(made.residual_variance(x).mean() > 0.3 * variance)
    indices = sobol_indices(model, [Uniform(0.0, 1.0)] * 2, num_functions=50, num_points=64)
    spread = propagate(model, [Uniform(0.0, 1.0)] * 2, num_functions=200).values.var(1).mean()
    error = math.hypot(float(indices.variance.std) / 50**0.5, float(spread) * (2.0 / 2000) ** 0.5)
    assert indices.method == "sampling" and abs(float(indices.variance.mean - spread)) < 4.0 * error < 0.3 * float(
        spread
    )


def test_a_generator_is_for_inputs_and_functions():
    before = torch.random.get_rng_state()
    first, second = (
        propagate(fitted(), [Uniform(0.0, 1.0)] * 2, num_points=5, generator=torch.Generator().manual_seed(0))
        for _ in range(2)
    )
    assert torch.equal(first.values, second.values) and torch.equal(torch.random.get_rng_state(), before)


def test_dependent_inputs_are_given_as_draws():
    same = torch.rand(500, 1, generator=torch.Generator().manual_seed(1)).expand(500, 2)
    known = propagate(fitted(lambda x: x[:, 0] - x[:, 1]), same, num_functions=3)
    assert float(known.input_std) < 0.02 and known.values.shape == (3, 500)


def test_several_outputs_and_bad_calls():
    x = torch.rand(30, 2)
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), 2), 16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x, x)
    known = propagate(model, x, num_functions=4)
    assert known.mean.shape == known.std.shape == known.quantile(0.5).mean.shape == (2,)
    with pytest.raises(ValueError, match="expected a level between 0 and 1"):
        known.quantile(2.0)
    with pytest.raises(ValueError, match="columns"):
        propagate(model, [Uniform(0, 1)])


def test_no_input_of_a_constant_function_is_important():
    x = torch.rand(30, 2)
    for method in ("fourier", "landmarks"):
        kernel = rfgp.approximate(RBFKernel(), 8, method=method, train_inputs=x, seed=0)
        model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood(), ConstantMean())
        model.mean_module.constant.data.fill_(2.0)
        indices = sobol_indices(
            model.condition(x, torch.full((30,), 2.0)), [Uniform(0, 1)] * 2, num_functions=3, num_points=8
        )
        assert indices.first.value.tolist() == indices.total.value.tolist() == [0.0, 0.0]
        assert float(indices.second.value[0, 1]) == 0.0


def test_tables_name_inputs_in_order_of_importance():
    indices = sobol_indices(fitted(), {"length": Uniform(0.0, 1.0), "load": Uniform(0.0, 1.0)}, num_functions=20)
    heading, first, second = str(indices).splitlines()
    assert heading.split() == ["input", "first", "order", "total"] and first.startswith("length  1.000 (")
    assert second.startswith("load    0.000 (") and indices.names == ("length", "load")
    pytest.importorskip("pandas")
    frame = indices.to_frame()
    assert list(frame["input"]) == ["length", "load"] and frame["first"][0] == float(indices.first.value[0])
    assert (frame["total_low"] <= frame["total_high"]).all()


def test_tables_of_several_outputs():
    x = torch.rand(30, 2)
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), 2), 16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x, x)
    indices = sobol_indices(model, [Uniform(0, 1)] * 2, second_order=False, num_functions=5)
    assert indices.second is None and len(indices.table().splitlines()) == 8
    pytest.importorskip("pandas")
    assert list(indices.to_frame()["output"]) == [1, 1, 2, 2]


def in_raw_units():
    """Distributions of inputs in their own units, and a model that was fitted to standardized ones."""
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(RBFKernel(), 16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood()).condition((x - x.mean(0)) / x.std(0), x[:, 0])
    return model, {"radius": Uniform(0.05, 0.15), "length": Uniform(1120.0, 1680.0)}


@pytest.mark.parametrize("analyze", [sobol_indices, main_effects, derivative_sensitivities, propagate])
def test_distributions_far_outside_the_training_inputs_are_refused(analyze):
    model, inputs = in_raw_units()
    with pytest.raises(ValueError, match=r"expected .*length.* got .* standardized"):
        analyze(model, inputs)
    analyze(model, inputs | {"length": Normal(0.0, 1.0)}, num_functions=2)


def test_draws_far_outside_the_training_inputs_are_refused():
    model, inputs = in_raw_units()
    x = torch.stack([known.sample(50, torch.Generator().manual_seed(0)) for known in inputs.values()], dim=-1)
    with pytest.raises(ValueError, match=r"expected .*x2.* got .* standardized"):
        propagate(model, x)
    propagate(model, 0.001 * x, num_functions=2)


def test_long_tails_and_constant_columns_are_not_refused():
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 4.0
    kernel = rfgp.approximate(RBFKernel(), 16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, x[:, 0])
    values = torch.linspace(-0.5, 1.5, 100)
    values[0], values[-1] = -1e3, 1e3
    assert sobol_indices(model, [Empirical(values), Normal(4.0, 0.1)], num_functions=2).mean.value.isfinite()


def test_intervals_of_quantiles_and_probabilities_count_the_error_of_points():
    generator, points, level, limit = torch.Generator().manual_seed(3), 100, 0.8, 1.0
    truth = {"quantile": math.sqrt(2.0) * torch.erfinv(torch.tensor(2.0 * level - 1.0)).item()}
    truth["exceedance"] = 0.5 * math.erfc(limit / math.sqrt(2.0))
    inside = dict.fromkeys(truth, 0)
    for _ in range(200):
        x = torch.randn(points, 1, generator=generator)
        known = Propagation(x.mean(), x.std(), torch.zeros(()), x, x.mT.expand(100, points))
        for name, estimate in (("quantile", known.quantile(level)), ("exceedance", known.exceedance(limit))):
            low, high = estimate.interval()
            inside[name] += bool(low <= truth[name] <= high)
    error = math.sqrt(0.05 * 0.95 / 200)
    assert all(abs(count / 200 - 0.95) < 3.5 * error for count in inside.values())

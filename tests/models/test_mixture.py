"""Mixtures of draws: moments of single draws, updates, states, training, function samples, error bars and refusals."""

import copy
import functools
import io
import pickle
import warnings

import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from output_problems import INPUTS as OUTPUT_INPUTS
from output_problems import output_kernel, output_likelihood, output_mean, output_rows
from problems import INPUTS, likelihood_for, polynomial, rows_for

import rfgp
from rfgp.approximation.maps import drawn_maps
from rfgp.models import WeightSpaceGP
from rfgp.models.weight_space import row_summation

pytestmark = pytest.mark.usefixtures("float64_default")

DRAWS, ROWS, CLOSE = 3, 40, 1e-10
SCALAR = [("gaussian", "tensor_srht:complex"), ("complex", "tensor_srht:complex")]
"""Complex features; tests/contract has real ones of every likelihood."""


def mixture(kind="gaussian", method="rademacher:real", num_draws=DRAWS, **options):
    mean = gpytorch.means.ConstantMean()
    mean.constant = 0.3
    return WeightSpaceGP(polynomial(method=method, **options), likelihood_for(kind), mean, num_draws=num_draws)


def output_mixture(name, kind, num_draws=DRAWS):
    return WeightSpaceGP(output_kernel(name), output_likelihood(name, kind), output_mean(name), num_draws=num_draws)


def singles(model, make):
    """Models of one draw with the weights of each draw of a mixture, made and fitted apart from it."""
    for maps in [[part.feature_map for part in drawn_maps(model.covar_module)], *model.further_draws.maps]:
        single = make(num_draws=1)
        for part, known in zip(drawn_maps(single.covar_module), maps, strict=True):
            part.feature_map.load_state_dict(known.state_dict())
        yield single


def assert_equal(found, wanted, tolerance=CLOSE):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert float((found - wanted).abs().max()) <= tolerance * max(1.0, float(wanted.abs().max()))


def assert_moments(found, parts):
    """A distribution has the moments of a mixture of others, by dense algebra."""
    means = torch.stack([part.mean for part in parts])
    flat = means.flatten(-2) if isinstance(found, gpytorch.distributions.MultitaskMultivariateNormal) else means
    centered = (flat - flat.mean(0)).unsqueeze(-1)
    covariance = torch.stack([part.covariance_matrix for part in parts]) + centered @ centered.mH
    assert type(found) is type(parts[0])
    assert_equal(found.mean, means.mean(0))
    assert_equal(found.covariance_matrix, covariance.mean(0))
    variance = torch.stack([part.variance for part in parts]).mean(0) + (means - means.mean(0)).abs().square().mean(0)
    assert_equal(found.variance, variance)


def check(model, make, data, test):
    with torch.no_grad():
        model.condition(*data)
        parts = [single.condition(*data) for single in singles(model, make)]
        assert len(parts) == DRAWS
        assert_moments(model.posterior(test), [part.posterior(test) for part in parts])
        if not (model.covar_module.is_complex and not torch.is_complex(data[1])):
            evidence = torch.stack([part.log_marginal_likelihood() for part in parts]).mean()
            assert_equal(model.log_marginal_likelihood(), evidence)


@pytest.mark.parametrize(("kind", "method"), SCALAR)
def test_moments_are_those_of_single_draws(kind, method):
    check(
        mixture(kind, method),
        lambda num_draws: mixture(kind, method, num_draws, seed=9),
        rows_for(kind, ROWS),
        torch.randn(7, INPUTS),
    )


def test_truncated_features_are_completed_in_every_draw():
    x, y, _ = rows_for("gaussian", ROWS)
    exact = ScaleKernel(RBFKernel())

    def make(num_draws):
        kernel = rfgp.approximate(exact, 16, method="optimized_maclaurin", train_inputs=x, seed=0)
        return WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=num_draws, residual="fitc")

    check(make(DRAWS), make, (x, y), 2.0 * x[:7])


@pytest.mark.parametrize(("kind", "method"), SCALAR)
def test_streaming_equals_a_fit_to_all_rows(kind, method):
    x, y, noise = rows_for(kind, ROWS)
    test = torch.randn(7, INPUTS)
    with torch.no_grad():
        wanted = mixture(kind, method).condition(x, y, noise).posterior(test)
        cut = [slice(0, 15), slice(15, 30), slice(30, ROWS)]
        parts = [(x[rows], y[rows], *([] if noise is None else [noise[rows]])) for rows in cut]
        loaded = mixture(kind, method).condition(iter(parts))
        updated = mixture(kind, method).condition(*parts[0]).update(*parts[1]).update(*parts[2])
        new = mixture(kind, method).update(*parts[0]).update(*parts[1]).update(*parts[2])
        for model in (loaded, updated, new):
            assert_equal(model.posterior(test).mean, wanted.mean, 1e-9)
            assert_equal(model.posterior(test).variance, wanted.variance, 1e-9)


def test_one_draw_is_the_model_without_a_mixture():
    x, y, _ = rows_for("gaussian", ROWS)
    one = mixture(num_draws=1).condition(x, y)
    assert not list(one.further_draws.parameters()) and not one.further_draws.models
    assert not any("draw" in name for name in one.state_dict())
    assert type(one.posterior(x).lazy_covariance_matrix).__name__ == "WeightSpaceCovariance"


@pytest.mark.parametrize("input_dim", [INPUTS, None])
def test_seeds_give_the_same_mixture_and_draws_differ(input_dim):
    x, y, _ = rows_for("gaussian", ROWS)
    torch.manual_seed(1)
    first = mixture(input_dim=input_dim).condition(x, y)
    torch.manual_seed(2)
    second, other = mixture().condition(x, y), mixture(seed=1).condition(x, y)
    assert torch.equal(first.posterior(x).variance, second.posterior(x).variance)
    assert not torch.allclose(first.posterior(x).variance, other.posterior(x).variance)
    grams = [statistics.gram for statistics in first.draw_statistics]
    assert len(grams) == DRAWS and not any(torch.allclose(grams[i], grams[j]) for i in range(3) for j in range(i))
    again = mixture(input_dim=input_dim).condition(x[:20], y[:20]).condition(x, y)
    assert torch.equal(again.posterior(x).variance, first.posterior(x).variance)


def test_parameters_count_once_and_are_saved_once():
    x, y, _ = rows_for("gaussian", ROWS)
    model, one = mixture().condition(x, y), mixture(num_draws=1).condition(x, y)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in one.named_parameters()]
    saved = model.state_dict()
    assert sum(name.endswith("raw_outputscale") and "fitted_with" not in name for name in saved) == 1
    assert all(draw.covar_module.raw_outputscale is model.covar_module.raw_outputscale for draw in draws(model))


def draws(model):
    return model.further_draws.of(model)


@pytest.mark.parametrize(("kind", "method"), SCALAR)
def test_states_hold_all_draws(kind, method):
    x, y, noise = rows_for(kind, ROWS)
    test = torch.randn(7, INPUTS)
    with torch.no_grad():
        model = mixture(kind, method).condition(x, y, noise)
        model.resample(torch.Generator().manual_seed(4)).condition(x, y, noise)
        wanted = model.posterior(test)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        for twin in (mixture(kind, method, input_dim=None), mixture(kind, method, seed=7).condition(x, y, noise)):
            file.seek(0)
            twin.load_state_dict(torch.load(file, weights_only=True))
            assert twin.state_dict().keys() == model.state_dict().keys()
            assert torch.equal(twin.posterior(test).variance, wanted.variance)
            assert torch.equal(
                twin.update(x, y, noise).posterior(test).variance,
                copy.deepcopy(model).update(x, y, noise).posterior(test).variance,
            )


def test_a_state_inside_another_module_and_one_of_missing_outputs_load():
    data = output_rows("multitask", pattern="random")
    test = torch.randn(5, OUTPUT_INPUTS)
    model = torch.nn.ModuleList([output_mixture("multitask", "per task").condition(*data)])
    twin = torch.nn.ModuleList([output_mixture("multitask", "per task")])
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin[0].posterior(test).variance, model[0].posterior(test).variance)


def test_a_centered_kernel_and_changed_parameters_reach_all_draws_of_a_loaded_model():
    x, y, _ = rows_for("gaussian", ROWS)

    def make():
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=INPUTS, method="fourier", seed=0)
        return WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=DRAWS)

    model, twin = make(), make()
    rfgp.fit(model, x + 5.0, y, max_evaluations=12, progress=False)
    twin.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(twin.posterior(x + 5.0).variance, model.posterior(x + 5.0).variance)
    twin.covar_module.outputscale = 7.0
    model.covar_module.outputscale = 7.0
    assert torch.equal(twin.condition(x, y).posterior(x).variance, model.condition(x, y).posterior(x).variance)


def test_states_of_other_numbers_of_draws_are_refused_and_nothing_changes():
    x, y, _ = rows_for("gaussian", ROWS)
    models = {count: mixture(num_draws=count).condition(x, y) for count in (1, 2, 3)}
    for count, model in models.items():
        before = model.posterior(x).variance
        for other in models.keys() - {count}:
            with pytest.raises(ValueError, match=f"num_draws={count}"):
                model.load_state_dict(models[other].state_dict())
        assert torch.equal(model.posterior(x).variance, before)
    model = models[3]
    model.load_state_dict(mixture(num_draws=3, input_dim=None).state_dict())
    with pytest.raises(ValueError, match="without data"):
        model.posterior(x)
    assert torch.equal(model.condition(x, y).posterior(x).variance, mixture().condition(x, y).posterior(x).variance)


def test_copies_pickles_and_moves_keep_all_draws():
    x, y, _ = rows_for("gaussian", ROWS)
    model = mixture().condition(x, y)
    wanted = model.posterior(x).variance
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin.posterior(x).variance, wanted)
        assert all(draw.covar_module.raw_outputscale is twin.covar_module.raw_outputscale for draw in draws(twin))
        moved = twin.to(torch.float32).condition(x.float(), y.float())
        assert moved.posterior(x.float()).mean.dtype == torch.float32
        assert torch.allclose(moved.posterior(x.float()).variance.double(), wanted, rtol=1e-2)
    assert torch.equal(model.double().posterior(x).variance, wanted)


def test_merged_statistics_of_all_draws_stand_for_a_fit():
    x, y, _ = rows_for("gaussian", ROWS)
    with torch.no_grad():
        shards = [mixture().condition(x[rows], y[rows]).draw_statistics for rows in (slice(0, 25), slice(25, ROWS))]
        merged = [a.merge(b) for a, b in zip(*shards, strict=True)]
        found = mixture().load_statistics(merged).posterior(x)
        assert_equal(found.variance, mixture().condition(x, y).posterior(x).variance)
        model = mixture().condition(x, y)
        for bad in (merged[0], merged[:2], None, [*merged[:2], None]):
            with pytest.raises(ValueError, match="expected GramStatistics for each of num_draws=3"):
                model.load_statistics(bad)
        assert_equal(model.posterior(x).variance, found.variance)


def test_training_climbs_the_mean_of_the_log_evidences():
    x, y, _ = rows_for("gaussian", ROWS)
    model = mixture(method="tensor_srht:ctr", width=6)
    summary = rfgp.fit(model, x, y, max_evaluations=30, progress=False)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    parameter = model.covar_module.raw_outputscale
    values = []
    for step in (0.0, 1e-5, -2e-5):
        parameter.data += step
        value = model.condition(x, y).log_marginal_likelihood()
        values.append(value.detach())
        if not step:
            (gradient,) = torch.autograd.grad(value, [parameter])
    assert torch.allclose(gradient, (values[1] - values[2]) / 2e-5, rtol=1e-4, atol=1e-6)


def test_gradients_in_the_inputs_and_through_products_run_through_all_draws():
    x, y, _ = rows_for("gaussian", ROWS)
    model = mixture().condition(x, y)
    test = torch.randn(3, INPUTS, requires_grad=True)

    def moments(values):
        found = model.posterior(values)
        return found.mean, found.variance, found.lazy_covariance_matrix @ torch.ones(3, 2)

    assert torch.autograd.gradcheck(moments, [test])


def test_functions_come_from_random_draws():
    x, y, _ = rows_for("gaussian", ROWS)
    model, count = mixture(width=6).condition(x, y), 1000
    torch.manual_seed(3)
    functions = model.sample_functions(count)
    test = torch.randn(4, INPUTS)
    with torch.no_grad():
        values = functions(test)
        posterior = model.posterior(test)
        scale = posterior.variance.sqrt()
        assert float(((values.mean(0) - posterior.mean) / scale).abs().max()) < 4.0 / count**0.5
        errors = (torch.cov(values.T) - posterior.covariance_matrix) / (scale[:, None] * scale)
        assert float(errors.abs().max()) < 5.0 * (2.0 / count) ** 0.5
        torch.manual_seed(3)
        assert torch.equal(model.sample_functions(count)(test), values)
        model.resample().condition(x, y)
        assert torch.equal(functions(test), values)


def test_samples_of_the_posterior_have_its_covariance_without_a_dense_one():
    x, y, _ = rows_for("gaussian", ROWS)
    with torch.no_grad():
        posterior = mixture(width=6).condition(x, y).posterior(torch.randn(4, INPUTS))
        draws = posterior.rsample(torch.Size([20000]))
        scale = posterior.variance.sqrt()
        errors = (torch.cov(draws.T) - posterior.covariance_matrix) / (scale[:, None] * scale)
        assert float(errors.abs().max()) < 5.0 * (2.0 / 20000) ** 0.5
        many = mixture().condition(x, y).posterior(torch.randn(200_000, INPUTS))
        assert many.variance.shape == (200_000,)  # 300 GB where it were dense
        assert many.rsample().shape == (200_000,)
        noisy = GaussianLikelihood()(posterior)
        assert_equal(noisy.variance, posterior.variance + noisy.lazy_covariance_matrix._diag_tensor._diagonal())


def test_stale_draws_and_failed_calls():
    x, y, _ = rows_for("gaussian", ROWS)
    model = mixture().condition(x, y)
    before = model.posterior(x).variance
    bad = y.clone()
    bad[3] = float("nan")
    for call in (
        lambda: model.condition(x, bad),
        lambda: model.update(x, bad),
        lambda: model.condition([(x, y), (x, bad)]),
    ):
        with pytest.raises(ValueError, match="finite"):
            call()
        assert torch.equal(model.posterior(x).variance, before)
    lazy = mixture(input_dim=None)
    with pytest.raises(ValueError, match="finite"):
        lazy.condition([(x, y), (x, bad)])
    assert len(lazy.further_draws.maps) == 0
    for change in (
        lambda: model.resample(),
        lambda: setattr(model.covar_module.base_kernel, "offset", 2.0),
    ):
        change()
        with pytest.raises(ValueError, match="call condition"):
            model.posterior(x)
        model.condition(x, y).posterior(x)


class LaterError(Exception):
    """Raised inside a later draw."""


def test_an_error_in_a_later_draw_leaves_the_model_as_it_was(monkeypatch):
    x, y, _ = rows_for("gaussian", ROWS)
    model = mixture().condition(x, y)
    before = model.posterior(x).variance
    own = row_summation.added
    calls = []

    def failing(model, *args, **options):
        calls.append(model)
        if len(calls) == 3:
            raise LaterError
        return own(model, *args, **options)

    monkeypatch.setattr(row_summation, "added", failing)
    for call in (model.condition, model.update, functools.partial(rfgp.fit, model)):
        calls.clear()
        with pytest.raises(LaterError):
            call(x + 1.0, y)
        assert torch.equal(model.posterior(x).variance, before)


def test_only_the_first_draw_gives_advice():
    x, y, _ = rows_for("gaussian", 10)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        mixture().condition(x, y).posterior(x)
    assert len([w for w in found if "exceed" in str(w.message)]) == 1


def test_what_is_not_random_is_refused():
    x, y, _ = rows_for("gaussian", ROWS)
    landmarks = rfgp.approximate(RBFKernel(), 8, method="landmarks", train_inputs=x, seed=0)
    linear = rfgp.approximate(LinearKernel(), 3, input_dim=INPUTS)
    for kernel in (landmarks, linear):
        with pytest.raises(ValueError, match="not random"):
            WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=8)
    with pytest.raises(ValueError, match="num_draws=1 beside block_size"):
        WeightSpaceGP(landmarks, GaussianLikelihood(), block_size=8, num_draws=2)
    lazy = WeightSpaceGP(rfgp.approximate(LinearKernel(), 3), GaussianLikelihood(), num_draws=2)
    with pytest.raises(ValueError, match="not random"):
        lazy.condition(x, y)
    for bad in (0, 1.5, "8"):
        with pytest.raises(ValueError, match="num_draws"):
            mixture(num_draws=bad)


def test_the_divergence_from_the_exact_posterior_is_smaller():
    x, y, _ = rows_for("gaussian", 200)

    def divergence(num_draws):
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 32, input_dim=INPUTS, method="fourier", seed=0)
        model = WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=num_draws, keep_data=True).condition(x, y)
        return float(rfgp.kl_to_exact(model, x[:50], direction="exact_from_approximate"))

    assert divergence(8) < 0.5 * divergence(1)


def test_error_bars_of_a_mixture_cover_more_of_the_function():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(700, 2, generator=generator)
    exact = RBFKernel()
    exact.lengthscale = 0.15
    with torch.no_grad():
        root = torch.linalg.cholesky(exact(x).to_dense() + 1e-8 * torch.eye(700))
        f = root @ torch.randn(700, 4, generator=generator)
        y = f + 0.1 * torch.randn(700, 4, generator=generator)
        likelihood = GaussianLikelihood()
        likelihood.noise = 0.01
        covered = {1: [], 8: []}
        for seed in range(4):
            for num_draws, found in covered.items():
                kernel = rfgp.approximate(exact, 64, input_dim=2, method="fourier", seed=seed)
                model = WeightSpaceGP(kernel, likelihood, num_draws=num_draws).condition(x[:500], y[:500, seed])
                posterior = model.posterior(x[500:])
                inside = (f[500:, seed] - posterior.mean).abs() <= 1.96 * posterior.variance.sqrt()
                found.append(float(inside.double().mean()))
    one, many = (torch.tensor(values) for values in covered.values())
    assert bool((many > one + 0.2).all()), covered

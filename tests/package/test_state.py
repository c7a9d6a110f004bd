"""State never half-changes: what fails leaves everything as it was, and a state fits the module it is loaded into."""

import copy
import gc
import io
import os
import resource
import signal
import weakref

import gpytorch
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from output_problems import OUTPUT_KERNELS, output_model, output_rows
from output_problems import randomised as randomised_kernel
from problems import COMPOSITIONS, KERNELS, KINDS, ExactModel, model_for, no_graph, polynomial, rows_for

import rfgp
from rfgp._support import files
from rfgp.approximation import with_features
from rfgp.approximation.maps import drawn_maps
from rfgp.diagnostics import kl_to_exact
from rfgp.features import Gaussian, Matern, RandomFourier, TensorSRHT
from rfgp.functionals import Partial, Value
from rfgp.inference import GramStatistics
from rfgp.kernels import CurlFreeKernel, LinearlyObservedKernel, SkewedChiSquaredKernel
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import VectorLeastSquares, WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, NAN = 40, float("nan")
RAISED = pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, ValueError, MemoryError])


def raising(error, *batches):
    """A loader that fails after some batches."""
    yield from batches
    raise error


def maps(kernel):
    return [drawn.feature_map for drawn in drawn_maps(kernel)]


def copied(module):
    """The state of a module, as tensors of its own."""
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(module, before):
    now = module.state_dict()
    assert now.keys() == before.keys()
    for name, value in before.items():
        torch.testing.assert_close(now[name], value, rtol=0.0, atol=0.0, equal_nan=True, msg=name)


# Whatever is raised


@RAISED
@torch.no_grad()
def test_a_failing_loader_leaves_a_waiting_model_waiting(error):
    x, y, _ = rows_for("gaussian", ROWS)
    model = model_for("gaussian", input_dim=None)
    with pytest.raises(error):
        model.condition(raising(error, (x, y)))
    assert maps(model.covar_module) == [None] and model.conditioned is None and model.training_data == []


@RAISED
@torch.no_grad()
def test_a_failing_loader_forgets_outputs_and_patterns(error):
    x, y = output_rows("multitask", pattern="random")
    model = output_model("multitask", "full", input_dim=None)
    with pytest.raises(error):
        model.condition(raising(error, (x, y)))
    assert maps(model.covar_module) == [None] and model.patterns == () and model.noise_if_known is None


@RAISED
@torch.no_grad()
def test_a_failing_update_leaves_the_sums_and_patterns(error, monkeypatch):
    x, y = output_rows("multitask")
    model = output_model("multitask", "full").condition(x, y)
    before, data = copied(model), model.training_data

    def fail(*arguments):
        raise error

    monkeypatch.setattr("rfgp.inference.noise.base.NoiseModel.merged", fail)
    with pytest.raises(error):
        model.update(*output_rows("multitask", pattern="random"))
    assert_same_state(model, before)
    assert model.training_data is data


@RAISED
def test_failing_features_leave_a_waiting_kernel_waiting(error, monkeypatch):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 8, seed=0)

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(RandomFourier, "rows", fail)
    for use in (kernel.features, lambda x: kernel(x).to_dense(), kernel.scalar_features):
        with pytest.raises(error):
            use(torch.randn(4, 2))
        assert maps(kernel) == [None]


def test_features_of_many_outputs_of_a_scalar_kernel_leave_it_waiting():
    kernel = rfgp.approximate(RBFKernel(), 8, seed=0)
    with pytest.raises(ValueError, match="expected a kernel of several outputs"):
        kernel.feature_operator(torch.randn(4, 2))
    assert maps(kernel) == [None]


@torch.no_grad()
@pytest.mark.filterwarnings("error")
def test_a_warning_made_an_error_rolls_back():
    model = model_for("gaussian", input_dim=None)
    with pytest.raises(UserWarning, match="exceed"):
        model.condition(*rows_for("gaussian", 4))
    assert maps(model.covar_module) == [None] and model.conditioned is None


@RAISED
def test_failing_least_squares_leave_a_waiting_kernel_waiting(error, monkeypatch):
    model = VectorLeastSquares(rfgp.approximate(CurlFreeKernel(RBFKernel()), 8, seed=0), regularization=1.0)

    def fail(*arguments):
        raise error

    monkeypatch.setattr("rfgp.models.least_squares.model._checked_targets", fail)
    with pytest.raises(error):
        model.fit(torch.randn(9, 2), torch.randn(9, 2))
    assert maps(model.covar_module) == [None] and model._fitted is None


@RAISED
@pytest.mark.parametrize("name", ["sum", "maclaurin"])
def test_weights_stay_where_the_second_part_cannot_be_drawn(error, name, monkeypatch):
    if name == "sum":
        kernel = rfgp.approximate(RBFKernel() + MaternKernel(nu=1.5), 16, input_dim=3, seed=0)
        parts = [part for part in maps(kernel) if part is not None]
    else:
        kernel = rfgp.approximate(RBFKernel(), 40, method="random_maclaurin:real", input_dim=3, seed=0)
        parts = list(maps(kernel)[0].maps_by_degree.values())
    before, draws = copied(kernel), kernel.version

    def fail(*arguments):
        raise error

    monkeypatch.setattr(parts[1], "_draw", fail)
    with pytest.raises(error):
        kernel.resample()
    assert_same_state(kernel, before)
    assert kernel.version == draws


def test_new_weights_of_a_sum_whose_second_part_waits():
    made = rfgp.approximate(RBFKernel(), 8, input_dim=3, seed=3)
    kernel = with_features(AdditiveKernel(made, rfgp.approximate(LinearKernel(), 8, seed=0)))
    before = made.feature_map.get_buffer("weight").clone()
    with pytest.raises(ValueError, match="waits for its first inputs"):
        kernel.resample()
    assert torch.equal(made.feature_map.get_buffer("weight"), before) and kernel.version == 0


def test_a_failing_choice_of_alpha_epsilon_changes_nothing(monkeypatch):
    likelihood = DirichletClassificationLikelihood(torch.tensor([0, 1, 1]), alpha_epsilon=0.1)
    before = likelihood.transformed_targets.clone(), likelihood.noise_covar.noise.clone()

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(likelihood, "_prepare_targets", interrupted)
        likelihood.set_alpha_epsilon(0.3)
    assert likelihood.alpha_epsilon == 0.1
    torch.testing.assert_close((likelihood.transformed_targets, likelihood.noise_covar.noise), before)


# Sums

GOOD = {
    "features": torch.arange(12.0).reshape(4, 3),
    "targets": torch.ones(4, 1),
    "weights": torch.ones(4),
    "log_noise": torch.zeros(4),
    "groups": torch.tensor([0, 1, 0, 1]),
}
BAD_ROWS = {
    "features of another width": {"features": torch.ones(4, 2)},
    "flat features": {"features": torch.ones(3)},
    "a batch of features": {"features": torch.ones(2, 4, 3)},
    "features that are a list": {"features": [[1.0, 2.0, 3.0]] * 4},
    "whole features": {"features": torch.ones(4, 3, dtype=torch.int64)},
    "complex features": {"features": torch.ones(4, 3, dtype=torch.complex128)},
    "NaN features": {"features": torch.full((4, 3), NAN)},
    "infinite features": {"features": torch.full((4, 3), float("inf"))},
    "sparse features": {"features": torch.ones(4, 3).to_sparse()},
    "more targets": {"targets": torch.ones(4, 2)},
    "fewer rows of targets": {"targets": torch.ones(3, 1)},
    "flat targets": {"targets": torch.ones(4)},
    "NaN targets": {"targets": torch.tensor([[1.0], [NAN], [1.0], [1.0]])},
    "complex targets": {"targets": torch.ones(4, 1, dtype=torch.complex128)},
    "labels": {"targets": torch.ones(4, 1, dtype=torch.int64)},
    "no targets": {"targets": None},
    "short weights": {"weights": torch.ones(3)},
    "one weight": {"weights": torch.ones(1)},
    "negative weights": {"weights": torch.tensor([1.0, -1.0, 1.0, 1.0])},
    "NaN weights": {"weights": torch.tensor([1.0, NAN, 1.0, 1.0])},
    "a float as weight": {"weights": 2.0},
    "short log noise": {"log_noise": torch.zeros(3)},
    "infinite log noise": {"log_noise": torch.tensor([0.0, float("-inf"), 0.0, 0.0])},
    "short groups": {"groups": torch.tensor([0, 1])},
    "negative groups": {"groups": torch.tensor([0, -1, 0, 1])},
    "a group too many": {"groups": torch.tensor([0, 2, 0, 1])},
    "floating groups": {"groups": torch.tensor([0.0, 1.0, 0.0, 1.0])},
    "groups of booleans": {"groups": torch.tensor([False, True, False, True])},
    "integer products": {"product_dtype": torch.int64},
    "half products": {"product_dtype": torch.float16},
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_before_anything_is_added(name):
    statistics = GramStatistics(3, 1, num_groups=2).update(**GOOD)
    before = statistics.state_dict()
    with pytest.raises(ValueError, match=r"expected .*, got "):
        statistics.update(**{**GOOD, **BAD_ROWS[name]})
    for field, value in before.items():
        assert torch.equal(statistics.state_dict()[field], value), field


def test_rows_that_were_never_there_cannot_be_subtracted():
    generator = torch.Generator().manual_seed(0)
    rows, others = torch.randn(50, 3, generator=generator), 10.0 * torch.randn(20, 3, generator=generator)
    target, small = torch.ones(50, 1), torch.randn(20, 3, generator=generator)
    whole = GramStatistics(3, 1).update(rows, target)
    for features, targets in ((others, torch.ones(20, 1)), (small, 10.0 * torch.ones(20, 1))):
        with pytest.raises(ValueError, match="negative sums of squares"):
            whole.subtract(GramStatistics(3, 1).update(features, targets))
    rest = whole.subtract(GramStatistics(3, 1).update(rows, target, product_dtype=torch.float32))
    assert rest.num_rows == 0.0 and rest.gram.abs().max() < 1e-4
    with pytest.raises(ValueError, match="expected a GramStatistics"):
        whole.subtract(whole.gram)


def shards(kind, count=2):
    arguments, models = rows_for(kind, ROWS), []
    for i in range(count):
        models.append(model_for(kind).condition(*[None if a is None else a[i::count] for a in arguments]))
    return models


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_merged_statistics_of_shards_are_a_fit_to_all_rows(kind):
    first, second = shards(kind)
    whole, model = model_for(kind).condition(*rows_for(kind, ROWS)), model_for(kind)
    both = first.statistics.merge(second.statistics)
    assert model.load_statistics(both) is model and model.training_data == []
    points = torch.randn(5, 3)
    torch.testing.assert_close(no_graph(model.posterior(points)), no_graph(whole.posterior(points)))
    torch.testing.assert_close(model.log_marginal_likelihood(), whole.log_marginal_likelihood())
    both.gram.zero_()
    torch.testing.assert_close(no_graph(model.posterior(points)), no_graph(whole.posterior(points)))
    model.covar_module.base_kernel.offset = 3.0
    with pytest.raises(ValueError, match="again"):
        model.posterior(points)


@torch.no_grad()
def test_incomplete_rows_of_unknown_patterns_are_refused():
    x, y = output_rows("multitask", pattern="an output")
    saved = output_model("multitask", "full").condition(x, y).statistics
    model = output_model("multitask", "full")
    with pytest.raises(ValueError, match="expected statistics of complete rows"):
        model.load_statistics(saved)
    assert model.patterns == () and model.conditioned is None


def fitted_sums(**options):
    return model_for("gaussian", **options).condition(*rows_for("gaussian", ROWS)).statistics


BAD_STATISTICS = {
    "another width": lambda: fitted_sums(width=14),
    "complex features": lambda: fitted_sums(form="complex"),
    "complex targets": lambda: model_for("complex").condition(*rows_for("complex", ROWS)).statistics,
    "groups": lambda: model_for("dirichlet").condition(*rows_for("dirichlet", ROWS)).statistics,
    "no mean": lambda: (
        WeightSpaceGP(polynomial(), GaussianLikelihood()).condition(*rows_for("gaussian", ROWS)[:2]).statistics
    ),
    "a state": lambda: fitted_sums().state_dict(),
}


@pytest.mark.parametrize("name", BAD_STATISTICS)
@torch.no_grad()
def test_statistics_of_another_model_are_refused(name):
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS, seed=2))
    before = copied(model)
    with pytest.raises(ValueError, match=r"expected .*, got "):
        model.load_statistics(BAD_STATISTICS[name]())
    assert_same_state(model, before)


@torch.no_grad()
def test_a_waiting_model_takes_no_statistics():
    with pytest.raises(ValueError, match="waits for its first inputs"):
        model_for("gaussian", input_dim=None).load_statistics(fitted_sums())


# States of other kernels and models


def fourier(kernel, width=16, method="fourier", input_dim=3, seed=0):
    return rfgp.approximate(kernel, width, method=method, input_dim=input_dim, seed=seed)


def given(spectrum):
    return RandomFourier(3, 16, spectrum)


# By what differs: the kernel that was saved, and the one that its state does not fit.
OTHERS = {
    "width": (lambda: fourier(RBFKernel()), lambda **o: fourier(RBFKernel(), width=20, **o)),
    "method": (lambda: fourier(RBFKernel()), lambda **o: fourier(RBFKernel(), method="fourier_orthogonal", **o)),
    "form": (
        lambda: polynomial(method="rademacher:real", input_dim=3),
        lambda **o: polynomial(method="gaussian:real", **{"input_dim": 3, **o}),
    ),
    "family": (lambda: fourier(MaternKernel(nu=1.5)), lambda **o: fourier(RBFKernel(), **o)),
    "smoothness": (lambda: fourier(MaternKernel(nu=1.5)), lambda **o: fourier(MaternKernel(nu=2.5), **o)),
    "skewness": (
        lambda: fourier(SkewedChiSquaredKernel(1.0)),
        lambda **o: fourier(SkewedChiSquaredKernel(2.0), **o),
    ),
    "power": (lambda: polynomial(power=2), lambda **o: polynomial(power=3, **{"input_dim": 3, **o})),
    "scale": (lambda: fourier(RBFKernel()), lambda **o: fourier(ScaleKernel(RBFKernel()), **o)),
    "composition": (
        lambda: fourier(RBFKernel() + MaternKernel(), method="fourier:complex"),
        lambda **o: fourier(RBFKernel() * MaternKernel(), method="fourier:complex", width=8, **o),
    ),
    "part": (
        lambda: fourier(RBFKernel() + MaternKernel(nu=1.5)),
        lambda **o: fourier(RBFKernel() + MaternKernel(nu=2.5), **o),
    ),
    "lengthscales": (lambda: fourier(RBFKernel(ard_num_dims=3)), lambda **o: fourier(RBFKernel(), **o)),
    "operator": (
        lambda: fourier(LinearlyObservedKernel(RBFKernel(), [Value(), Partial(0)])),
        lambda **o: fourier(LinearlyObservedKernel(RBFKernel(), [Value(), Partial(1)]), **o),
    ),
    "field": (
        lambda: fourier(CurlFreeKernel(RBFKernel())),
        lambda **o: fourier(rfgp.kernels.DivergenceFreeKernel(RBFKernel()), **o),
    ),
}


def moved(kernel):
    for parameter in kernel.parameters():
        parameter.data += 0.3
    return kernel


@pytest.mark.parametrize("is_lazy", [False, True], ids=["made", "waiting"])
@pytest.mark.parametrize("name", OTHERS)
def test_the_state_of_another_kernel_is_refused_before_anything_is_loaded(name, is_lazy):
    saved, make = OTHERS[name]
    state = copied(moved(saved()))
    kernel = make(input_dim=None) if is_lazy else make()
    before, known, draws = copied(kernel), maps(kernel), kernel.version
    for strict in (True, False):
        with pytest.raises(ValueError, match=r"expected .*state of .*, got "):
            kernel.load_state_dict(state, strict=strict)
        assert_same_state(kernel, before)
        assert maps(kernel) == known and kernel.version == draws


def test_the_state_of_other_inputs_is_refused():
    kernel = fourier(RBFKernel())
    before = copied(kernel)
    with pytest.raises(ValueError, match=r"expected the state of .*input_dim=3.*columns for inputs of 4"):
        kernel.load_state_dict(fourier(RBFKernel(), input_dim=4).state_dict())
    assert_same_state(kernel, before)


@pytest.mark.parametrize("name", OTHERS)
def test_a_kernel_inside_a_users_model_stays_as_it_was(name):
    saved, make = OTHERS[name]
    x, y, _ = rows_for("gaussian", 5)
    first, second = (ExactModel(x, y, GaussianLikelihood(), kernel) for kernel in (moved(saved()), make()))
    before = copied(second.covar_module)
    with pytest.raises(ValueError, match=r"expected .*state of .*, got "):
        second.load_state_dict(first.state_dict())
    assert_same_state(second.covar_module, before)


def test_the_state_of_another_map_is_refused():
    with pytest.raises(ValueError, match=r"expected the state of RandomFourier features .*Gaussian.*, got that"):
        given(Gaussian()).load_state_dict(given(Matern(1.5)).state_dict())
    sketches = [TensorSRHT(4, 4, 2, variant) for variant in ("upsampled", "stacked")]
    with pytest.raises(ValueError, match="variant='stacked'"):
        sketches[1].load_state_dict(sketches[0].state_dict())


def test_missing_and_unknown_tensors_are_named():
    kernel = fourier(ScaleKernel(RBFKernel()))
    before = copied(kernel)
    state = copied(moved(fourier(ScaleKernel(RBFKernel()))))
    without = {name: value for name, value in state.items() if name != "exact_kernel.raw_outputscale"}
    for wrong, message in (
        (without, "without exact_kernel.raw_outputscale"),
        ({**state, "odd": torch.ones(1)}, "with odd"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel.load_state_dict(wrong)
        assert_same_state(kernel, before)
    kernel.load_state_dict(without, strict=False)
    assert kernel.raw_outputscale.item() == 0.0
    assert torch.equal(kernel.base_kernel.raw_lengthscale, state["exact_kernel.base_kernel.raw_lengthscale"])


def test_lazy_maps_are_made_for_the_parameters_of_the_state():
    """The number of terms of a Fourier series depends on the lengthscale."""
    exact = gpytorch.kernels.PeriodicKernel()
    exact.lengthscale = 0.1
    kernel, x = rfgp.approximate(exact, 64, input_dim=1, seed=0), torch.randn(4, 1)
    fresh = rfgp.approximate(gpytorch.kernels.PeriodicKernel(), 64, seed=0)
    fresh.load_state_dict(kernel.state_dict())
    assert torch.equal(fresh.features(x), kernel.features(x))


def gp(kernel, likelihood=None):
    return WeightSpaceGP(kernel, likelihood or GaussianLikelihood(), gpytorch.means.ConstantMean())


OTHER_MODELS = {
    "width": lambda: gp(polynomial(width=20)),
    "method": lambda: gp(polynomial(method="tensor_srht:complex")),
    "inputs": lambda: gp(polynomial(input_dim=4)),
    "kernel": lambda: gp(fourier(ScaleKernel(RBFKernel()))),
    "classes": lambda: gp(polynomial(), DirichletClassificationLikelihood(num_classes=2)),
    "linear mean": lambda: WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.LinearMean(3)),
    "no mean": lambda: WeightSpaceGP(polynomial(), GaussianLikelihood()),
    "outputs": lambda: WeightSpaceGP(fourier(CurlFreeKernel(RBFKernel())), MultitaskGaussianLikelihood(3)),
}


@pytest.mark.parametrize(
    ("name", "is_lazy"),
    [(name, is_lazy) for name in OTHER_MODELS for is_lazy in (False, True) if (name, is_lazy) != ("inputs", True)],
)
@torch.no_grad()
def test_the_state_of_another_model_is_refused_before_anything_is_loaded(name, is_lazy):
    other = moved(OTHER_MODELS[name]())
    columns = 4 if name == "inputs" else 3
    x, y = torch.randn(60, columns), torch.randn(60)
    if name == "outputs":
        y = torch.randn(60, 3)
    if name == "classes":
        y = torch.arange(60) % 2
    state = other.condition(x, y).state_dict()
    model = gp(polynomial(input_dim=None if is_lazy else 3))
    if not is_lazy:
        model.condition(*rows_for("gaussian", ROWS)[:2])
    before, known = copied(model), maps(model.covar_module)
    with pytest.raises(ValueError, match=r"expected .*state of .*, got "):
        model.load_state_dict(state)
    assert_same_state(model, before)
    assert maps(model.covar_module) == known


@torch.no_grad()
def test_a_state_with_statistics_that_do_not_fit_is_refused():
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    before, state = copied(model), copied(model)
    for name in ("statistics.gram", "statistics.target_gram", "patterns"):
        with pytest.raises(ValueError, match="expected"):
            model.load_state_dict({k: v for k, v in state.items() if k != name})
    state["likelihood.noise_covar.raw_noise"] += 1.0
    state["statistics.count"] = torch.zeros(3)
    with pytest.raises(ValueError, match="expected count"):
        model.load_state_dict(state)
    assert_same_state(model, before)


# Tensors only


def assert_tensors_that_load(kernel, fresh, x):
    kernel.resample(torch.Generator().manual_seed(7))
    expected = kernel.features(x)
    state = kernel.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    copies = {name: value.clone() for name, value in state.items()}
    for twin in (fresh, copy.deepcopy(fresh)):
        twin.load_state_dict(copies)
        assert torch.equal(twin.features(x), expected)


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_states_of_every_family_are_tensors(name):
    case = KERNELS[name]
    method = case.methods[-1] if case.methods[-1] != "optimized_maclaurin" else case.methods[0]
    kernel = rfgp.approximate(case.make(), 32, method=method, input_dim=case.columns, seed=1)
    fresh = rfgp.approximate(case.create(), 32, method=method, seed=1)
    assert_tensors_that_load(kernel, fresh, case.inputs(5))


@pytest.mark.parametrize("name", COMPOSITIONS)
@torch.no_grad()
def test_states_of_compositions_are_tensors(name):
    kernel, fresh = (rfgp.approximate(COMPOSITIONS[name](), 64, input_dim=3, seed=1) for _ in range(2))
    assert_tensors_that_load(moved(kernel), fresh, torch.randn(5, 3))


@pytest.mark.parametrize("name", OUTPUT_KERNELS)
@torch.no_grad()
def test_states_of_kernels_of_several_outputs_are_tensors(name):
    columns = 2 if name == "one measure" else None
    make = OUTPUT_KERNELS[name][0]
    kernel = rfgp.approximate(randomised_kernel(make()), 16, input_dim=2, seed=1)
    fresh = rfgp.approximate(make(), 16, input_dim=columns, seed=2)
    assert_tensors_that_load(kernel, fresh, torch.randn(5, 2))


@pytest.mark.parametrize("input_dim", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_states_of_every_model_are_tensors(kind, input_dim):
    model = model_for(kind).condition(*rows_for(kind, ROWS))
    state, file = model.state_dict(), io.BytesIO()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    torch.save({name: value.clone() for name, value in state.items()}, file)
    file.seek(0)
    fresh = model_for(kind, seed=9, input_dim=input_dim)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    points = torch.randn(4, 3)
    torch.testing.assert_close(no_graph(fresh.posterior(points)), no_graph(model.posterior(points)), rtol=0, atol=0)


@pytest.mark.parametrize("noise", ["one", "per task", "full", "fixed"])
@torch.no_grad()
def test_states_of_models_of_several_outputs_are_tensors(noise):
    x, y = output_rows("curl-free", pattern="random")
    model = output_model("curl-free", noise).condition(x, y)
    state = copied(model)
    fresh = output_model("curl-free", noise, seed=5, input_dim=None)
    fresh.load_state_dict(state)
    torch.testing.assert_close(no_graph(fresh.posterior(x[:3])), no_graph(model.posterior(x[:3])), rtol=0, atol=0)
    assert fresh.patterns == model.patterns


def test_a_checkpoint_of_a_waiting_kernel_is_restored_as_other_libraries_do():
    """They write the old values into the tensors of the present state, and load that."""
    x, y, _ = rows_for("gaussian", ROWS)
    model = ExactModel(x, y, GaussianLikelihood(), polynomial(input_dim=None))
    checkpoint = copied(model)
    model(x).mean.sum().backward()
    moved(model)
    features = model.covar_module.scalar_features(x)
    state = model.state_dict()
    for name, value in checkpoint.items():
        state[name][...] = value
    model.load_state_dict(state)
    now = model.state_dict()
    assert all(torch.equal(now[name], value) for name, value in checkpoint.items() if not name.endswith("extra_state"))
    assert not torch.equal(model.covar_module.scalar_features(x), features)


def test_the_state_of_a_waiting_kernel_makes_it_wait_again():
    kernel, x = polynomial(input_dim=None), torch.randn(4, 3)
    waiting, expected = copied(kernel), kernel.features(x)
    kernel.resample(torch.Generator().manual_seed(3))
    kernel.load_state_dict(waiting)
    assert maps(kernel) == [None] and torch.equal(kernel.features(x), expected)
    made = polynomial()
    made.load_state_dict(waiting)
    assert maps(made) == [None] and torch.equal(made.features(x), expected)


# Files


def saved_sums(path):
    return GramStatistics(3, 1, num_groups=2).update(**GOOD).save(path)


def test_a_flipped_byte_is_refused(tmp_path):
    path = tmp_path / "sums"
    saved_sums(path)
    content = path.read_bytes()
    for place in [*range(0, 64), *range(64, len(content), 5), len(content) - 1]:
        changed = bytearray(content)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"expected .* GramStatistics\.save"):
            GramStatistics.load(path)
    path.write_bytes(content)
    assert GramStatistics.load(path).num_rows == 4.0


@pytest.mark.parametrize("kind", ["empty", "cut off", "longer", "text", "pickle", "another state"])
def test_other_files_are_refused(tmp_path, kind):
    path = tmp_path / "sums"
    saved_sums(path)
    content = path.read_bytes()
    changed = {
        "empty": b"",
        "cut off": content[:-100],
        "longer": content + b"0",
        "text": b"a,b\n1,2\n",
        "pickle": b"\x80\x04N.",
    }
    if kind == "another state":
        torch.save({"weight": torch.ones(2)}, path)
    else:
        path.write_bytes(changed[kind])
    with pytest.raises(ValueError, match=r"expected .* GramStatistics\.save .*got .*; .*save the statistics again"):
        GramStatistics.load(path)


@pytest.mark.parametrize(
    "state", [{}, [], {"gram": torch.ones(1, 2, 2)}, {"odd": torch.ones(1)}], ids=["empty", "list", "part", "other"]
)
def test_other_sums_are_refused(state):
    good = GramStatistics(3, 1).state_dict()
    wrong = {**good, "cross": torch.zeros(1, 2, 1, dtype=torch.float64)}
    for bad in (state, wrong, {**good, "count": torch.zeros(2)}, {**good, "target_gram": None}):
        with pytest.raises(ValueError, match=r"expected .*, got .*state_dict"):
            GramStatistics.from_state_dict(bad)


def mode(path):
    return path.stat().st_mode & 0o777


def test_files_keep_their_mode_and_new_ones_follow_the_umask(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("x")
    old.chmod(0o600)
    previous = os.umask(0o027)
    try:
        saved_sums(old)
        saved_sums(new)
    finally:
        os.umask(previous)
    assert mode(old) == 0o600 and mode(new) == 0o640


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to(real)
    for _ in range(2):
        saved_sums(link)
        assert link.is_symlink() and not real.is_symlink()
        assert GramStatistics.load(real).num_rows == 4.0
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["folder", "link", "real"]


def test_file_and_folder_are_synced(tmp_path, monkeypatch):
    synced, fsync, replace = [], os.fsync, os.replace

    def recorded(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def replaced(*arguments):
        synced.append("replaced")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(os, "replace", replaced)
    saved_sums(tmp_path / "sums")
    assert [os.path.dirname(synced[0]), *synced[1:]] == [str(tmp_path), "replaced", str(tmp_path)]


def test_files_of_killed_processes_are_cleared(tmp_path):
    path = tmp_path / "sums"
    child = os.fork()
    if child == 0:
        files.write_whole(path, lambda temporary: os.kill(os.getpid(), signal.SIGKILL))
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1 and not path.exists()
    (tmp_path / ".sums.other.tmp").write_text("not ours")
    (tmp_path / ".sums2.0123456789abcdef.tmp").write_text("of another file")
    saved_sums(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        ".sums.other.tmp",
        ".sums2.0123456789abcdef.tmp",
        "sums",
    ]


@pytest.mark.parametrize("write", [files.whole_file, files.whole_folder])
def test_a_file_that_is_not_locked_yet_is_made_again(write, tmp_path, monkeypatch):
    """Another writer of the same file clears what is there between the making of a name and its lock."""
    lock, calls = files._lock, []

    def late(handle):
        calls.append(handle)
        if len(calls) == 1:
            files._remove_left_over(tmp_path / "sums")
        lock(handle)

    monkeypatch.setattr(files, "_lock", late)
    with write(tmp_path / "sums") as temporary:
        (temporary / "part" if temporary.is_dir() else temporary).write_text("mine")
    assert [entry.name for entry in tmp_path.iterdir()] == ["sums"] and len(calls) == 2


@pytest.mark.parametrize("where", ["model", "sums"])
def test_a_full_disk_is_an_error_of_the_system(where, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    kernel = rfgp.approximate(RBFKernel(), 512, input_dim=2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            rfgp.save(kernel, path) if where == "model" else GramStatistics(99, 1).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"] and path.read_text() == "mine"


def test_files_of_living_processes_stay(tmp_path):
    path, seen = tmp_path / "sums", []

    def write(temporary):
        temporary.write_text("outer")
        files.write_whole(path, lambda inner: inner.write_text("inner"))
        seen.append(path.read_text())

    files.write_whole(path, write)
    assert seen == ["inner"] and path.read_text() == "outer" and len(list(tmp_path.iterdir())) == 1


# Rows


@torch.no_grad()
def test_rows_are_kept_only_where_they_are_asked_for():
    x, y, _ = rows_for("gaussian", 20)
    for keeps in (False, True):
        own = [x.clone(), x.clone(), x.clone()]
        alive = [weakref.ref(part) for part in own]
        options = {"keep_data": True} if keeps else {}
        model = WeightSpaceGP(polynomial(), GaussianLikelihood(), **options).condition(own[0], y)
        model.update(own[1], y)
        model.posterior(x)
        model.update(own[2], y)
        del own
        gc.collect()
        assert [part() is not None for part in alive] == [keeps] * 3
        assert len(model.training_data) == 3 * keeps
        model.condition([(x, y), (x, y)])
        assert len(model.training_data) == 2 * keeps


@torch.no_grad()
def test_comparisons_with_the_exact_posterior_say_how_to_get_the_rows():
    x, y, _ = rows_for("gaussian", ROWS)
    models = [model_for("gaussian", keep_data=keeps).condition(x, y) for keeps in (False, True)]
    with pytest.raises(ValueError, match=r"pass train_inputs and train_targets, or .*keep_data=True"):
        kl_to_exact(models[0], x[:4])
    with pytest.raises(ValueError, match="both train_inputs and train_targets"):
        kl_to_exact(models[0], x[:4], train_inputs=x)
    passed = kl_to_exact(models[0], x[:4], train_inputs=x, train_targets=y)
    torch.testing.assert_close(passed, kl_to_exact(models[1], x[:4]))


@torch.no_grad()
def test_the_noise_of_rows_that_are_not_kept_is_asked_for():
    x, y, noise = rows_for("fixed", ROWS)
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise)
    model, known = WeightSpaceGP(polynomial(), likelihood), {"train_inputs": x, "train_targets": y}
    right = kl_to_exact(model.condition(x, y), x[:4], **known)
    torch.testing.assert_close(right, kl_to_exact(model, x[:4], **known, train_noise=noise))
    with pytest.raises(ValueError, match="train_noise"):
        kl_to_exact(model.condition(x, y, 2.0 * noise), x[:4], **known)


@torch.no_grad()
def test_a_loaded_model_does_not_take_new_rows_for_all_rows():
    x, y, _ = rows_for("gaussian", ROWS)
    model = model_for("gaussian")
    model.load_state_dict(model_for("gaussian").condition(x, y).state_dict())
    model.update(x[:5], y[:5])
    assert model.training_data == []

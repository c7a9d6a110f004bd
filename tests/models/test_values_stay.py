"""Posteriors and sampled functions keep their values, bit for bit, whatever happens to the model that made them."""

import copy
import pickle

import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from output_problems import OUTPUT_KERNELS, output_model, output_noise, output_rows
from problems import INPUTS, KINDS, ExactModel, model_for, rows_for

import rfgp
from rfgp.functionals import Divergence, Gradient
from rfgp.models import LocalizedMaclaurinGP, WeightSpaceGP
from rfgp.models.snapshot import Snapshots

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 40
FORMS_OF_KINDS = [*((kind, "ctr") for kind in KINDS), ("gaussian", "complex"), ("complex", "complex")]


def points(columns=INPUTS):
    return torch.randn(5, columns, generator=torch.Generator().manual_seed(9))


@torch.no_grad()
def move(module):
    """Change every parameter in place, as optimizers do."""
    for parameter in module.parameters():
        parameter.add_(0.3)


def move_data(module):
    """Change every parameter as GPyTorch's ``initialize`` does."""
    for parameter in module.parameters():
        parameter.data.copy_(parameter.data + 0.3)


@torch.no_grad()
def overwrite_weights(model):
    for buffer in model.covar_module.buffers():
        buffer.zero_()


def load_another(model, arguments):
    other = copy.deepcopy(model).resample()
    move(other)
    model.load_state_dict(other.condition(*(a if a is None else a.clone() for a in arguments)).state_dict())


CHANGES = {
    "refit": lambda model, rows: model.condition(*(a if a is None else a[:25] for a in rows)),
    "update": lambda model, rows: model.update(*rows),
    "resample": lambda model, _: model.resample(torch.Generator().manual_seed(5)),
    "new weights and a refit": lambda model, rows: model.resample(torch.Generator().manual_seed(5)).condition(*rows),
    "kernel": lambda model, _: move(model.covar_module),
    "kernel by data": lambda model, _: move_data(model.covar_module),
    "mean": lambda model, _: move(model.mean_module),
    "likelihood": lambda model, _: move(model.likelihood),
    "weights in place": lambda model, _: overwrite_weights(model),
    "dtype": lambda model, _: model.float(),
    "another state": load_another,
}


def promises(model, x, operator=None):
    """What can be evaluated later, by name."""
    latent = [model.posterior(x, operator) for _ in range(5)]
    first, second = model.sample_functions(2)
    is_lazy = hasattr(latent[0], "lazy_covariance_matrix")
    vectors = torch.ones(latent[0].event_shape.numel(), 2)
    found = {
        "mean": lambda: latent[0].mean,
        "variance": lambda: latent[0].variance,
        "covariance": lambda: latent[1].covariance_matrix,
        "draws": lambda: torch.manual_seed(3) and latent[2].rsample(torch.Size([2])),
        "first function": lambda: first(points(x.shape[-1])),
        "second function": lambda: second(points(x.shape[-1])),
    }
    if is_lazy:
        found["product"] = lambda: latent[3].lazy_covariance_matrix @ vectors
        found["root"] = lambda: latent[4].lazy_covariance_matrix.root_decomposition().root.to_dense()
    return found


def fitted_twice(model, rows):
    """Two models in the same state, of which the second is left alone."""
    with torch.no_grad():
        model.condition(*rows)
    return model, copy.deepcopy(model)


def check(model, reference, change, x, operator=None):
    """What a model promised before a change is what one that never changes gives."""
    torch.manual_seed(1)
    expected = {name: value() for name, value in promises(reference, x.clone(), operator).items()}
    torch.manual_seed(1)
    found = promises(model, x, operator)
    change()
    wrong = [name for name, value in found.items() if not torch.equal(value(), expected[name])]
    assert not wrong


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("has_gradients", [False, True], ids=["no gradients", "gradients"])
@pytest.mark.parametrize(("kind", "form"), FORMS_OF_KINDS)
def test_values_stay(kind, form, change, has_gradients):
    rows = rows_for(kind, ROWS)
    model, reference = fitted_twice(model_for(kind, form), rows)
    with torch.set_grad_enabled(has_gradients):
        check(model, reference, lambda: CHANGES[change](model, rows), points())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", OUTPUT_KERNELS)
def test_values_of_several_outputs_stay(name, change):
    kind = "fixed" if name == "multitask" else "one"
    rows = (*output_rows(name), output_noise(name) if kind == "fixed" else None)
    model, reference = fitted_twice(output_model(name, kind), rows)
    check(model, reference, lambda: CHANGES[change](model, rows), points(2))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("name", "operator"), [("helmholtz", Divergence()), ("laplacian", Gradient())])
def test_values_of_operators_stay(name, operator, change):
    model = output_model(name)
    model.mean_module = gpytorch.means.ZeroMean() if name == "laplacian" else model.mean_module
    if name == "helmholtz":
        constants = [gpytorch.means.ConstantMean() for _ in range(2)]
        model.mean_module = gpytorch.means.MultitaskMean(constants, num_tasks=2)
    rows = (*output_rows(name), None)
    model, reference = fitted_twice(model, rows)
    check(model, reference, lambda: CHANGES[change](model, rows), points(2), operator)


def test_one_output_stays_one_task():
    model = output_model("laplacian")
    (function,) = model.condition(*output_rows("laplacian")).sample_functions(1)
    model.likelihood.num_tasks = 1
    assert function(points(2)).shape == (5,)


@pytest.mark.parametrize("kind", ["gaussian", "complex", "dirichlet"])
def test_posteriors_do_not_follow_their_inputs(kind):
    model, reference = fitted_twice(model_for(kind), rows_for(kind, ROWS))
    x = points()
    check(model, reference, lambda: x.mul_(2.0), x)


def test_posteriors_of_several_outputs_do_not_follow_their_inputs():
    model, reference = fitted_twice(output_model("curl-free"), (*output_rows("curl-free"), None))
    x = points(2)
    check(model, reference, lambda: x.mul_(2.0), x)


def predicted(latent, function, x):
    return latent.mean.sum() + latent.variance.sum() + function(x).sum()


def gradients(change=None):
    """Those of a lazy posterior and a function, in the inputs and in what test features and mean depend on."""
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    x, known = points().requires_grad_(), [*model.covar_module.parameters(), *model.mean_module.parameters()]
    torch.manual_seed(2)
    latent, function = model.posterior(x), model.sample_functions(1)[0]
    if change is not None:
        change(model)
    return torch.autograd.grad(predicted(latent, function, x), [x, *known])


@pytest.mark.parametrize("change", [move, move_data, overwrite_weights], ids=["in place", "data", "weights"])
def test_gradients_stay(change):
    for gradient, expected in zip(gradients(change), gradients(), strict=True):
        assert torch.equal(gradient, expected) and (gradient != 0.0).all()


@pytest.mark.parametrize("has_gradients", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_posteriors_and_functions_are_pickled_and_copied(several, has_gradients):
    model = output_model("curl-free") if several else model_for("gaussian")
    rows = output_rows("curl-free") if several else rows_for("gaussian", ROWS)
    x = points(2 if several else INPUTS)
    with torch.set_grad_enabled(has_gradients):
        latent, (function,) = model.condition(*rows).posterior(x), model.sample_functions(1)
        expected = latent.variance, function(x)
        twins = [pickle.loads(pickle.dumps((latent, function))), (latent, copy.deepcopy(function))]
        move(model)
        for twin, same_function in twins:
            assert torch.equal(twin.variance, expected[0]) and torch.equal(same_function(x), expected[1])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies_of_models_have_gradients_of_their_own(duplicate):
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    model.posterior(points()).mean.sum().backward()
    twin = duplicate(model)
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    twin.zero_grad()
    twin.posterior(points()).mean.sum().backward()
    for original, parameter, gradient in zip(model.parameters(), twin.parameters(), before, strict=True):
        assert (gradient is None) == (parameter.grad is None)
        assert gradient is None or (torch.equal(original.grad, gradient) and torch.equal(parameter.grad, gradient))


def test_a_posterior_made_in_inference_mode_does_not_take_the_gradients_of_the_next():
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    with torch.inference_mode():
        model.posterior(points())
    assert torch.autograd.grad(model.posterior(points()).mean.sum(), model.covar_module.raw_outputscale)[0] != 0.0


def test_parameters_that_learn_again_have_gradients():
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS)).requires_grad_(False)
    assert not model.posterior(points()).mean.requires_grad
    model.requires_grad_(True)
    assert model.posterior(points()).mean.requires_grad


@pytest.mark.parametrize("change", ["kernel", "kernel by data", "mean", "resample", "weights in place", "dtype"])
def test_a_snapshot_serves_until_something_changes(change):
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    snapshots = Snapshots()
    first = snapshots.take(model.covar_module, model.mean_module)
    model.posterior(points()).mean.sum().backward()
    assert snapshots.take(model.covar_module, model.mean_module) is first
    CHANGES[change](model, None)
    second = snapshots.take(model.covar_module, model.mean_module)
    assert second is not first
    assert snapshots.take(model.covar_module, model.mean_module) is second


def exact_model(kernel, num_rows=ROWS):
    x, y, _ = rows_for("gaussian", num_rows)
    return ExactModel(x, y, GaussianLikelihood(), kernel).eval()


EXACT = {
    "features": lambda: rfgp.approximate(ScaleKernel(PolynomialKernel(power=2)), 12, input_dim=INPUTS, seed=0),
    "inputs as features": lambda: rfgp.approximate(LinearKernel(), 3, input_dim=INPUTS, seed=0),
    "sum": lambda: rfgp.approximate(ScaleKernel(RBFKernel()) + LinearKernel(), 12, input_dim=INPUTS, seed=0),
    "dense": lambda: rfgp.approximate(RBFKernel(), 12, input_dim=INPUTS, seed=0) * RBFKernel(),
}


@pytest.mark.parametrize("change", ["kernel", "kernel by data", "mean", "resample", "weights in place", "inputs"])
@pytest.mark.parametrize("name", EXACT)
def test_predictions_of_exact_models_stay(name, change):
    model, x = exact_model(EXACT[name]()), points()
    with torch.no_grad():
        expected = copy.deepcopy(model)(x.clone())
        mean, variance, covariance = expected.mean, expected.variance, expected.covariance_matrix
        latent, other = model(x), model(x)
        if change == "inputs":
            x.mul_(2.0)
        elif change == "resample":
            for part in model.modules():
                if isinstance(part, rfgp.features.FeatureMap):
                    part.resample()
        else:
            CHANGES[change](model, None)
        assert torch.equal(latent.mean, mean) and torch.equal(latent.variance, variance)
        assert torch.equal(other.covariance_matrix, covariance)


def test_localized_models_keep_their_training_data():
    x, y, _ = rows_for("gaussian", ROWS)
    centers, test = x[:3].clone(), points() + 2.0
    model = LocalizedMaclaurinGP(RBFKernel(), GaussianLikelihood(), 20, centers=centers).condition(x, y)
    expected = model.posterior(test)
    for tensor in (x, y, centers):
        tensor.mul_(2.0)
    assert torch.equal(model.posterior(test).mean, expected.mean)


def test_vector_least_squares_predicts_values():
    kernel = rfgp.approximate(LinearKernel(), 3, input_dim=INPUTS, seed=0)
    x, y, _ = rows_for("gaussian", ROWS)
    model, test = rfgp.models.VectorLeastSquares(kernel, regularization=0.1).fit(x, y), points()
    values = model.predict(test)
    expected = values.clone()
    move(kernel)
    test.mul_(2.0)
    assert torch.equal(values, expected)


def test_models_of_a_kernel_that_is_replaced():
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    function, x = model.sample_functions(1)[0], points()
    expected = function(x)
    model.covar_module = WeightSpaceGP(model_for("gaussian", seed=7).covar_module, model.likelihood).covar_module
    assert torch.equal(function(x), expected)

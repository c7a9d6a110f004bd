"""A loaded model is the saved one, to the last bit, and without its training data."""

import functools
import gc
import inspect
import json
import subprocess
import sys
import warnings
import weakref

import gpytorch
import pytest
import torch
from output_problems import INPUTS as OUTPUT_INPUTS
from output_problems import NOISES, NOISES_OF_ONE, OUTPUT_KERNELS, output_model, output_noise, output_rows
from problems import COMPOSITIONS, FORMS, INPUTS, KERNELS, KINDS, composition, methods_of, model_for, rows_for
from saved_models import MODELS, ROWS, WITH_ROWS, assert_same, averaged, predictions, through_a_file

import rfgp
from rfgp.averaging import AveragedGP
from rfgp.averaging.kernel_bank import RATIOS
from rfgp.models import ParameterAverage, WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
OUTPUT_CASES = [
    (name, noise) for name, (_, count) in OUTPUT_KERNELS.items() for noise in (NOISES if count > 1 else NOISES_OF_ONE)
]


@functools.cache
def made(name):
    """A model of every kind; tests leave it as it is."""
    return MODELS[name]()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.pt"


def states(module):
    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def assert_same_states(found, wanted):
    assert states(found).keys() == states(wanted).keys()
    for name, value in states(wanted).items():
        torch.testing.assert_close(states(found)[name], value, rtol=0.0, atol=0.0, equal_nan=True, msg=name)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_with_every_method(name, path):
    case = KERNELS[name]
    x = case.inputs(7)
    for method in methods_of(case):
        kernel = rfgp.approximate(case.make(), 12, method=method, train_inputs=x, seed=0)
        found = through_a_file(kernel, path)
        assert torch.equal(found(x).to_dense(), kernel(x).to_dense()), method
        assert_same_states(found, kernel)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_that_wait_for_their_inputs(name, path):
    case = KERNELS[name]
    x = case.inputs(7)
    kernel = rfgp.approximate(case.make(), 12, method=case.methods[0], seed=0)
    assert torch.equal(through_a_file(kernel, path)(x).to_dense(), kernel(x).to_dense())


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name, path):
    kernel = rfgp.approximate(composition(name), 24, input_dim=INPUTS, seed=0)
    x, y, _ = rows_for("gaussian", ROWS)
    model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    found = through_a_file(model, path)
    assert_same(predictions(found), predictions(model))
    assert [name for name, _ in found.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert_same_states(found, model)
    shared = [id(parameter) for parameter in found.parameters()]
    assert len(shared) == len(set(shared)) == len(list(model.parameters()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_updates_after_loading(kind, form, path):
    model = model_for(kind, form=form).condition(*rows_for(kind, ROWS))
    found = through_a_file(model, path)
    assert_same(predictions(found), predictions(model))
    more = rows_for(kind, 9, seed=3)
    assert_same(predictions(found.update(*more)), predictions(model.update(*more)))


@pytest.mark.parametrize(("name", "noise"), OUTPUT_CASES)
def test_models_of_several_outputs(name, noise, path):
    x, y = output_rows(name, pattern="random")
    model = output_model(name, noise).condition(x, y)
    found = through_a_file(model, path)
    new = torch.randn(5, OUTPUT_INPUTS)
    for part in ("mean", "variance", "covariance_matrix"):
        assert torch.equal(getattr(found.posterior(new), part), getattr(model.posterior(new), part))
    assert torch.equal(found.log_marginal_likelihood(), model.log_marginal_likelihood())
    known = (output_noise(name),) if noise.startswith("fixed") else ()
    more = [part[:6] for part in (x, y, *known)]
    assert torch.equal(found.update(*more).posterior(new).mean, model.update(*more).posterior(new).mean)


@pytest.mark.parametrize("name", MODELS)
def test_every_model(name, path):
    model = made(name)
    before = predictions(model)
    found = through_a_file(model, path)
    assert type(found) is type(model)
    assert_same(predictions(found), before)
    assert_same(predictions(model), before)
    again = through_a_file(found, path)
    assert_same(predictions(again), before)


def test_every_public_model_is_among_them():
    public = {value for value in vars(rfgp.models).values() if inspect.isclass(value) and hasattr(value, "posterior")}
    assert public | {rfgp.VectorLeastSquares} <= {type(made(name)) for name in MODELS} | {ParameterAverage}


def test_averages_over_parameters(path):
    model = averaged()
    assert_same(predictions(through_a_file(model, path)), predictions(model))


def test_averages_of_few_rows_are_updated_as_before(path):
    model = MODELS["few rows"]()
    found, (x, y) = through_a_file(model, path), rows_for("gaussian", 9, seed=3)[:2]
    assert torch.equal(*(each.update(x, y).predictive(x).variance for each in (model, found)))


class Means:
    """A baseline."""

    def __init__(self, x, y):
        self.left_out = (y.sum(0) - y) / (len(y) - 1)
        self.mean = y.mean(0)

    def __call__(self, x):
        return self.mean.expand(len(x), -1)


def test_averages_of_several_targets_with_gaps_and_a_baseline(path):
    x, y = rows_for("gaussian", 20)[:2]
    targets = torch.stack([y, y.exp() + x[:, 0]], dim=-1)
    targets[::7, 1] = torch.nan
    model, new = AveragedGP(x, targets, Means), torch.randn(3, INPUTS)
    with pytest.raises(ValueError, match=r"pass classes=\[Means\]"):
        through_a_file(model, path)
    found = rfgp.load(path, classes=[Means])
    assert torch.equal(found.predictive(new).mean, model.predictive(new).mean)
    assert torch.equal(found.y.isnan(), targets.isnan())


@pytest.mark.parametrize("name", ["few rows", "few labels"])
def test_what_follows_from_rows_is_made_again(name, path):
    through_a_file(made(name), path)
    tensors = torch.load(path, weights_only=True)["tensors"]
    assert not [key for key, value in tensors.items() if value.shape[-2:] == (ROWS, ROWS)]


@pytest.mark.parametrize("name", MODELS)
def test_saving_and_loading_change_neither_the_model_nor_the_random_numbers(name, path):
    model = made(name)
    before = None if not isinstance(model, torch.nn.Module) else {k: v.clone() for k, v in states(model).items()}
    random = torch.get_rng_state()
    through_a_file(model, path)
    assert torch.equal(random, torch.get_rng_state())
    if before is not None:
        for key, value in states(model).items():
            torch.testing.assert_close(value, before[key], rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITH_ROWS])
def test_no_training_data_inside(name, path):
    model = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rfgp.save(model, path)
    content = torch.load(path, weights_only=True)
    assert json.loads(content["header"])["rows_kept"] == 0
    two_columns = "least squares" in name
    x, y = output_rows("helmholtz", ROWS) if two_columns else rows_for("gaussian", ROWS)[:2]
    known = torch.cat([x.flatten(), y.flatten()])
    for key, tensor in content["tensors"].items():
        values = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        assert not torch.isin(values.double(), known).any(), key
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size(), key


def test_noise_and_labels_of_training_rows_stay_outside(path):
    x, y, _ = rows_for("gaussian", ROWS)
    noise = 0.1 + torch.rand(ROWS)
    likelihoods = {
        "noise": gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise),
        "complex noise": rfgp.likelihoods.FixedNoiseComplexGaussianLikelihood(noise),
        "labels": gpytorch.likelihoods.DirichletClassificationLikelihood(torch.arange(ROWS) % 3),
        "labels of rfgp": rfgp.likelihoods.DirichletClassificationLikelihood(torch.arange(ROWS) % 3),
    }
    for name, likelihood in likelihoods.items():
        targets = {"noise": y, "complex noise": torch.complex(y, y)}.get(name, torch.arange(ROWS) % 3)
        model = WeightSpaceGP(model_for("gaussian").covar_module, likelihood).condition(x, targets)
        found = through_a_file(model, path)
        tensors = torch.load(path, weights_only=True)["tensors"]
        assert all(tensor.numel() < ROWS or "likelihood" not in key for key, tensor in tensors.items()), name
        assert_same(predictions(found), predictions(model))
        assert likelihood.noise_covar.noise.shape[-1] == ROWS


def test_what_is_shared_stays_shared(path):
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    parts = [rfgp.approximate(exact, width, input_dim=INPUTS, seed=0) for width in (32, 8)]
    found = through_a_file(rfgp.models.HeteroscedasticGP(*parts).condition(*rows_for("gaussian", ROWS)[:2]), path)
    noise = found.log_noise.covar_module
    assert found.covar_module.raw_outputscale is noise.raw_outputscale
    found.covar_module.base_kernel.lengthscale = 3.0
    assert float(noise.base_kernel.lengthscale.detach()) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="call condition"):
        found.posterior(torch.randn(2, INPUTS))


def test_a_loaded_model_trains_on(path):
    x, y, _ = rows_for("gaussian", ROWS)
    model = model_for("gaussian").condition(x, y)
    found = through_a_file(model, path)
    for each in (model, found):
        rfgp.fit(each, x, y, max_evaluations=4, progress=False)
    assert_same(predictions(found), predictions(model))
    model.load_state_dict(through_a_file(found, path).state_dict())
    assert_same(predictions(found), predictions(model))


def test_a_model_that_is_not_fitted(path):
    model = model_for("gaussian", input_dim=None)
    found = through_a_file(model, path)
    with pytest.raises(ValueError, match="call condition"):
        found.posterior(torch.randn(2, INPUTS))
    rows = rows_for("gaussian", ROWS)
    assert_same(predictions(found.condition(*rows)), predictions(model.condition(*rows)))


def test_float32(path):
    torch.set_default_dtype(torch.float32)
    model = model_for("gaussian").condition(*rows_for("gaussian", ROWS))
    rfgp.save(model, path)
    torch.set_default_dtype(torch.float64)
    found = rfgp.load(path)
    torch.set_default_dtype(torch.float32)
    assert found.covar_module.base_kernel.raw_offset.dtype == torch.float32
    assert_same(predictions(found), predictions(model))


def test_a_loaded_model_is_freed_with_its_last_reference(path):
    rfgp.save(model_for("gaussian").condition(*rows_for("gaussian", ROWS)), path)
    gc.collect()
    gc.disable()
    try:
        found = rfgp.load(path)
        seen = weakref.ref(found)
        del found
        assert seen() is None
    finally:
        gc.enable()


def test_priors_with_named_closures_stay_and_others_are_listed(path):
    model = MODELS["trained"]()
    found = through_a_file(model, path)
    assert [name for name, *_ in found.named_priors()] == ["likelihood.noise_covar.noise_prior"]
    prior = found.likelihood.noise_covar.noise_prior
    value = torch.tensor(0.3)
    assert torch.equal(prior.log_prob(value), model.likelihood.noise_covar.noise_prior.log_prob(value))
    (listed,) = json.loads(torch.load(path, weights_only=True)["header"])["left_out"]
    assert "scale_prior" in listed


def test_the_header_has_versions_and_settings(path):
    x, y, _ = rows_for("gaussian", ROWS)
    rfgp.save(model_for("gaussian").condition(x, y), path)
    header = json.loads(torch.load(path, weights_only=True)["header"])
    assert header["versions"] == {
        "rfgp": rfgp.__version__,
        "torch": torch.__version__,
        "gpytorch": gpytorch.__version__,
    }
    assert header["model"] == "WeightSpaceGP" and header["rows_seen"] == ROWS and header["rows_kept"] == 0
    assert header["settings"]["num_draws"] == 1 and header["settings"]["dtype"] == "float64"


SCRIPT = """
import sys, torch, rfgp
torch.set_default_dtype(torch.float64)
for file, out in zip(sys.argv[1::2], sys.argv[2::2]):
    model, x = rfgp.load(file), torch.load(out, weights_only=True)
    found = next(getattr(model, name) for name in ("predict", "posterior", "predictive") if hasattr(model, name))(x)
    torch.save([found] if isinstance(found, torch.Tensor) else [found.mean.detach(), found.variance.detach()], out)
assert "sklearn" not in sys.modules
"""


def test_a_fresh_process_predicts_the_same(tmp_path):
    files, wanted = [], []
    for name in ("neighbors", "mixture", "least squares", "heteroscedastic", "few rows"):
        model, file, out = MODELS[name](), tmp_path / f"{name}.pt", tmp_path / f"{name}.out"
        is_field = name == "least squares"
        x = torch.randn(6, 2 if is_field else INPUTS)
        rfgp.save(model, file, with_rows=True)
        torch.save(x, out)
        found = (model.predict if is_field else model.predictive if name == "few rows" else model.posterior)(x)
        wanted.append([found] if is_field else [found.mean.detach(), found.variance.detach()])
        files += [str(file), str(out)]
    subprocess.run([sys.executable, "-c", SCRIPT, *files], check=True)
    *found, of_few_rows = (torch.load(out, weights_only=True) for out in files[1::2])
    for read, values in zip(found, wanted[:-1], strict=True):
        assert_same(read, values)
    bound = ROWS / float(RATIOS[0]) * torch.finfo(torch.float64).eps  # of decompositions that are made again
    torch.testing.assert_close(of_few_rows, wanted[-1], rtol=bound, atol=bound)

"""Sampled functions: moments, gradients, shapes, copies, and what they cost, of every model that draws them."""

import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from linear_operator import to_linear_operator
from moments import check_moments
from output_problems import OUTPUT_KERNELS, output_kernel, output_model, output_rows
from problems import CLASSES, FORMS, INPUTS, ExactModel, likelihood_for, model_for, polynomial, rows_for

import rfgp
from rfgp.inference.local.residual import ResidualProcess
from rfgp.models import FunctionSamples, WeightSpaceGP, sample_functions

pytestmark = pytest.mark.usefixtures("float64_default")

DRAWS, ROWS = 20_000, 40


def points(count=3, columns=INPUTS):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(9))


def scalar(kind, form="ctr"):
    """An unfitted model of one output or of class labels, its data, and inputs."""
    return model_for(kind, form), rows_for(kind, ROWS), points()


def several(name):
    return output_model(name), (*output_rows(name), None), points(2, 2)


def mixture(kind="gaussian"):
    mean = gpytorch.means.ConstantMean()
    model = WeightSpaceGP(polynomial(6, method="rademacher:real"), likelihood_for(kind), mean, num_draws=3)
    return model, rows_for(kind, ROWS), points()


def blocks():
    x, y, _ = rows_for("gaussian", ROWS)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 8, method="landmarks", train_inputs=x, seed=0)
    model = WeightSpaceGP(kernel, GaussianLikelihood(), block_size=20, num_neighbors=None)
    return model, (x, y, None), points(4)


MODELS = {
    "gaussian": lambda: scalar("gaussian"),
    "complex features": lambda: scalar("gaussian", "complex"),
    "fixed": lambda: scalar("fixed", "real"),
    "complex targets": lambda: scalar("complex"),
    "complex targets and features": lambda: scalar("complex", "complex"),
    "dirichlet": lambda: scalar("dirichlet"),
    "multitask": lambda: several("multitask"),
    "curl-free": lambda: several("curl-free"),
    "laplacian": lambda: several("laplacian"),
    "mixture": mixture,
    "blocks": blocks,
}
every_model = pytest.mark.parametrize("name", MODELS)
differentiable = pytest.mark.parametrize("name", [name for name in MODELS if name != "blocks"])


@torch.no_grad()
def fitted(name):
    model, rows, x = MODELS[name]()
    return model.condition(*rows), x


@every_model
def test_draws_have_the_moments_of_the_posterior(name):
    model, x = fitted(name)
    torch.manual_seed(0)
    with torch.no_grad():
        samples, latent = model.sample_functions(DRAWS), model.posterior(x)
        draws = samples(x)
    assert isinstance(samples, FunctionSamples) and len(samples) == samples.num_functions == DRAWS
    assert draws.shape == (DRAWS, *latent.mean.shape) and draws.dtype == latent.mean.dtype
    is_multitask = isinstance(latent, gpytorch.distributions.MultitaskMultivariateNormal)
    mean, draws = (latent.mean.flatten(), draws.flatten(1)) if is_multitask else (latent.mean, draws)
    check_moments(draws, mean, latent.covariance_matrix)


@pytest.mark.parametrize("is_fitted", [False, True])
@every_model
def test_draws_have_the_moments_of_the_prior(name, is_fitted):
    model, x = fitted(name) if is_fitted else MODELS[name]()[::2]
    torch.manual_seed(1)
    with torch.no_grad():
        draws = model.sample_functions(DRAWS, prior=True)(x)
        mean = model.mean_module(x)
        kernels = [model.covar_module, *(part.covar_module for part in model.further_draws.begin(model))]
        features = [kernel.features(x) for kernel in kernels]
        covariance = torch.stack([part @ part.mH for part in features]).mean(0)
    covariance = covariance if name == "complex targets and features" else covariance.real
    if name == "dirichlet":
        mean, covariance = mean.expand(CLASSES, -1), covariance.expand(CLASSES, -1, -1)
    elif draws.dim() == 3:
        mean, draws = mean.flatten(), draws.flatten(1)
    check_moments(draws, mean, covariance)


@differentiable
def test_gradients_in_the_inputs_equal_finite_differences(name):
    model, x = fitted(name)
    for prior in (False, True):
        samples = model.requires_grad_(False).sample_functions(4, prior)
        assert torch.autograd.gradcheck(samples, [x.clone().requires_grad_()])
        assert torch.autograd.gradcheck(samples[1], [x.clone().requires_grad_()])


@pytest.mark.parametrize("prior", [False, True])
def test_values_and_gradients_equal_those_written_by_hand(prior):
    model, x = fitted("gaussian")
    torch.manual_seed(2)
    samples = model.sample_functions(5, prior)
    torch.manual_seed(2)
    width = model.covar_module.num_scalar_features
    if prior:
        weights = torch.randn(width, 5)
    else:
        posterior = model.weight_posterior()
        weights = posterior.mean + torch.linalg.solve_triangular(posterior.factor.mT, torch.randn(width, 5), upper=True)
    first, second = (x.clone().requires_grad_() for _ in range(2))
    values, expected = samples(first), (model.covar_module.features(second) @ weights).mT + 0.3
    torch.testing.assert_close(values, expected, rtol=1e-10, atol=1e-12)
    parameters = list(model.covar_module.parameters())
    found = torch.autograd.grad(values.square().sum(), [first, *parameters], retain_graph=True)
    wanted = torch.autograd.grad(expected.square().sum(), [second, *parameters])
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    again = torch.autograd.grad(samples(first).square().sum(), [first, *parameters])
    torch.testing.assert_close(again, wanted, rtol=1e-10, atol=1e-12)


@every_model
def test_single_functions_and_slices_are_those_of_all(name):
    model, x = fitted(name)
    with torch.no_grad():
        samples = model.sample_functions(6)
        values = samples(x)
        for index, function in enumerate(samples):
            torch.testing.assert_close(function(x), values[index])
        torch.testing.assert_close(samples[-1](x), values[-1])
        torch.testing.assert_close(samples[1:5](x), values[1:5])
        torch.testing.assert_close(samples[4:0:-2][1:](x), values[[2]])
        assert len(samples[1:5]) == 4 and not torch.allclose(values[0], values[1])
    with pytest.raises(IndexError):
        samples[6]
    with pytest.raises(ValueError, match="expected a slice with some of 6 functions"):
        samples[6:]


@pytest.mark.parametrize("prior", [False, True])
@every_model
def test_batches_of_points(name, prior):
    model, x = fitted(name)
    with torch.no_grad():
        samples = model.sample_functions(3, prior)
        single = samples(x)
        batch = samples(torch.stack([x, x + 1.0]).expand(4, 2, *x.shape))
    assert batch.shape == (3, 4, 2, *single.shape[1:])
    torch.testing.assert_close(batch[:, 2, 0], single)


@every_model
def test_values_stay_in_copies_and_files_and_when_the_model_changes(name):
    model, x = fitted(name)
    samples = model.sample_functions(3)
    expected = samples(x)
    file = io.BytesIO()
    torch.save(samples, file)
    file.seek(0)
    twins = [copy.deepcopy(samples), pickle.loads(pickle.dumps(samples)), torch.load(file, weights_only=False)]
    ForkingPickler.dumps(samples)
    with torch.no_grad():
        for part in (*model.parameters(), *model.covar_module.buffers()):
            part.add_(1)
    model.likelihood = None
    for twin in (samples, *twins):
        assert torch.equal(twin(x), expected) and len(twin) == 3
        assert torch.equal(pickle.loads(pickle.dumps(twin[1]))(x), twin[1](x))
    if name != "blocks":
        assert torch.autograd.gradcheck(twins[1], [x.clone().requires_grad_()])


def test_functions_of_the_prior_need_a_map_and_no_statistics():
    waiting = model_for("gaussian", input_dim=None)
    with pytest.raises(ValueError, match="waits for its first inputs"):
        waiting.sample_functions(2, prior=True)
    assert waiting.covar_module.feature_map is None
    stale, x = fitted("gaussian")
    stale.resample()
    assert stale.sample_functions(2, prior=True)(x).shape == (2, 3)
    with pytest.raises(ValueError, match="expected True or False for prior"):
        stale.sample_functions(2, prior="yes")


def test_a_prior_draw_of_a_mixture_leaves_the_fit_as_it_is():
    first, rows, x = mixture()
    second = copy.deepcopy(first)
    first.sample_functions(5, prior=True)
    with torch.no_grad():
        assert torch.equal(first.condition(*rows).posterior(x).mean, second.condition(*rows).posterior(x).mean)


def calls(monkeypatch, owner, name):
    """The calls of a method from now on."""
    seen, own = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: seen.append(args) or own(*args))
    return seen


@pytest.mark.parametrize(("name", "most"), [("gaussian", 1), ("dirichlet", 1), ("multitask", 1), ("mixture", 3)])
def test_features_are_made_once_for_all_functions(name, most, monkeypatch):
    model, x = fitted(name)
    samples = model.sample_functions(50)
    seen = calls(monkeypatch, rfgp.approximation.FeatureKernel, "scalar_features")
    samples(x)
    assert len(seen) == most


def test_blocks_are_conditioned_once_for_all_functions(monkeypatch):
    model, x = fitted("blocks")
    counts = []
    for number in (1, 50):
        samples = model.sample_functions(number)
        seen = calls(monkeypatch, ResidualProcess, "conditional")
        samples(x)
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 4, "two blocks, for means and covariances"


def test_memory_of_blocks_is_shared_by_single_functions():
    model, x = fitted("blocks")
    samples = model.sample_functions(5)
    one, some = samples[3](x[:2]), samples[2:](x[1:])
    values = samples(x)
    assert torch.equal(one, values[3, :2]) and torch.equal(some, values[2:, 1:])


class MultitaskModel(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean([gpytorch.means.ConstantMean()] * 3, num_tasks=3)
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


class Stretched(ExactModel):
    """A model whose forward changes the inputs first."""

    def forward(self, x):
        return super().forward(torch.tanh(x))


def exact(name):
    x, y, noise = rows_for("fixed", ROWS)
    if name == "multitask":
        x, y = output_rows("multitask")
        return MultitaskModel(x, y, MultitaskGaussianLikelihood(3), output_kernel("multitask")), points(2, 2)
    if name == "batches of several outputs":
        x, y = (torch.stack([part, -part]) for part in output_rows("multitask"))
        return MultitaskModel(x, y, MultitaskGaussianLikelihood(3), output_kernel("multitask")), points(4, 2).reshape(
            2, 2, 2
        )
    if name == "missing":
        y[::5] = float("nan")
    if name == "batch":
        kernel = polynomial(batch_shape=torch.Size([2]))
        kernel.outputscale = torch.tensor([0.5, 2.0])
        mean = gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))
        likelihood = GaussianLikelihood(batch_shape=torch.Size([2]))
        return ExactModel(x, torch.stack([y, -y]), likelihood, kernel, mean), points()
    likelihood = FixedNoiseGaussianLikelihood(noise) if name == "fixed" else GaussianLikelihood()
    form = "complex" if name == "complex features" else "ctr"
    kind = Stretched if name == "stretched" else ExactModel
    return kind(x, y, likelihood, polynomial(method=FORMS[form])), points()


EXACT = [
    "gaussian",
    "fixed",
    "complex features",
    "stretched",
    "multitask",
    "batch",
    "missing",
    "batches of several outputs",
]


@pytest.mark.parametrize("name", EXACT)
def test_draws_of_exact_models_have_the_moments_of_posterior_and_prior(name):
    model, x = exact(name)
    torch.manual_seed(3)
    policy = "mask" if name == "missing" else "ignore"
    with torch.no_grad(), gpytorch.settings.observation_nan_policy(policy):
        draws, prior_draws = (sample_functions(model, DRAWS, prior)(x) for prior in (False, True))
        latent = model.eval()(x)
        prior = model.forward(x)
    for found, wanted in ((draws, latent), (prior_draws, prior)):
        assert found.shape == (DRAWS, *wanted.mean.shape)
        check_moments(found.reshape(DRAWS, *wanted.loc.shape), wanted.loc, wanted.covariance_matrix)


@pytest.mark.parametrize("name", EXACT)
def test_functions_of_exact_models_stay_and_have_gradients(name):
    model, x = exact(name)
    with gpytorch.settings.observation_nan_policy("mask" if name == "missing" else "ignore"):
        with torch.no_grad():
            model.eval()(x)
        samples = sample_functions(model, 3)
        expected = samples(x)
        assert torch.autograd.gradcheck(samples, [x.clone().requires_grad_()])
        twins = [copy.deepcopy(samples), pickle.loads(pickle.dumps(samples))]
        ForkingPickler.dumps(samples)
        with torch.no_grad():
            for part in (*model.parameters(), *model.covar_module.buffers()):
                part.add_(1)
            model.train_targets.mul_(2.0)
    for twin in (samples, *twins):
        assert torch.equal(twin(x), expected)
        torch.testing.assert_close(twin[2](x), expected[2])
    stacked = samples(torch.stack([x, x]).expand(4, 2, *x.shape))
    assert stacked.shape == (3, 4, 2, *expected.shape[2 if name == "batch" else 1 :])


@pytest.mark.parametrize("is_cached", [False, True])
def test_an_exact_model_and_a_weight_space_model_draw_the_same_functions(is_cached):
    first, rows, x = scalar("gaussian")
    exact_model = ExactModel(*rows[:2], first.likelihood, copy.deepcopy(first.covar_module), first.mean_module)
    if is_cached:
        exact_model.eval()(x)
    with torch.no_grad():
        first.condition(*rows)
        torch.manual_seed(4)
        expected = sample_functions(first, 3)(x)
        torch.manual_seed(4)
        torch.testing.assert_close(sample_functions(exact_model, 3)(x), expected, rtol=1e-9, atol=1e-10)
    assert exact_model.training is not is_cached


def test_new_weights_of_an_exact_model_count():
    model, x = exact("gaussian")
    with torch.no_grad():
        model.eval()(x)
        model.covar_module.resample(torch.Generator().manual_seed(5))
        torch.manual_seed(6)
        draws = sample_functions(model, DRAWS)(x)
        latent = model(x)
        check_moments(draws, latent.mean, latent.covariance_matrix)


def dense_model():
    x, y, _ = rows_for("gaussian", ROWS)
    return ExactModel(x, y, GaussianLikelihood(), polynomial() * RBFKernel())


class DenseNoise(GaussianLikelihood):
    """A likelihood whose noise is correlated between rows."""

    def _shaped_noise_covar(self, shape, *params, **kwargs):
        return to_linear_operator(torch.eye(shape[-1]) + 0.1 * torch.ones(shape[-1], shape[-1]))


def dense_noise():
    x, y, _ = rows_for("gaussian", ROWS)
    return ExactModel(x, y, DenseNoise(), polynomial())


BAD = {
    "another model": (lambda: polynomial(), "expected a WeightSpaceGP or a GPyTorch ExactGP"),
    "no data": (lambda: ExactModel(None, None, GaussianLikelihood(), polynomial()), "expected a model with one tensor"),
    "exact kernel": (lambda: exact_kernel_model(), "expected a model whose covariance has features"),
    "product": (dense_model, "expected a model whose covariance has features"),
    "dense noise": (dense_noise, "expected a model whose covariance and noise have weights"),
}


def exact_kernel_model():
    x, y, _ = rows_for("gaussian", ROWS)
    return ExactModel(x, y, GaussianLikelihood(), RBFKernel())


@pytest.mark.parametrize("name", BAD)
def test_models_without_functions_raise(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        sample_functions(make(), 2)


@pytest.mark.parametrize("name", ["gaussian", "blocks"])
def test_bad_inputs_raise(name):
    model, x = fitted(name)
    samples = model.sample_functions(2)
    for bad in (x * float("nan"), x[0], x[:, :2], x[:0]):
        with pytest.raises(ValueError, match="expected"):
            samples(bad)


def test_every_kind_of_field_is_drawn_from_the_prior():
    for name, (_, outputs) in OUTPUT_KERNELS.items():
        shape = (3, 2) if outputs == 1 else (3, 2, outputs)
        assert output_model(name).sample_functions(3, prior=True)(points(2, 2)).shape == shape


@pytest.mark.parametrize("prior", [False, True])
def test_pickles_of_models_with_priors_that_are_registered_by_name(prior):
    x, y, _ = rows_for("gaussian", ROWS)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=INPUTS, seed=0)
    kernel.register_prior("outputscale_prior", gpytorch.priors.GammaPrior(2.0, 1.0), "outputscale")
    kernel.base_kernel.register_prior("lengthscale_prior", gpytorch.priors.GammaPrior(3.0, 6.0), "lengthscale")
    fitted = WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, y)
    for model in (fitted, ExactModel(x, y, GaussianLikelihood(), kernel)):
        samples = sample_functions(model, 3, prior)
        assert torch.equal(pickle.loads(pickle.dumps(samples))(x[:4]), samples(x[:4]))
    assert len(list(kernel.named_priors())) == 2

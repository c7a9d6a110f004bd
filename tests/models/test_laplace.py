"""LaplaceGP against dense Laplace approximations, scikit-learn, WeightSpaceGP and finite differences; and bad data."""

import copy
import io
import pickle
import warnings
import weakref
from functools import partial

import dense_laplace as dense
import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
    _OneDimensionalLikelihood,
)
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import DotProduct

import rfgp
from rfgp.likelihoods import (
    ComplexGaussianLikelihood,
    MultitaskMultivariateNormal,
    MultivariateNormal,
    NegativeBinomialLikelihood,
    PoissonLikelihood,
)
from rfgp.models import LaplaceGP, WeightSpaceGP
from rfgp.models.laplace.class_probabilities import class_probabilities

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, WIDTH, NAN = 50, 16, float("nan")
METHODS = ("fourier:real", "fourier:complex")


class LogitLikelihood(_OneDimensionalLikelihood):
    """Labels with the logistic link, which is that of scikit-learn."""

    def forward(self, function_samples, *args, **kwargs):
        return torch.distributions.Bernoulli(logits=function_samples)


def labels(f):
    return (f + torch.randn_like(f) > 0).double()


def with_outliers(f):
    return f + 0.2 * torch.randn_like(f) + 5.0 * (torch.rand_like(f) < 0.1)


LIKELIHOODS = dense.LIKELIHOODS | {"logit": dense.Likelihood(LogitLikelihood, dense.logit)}
TARGETS = {
    "probit": labels,
    "logit": labels,
    "Poisson": lambda f: torch.poisson(f.exp()),
    "negative binomial": lambda f: torch.poisson(f.exp()),
    "Student's t": with_outliers,
}
EVERY = pytest.mark.parametrize("name", TARGETS)


def rows(num_rows=ROWS):
    x = 2.0 * torch.rand(num_rows, 2)
    return x, 1.5 * torch.sin(3.0 * x.sum(-1))


def data(name, num_rows=ROWS):
    x, f = rows(num_rows)
    return x, TARGETS[name](f)


def kernel(method="fourier:real", width=WIDTH, **options):
    exact = ScaleKernel(RBFKernel(ard_num_dims=2), **options)
    exact.outputscale, exact.base_kernel.lengthscale = 1.7, torch.tensor([0.6, 0.9])
    return rfgp.approximate(exact, width, input_dim=2, method=method, seed=0)


def constant(value=0.3):
    mean = ConstantMean()
    mean.initialize(constant=value)
    return mean


def model_of(name, method="fourier:real", mean=None, **options):
    mean = constant() if mean is None else mean
    return LaplaceGP(kernel(method), LIKELIHOODS[name].make(), mean, **options)


def assert_gradients(model, x, y, tolerance=1e-6):
    """The gradient of the evidence in every parameter against differences of the evidence at its own modes."""
    model.zero_grad()
    model.condition(x, y).log_marginal_likelihood().backward()
    step = 1e-5
    for name, parameter in model.named_parameters():
        numbers, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for index in range(len(numbers)):
            values = []
            for sign in (1.0, -1.0):
                numbers[index] += sign * step
                with torch.no_grad():
                    values.append(float(model.condition(x, y).log_marginal_likelihood()))
                numbers[index] -= sign * step
            expected = (values[0] - values[1]) / (2.0 * step)
            assert abs(float(gradient[index]) - expected) <= tolerance * max(abs(expected), 1e-2), name


# One latent function


@EVERY
@pytest.mark.parametrize("method", METHODS)
def test_mode_evidence_and_predictions_are_those_of_matrices_of_all_rows(name, method):
    x, y = data(name)
    test = rows(7)[0]
    model = model_of(name, method).condition(x, y)
    expected = dense.of_model(lambda f: LIKELIHOODS[name].derivatives(f, y.numpy()), model, x, test)
    found = model.posterior(test)
    np.testing.assert_allclose(model.posterior(x).mean.detach(), expected.mode, atol=1e-8)
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-10)
    np.testing.assert_allclose(found.mean.detach(), expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance_matrix.detach(), expected.covariance, atol=1e-8)
    np.testing.assert_allclose(found.variance.detach(), np.diag(expected.covariance), atol=1e-8)


@pytest.mark.parametrize("make", [ZeroMean, ConstantMean, partial(LinearMean, 2)])
def test_a_gaussian_likelihood_is_exact(make):
    (x, f), mean = rows(), make()
    y = f + 0.1 * torch.randn(ROWS)
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.02
    laplace, exact = (kind(kernel(), likelihood, mean).condition(x, y) for kind in (LaplaceGP, WeightSpaceGP))
    gradients = []
    for model in (laplace, exact):
        model.zero_grad()
        model.log_marginal_likelihood().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(laplace.log_marginal_likelihood(), exact.log_marginal_likelihood(), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)
    found, expected = laplace.posterior(x[:5]), exact.posterior(x[:5])
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix, rtol=1e-9, atol=1e-9)


def test_logistic_labels_agree_with_scikit_learn():
    x, y = data("logit")
    test = rows(7)[0]
    model = model_of("logit", mean=ZeroMean()).condition(x, y)
    with torch.no_grad():
        features = [model.covar_module.features(points).numpy() for points in (x, test)]
        found = model.posterior(test)
    other = GaussianProcessClassifier(DotProduct(0.0, "fixed"), optimizer=None).fit(features[0], y.numpy())
    mean, variance = other.latent_mean_and_variance(features[1])
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), other.log_marginal_likelihood_value_, rtol=1e-8)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5, atol=1e-5)


@EVERY
def test_gradients_of_the_evidence_follow_the_mode(name):
    assert_gradients(model_of(name), *data(name))


def test_gradients_reach_a_linear_mean_and_likelihoods_of_gpytorch():
    x, f = rows()
    assert_gradients(model_of("probit", mean=LinearMean(2)), *data("probit"))
    beta = LaplaceGP(kernel("fourier:complex"), gpytorch.likelihoods.BetaLikelihood(), ZeroMean())
    assert_gradients(beta, x, torch.sigmoid(f))


def test_gradients_without_those_of_the_kernel():
    model = model_of("Student's t")
    model.covar_module.requires_grad_(False)
    x, y = data("Student's t")
    model.condition(x, y).log_marginal_likelihood().backward()
    whole = model_of("Student's t")
    whole.condition(x, y).log_marginal_likelihood().backward()
    torch.testing.assert_close(model.likelihood.raw_noise.grad, whole.likelihood.raw_noise.grad)
    assert model.covar_module.raw_outputscale.grad is None


@EVERY
def test_batches_equal_all_rows_at_once(name):
    x, y = data(name)
    batches = [(x[part], y[part]) for part in (slice(0, 7), slice(7, 30), slice(30, None))]
    whole, parts = model_of(name).condition(x, y), model_of(name).condition(batches)
    torch.testing.assert_close(parts.mode, whole.mode, rtol=1e-9, atol=1e-9)
    for model in (whole, parts):
        model.log_marginal_likelihood().backward()
    torch.testing.assert_close(whole.log_marginal_likelihood(), parts.log_marginal_likelihood())
    pairs = zip(whole.parameters(), parts.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-8, atol=1e-10) for a, b in pairs)


def test_every_step_is_one_pass_over_the_batches():
    x, y = data("Poisson")

    class Loader:
        count = 0

        def __iter__(self):
            self.count += 1
            yield x[:20], y[:20]
            yield x[20:], y[20:]

    loader = Loader()
    with torch.no_grad():
        model = model_of("Poisson").condition(loader)
    assert loader.count == model.num_passes + 2  # the first rows for the map, and the sums at the mode
    started = copy.deepcopy(model)
    with torch.no_grad():
        started.condition(x, y, start=model.mode)
    assert started.num_passes < model.num_passes
    torch.testing.assert_close(started.mode, model.mode, rtol=1e-9, atol=1e-9)


def test_features_of_tensors_are_computed_once_for_all_passes(monkeypatch):
    (x, y), model, rows = data("Poisson"), model_of("Poisson"), []
    plain = type(model.covar_module).scalar_features

    def counted(self, x):
        rows.append(len(x))
        return plain(self, x)

    monkeypatch.setattr(type(model.covar_module), "scalar_features", counted)
    with torch.no_grad():
        model.condition(x, y)
    assert model.num_passes > 2 and sum(rows) == len(x) + 1  # one makes the map


def test_batches_are_forgotten():
    """The memory is free of their number: where there are no gradients, no more than two are there at a time."""
    alive = weakref.WeakSet()

    class Loader:
        largest = 0

        def __iter__(self):
            generator = torch.Generator().manual_seed(0)
            for _ in range(6):
                x = torch.rand(20, 2, generator=generator)
                alive.add(x)
                self.largest = max(self.largest, len(alive))
                yield x, (x.sum(-1) > 1.0)
                del x

    loader = Loader()
    with torch.no_grad():
        model_of("probit").condition(loader)
    assert loader.largest <= 2


@pytest.mark.parametrize("name", ["probit", "Student's t"])
def test_a_fit_in_inference_mode_can_be_used_outside(name):
    x, y = data(name)
    expected, model = model_of(name).condition(x, y).posterior(x), model_of(name)
    with torch.inference_mode():
        model.condition(x + 0.0, y + 0.0)
    found = model.posterior(x.requires_grad_())
    assert not model.log_marginal_likelihood().requires_grad
    assert torch.equal(found.mean, expected.mean)
    found.mean.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_other_units_give_the_same_up_to_them(scale):
    """Student's t in units of the targets: mode and posterior scale, and the evidence shifts by the logarithm."""
    x, y = data("Student's t")
    plain = model_of("Student's t").condition(x, y)
    model = model_of("Student's t")
    model.covar_module.outputscale = 1.7 * scale**2
    model.likelihood.noise = 0.1 * scale**2
    model.mean_module.initialize(constant=0.3 * scale)
    model.condition(x, scale * y)
    torch.testing.assert_close(model.mode, plain.mode, rtol=1e-7, atol=1e-7)
    shifted = model.log_marginal_likelihood() + ROWS * np.log(scale)
    torch.testing.assert_close(shifted, plain.log_marginal_likelihood(), rtol=1e-8, atol=0.0)


@EVERY
def test_the_mode_is_found_from_far_away(name):
    """Targets that are far from the mean function, at which full Newton steps would overflow."""
    x, f = rows()
    y = TARGETS[name](f + (6.0 if name != "Student's t" else 100.0))
    model = model_of(name).condition(x, y)
    assert torch.isfinite(model.log_marginal_likelihood()) and model.num_passes < 60


def test_labels_that_are_certain_keep_their_derivatives():
    """Far out GPyTorch's probabilities round to zero and one."""
    x = torch.linspace(-1.0, 1.0, 20).unsqueeze(-1)
    exact = ScaleKernel(RBFKernel())
    exact.outputscale = 1e4
    model = LaplaceGP(rfgp.approximate(exact, WIDTH, input_dim=1, seed=0), BernoulliLikelihood())
    y = (x.squeeze(-1) > 0).double()
    expected = dense.of_model(lambda f: dense.probit(f, y.numpy()), model.condition(x, y), x, x[:2])
    assert np.abs(expected.mode).max() > 9.0
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-9)


def test_negative_curvature_enters_the_evidence():
    x, y = data("Student's t")
    model = model_of("Student's t").condition(x, y)
    derivatives = dense.student_t(model.posterior(x).mean.detach().numpy(), y.numpy(), 4.0, 0.1)
    assert (np.diag(derivatives.curvature) < 0).any()


@pytest.mark.parametrize("method", METHODS)
def test_float32_is_near_float64(method):
    x, y = data("probit")
    exact = model_of("probit", method).condition(x, y)
    single = copy.deepcopy(exact).float()
    found = single.condition(x.float(), y.float()).posterior(x.float())
    assert found.mean.dtype == found.variance.dtype == torch.float32
    torch.testing.assert_close(found.mean.double(), exact.posterior(x).mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.variance.double(), exact.posterior(x).variance, rtol=1e-3, atol=1e-4)
    evidence = single.log_marginal_likelihood()
    assert evidence.dtype == torch.float64
    torch.testing.assert_close(evidence, exact.log_marginal_likelihood(), rtol=1e-5, atol=0.0)
    evidence.backward()
    assert single.covar_module.raw_outputscale.grad.dtype == torch.float32


def test_products_in_float32_leave_the_mode_exact():
    x, y = data("Poisson")
    model = model_of("Poisson", product_dtype=torch.float32).condition(x, y)
    torch.testing.assert_close(model.mode, model_of("Poisson").condition(x, y).mode, rtol=1e-7, atol=1e-7)


def test_labels_may_be_of_any_dtype():
    x, y = data("probit")
    expected = model_of("probit").condition(x, y).mode
    for dtype in (torch.bool, torch.long, torch.float32):
        torch.testing.assert_close(model_of("probit").condition(x, y.to(dtype)).mode, expected, rtol=0.0, atol=0.0)


@pytest.mark.smoke
def test_posteriors_are_frozen_and_the_model_can_be_called():
    x, y = data("probit")
    model = model_of("probit").condition(x, y)
    before = model(x)
    assert isinstance(before, MultivariateNormal)
    mean, variance = before.mean.clone(), before.variance.clone()
    with torch.no_grad():
        model.covar_module.raw_outputscale.add_(1.0)
    with pytest.raises(ValueError, match="call condition"):
        model.posterior(x)
    with pytest.raises(ValueError, match="call condition"):
        model.log_marginal_likelihood()
    model.condition(x, y)
    again = copy.copy(before)
    assert torch.equal(again.mean, mean) and torch.equal(again.variance, variance)
    batch = model.posterior(x.unflatten(0, (5, 10)))
    torch.testing.assert_close(batch.mean.flatten(), model.posterior(x).mean)
    probabilities = model.likelihood(model.posterior(x)).probs
    assert ((probabilities > 0.5) == (y > 0.5)).double().mean() > 0.7


def test_resampled_weights_are_noticed():
    model = model_of("probit").condition(*data("probit"))
    with pytest.raises(ValueError, match="random weights"):
        _ = model.resample(torch.Generator().manual_seed(3)).mode


def test_samples_have_the_moments_of_the_posterior():
    x, y = data("Poisson")
    with torch.no_grad():
        posterior = model_of("Poisson").condition(x, y).posterior(x[:3])
        draws = posterior.rsample(torch.Size([20_000]))
        bound = 5.0 * (posterior.variance / 20_000).sqrt()
        assert ((draws.mean(0) - posterior.mean).abs() < bound).all()
        spread = torch.cov(draws.mT) - posterior.covariance_matrix
        assert (spread.abs() < 5.0 * posterior.variance.max() * (2.0 / 20_000) ** 0.5).all()


def test_what_landmarks_lack_is_in_the_variance():
    x, y = data("probit")
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 4, method="landmarks", train_inputs=x)
    model = LaplaceGP(kernel, BernoulliLikelihood()).condition(x, y)
    with torch.no_grad():
        lacking = model.covar_module.residual_variance(x)
        bare = model.posterior(x).variance - lacking
        assert (lacking > 0).any() and (bare > 0).all()
    far = model.posterior(x + 100.0).variance
    torch.testing.assert_close(far, model.covar_module.exact_kernel.outputscale.expand(ROWS))


def test_training_raises_the_evidence_to_a_zero_gradient():
    x, y = data("Poisson", 80)
    model = LaplaceGP(kernel(), PoissonLikelihood(), ConstantMean())
    summary = rfgp.fit(model, x, y, progress=False)
    assert summary.converged and summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    with torch.no_grad():
        value = float(model.condition(x, y).log_marginal_likelihood())
    assert value == pytest.approx(summary.log_marginal_likelihood, rel=1e-9)


@pytest.mark.parametrize("scale", [1e4])
@pytest.mark.long("two whole trainings; values in other units are compared without training")
def test_training_does_not_depend_on_units(scale):
    x, y = data("Student's t", 60)
    values = []
    for unit in (1.0, scale):
        model = LaplaceGP(
            rfgp.approximate(ScaleKernel(RBFKernel()), WIDTH, input_dim=2, seed=0), StudentTLikelihood(), ConstantMean()
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            summary = rfgp.fit(model, unit * x, unit * y, progress=False)
        values.append(summary.log_marginal_likelihood + len(y) * np.log(unit))
    assert values[0] == pytest.approx(values[1], abs=1e-3)


def test_training_refuses_what_it_cannot_do():
    x, y = data("probit")
    model = model_of("probit")
    for options, message in (
        ({"strategy": "blocks"}, "evidence"),
        ({"noise": torch.ones(ROWS)}, "noise"),
    ):
        with pytest.raises(ValueError, match=message):
            rfgp.fit(model, x, y, progress=False, **options)
    with pytest.raises(ValueError, match="tensors"):
        rfgp.fit(model, [(x, y)], progress=False)


# Bad data and states


def assert_unchanged(model, x, before):
    after = model.posterior(x)
    assert torch.equal(after.mean, before.mean) and torch.equal(after.variance, before.variance)


BAD = {
    "labels of a half": (lambda x, y: (x, 0.5 * y), "probit", "can have"),
    "labels of minus one": (lambda x, y: (x, 2 * y - 1), "probit", "can have"),
    "negative counts": (lambda x, y: (x, y - 3.0), "Poisson", "can have"),
    "broken counts": (lambda x, y: (x, y + 0.5), "negative binomial", "can have"),
    "targets that are NaN": (lambda x, y: (x, y * NAN), "Student's t", "finite"),
    "inputs that are NaN": (lambda x, y: (x * NAN, y), "probit", "finite"),
    "two columns": (lambda x, y: (x, y.unsqueeze(-1)), "probit", "shape"),
    "too few targets": (lambda x, y: (x, y[:-1]), "probit", "shape"),
    "no targets": (lambda x, y: (x, None), "probit", "expected targets"),
    "a batch": (lambda x, y: (x.unsqueeze(0), y.unsqueeze(0)), "probit", r"\(N, d\)"),
    "no rows": (lambda x, y: (x[:0], y[:0]), "probit", "at least one row"),
    "no batches": (lambda x, y: ([], None), "probit", "at least one batch"),
    "a generator": (lambda x, y: (iter([(x, y)]), None), "probit", "gone through again"),
    "batches with noise": (lambda x, y: ([(x, y, y)], None), "probit", "noise"),
    "another dtype": (lambda x, y: (x.float(), y), "probit", "dtype"),
    "lists": (lambda x, y: (x, y.tolist()), "probit", "Tensor"),
    "complex targets": (lambda x, y: (x, y.to(torch.complex128)), "probit", "real"),
    "counts that overflow": (lambda x, y: (x, y + 1e300), "Poisson", "expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_are_refused_and_nothing_is_lost(case):
    change, name, message = BAD[case]
    x, y = data(name)
    model = model_of(name).condition(x, y)
    before = model.posterior(x)
    with pytest.raises(ValueError, match=message):
        model.condition(*change(x, y))
    assert_unchanged(model, x, before)
    fresh = LaplaceGP(rfgp.approximate(RBFKernel(), WIDTH, seed=0), LIKELIHOODS[name].make())
    with pytest.raises(ValueError, match="expected"):
        fresh.condition(*change(x, y))
    assert fresh.covar_module.feature_map is None


def test_a_loader_that_fails_later_loses_nothing():
    x, y = data("probit")
    model = model_of("probit").condition(x, y)
    before = model.posterior(x)
    with pytest.raises(ValueError, match="can have"):
        model.condition([(x, y), (x, y - 7.0)])
    assert_unchanged(model, x, before)


def test_bad_parts_are_refused():
    several = rfgp.approximate(rfgp.kernels.CurlFreeKernel(RBFKernel()), WIDTH, input_dim=2)
    for arguments, options, message in (
        ((RBFKernel(), BernoulliLikelihood()), {}, "approximate"),
        ((kernel(), ComplexGaussianLikelihood()), {}, "likelihood"),
        ((kernel(), gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(3))), {}, "likelihood"),
        ((kernel(), gpytorch.likelihoods.LaplaceLikelihood()), {}, "kink"),
        ((kernel(), StudentTLikelihood(batch_shape=torch.Size([2]))), {}, "batch"),
        ((kernel(), "probit"), {}, "likelihood"),
        ((kernel(), BernoulliLikelihood(), 0.3), {}, "mean"),
        ((kernel(), BernoulliLikelihood(), ConstantMean(batch_shape=torch.Size([2]))), {}, "batch shapes"),
        ((several, BernoulliLikelihood()), {}, "one output"),
        ((kernel(), BernoulliLikelihood()), {"hessian": "block_diagonal"}, "classes"),
        ((kernel(), BernoulliLikelihood()), {"hessian": "diagonal"}, "hessian"),
        ((kernel(), BernoulliLikelihood()), {"product_dtype": torch.float16}, "product_dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            LaplaceGP(*arguments, **options)
    model = model_of("probit")
    for call in (lambda: model.posterior(torch.zeros(2, 2)), model.log_marginal_likelihood, lambda: model.mode):
        with pytest.raises(ValueError, match="call condition"):
            call()
    x, y = data("probit")
    for start in (torch.zeros(3, 1), torch.full((WIDTH, 1), NAN), "zeros"):
        with pytest.raises(ValueError, match="start"):
            model.condition(x, y, start=start)
    model.condition(x, y)
    for bad in (x * NAN, x.float(), x[0], x[:, :1]):
        with pytest.raises(ValueError, match="expected"):
            model.posterior(bad)


@pytest.mark.smoke
def test_states_copies_and_pickles_predict_without_the_data():
    x, y = data("negative binomial")
    model = model_of("negative binomial").condition(x, y)
    expected = model.posterior(x)
    state = io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    loaded = LaplaceGP(kernel(), NegativeBinomialLikelihood(), ConstantMean())
    loaded.load_state_dict(torch.load(state))
    for other in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = other.posterior(x)
        assert torch.equal(found.mean, expected.mean) and torch.equal(found.variance, expected.variance)
        torch.testing.assert_close(other.log_marginal_likelihood(), model.log_marginal_likelihood().detach())


def test_states_of_other_models_are_refused_and_nothing_is_lost():
    x, y = data("probit")
    model = model_of("probit").condition(x, y)
    before, state = model.posterior(x), model.state_dict()
    wide = LaplaceGP(kernel(width=32), BernoulliLikelihood(), constant()).condition(x, y).state_dict()
    broken = {name: value for name, value in state.items() if name != "laplace.gram"}
    cut = {**state, "laplace.gram": state["laplace.gram"][:, :3]}
    for other in (wide, broken, cut, {**state, "laplace.weights": "none"}):
        with pytest.raises(ValueError, match="expected"):
            model.load_state_dict(other)
        assert_unchanged(model, x, before)
    model.load_state_dict(model_of("probit").state_dict())
    with pytest.raises(ValueError, match="call condition"):
        model.posterior(x)


def test_a_model_inside_another_module_keeps_its_fit():
    x, y = data("probit")
    outer = torch.nn.ModuleDict({"model": model_of("probit").condition(x, y)})
    other = torch.nn.ModuleDict({"model": model_of("probit")})
    other.load_state_dict(outer.state_dict())
    assert torch.equal(other["model"].posterior(x).mean, outer["model"].posterior(x).mean)


# Classes

CLASSES = 3


def class_data(num_rows=ROWS):
    x, f = rows(num_rows)
    return x, torch.bucketize(f + 0.7 * torch.randn(num_rows), torch.tensor([-0.5, 0.5]))


def class_model(hessian="full", is_batched=True, method="fourier:real", mixing=False):
    likelihood = SoftmaxLikelihood(num_features=CLASSES, num_classes=CLASSES, mixing_weights=mixing)
    batch = torch.Size([CLASSES] if is_batched else [])
    mean = ConstantMean(batch_shape=batch)
    model = LaplaceGP(kernel(method, batch_shape=batch), likelihood, mean, hessian=hessian)
    if is_batched:
        model.covar_module.outputscale = torch.tensor([1.0, 2.0, 3.0])
        mean.initialize(constant=torch.tensor([0.1, -0.2, 0.3]))
    return model


HESSIANS = pytest.mark.parametrize("hessian", ["full", "block_diagonal"])


@HESSIANS
@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_classes_are_those_of_matrices_of_all_rows(hessian, is_batched, method):
    x, y = class_data()
    test = rows(4)[0]
    model = class_model(hessian, is_batched, method).condition(x, y)
    step = partial(dense.softmax, y=y.numpy(), num_classes=CLASSES)
    last = partial(step, is_block_diagonal=hessian == "block_diagonal")
    expected = dense.of_model(step, model, x, test, CLASSES, last)
    found = model.posterior(test)
    assert isinstance(found, MultitaskMultivariateNormal) and found.mean.shape == (4, CLASSES)
    np.testing.assert_allclose(model.posterior(x).mean.detach().mT.reshape(-1), expected.mode, atol=1e-8)
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-9)
    np.testing.assert_allclose(found.mean.detach().mT.reshape(-1), expected.mean, atol=1e-8)
    order = np.arange(4 * CLASSES).reshape(CLASSES, 4).T.reshape(-1)
    covariance = expected.covariance[np.ix_(order, order)]
    np.testing.assert_allclose(found.covariance_matrix.detach(), covariance, atol=1e-8)
    np.testing.assert_allclose(found.variance.detach().reshape(-1), np.diag(covariance), atol=1e-8)


@HESSIANS
@pytest.mark.parametrize("mixing", [False, True])
def test_gradients_of_the_evidence_of_classes_follow_the_mode(hessian, mixing):
    assert_gradients(class_model(hessian, mixing=mixing), *class_data())


@pytest.mark.parametrize("hessian", ["full", "block_diagonal"])
def test_class_probabilities_and_samples(hessian):
    x, y = class_data()
    with torch.no_grad():
        model = class_model(hessian).condition(x, y)
        posterior = model.posterior(x[:2])
        draws = posterior.rsample(torch.Size([20_000])).flatten(1)
        bound = 5.0 * posterior.variance.max() * (2.0 / 20_000) ** 0.5
        assert ((torch.cov(draws.mT) - posterior.covariance_matrix).abs() < bound).all()
        loaded = class_model(hessian)
        loaded.load_state_dict(model.state_dict())
        for fitted in (model, loaded):
            with warnings.catch_warnings(), gpytorch.settings.num_likelihood_samples(20_000):
                warnings.simplefilter("error")
                probabilities = fitted.likelihood(fitted.posterior(x)).probs.mean(0)
            assert probabilities.shape == (ROWS, CLASSES)
            torch.testing.assert_close(probabilities.sum(-1), torch.ones(ROWS))
            torch.testing.assert_close(probabilities, class_probabilities(fitted, x), rtol=0.0, atol=0.018)


def test_as_many_rows_as_classes_are_no_classes():
    x, y = class_data(CLASSES)
    twice = class_model().condition(torch.cat([x, x]), torch.cat([y, y]))
    assert class_model().condition(x, y).mode.shape == twice.mode.shape
    batches = [(x, y), (x, y)]
    torch.testing.assert_close(class_model().condition(batches).mode, twice.mode, rtol=1e-8, atol=1e-9)


@HESSIANS
def test_two_classes_are_logistic_labels(hessian):
    """The difference of two functions of half the variance is one function, with the logistic link."""
    x, y = data("logit")
    one = model_of("logit", mean=ZeroMean()).condition(x, y)
    softmax = SoftmaxLikelihood(num_classes=2, mixing_weights=False)
    two = LaplaceGP(kernel(), softmax, hessian=hessian)
    two.covar_module.outputscale = 1.7 / 2.0
    mean = two.condition(x, y.long()).posterior(x).mean
    torch.testing.assert_close(mean[:, 1] - mean[:, 0], one.posterior(x).mean, rtol=1e-8, atol=1e-8)
    if hessian == "full":
        torch.testing.assert_close(two.log_marginal_likelihood(), one.log_marginal_likelihood(), rtol=1e-10, atol=0.0)


@HESSIANS
def test_states_of_classes(hessian):
    x, y = class_data()
    model, other = class_model(hessian).condition(x, y), class_model(hessian)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.posterior(x).variance, model.posterior(x).variance)
    copied = pickle.loads(pickle.dumps(model))
    assert torch.equal(copied.posterior(x).mean, model.posterior(x).mean)
    unlike = class_model("block_diagonal" if hessian == "full" else "full")
    with pytest.raises(ValueError, match="expected the state"):
        unlike.load_state_dict(model.state_dict())


def test_bad_labels_are_refused_and_nothing_is_lost():
    x, y = class_data()
    model = class_model().condition(x, y)
    before = model.posterior(x)
    for bad in (y + 1, y - 1, y.double(), y.unsqueeze(-1), y[:-1]):
        with pytest.raises(ValueError, match="expected"):
            model.condition(x, bad)
        assert_unchanged(model, x, before)
    with pytest.raises(ValueError, match=r"\(N, d\)"):
        model.posterior(x.unsqueeze(0))


def test_a_full_hessian_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(rfgp.models.laplace.model, "MAX_WEIGHTS", CLASSES * WIDTH - 1)
    x, y = class_data()
    with pytest.raises(ValueError, match="block_diagonal"):
        class_model().condition(x, y)
    class_model("block_diagonal").condition(x, y)


def test_training_of_classes():
    x, y = class_data(60)
    model = LaplaceGP(kernel(), SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False))
    summary = rfgp.fit(model, x, y, progress=False, max_evaluations=60)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood

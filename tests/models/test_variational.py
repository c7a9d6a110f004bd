"""Variational inference on the weights: against exact posteriors, GPyTorch's objectives and its test suite."""

from __future__ import annotations

import copy
import pickle
import unittest

import gpytorch
import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    DirichletClassificationLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    MultitaskGaussianLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import PredictiveLogLikelihood, VariationalELBO
from gpytorch.test.model_test_case import VariationalModelTestCase
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    DeltaVariationalDistribution,
    MeanFieldVariationalDistribution,
    NaturalVariationalDistribution,
)

import rfgp
from rfgp.models import WeightSpaceGP, WeightSpaceVariationalGP

pytestmark = pytest.mark.usefixtures("float64_default")

WIDTH, CLASSES = 24, 3


def rows(count=60, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator)
    return x, torch.sin(2.0 * x.sum(-1)) + 0.1 * torch.randn(count, generator=generator)


def kernel(method="auto", width=WIDTH, **options):
    exact = ScaleKernel(RBFKernel(lengthscale=0.7), **options)
    known = {"train_inputs": rows()[0]} if method == "landmarks" else {"input_dim": 2}
    return rfgp.approximate(exact, width, method=method, seed=0, **known)


LIKELIHOODS = {
    "gaussian": (GaussianLikelihood, lambda y: y),
    "bernoulli": (BernoulliLikelihood, lambda y: (y > 0.0).double()),
    "student": (StudentTLikelihood, lambda y: y),
    "laplace": (LaplaceLikelihood, lambda y: y),
    "beta": (BetaLikelihood, torch.sigmoid),
    "softmax": (
        lambda: SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False),
        lambda y: (y > 0).long() + (y > 0.5),
    ),
}
EVERY = pytest.mark.parametrize("name", LIKELIHOODS)


def problem(name, **options):
    """A model, and its rows."""
    make, targets = LIKELIHOODS[name]
    x, y = rows()
    return WeightSpaceVariationalGP(kernel(), make(), **options), x, targets(y)


def gaussian_pair(method, mean=None, dtype=torch.float64):
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.05
    features = kernel(method)
    residual = "vfe" if method == "landmarks" else "none"
    exact = WeightSpaceGP(features, likelihood, mean, residual=residual)
    return WeightSpaceVariationalGP(features, likelihood, mean).to(dtype), exact.to(dtype)


@pytest.mark.smoke
@pytest.mark.parametrize("method", ["auto", "rademacher:ctr", "landmarks"])
@pytest.mark.parametrize("make_mean", [lambda: None, ConstantMean, lambda: LinearMean(2)])
def test_one_step_on_gaussian_rows_is_exact(method, make_mean):
    """Posterior and evidence of the weight-space model; for landmarks the variational bound of the exact kernel."""
    if method == "rademacher:ctr":
        exact_kernel = ScaleKernel(PolynomialKernel(power=2))
        features = rfgp.approximate(exact_kernel, WIDTH, method=method, input_dim=2, seed=0)
        likelihood, mean = GaussianLikelihood(), make_mean()
        model, exact = WeightSpaceVariationalGP(features, likelihood, mean), WeightSpaceGP(features, likelihood, mean)
    else:
        model, exact = gaussian_pair(method, make_mean())
    x, y = rows()
    new = rows(9, seed=2)[0]
    model.natural_step(x, y)
    exact.condition(x, y)
    torch.testing.assert_close(model.elbo(x, y), exact.log_marginal_likelihood(), rtol=1e-9, atol=1e-9)
    wanted = exact.posterior(new)
    for found in (model.posterior(new), model.eval()(new)):
        torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.variance, wanted.variance, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.covariance_matrix, wanted.covariance_matrix, rtol=1e-9, atol=1e-9)
    noisy = model.likelihood(model.posterior(new)).variance
    torch.testing.assert_close(noisy, exact.likelihood(wanted).variance, rtol=1e-9, atol=1e-9)


def test_complex_features_enter_as_real_and_imaginary_parts():
    likelihood, features = GaussianLikelihood(), kernel("fourier:complex", 10)
    model = WeightSpaceVariationalGP(features, likelihood)
    x, y = rows()
    model.natural_step(x, y)
    planes = torch.cat([features.features(x).real, features.features(x).imag], dim=-1)
    covariance = planes @ planes.mT + likelihood.noise * torch.eye(len(x))
    dense = torch.distributions.MultivariateNormal(torch.zeros(len(x)), covariance)
    torch.testing.assert_close(model.elbo(x, y), dense.log_prob(y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(LIKELIHOODS.keys() - {"laplace"}))  # whose kink GPyTorch integrates roughly
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_objectives_of_gpytorch_take_the_model(name, covariance):
    model, x, y = problem(name, covariance=covariance)
    draws = 4000
    with gpytorch.settings.num_likelihood_samples(draws):
        value = VariationalELBO(model.likelihood, model, num_data=len(x))(model(x), y) * len(x)
        assert value.shape == ()
        # the standard deviation of one draw of one row is below 1.5, and each side has its own draws
        error = 5.0 * 1.5 * (2.0 * len(x) / draws) ** 0.5 if name == "softmax" else 1e-9
        torch.testing.assert_close(value, model.elbo(x, y), rtol=0.0, atol=error)
    PredictiveLogLikelihood(model.likelihood, model, num_data=len(x))(model(x), y).backward()
    assert all(p.grad is not None for p in model.covar_module.parameters())


@EVERY
def test_natural_steps_raise_the_bound(name):
    model, x, y = problem(name)
    with gpytorch.settings.num_likelihood_samples(400):
        first = model.natural_step(x, y, step_size=0.5)
        for _ in range(8):
            last = model.natural_step(x, y, step_size=0.5)
    assert float(last) > float(first) + 1.0
    drawn = model.likelihood(model.posterior(x))
    assert drawn is not None


@EVERY
def test_condition_ends_where_no_natural_step_raises_the_bound(name):
    model, x, y = problem(name)
    if name == "softmax":
        with pytest.raises(ValueError, match="without random draws"):
            model.condition(x, y)
        return
    assert not model.condition(x, y).training
    bound = model.elbo(x, y).detach()
    torch.testing.assert_close(model.natural_step(x, y, step_size=0.5), bound, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model.elbo(x, y).detach(), bound, rtol=1e-9, atol=1e-9)
    if name == "gaussian":
        exact = WeightSpaceGP(model.covar_module, model.likelihood).condition(x, y)
        torch.testing.assert_close(bound, exact.log_marginal_likelihood().detach())
        torch.testing.assert_close(model.posterior(x).variance, exact.posterior(x).variance.detach())


def test_a_natural_step_is_that_of_gpytorch():
    """NGD on a NaturalVariationalDistribution goes the same way."""
    x, y = rows()
    labels = (y > 0.0).double()
    models = [
        WeightSpaceVariationalGP(kernel(), BernoulliLikelihood(), covariance=NaturalVariationalDistribution(WIDTH))
        for _ in range(2)
    ]
    objective = VariationalELBO(models[0].likelihood, models[0], num_data=len(x))
    optimizer = gpytorch.optim.NGD(models[0].variational_parameters(), num_data=len(x), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        (-objective(models[0](x), labels)).backward()
        optimizer.step()
        models[1].natural_step(x, labels, step_size=0.3)
    for own, theirs in zip(models[1].variational_parameters(), models[0].variational_parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "make", [CholeskyVariationalDistribution, NaturalVariationalDistribution, MeanFieldVariationalDistribution]
)
def test_distributions_of_gpytorch_are_taken_and_set(make):
    x, y = rows()
    model = WeightSpaceVariationalGP(kernel(), GaussianLikelihood(), covariance=make(WIDTH))
    before = model.natural_step(x, y, step_size=0.1)
    assert float(model.elbo(x, y).detach()) > float(before)
    torch.testing.assert_close(
        model.weights().distribution().mean, model.variational_strategy.variational_distribution.mean
    )


@pytest.mark.parametrize("sizes", [(20, 20, 20), (25, 25, 10)])
def test_mean_of_the_bound_over_batches_is_that_of_all_rows(sizes):
    model, x, y = problem("bernoulli")
    model.natural_step(x, y)
    objective = VariationalELBO(model.likelihood, model, num_data=len(x))
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    shares = torch.tensor(sizes) / len(x)
    bounds = torch.stack([model.elbo(*batch, num_data=len(x)) for batch in batches])
    torch.testing.assert_close((shares * bounds).sum(), model.elbo(x, y), rtol=1e-10, atol=1e-10)
    theirs = torch.stack([objective(model(a), b) for a, b in batches])
    torch.testing.assert_close((shares * theirs).sum() * len(x), model.elbo(x, y), rtol=1e-10, atol=1e-10)


def test_functions_of_classes_share_features_and_may_have_scales_and_means():
    x, y = rows()
    likelihood = SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False)
    shape = torch.Size([CLASSES])
    model = WeightSpaceVariationalGP(kernel(batch_shape=shape), likelihood, ConstantMean(batch_shape=shape))
    with torch.no_grad():
        model.covar_module.raw_outputscale.copy_(torch.arange(3.0))
        model.mean_module.raw_constant.copy_(torch.tensor([0.0, 1.0, 2.0]))
    model.natural_step(x, (y > 0).long())
    found = model(x)
    assert isinstance(found, gpytorch.distributions.MultitaskMultivariateNormal)
    assert found.mean.shape == (len(x), CLASSES) and model.num_functions == CLASSES
    distribution = model.variational_strategy.variational_distribution
    scalar = parts(model.covar_module)[0].features(x)
    for index in range(CLASSES):
        features = scalar * model.covar_module.outputscale[index].sqrt()
        mean = features @ distribution.mean[index] + index
        variance = (features @ distribution.covariance_matrix[index] * features).sum(-1)
        torch.testing.assert_close(found.mean[:, index], mean)
        torch.testing.assert_close(found.variance[:, index], variance)
        torch.testing.assert_close(model.posterior(x).variance[:, index], variance)
    assert model(x.expand(2, *x.shape)).mean.shape == (2, len(x), CLASSES)
    prior = model(x, prior=True)
    torch.testing.assert_close(prior.variance, scalar.square().sum(-1)[:, None] * model.covar_module.outputscale)


@EVERY
def test_states_copies_and_pickles_predict_alike(name):
    model, x, y = problem(name)
    model.natural_step(x, y, step_size=0.5)
    wanted = model.posterior(x)
    fresh = problem(name)[0]
    fresh.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), fresh):
        found = other.posterior(x)
        assert torch.equal(found.mean, wanted.mean) and torch.equal(found.variance, wanted.variance)
        assert other.variational_strategy.model is other


@pytest.mark.parametrize(
    "make", [rfgp.likelihoods.PoissonLikelihood, rfgp.likelihoods.NegativeBinomialLikelihood, BetaLikelihood]
)
def test_targets_that_a_likelihood_cannot_have_are_refused(make):
    x, _ = rows()
    model = WeightSpaceVariationalGP(kernel(), make())
    before = copy.deepcopy(model.state_dict())
    for wrong in (torch.full((len(x),), 1.5), torch.full((len(x),), -1.0)):
        for call in (model.elbo, model.natural_step, lambda x, y, m=model: rfgp.fit(m, x, y, progress=False)):
            with pytest.raises(ValueError, match="can have"):
                call(x, wrong)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_posterior_keeps_its_values():
    model, x, y = problem("bernoulli")
    model.natural_step(x, y)
    found = model.posterior(x)
    known = model.posterior(x).variance.clone()
    model.covar_module.outputscale = 7.0
    model.natural_step(x, 1.0 - y)
    assert torch.equal(found.variance, known)


def test_the_distribution_of_the_prior_is_that_of_the_kernel():
    model, x, _ = problem("bernoulli")
    prior = model(x, prior=True)
    torch.testing.assert_close(prior.covariance_matrix, model.covar_module(x).to_dense())
    torch.testing.assert_close(prior.covariance_matrix, model(x).covariance_matrix)
    torch.testing.assert_close(prior.covariance_matrix, model.forward(x).covariance_matrix)


X, Y = (part.double() for part in rows(10))
BAD = {
    "kernel": (lambda: WeightSpaceVariationalGP(RBFKernel(), BernoulliLikelihood()), "expected"),
    "waits": (
        lambda: WeightSpaceVariationalGP(rfgp.approximate(RBFKernel(), 8, seed=0), BernoulliLikelihood()),
        "waits for its first inputs",
    ),
    "tasks": (
        lambda: WeightSpaceVariationalGP(
            rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2), 8, input_dim=2, seed=0), BernoulliLikelihood()
        ),
        "expected a kernel of one output",
    ),
    "likelihood": (lambda: WeightSpaceVariationalGP(kernel(), "bernoulli"), "expected a GPyTorch likelihood"),
    "dirichlet": (
        lambda: WeightSpaceVariationalGP(kernel(), DirichletClassificationLikelihood(torch.tensor([0, 1]))),
        "use a WeightSpaceGP",
    ),
    "multitask": (lambda: WeightSpaceVariationalGP(kernel(), MultitaskGaussianLikelihood(2)), "use a WeightSpaceGP"),
    "mean": (lambda: WeightSpaceVariationalGP(kernel(), BernoulliLikelihood(), 0.0), "expected a GPyTorch mean"),
    "covariance": (
        lambda: WeightSpaceVariationalGP(kernel(), BernoulliLikelihood(), covariance="low"),
        "expected one of full, diagonal",
    ),
    "width": (
        lambda: WeightSpaceVariationalGP(
            kernel(), BernoulliLikelihood(), covariance=CholeskyVariationalDistribution(5)
        ),
        "of shape",
    ),
    "point": (
        lambda: WeightSpaceVariationalGP(
            kernel(), BernoulliLikelihood(), covariance=DeltaVariationalDistribution(WIDTH)
        ),
        "a normal variational distribution",
    ),
    "batch": (
        lambda: WeightSpaceVariationalGP(kernel(batch_shape=torch.Size([2])), BernoulliLikelihood()),
        "expected batch shapes",
    ),
}
BAD_DATA = {
    "nan": (lambda model: model.natural_step(X * torch.nan, (Y > 0).double()), "finite"),
    "labels": (lambda model: model.natural_step(X, Y), "expected labels 0 and 1"),
    "rows": (lambda model: model.natural_step(X, Y[:3]), "one per row"),
    "batch": (lambda model: model.natural_step(X[None], Y[None]), "shape"),
    "dtype": (lambda model: model.natural_step(X.float(), Y), "dtype"),
    "columns": (lambda model: model.natural_step(X[:, :1], (Y > 0).double()), "columns"),
    "step": (lambda model: model.natural_step(X, (Y > 0).double(), step_size=2.0), "at most 1"),
    "num_data": (lambda model: model.elbo(X, (Y > 0).double(), num_data=0), "num_data"),
    "state": (lambda model: model.load_state_dict({"a": torch.ones(1)}), "expected the state"),
    "posterior": (lambda model: model.posterior(X.float()), "dtype"),
    "type": (lambda model: model.elbo(X, None), "expected a torch.Tensor"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parts_are_refused(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_leave_the_model_as_it_was(name):
    model = problem("bernoulli")[0]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    call, message = BAD_DATA[name]
    with pytest.raises(ValueError, match=message):
        call(model)
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


class TestWithGPyTorch(VariationalModelTestCase, unittest.TestCase):
    """GPyTorch's own suite of variational models; the likelihood is a part of the model, as in an ExactGP."""

    def create_model(self, train_x, train_y, likelihood):
        exact = ScaleKernel(RBFKernel())
        return WeightSpaceVariationalGP(rfgp.approximate(exact, 8, input_dim=1, seed=0), likelihood, ConstantMean())

    def create_test_data(self):
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self):
        return BernoulliLikelihood(), (torch.randn(50) > 0.0).to(torch.get_default_dtype())

    def create_batch_test_data(self, batch_shape=(3,)):
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(self, batch_shape=(3,)):
        return BernoulliLikelihood(), (torch.randn(*batch_shape, 50) > 0.0).to(torch.get_default_dtype())

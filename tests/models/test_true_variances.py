"""Variances are the diagonal of the covariance, however small: in models, after operations, in diagnostics."""

import copy
import warnings

import gpytorch
import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import LinearKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from problems import ExactModel

import rfgp
from rfgp.diagnostics import kl_divergence, kl_to_exact, regression_mnll
from rfgp.kernels import CurlFreeKernel
from rfgp.likelihoods import (
    DirichletClassificationLikelihood,
    MultitaskFixedNoiseGaussianLikelihood,
    MultitaskMultivariateNormal,
    MultivariateNormal,
    unclamped,
)
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.filterwarnings("error:Negative variance")

DTYPES = (torch.float32, torch.float64)
UNITS = {torch.float32: 1e-5, torch.float64: 1e-8}
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def inputs(num_rows, dtype, seed=0, columns=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, columns, generator=generator, dtype=torch.float64).to(dtype)


def scaled(kernel, unit):
    kernel = ScaleKernel(kernel, outputscale_constraint=Positive())
    kernel.outputscale = unit**2
    return kernel


def scalar(method, unit, dtype):
    """A model of the sum of the inputs in small units."""
    x, likelihood = inputs(200, dtype), GaussianLikelihood(noise_constraint=Positive())
    likelihood.noise = 1e-2 * unit**2
    kernel = rfgp.approximate(scaled(PolynomialKernel(power=2), unit), 20, input_dim=2, method=method).to(dtype)
    return WeightSpaceGP(kernel, likelihood.to(dtype), keep_data=True).condition(x, unit * x.sum(-1))


def of_classes(unit, dtype):
    kernel = rfgp.approximate(scaled(RBFKernel(), unit), 20, input_dim=2).to(dtype)
    x = inputs(200, dtype)
    return WeightSpaceGP(kernel, DirichletClassificationLikelihood(num_classes=3)).condition(x, torch.arange(200) % 3)


def of_outputs(kernel, unit, dtype):
    x, likelihood = inputs(200, dtype), MultitaskGaussianLikelihood(2, noise_constraint=Positive())
    likelihood.noise, likelihood.task_noises = torch.tensor([1e-2 * unit**2]), torch.full((2,), 1e-2 * unit**2)
    kernel = rfgp.approximate(scaled(kernel, unit), 20, input_dim=2).to(dtype)
    return WeightSpaceGP(kernel, likelihood.to(dtype), keep_data=True).condition(x, unit * x)


MODELS = {
    "real features": lambda unit, dtype: scalar("rademacher:real", unit, dtype),
    "complex features": lambda unit, dtype: scalar("rademacher:complex", unit, dtype),
    "classes": of_classes,
    "tasks": lambda unit, dtype: of_outputs(MultitaskKernel(RBFKernel(), num_tasks=2), unit, dtype),
    "field": lambda unit, dtype: of_outputs(CurlFreeKernel(RBFKernel()), unit, dtype),
}


@every_dtype
@pytest.mark.parametrize("name", MODELS)
def test_posterior_variances_are_the_diagonal_of_the_covariance(name, dtype):
    model = MODELS[name](UNITS[dtype], dtype)
    with torch.no_grad():
        latent = model.posterior(inputs(30, dtype, seed=1))
        diagonal = latent.covariance_matrix.diagonal(dim1=-2, dim2=-1).reshape(latent.mean.shape)
        assert float(diagonal.max()) < 10.0 * UNITS[dtype] ** 2
        torch.testing.assert_close(latent.variance, diagonal, rtol=1e-3, atol=0.0)
        torch.testing.assert_close(latent.stddev, diagonal.sqrt(), rtol=1e-3, atol=0.0)
        lower, upper = latent.confidence_region()
        # the mean is about as large as the standard deviation, so that their sum keeps its digits
        torch.testing.assert_close(0.25 * (upper - lower), diagonal.sqrt(), rtol=5e-2, atol=0.0)


@every_dtype
@pytest.mark.parametrize("name", ["real features", "complex features", "tasks"])
def test_noisy_variances_are_the_latent_ones_plus_the_noise(name, dtype):
    model = MODELS[name](UNITS[dtype], dtype)
    with torch.no_grad():
        latent = model.posterior(inputs(30, dtype, seed=1))
        noise = model.likelihood.noise + getattr(model.likelihood, "task_noises", 0.0)
        torch.testing.assert_close(model.likelihood(latent).variance, latent.variance + noise, rtol=1e-5, atol=0.0)


def test_known_noise_of_several_tasks_is_added_to_true_variances():
    dtype, unit = torch.float64, 1e-8
    latent = MODELS["tasks"](unit, dtype).posterior(inputs(30, dtype, seed=1))
    likelihood = MultitaskFixedNoiseGaussianLikelihood(torch.ones(30, 2, dtype=dtype))
    with torch.no_grad():
        found = likelihood.expected_log_prob(latent.mean, latent)
        expected = -0.5 * (latent.variance + torch.log(torch.tensor(2.0 * torch.pi))).sum(-1)
    torch.testing.assert_close(found, expected)
    tiny = MultitaskFixedNoiseGaussianLikelihood(torch.full((30, 2), 1e-6, dtype=dtype))
    small = MultitaskMultivariateNormal(torch.zeros(30, 2).double(), 1e-12 * torch.eye(60).double())
    first = tiny.expected_log_prob(small.mean, small)
    floor = tiny.expected_log_prob(small.mean, MultitaskMultivariateNormal(small.mean, 1e-10 * torch.eye(60).double()))
    torch.testing.assert_close((first - floor), torch.full((30,), 0.99e-4).double())


@pytest.mark.parametrize(("num_rows", "noise", "unit"), [(20_000, 1e-3, 1.0), (5_000, 1e-6, 1.0), (5_000, 1e-3, 1e-6)])
@pytest.mark.parametrize("is_exact_gp", [False, True], ids=["weight space", "ExactGP"])
def test_float32_variances_agree_with_dense_float64_algebra(is_exact_gp, num_rows, noise, unit):
    x, test = inputs(num_rows, torch.float32, columns=5), inputs(100, torch.float32, seed=1, columns=5)
    kernel = rfgp.approximate(scaled(PolynomialKernel(power=3), unit), 32, input_dim=5, seed=0)
    likelihood = GaussianLikelihood(noise_constraint=Positive())
    likelihood.noise = noise * unit**2
    y = unit * x.sum(-1).sin()
    with torch.no_grad():
        if is_exact_gp:
            latent = TrueModel(x, y, likelihood, kernel).eval()(test)
        else:
            latent = WeightSpaceGP(kernel, likelihood).condition(x, y).posterior(test)
        exact = copy.deepcopy(kernel).double()
        train, points = exact.features(x.double()), exact.features(test.double())
        precision = train.mT @ train / likelihood.noise.double() + torch.eye(train.shape[-1], dtype=torch.float64)
        expected = (points * torch.linalg.solve(precision, points.mT).mT).sum(-1)
        assert float(expected.min()) < 1e-6 * unit**2
        torch.testing.assert_close(latent.variance.double(), expected, rtol=1e-4, atol=0.0)


class TrueModel(ExactModel):
    """A GPyTorch model whose ``forward`` returns our distribution."""

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


@every_dtype
def test_an_exact_gp_has_true_variances_by_its_forward_or_afterwards(dtype):
    unit = UNITS[dtype]
    reference = scalar("rademacher:real", unit, dtype)
    (x, y, _), *_ = reference.training_data
    test = inputs(30, dtype, seed=1)
    arguments = x, y, reference.likelihood, reference.covar_module, gpytorch.means.ZeroMean()
    with torch.no_grad():
        latent, theirs = TrueModel(*arguments).eval()(test), ExactModel(*arguments).eval()(test)
        expected = reference.posterior(test).variance
        assert type(latent) is MultivariateNormal and type(reference.likelihood(latent)) is MultivariateNormal
        torch.testing.assert_close(latent.variance, expected, rtol=1e-4, atol=0.0)
        torch.testing.assert_close(unclamped(theirs).variance, expected, rtol=1e-4, atol=0.0)
        with gpytorch.settings.min_variance(0.0, 0.0):
            torch.testing.assert_close(theirs.variance, expected, rtol=1e-4, atol=0.0)


def normal(*batch):
    return MultivariateNormal(torch.zeros(*batch, 3), 1e-12 * torch.eye(3).expand(*batch, 3, 3))


def lazy():
    return MultivariateNormal(torch.zeros(3), gpytorch.kernels.RBFKernel()(torch.rand(3, 1)).evaluate_kernel() * 1e-12)


def multitask(interleaved=True):
    covariance = torch.diag(1e-12 * torch.arange(1.0, 7.0))
    return MultitaskMultivariateNormal(torch.zeros(3, 2), covariance, interleaved=interleaved)


def lazy_multitask():
    return MultitaskMultivariateNormal(torch.zeros(3, 2), DiagLinearOperator(1e-12 * torch.arange(1.0, 7.0)))


FIXED = FixedNoiseGaussianLikelihood(torch.full((3,), 1e-4))
OPERATIONS = {
    "as it is": normal,
    "lazy": lazy,
    "one point of a batch": lambda: normal(2)[:, 1],
    "some points": lambda: normal()[:2],
    "points by number": lambda: normal()[torch.tensor([0, 2])],
    "an element of a batch": lambda: normal(2)[0],
    "expanded": lambda: normal().expand(torch.Size([2])),
    "lazy, expanded": lambda: lazy().expand(torch.Size([2])),
    "unsqueezed": lambda: normal().unsqueeze(0),
    "a sum": lambda: normal() + normal(),
    "a sum of many": lambda: sum([normal(), normal()]),
    "shifted": lambda: normal() + 1.0,
    "scaled": lambda: normal() * 2.0,
    "divided": lambda: normal() / 2.0,
    "with jitter": lambda: normal().add_jitter(1e-12),
    "independent": lambda: normal().to_data_independent_dist(),
    "copied": lambda: copy.deepcopy(normal()),
    "several tasks": multitask,
    "several tasks, task by task": lambda: multitask(False),
    "one point of tasks": lambda: multitask()[1],
    "some points of tasks": lambda: multitask()[:2],
    "a task": lambda: multitask()[:, 1],
    "one value of a batch": lambda: lazy_multitask().expand(torch.Size([2]))[:, 1, 1],
    "some of tasks": lambda: multitask()[:, :1],
    "values by number": lambda: multitask()[torch.tensor([0, 2]), torch.tensor([1, 1])],
    "tasks, expanded": lambda: lazy_multitask().expand(torch.Size([2])),
    "tasks, an element": lambda: lazy_multitask().expand(torch.Size([2]))[0],
    "tasks, summed": lambda: multitask() + multitask(),
    "tasks, scaled": lambda: multitask() * 2.0,
    "tasks, independent": lambda: multitask().to_data_independent_dist(jitter_val=1e-12),
    "tasks of a batch": lambda: MultitaskMultivariateNormal.from_batch_mvn(normal(2)),
    "tasks of several": lambda: MultitaskMultivariateNormal.from_independent_mvns([normal(), normal()]),
    "tasks of one": lambda: MultitaskMultivariateNormal.from_repeated_mvn(normal(), 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_variances_stay_true_through_operations(name):
    result = OPERATIONS[name]()
    assert isinstance(result, MultivariateNormal | torch.distributions.Normal)
    assert result.variance.shape == result.mean.shape
    assert bool((result.variance > 1e-13).all() and (result.variance < 1e-10).all())
    if isinstance(result, MultivariateNormal) and not isinstance(result, MultitaskMultivariateNormal):
        diagonal = result.covariance_matrix.diagonal(dim1=-2, dim2=-1).reshape(result.variance.shape)
        torch.testing.assert_close(result.variance, diagonal, rtol=1e-4, atol=0.0)


def test_tasks_keep_their_order():
    numbers = 1e-12 * torch.arange(1.0, 7.0)
    torch.testing.assert_close(multitask().variance, numbers.reshape(3, 2), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(multitask(False).variance, numbers.reshape(2, 3).mT, rtol=1e-5, atol=0.0)
    theirs = gpytorch.distributions.MultitaskMultivariateNormal(
        torch.zeros(3, 2), torch.diag(numbers), interleaved=False
    )
    torch.testing.assert_close(unclamped(theirs).variance, numbers.reshape(2, 3).mT, rtol=1e-5, atol=0.0)


def test_likelihoods_return_the_class_of_the_function():
    for likelihood in (GaussianLikelihood(), FIXED):
        assert type(likelihood(normal())) is MultivariateNormal
    for likelihood in (MultitaskGaussianLikelihood(2), MultitaskFixedNoiseGaussianLikelihood(torch.ones(3, 2))):
        assert type(likelihood(multitask())) is MultitaskMultivariateNormal


def test_a_negative_variance_becomes_zero_with_a_warning():
    covariance = gpytorch.kernels.LinearKernel()(torch.ones(2, 1)).evaluate_kernel() * -1.0
    with pytest.warns(gpytorch.utils.warnings.NumericalWarning, match="Negative variance"):
        variance = MultivariateNormal(torch.zeros(2), covariance).variance
    assert torch.equal(variance, torch.zeros(2))


def test_the_floor_of_gpytorch_stays_as_it_is():
    before = [gpytorch.settings.min_variance.value(dtype) for dtype in DTYPES]
    assert normal().variance.max() < 1e-11
    assert [gpytorch.settings.min_variance.value(dtype) for dtype in DTYPES] == before


def test_other_distributions_come_back_as_they_are():
    for distribution in (normal(), multitask(), torch.distributions.Normal(0.0, 1.0)):
        assert unclamped(distribution) is distribution


@every_dtype
@pytest.mark.parametrize("is_exact_gp", [False, True], ids=["weight space", "ExactGP"])
@pytest.mark.parametrize("direction", ["approximate_from_exact", "exact_from_approximate"])
def test_exact_features_have_no_divergence_in_any_units(direction, is_exact_gp, dtype):
    unit, x = UNITS[dtype], inputs(100, dtype)
    likelihood = GaussianLikelihood(noise_constraint=Positive()).to(dtype)
    likelihood.noise = unit**2
    kernel = rfgp.approximate(scaled(LinearKernel(), unit), 2, input_dim=2).to(dtype)
    y = unit * (x.sum(-1) + inputs(100, dtype, seed=2)[:, 0])
    with torch.no_grad():
        model = WeightSpaceGP(kernel, likelihood, keep_data=True).condition(x, y)
        if is_exact_gp:
            model = ExactModel(x, y, likelihood, kernel, gpytorch.means.ZeroMean())
        divergence = kl_to_exact(model, inputs(20, dtype, seed=1), direction=direction)
    assert abs(float(divergence)) < 1e-6


def tiny(factor):
    covariance = torch.diag(factor * 1e-13 * torch.arange(1.0, 4.0))
    return gpytorch.distributions.MultivariateNormal(torch.zeros(3), covariance)


def test_divergences_and_scores_read_true_variances_of_gpytorchs_distributions():
    ratio = torch.tensor(2.0, dtype=torch.float64)
    torch.testing.assert_close(kl_divergence(tiny(2.0), tiny(1.0)), 1.5 * (ratio - 1.0 - ratio.log()))
    y = 1e-7 * torch.ones(3)
    variance = tiny(1.0).covariance_matrix.diagonal().double()
    expected = -torch.distributions.Normal(torch.zeros(3).double(), variance.sqrt()).log_prob(y.double()).mean()
    torch.testing.assert_close(regression_mnll(tiny(1.0), y), expected)


def test_class_probabilities_read_true_variances():
    likelihood = DirichletClassificationLikelihood(num_classes=2)
    mean = torch.tensor([[0.0], [1e-4]])
    latent = gpytorch.distributions.MultivariateNormal(mean, 1e-20 * torch.ones(2, 1, 1))
    found = likelihood.class_probabilities(latent, 1, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found, torch.softmax(mean, 0).mT, rtol=0.0, atol=2e-7)


def test_no_warning_where_no_variance_is_negative():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latent = scalar("rademacher:real", 1e-8, torch.float64).posterior(inputs(5, torch.float64))
        assert bool((latent.variance > 0).all())

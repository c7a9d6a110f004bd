"""Known noise per observation and task: against dense algebra, GPyTorch's other likelihoods and its own suite."""

import math
import unittest
import warnings

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import MultitaskKernel, RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.priors import GammaPrior
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase
from gpytorch.utils.warnings import GPInputWarning, NumericalWarning
from linear_operator.operators import DiagLinearOperator

from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood

pytestmark = pytest.mark.usefixtures("float64_default")

POINTS, TASKS, TESTS = 5, 3, 4
orders = pytest.mark.parametrize("interleaved", [True, False], ids=["interleaved", "by task"])


def known_noise(*batch, points=POINTS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 0.1 + torch.rand(*batch, points, TASKS, generator=generator)


def function(*batch, points=POINTS, interleaved=True, seed=1):
    """A multitask normal distribution with a dense covariance."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(*batch, points, TASKS, generator=generator)
    root = torch.randn(*batch, points * TASKS, points * TASKS, generator=generator)
    covariance = root @ root.mT + torch.eye(points * TASKS)
    return MultitaskMultivariateNormal(mean, covariance, interleaved=interleaved)


def flat(values, interleaved):
    """Values (..., N, T) in the order of the covariance."""
    return (values if interleaved else values.mT).flatten(-2)


@orders
@pytest.mark.parametrize("batch", [(), (2,)], ids=["single", "batch"])
@pytest.mark.parametrize("noise_batch", [(), (2,)], ids=["noise", "batch of noise"])
def test_marginal_adds_the_noise_in_the_order_of_the_covariance(noise_batch, batch, interleaved):
    noise, latent = known_noise(*noise_batch), function(*batch, interleaved=interleaved)
    noisy = MultitaskFixedNoiseGaussianLikelihood(noise)(latent)
    expected = latent.covariance_matrix + torch.diag_embed(flat(noise, interleaved))
    torch.testing.assert_close(noisy.covariance_matrix, expected, rtol=0.0, atol=1e-12)
    assert torch.equal(noisy.mean, latent.mean.expand(noisy.mean.shape)) and noisy._interleaved == interleaved
    torch.testing.assert_close(noisy.variance, latent.variance + noise)


@orders
def test_the_log_density_is_that_of_the_dense_covariance(interleaved):
    # GPyTorch 1.15 sorts observations by task rightly only where there are as many points as tasks.
    points = POINTS if interleaved else TASKS
    noise, latent = known_noise(points=points), function(points=points, interleaved=interleaved)
    y = torch.randn(points, TASKS, generator=torch.Generator().manual_seed(2))
    covariance = latent.covariance_matrix + torch.diag(flat(noise, interleaved))
    residual = flat(y - latent.mean, interleaved)
    quadratic = residual @ torch.linalg.solve(covariance, residual)
    expected = -0.5 * (quadratic + torch.logdet(covariance) + y.numel() * math.log(2.0 * math.pi))
    noisy = MultitaskFixedNoiseGaussianLikelihood(noise)(latent)
    torch.testing.assert_close(noisy.log_prob(y), expected, rtol=1e-9, atol=0.0)


@orders
def test_one_noise_variance_per_task_is_that_of_gpytorch(interleaved):
    theirs = MultitaskGaussianLikelihood(TASKS, has_global_noise=False)
    theirs.task_noises = torch.tensor([0.2, 0.5, 1.1])
    ours = MultitaskFixedNoiseGaussianLikelihood(theirs.task_noises.detach().expand(POINTS, TASKS))
    latent, values = function(interleaved=interleaved), torch.randn(POINTS, TASKS)
    torch.testing.assert_close(ours(latent).covariance_matrix, theirs(latent).covariance_matrix)
    conditional, expected = ours(values), theirs(values)
    assert conditional.batch_shape == expected.batch_shape and conditional.event_shape == expected.event_shape
    torch.testing.assert_close(conditional.log_prob(latent.mean), expected.log_prob(latent.mean))


def test_one_task_is_the_likelihood_of_gpytorch():
    noise, latent = known_noise()[:, :1], function()
    covariance = latent.covariance_matrix[:POINTS, :POINTS]
    y = torch.randn(POINTS, 1, generator=torch.Generator().manual_seed(2))
    ours, theirs = MultitaskFixedNoiseGaussianLikelihood(noise), FixedNoiseGaussianLikelihood(noise[:, 0])
    multitask = MultitaskMultivariateNormal(y.sin(), covariance)
    single = MultivariateNormal(y.sin()[:, 0], covariance)
    for name in ("expected_log_prob", "log_marginal"):
        torch.testing.assert_close(getattr(ours, name)(y, multitask), getattr(theirs, name)(y[:, 0], single))
    torch.testing.assert_close(ours(multitask).log_prob(y), theirs(single).log_prob(y[:, 0]))


@orders
def test_densities_per_observation(interleaved):
    noise, latent = known_noise(), function(interleaved=interleaved)
    likelihood = MultitaskFixedNoiseGaussianLikelihood(noise)
    y = torch.randn(POINTS, TASKS, generator=torch.Generator().manual_seed(2))
    mean, variance = latent.mean, latent.variance
    marginal = torch.distributions.Normal(mean, (variance + noise).sqrt()).log_prob(y).sum(-1)
    torch.testing.assert_close(likelihood.log_marginal(y, latent), marginal)
    given = torch.distributions.Normal(mean, noise.sqrt()).log_prob(y) - 0.5 * variance / noise
    torch.testing.assert_close(likelihood.expected_log_prob(y, latent), given.sum(-1))
    torch.testing.assert_close(
        likelihood(mean).log_prob(y), torch.distributions.Normal(mean, noise.sqrt()).log_prob(y).sum(-1)
    )


@orders
@pytest.mark.parametrize("policy", ["mask", "fill"])
@pytest.mark.parametrize("name", ["expected_log_prob", "log_marginal"])
def test_missing_observations_of_some_tasks(name, policy, interleaved):
    likelihood, latent = MultitaskFixedNoiseGaussianLikelihood(known_noise()), function(interleaved=interleaved)
    y = torch.randn(POINTS, TASKS, generator=torch.Generator().manual_seed(2))
    missing = torch.zeros(POINTS, TASKS, dtype=torch.bool)
    missing[1, 0] = missing[3, 2] = missing[3, 1] = True
    parts = []
    for task in range(TASKS):
        single = MultivariateNormal(latent.mean[:, task], DiagLinearOperator(latent.variance[:, task]))
        alone = FixedNoiseGaussianLikelihood(likelihood.noise[:, task])
        parts.append(getattr(alone, name)(y[:, task], single))
    expected = torch.stack(parts, dim=-1).masked_fill(missing, 0.0)
    with gpytorch.settings.observation_nan_policy(policy):
        value = getattr(likelihood, name)(y.masked_fill(missing, torch.nan), latent)
    torch.testing.assert_close(value, expected[~missing] if policy == "mask" else expected.sum(-1))


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=TASKS)
        self.covar_module = MultitaskKernel(RBFKernel(), num_tasks=TASKS, rank=2)
        self.covar_module.data_covar_module.lengthscale = 0.7
        for mean, value in zip(self.mean_module.base_means, (0.3, -0.2, 0.5), strict=True):
            mean.constant.data.fill_(value)

    def forward(self, x):
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def data(points=8):
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(points, 2, generator=generator)
    return x, torch.randn(points, TASKS, generator=generator), torch.rand(TESTS, 2, generator=generator)


@pytest.mark.parametrize("learned", [False, True], ids=["known", "known+learned"])
def test_an_exact_model_is_the_dense_formula(learned):
    x, y, x_test = data()
    likelihood = MultitaskFixedNoiseGaussianLikelihood(known_noise(points=8), learn_additional_noise=learned)
    if learned:
        likelihood.second_noise = torch.tensor([0.1, 0.2, 0.3])
    model = Exact(x, y, likelihood)
    test_noise = known_noise(points=TESTS, seed=5)
    total = known_noise(points=8) + (torch.tensor([0.1, 0.2, 0.3]) if learned else 0.0)
    with torch.no_grad():
        evidence = gpytorch.ExactMarginalLogLikelihood(likelihood, model)(model(x), y) * y.numel()
        model.eval()
        posterior = model(x_test)
        noisy = likelihood(posterior, noise=test_noise)
        tasks = model.covar_module.task_covar_module.covar_matrix.to_dense()
        rbf = model.covar_module.data_covar_module
        k, cross, prior = (torch.kron(rbf(*pair).to_dense(), tasks) for pair in ((x, x), (x_test, x), (x_test, x_test)))
        mean = torch.tensor([0.3, -0.2, 0.5])
        residual = (y - mean).flatten()
        noise_covariance = k + torch.diag(total.flatten())
        expected = (cross @ torch.linalg.solve(noise_covariance, residual)).unflatten(0, (TESTS, TASKS)) + mean
        covariance = prior - cross @ torch.linalg.solve(noise_covariance, cross.mT)
        density = torch.distributions.MultivariateNormal(torch.zeros(len(k)), noise_covariance).log_prob(residual)
        added = torch.diag((test_noise + (likelihood.second_noise if learned else 0.0)).flatten())
    torch.testing.assert_close(posterior.mean, expected, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(posterior.covariance_matrix, covariance, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(noisy.covariance_matrix, covariance + added, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(evidence, density, rtol=1e-9, atol=0.0)


def test_the_evidence_has_the_gradient_of_the_learned_noise():
    x, y, _ = data()
    likelihood = MultitaskFixedNoiseGaussianLikelihood(known_noise(points=8), learn_additional_noise=True)
    model = Exact(x, y, likelihood)
    value = gpytorch.ExactMarginalLogLikelihood(likelihood, model)(model(x), y)
    (gradient,) = torch.autograd.grad(value, likelihood.second_noise_covar.raw_noise)
    assert gradient.shape == (TASKS,)
    step, raw = 1e-5, likelihood.second_noise_covar.raw_noise.detach().clone()
    for task in range(TASKS):
        values = []
        for sign in (1.0, -1.0):
            likelihood.second_noise_covar.raw_noise.data = raw + sign * step * torch.eye(TASKS)[task]
            values.append(gpytorch.ExactMarginalLogLikelihood(likelihood, model)(model(x), y).item())
        assert gradient[task].item() == pytest.approx((values[0] - values[1]) / (2.0 * step), rel=1e-5)


@orders
def test_learned_noise_per_task_is_added_everywhere(interleaved):
    likelihood = MultitaskFixedNoiseGaussianLikelihood(
        known_noise(), learn_additional_noise=True, noise_prior=GammaPrior(2.0, 1.0)
    )
    assert [name for name, _ in likelihood.named_parameters()] == ["second_noise_covar.raw_noise"]
    assert [name for name, *_ in likelihood.named_priors()] == ["second_noise_covar.noise_prior"]
    likelihood.second_noise = 0.5
    torch.testing.assert_close(likelihood.second_noise, torch.full((TASKS,), 0.5))
    added = torch.tensor([0.1, 0.2, 0.3])
    likelihood.second_noise = added
    torch.testing.assert_close(likelihood.noise, known_noise() + added)
    torch.testing.assert_close(likelihood.noise_covar.noise, known_noise())
    here, there = function(interleaved=interleaved), function(points=TESTS, interleaved=interleaved)
    torch.testing.assert_close(likelihood(here).variance, here.variance + known_noise() + added)
    other = known_noise(points=TESTS, seed=5)
    torch.testing.assert_close(likelihood(there, noise=other).variance, there.variance + other + added)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(likelihood(there).variance, there.variance + added)


def test_learned_noise_in_batches():
    likelihood = MultitaskFixedNoiseGaussianLikelihood(known_noise(), True, batch_shape=torch.Size([2]))
    likelihood.second_noise = added = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    latent = function(2)
    assert likelihood.noise.shape == (2, POINTS, TASKS)
    torch.testing.assert_close(likelihood(latent).variance, latent.variance + known_noise() + added[:, None])


def test_other_points_without_noise_get_none_and_a_warning():
    likelihood, latent = MultitaskFixedNoiseGaussianLikelihood(known_noise()), function(points=TESTS)
    with pytest.warns(GPInputWarning, match="expected the noise of 4 points, got a likelihood that knows that of 5"):
        noisy = likelihood(latent)
    assert torch.equal(noisy.covariance_matrix, latent.covariance_matrix)
    y = torch.zeros(TESTS, TASKS)
    for call in (lambda: likelihood(y), lambda: likelihood.expected_log_prob(y, latent)):
        with pytest.raises(ValueError, match="expected the noise of 4 points, got a likelihood that knows that of 5"):
            call()


def test_another_noise():
    likelihood, latent = MultitaskFixedNoiseGaussianLikelihood(known_noise()), function()
    other, y = known_noise(seed=7), torch.zeros(POINTS, TASKS)
    fresh = MultitaskFixedNoiseGaussianLikelihood(other)
    for name in ("expected_log_prob", "log_marginal"):
        assert torch.equal(getattr(likelihood, name)(y, latent, noise=other), getattr(fresh, name)(y, latent))
    torch.testing.assert_close(likelihood(y, noise=other).log_prob(y), fresh(y).log_prob(y))
    likelihood.noise = other
    assert torch.equal(likelihood.noise, other)
    assert torch.equal(likelihood(latent).variance, fresh(latent).variance)
    converted = likelihood.float()
    assert converted.noise.dtype == torch.float32


def test_small_noise_is_rounded_up_as_gpytorch_does():
    with pytest.warns(NumericalWarning, match="Very small noise values"):
        likelihood = MultitaskFixedNoiseGaussianLikelihood(torch.zeros(POINTS, TASKS))
    smallest = gpytorch.settings.min_fixed_noise.value(torch.float64)
    assert torch.equal(likelihood.noise, torch.full((POINTS, TASKS), smallest))


@pytest.mark.parametrize("batch", [(), (2,)], ids=["single", "batch"])
def test_fantasies_extend_the_noise(batch):
    likelihood = MultitaskFixedNoiseGaussianLikelihood(known_noise(), learn_additional_noise=True)
    new = known_noise(*batch, points=TESTS, seed=5)
    fantasy = likelihood.get_fantasy_likelihood(noise=new)
    expected = torch.cat([known_noise().expand(*batch, POINTS, TASKS), new], dim=-2)
    assert torch.equal(fantasy.noise_covar.noise, expected)
    assert torch.equal(likelihood.noise_covar.noise, known_noise())
    assert fantasy.second_noise_covar is not likelihood.second_noise_covar
    latent = function(*batch, points=POINTS + TESTS)
    torch.testing.assert_close(fantasy(latent).variance, latent.variance + expected + likelihood.second_noise)


def test_fantasies_of_noise_with_a_gradient():
    root = known_noise().sqrt().requires_grad_()
    fantasy = MultitaskFixedNoiseGaussianLikelihood(root.square()).get_fantasy_likelihood(noise=known_noise())
    (gradient,) = torch.autograd.grad(fantasy.noise.sum(), root)
    torch.testing.assert_close(gradient, 2.0 * root.detach())


def one():
    return MultitaskFixedNoiseGaussianLikelihood(known_noise())


def set_second():
    one().second_noise = 0.1


def set_noise():
    one().noise = known_noise()[:, :2]


BAD = {
    "a number": (lambda: MultitaskFixedNoiseGaussianLikelihood(0.1), "a torch.Tensor for noise, got float"),
    "integers": (lambda: MultitaskFixedNoiseGaussianLikelihood(torch.ones(5, 3).long()), "got torch.int64"),
    "a vector": (lambda: MultitaskFixedNoiseGaussianLikelihood(torch.ones(5)), r"\(\.\.\., N, T\), got \(5,\)"),
    "no tasks": (lambda: MultitaskFixedNoiseGaussianLikelihood(torch.ones(5, 0)), r"got \(5, 0\)"),
    "negative": (lambda: MultitaskFixedNoiseGaussianLikelihood(-torch.ones(5, 3)), "not negative, got .* -1"),
    "NaN": (lambda: MultitaskFixedNoiseGaussianLikelihood(torch.full((5, 3), torch.nan)), "got 15 NaN"),
    "other tasks set": (set_noise, r"\(\.\.\., N, 3\), got \(5, 2\)"),
    "nothing learned": (set_second, "one that does not"),
    "transposed noise": (lambda: one()(function(), noise=known_noise().mT), r"\(\.\.\., 5, 3\), got \(3, 5\)"),
    "noise of one task": (lambda: one()(function(), noise=torch.ones(5)), r"\(\.\.\., 5, 3\), got \(5,\)"),
    "fewer tasks": (
        lambda: one()(MultitaskMultivariateNormal(torch.zeros(5, 2), torch.eye(10))),
        r"shape \(\.\.\., N, 3\), .* got \(5, 2\)",
    ),
    "transposed samples": (lambda: one()(torch.zeros(3, 5)), r"\(\.\.\., N, 3\), .* got \(3, 5\)"),
    "a single task": (lambda: one()(MultivariateNormal(torch.zeros(5), torch.eye(5))), "got MultivariateNormal; use"),
    "density of a single task": (
        lambda: one().log_marginal(torch.zeros(5), MultivariateNormal(torch.zeros(5), torch.eye(5))),
        "got MultivariateNormal; use",
    ),
    "fantasies without noise": (lambda: one().get_fantasy_likelihood(), "the noise of the new .* got none"),
    "fantasies of other tasks": (
        lambda: one().get_fantasy_likelihood(noise=torch.ones(2, 2)),
        r"\(\.\.\., N, 3\), got \(2, 2\)",
    ),
    "fantasies of another dtype": (lambda: one().get_fantasy_likelihood(noise=torch.ones(2, 3).float()), "float32"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_raise(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        call()


class TestWithGPyTorch(BaseLikelihoodTestCase, unittest.TestCase):
    """GPyTorch's suite, with three tasks."""

    seed = 2

    def create_likelihood(self):
        return MultitaskFixedNoiseGaussianLikelihood(known_noise())

    def _create_conditional_input(self, batch_shape=()):
        return torch.randn(*batch_shape, POINTS, TASKS)

    _create_targets = _create_conditional_input

    def _create_marginal_input(self, batch_shape=()):
        return function(*batch_shape)

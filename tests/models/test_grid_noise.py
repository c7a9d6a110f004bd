"""What a Fourier grid cuts off is noise of every training row, whatever the likelihood; weights divide the rest."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from torch.distributions import MultivariateNormal

import rfgp
from rfgp.kernels import CurlFreeKernel
from rfgp.likelihoods import (
    ComplexGaussianLikelihood,
    FixedNoiseComplexGaussianLikelihood,
    MultitaskFixedNoiseGaussianLikelihood,
)
from rfgp.sklearn.latent import noise_variances

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS = 40


def draws(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def problem():
    """Inputs, targets, weights and known noise variances."""
    x = draws(ROWS, 1)
    return x, torch.sin(9.0 * x[:, 0]), 0.2 + 3.0 * draws(ROWS, seed=1), 0.02 + 0.1 * draws(ROWS, seed=2)


def kernel(width=11):
    exact = ScaleKernel(MaternKernel(nu=1.5))
    exact.base_kernel.lengthscale = 0.1
    return rfgp.approximate(exact, width, method="fourier_grid", train_inputs=torch.tensor([[0.0], [1.0]]))


def gaussian():
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.04
    return likelihood


def evidence(kernel, x, y, noise):
    """That of dense algebra, for the noise covariance of the cells of all rows."""
    features, residual = kernel.features(x), torch.block_diag(*kernel.residual_covariance(x).dense())
    zero = torch.zeros(y.numel())
    return MultivariateNormal(zero, features @ features.mT + residual + noise).log_prob(y.flatten())


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_rows_with_weights_and_without_go_together():
    x, y, weights, _ = problem()
    first, last = slice(0, 15), slice(15, ROWS)
    whole = torch.cat([torch.ones(15), weights[last]])
    model = rfgp.WeightSpaceGP(kernel(), gaussian()).condition(x[first], y[first])
    assert model.sums_hold
    model.update(x[last], y[last], weights=weights[last])
    assert not model.sums_hold
    wanted = evidence(model.covar_module, x, y, torch.diag(0.04 / whole))
    close(model.log_marginal_likelihood(), wanted)
    other = rfgp.WeightSpaceGP(kernel(), gaussian()).condition(x[last], y[last], weights=weights[last])
    close(
        other.merge(rfgp.WeightSpaceGP(kernel(), gaussian()).condition(x[first], y[first])).log_marginal_likelihood(),
        wanted,
    )
    copy = rfgp.WeightSpaceGP(kernel(), gaussian())
    copy.load_state_dict(model.state_dict())
    close(copy.log_marginal_likelihood(), wanted)
    model.downdate(x[last], y[last], weights=weights[last])
    close(model.log_marginal_likelihood(), evidence(kernel(), x[first], y[first], 0.04 * torch.eye(15)))


def test_gradients_of_batches_with_known_noise():
    x, y, _, variances = problem()
    likelihood = FixedNoiseGaussianLikelihood(variances, learn_additional_noise=True)
    model = rfgp.WeightSpaceGP(kernel(), likelihood)
    batches = [(x[rows], y[rows], variances[rows]) for rows in (slice(0, 15), slice(15, ROWS))]
    found = model.condition(batches).log_marginal_likelihood()
    wanted = evidence(model.covar_module, x, y, torch.diag(variances + likelihood.second_noise))
    pairs = [torch.autograd.grad(value, list(model.parameters())) for value in (found, wanted)]
    for slope, wanted in zip(*pairs, strict=True):
        close(slope, wanted)


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("has_pseudo_noise", [False, True])
def test_complex_targets(has_pseudo_noise, is_known, has_weights):
    x, y, weights, variances = problem()
    kind = FixedNoiseComplexGaussianLikelihood(variances, has_pseudo_noise=has_pseudo_noise) if is_known else None
    likelihood = kind or ComplexGaussianLikelihood(has_pseudo_noise=has_pseudo_noise)
    given = {"noise": variances} if is_known else {}
    given |= {"weights": weights} if has_weights else {}
    model = rfgp.WeightSpaceGP(kernel(), likelihood).condition(x, torch.complex(y, y.roll(3)), **given)
    noise = variances if is_known else likelihood.noise.expand(ROWS)
    features = model.covar_module.features(x)
    total = features @ features.mT + torch.diag(model.covar_module.residual_variance(x))
    half = MultivariateNormal(torch.zeros(ROWS), 0.5 * (total + torch.diag(noise / weights if has_weights else noise)))
    close(model.log_marginal_likelihood(), half.log_prob(y) + half.log_prob(y.roll(3)))


@pytest.mark.parametrize("is_known", [False, True])
def test_fields(is_known):
    x = draws(30, 2)
    y = torch.stack([torch.cos(3.0 * x[:, 0]), torch.sin(3.0 * x[:, 1])], dim=-1)
    scalar = MaternKernel(nu=2.5)
    scalar.lengthscale = 0.3
    rotated = ScaleKernel(CurlFreeKernel(scalar))
    features = rfgp.approximate(rotated, 61, method="fourier_grid", train_inputs=x)
    if is_known:
        variances = 0.01 + 0.1 * draws(30, 2, seed=1)
        likelihood, given, noise = MultitaskFixedNoiseGaussianLikelihood(variances), {"noise": variances}, variances
    else:
        likelihood, given = MultitaskGaussianLikelihood(2), {}
        noise = (likelihood.task_noises + likelihood.noise).expand(30, 2)
    model = rfgp.WeightSpaceGP(features, likelihood).condition(x, y, **given)
    close(model.log_marginal_likelihood(), evidence(features, x, y, noise.flatten().diag()))


def test_outputs_with_many_patterns_of_gaps():
    x, tasks = draws(250, 1), 7
    torch.manual_seed(0)
    features = rfgp.approximate(
        MultitaskKernel(kernel().exact_kernel, num_tasks=tasks, rank=2), 11, method="fourier_grid", train_inputs=x
    )
    y = torch.sin(9.0 * x + torch.arange(tasks))
    y[draws(*y.shape, seed=5) < 0.5] = torch.nan
    likelihood = MultitaskGaussianLikelihood(tasks)
    model = rfgp.WeightSpaceGP(features, likelihood).condition(x, y)
    assert len(model.patterns) == 28
    seen = ~y.flatten().isnan()
    rows, residual = features.features(x), torch.block_diag(*features.residual_covariance(x).dense())
    total = rows @ rows.mT + residual + (likelihood.task_noises + likelihood.noise).repeat(250).diag()
    zero = torch.zeros(int(seen.sum()))
    close(model.log_marginal_likelihood(), MultivariateNormal(zero, total[seen][:, seen]).log_prob(y.flatten()[seen]))


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, covar_module, mean, kind):
        super().__init__(x, y, likelihood)
        self.covar_module, self.mean_module, self.kind = covar_module, mean, kind

    def forward(self, x):
        return self.kind(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("is_several", [False, True])
def test_an_exact_gp_takes_it_for_noise_too(is_several):
    x, y, *_ = problem()
    features, likelihood, mean = kernel(), gaussian(), gpytorch.means.ZeroMean()
    kind = gpytorch.distributions.MultivariateNormal
    if is_several:
        tasks = MultitaskKernel(features.exact_kernel, num_tasks=2, rank=1)
        features = rfgp.approximate(tasks, 11, method="fourier_grid", train_inputs=x)
        y, likelihood = torch.stack([y, y.roll(3)], dim=-1), MultitaskGaussianLikelihood(2)
        mean, kind = gpytorch.means.MultitaskMean(mean, 2), gpytorch.distributions.MultitaskMultivariateNormal
    exact = Exact(x, y, likelihood, features, mean, kind)
    model = rfgp.WeightSpaceGP(features, likelihood).condition(x, y)
    found = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, exact)(exact(x), y) * y.numel()
    wanted = model.log_marginal_likelihood()
    close(found, wanted)
    learned = list(features.parameters())
    for slope, other in zip(torch.autograd.grad(found, learned), torch.autograd.grad(wanted, learned), strict=True):
        close(slope, other)
    with torch.no_grad():
        at = draws(5, 1, seed=7)
        pair = exact.eval()(at), model.posterior(at)
        close(pair[0].mean, pair[1].mean)
        close(pair[0].covariance_matrix, pair[1].covariance_matrix)


def test_states_without_patterns_are_those_of_rows_without_weights():
    x, y, *_ = problem()
    saved = rfgp.WeightSpaceGP(kernel(), gaussian()).condition(x[:15], y[:15]).state_dict()
    model = rfgp.WeightSpaceGP(kernel(), gaussian())
    model.load_state_dict(saved | {"patterns": torch.tensor((), dtype=torch.bool)})
    model.update(x[15:], y[15:])
    close(model.log_marginal_likelihood(), evidence(kernel(), x, y, 0.04 * torch.eye(ROWS)))


@pytest.mark.parametrize("is_known", [False, True])
def test_training_reads_rows_again_where_sums_contain_noise(is_known):
    x, y, weights, variances = problem()
    likelihood = FixedNoiseGaussianLikelihood(variances) if is_known else gaussian()
    model = rfgp.WeightSpaceGP(kernel(81), likelihood)
    rfgp.fit(model, x, y, progress=False, **({"noise": variances} if is_known else {"weights": weights}))
    value = evidence(model.covar_module, x, y, torch.diag(variances if is_known else likelihood.noise / weights))
    close(model.log_marginal_likelihood(), value)
    slopes = torch.autograd.grad(value, list(model.parameters()))
    assert max(float(slope.abs().max()) for slope in slopes) < 0.02


def test_a_wide_grid_with_known_noise():
    x, y, _, variances = problem()
    exact = ScaleKernel(MaternKernel(nu=1.5))
    exact.base_kernel.lengthscale = 0.1
    model = rfgp.WeightSpaceGP(
        rfgp.approximate(exact, 4501, method="fourier_grid", train_inputs=x), FixedNoiseGaussianLikelihood(variances)
    )
    with torch.no_grad():
        found = model.condition(x, y, variances).log_marginal_likelihood()
        wanted = evidence(model.covar_module, x, y, torch.diag(variances))
        assert abs(float(found - wanted)) < 5.0 * model.weight_posterior().evidence_error + 1e-6


def test_estimators_add_the_noise_of_the_likelihood_to_what_features_lack():
    x, y, *_ = problem()
    model = rfgp.WeightSpaceGP(kernel(), gaussian()).condition(x, y)
    close(noise_variances(model), torch.full((1,), 0.04))

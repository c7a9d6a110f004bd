"""Models of several outputs equal dense algebra: every kernel, noise and pattern of missing outputs, in both models."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean
from output_problems import (
    CASES,
    OUTPUT_KERNELS,
    SEPARABLE,
    ExactOutputModel,
    dense_model,
    dense_noise,
    of_features,
    output_kernel,
    output_likelihood,
    output_mean,
    output_rows,
)
from problems import randomised

import rfgp
from rfgp.inference import KroneckerPosterior, OutputFactor
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]


def points(num_points=4):
    return torch.randn(num_points, 2, generator=torch.Generator().manual_seed(9))


def close(actual, expected, scale=None):
    bound = expected.abs().max() if scale is None else scale
    assert (actual.reshape(expected.shape) - expected).abs().max() <= 1e-9 * bound


def gradients(value, model):
    """The gradients of a value by name; zero where it does not depend on a parameter."""
    known = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(value, list(known.values()), allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(known.items(), found, strict=True)}


def check_gradients(fast, reference):
    for name, expected in reference.items():
        error = (fast[name] - expected).abs().max()
        assert error <= 1e-8 * expected.abs().max().clamp_min(1e-3), name


def exact_evidence(model):
    """The evidence by GPyTorch's own objective, missing targets masked."""
    (x,), y = model.train_inputs, model.train_targets
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return mll(model.train()(x), y) * y.numel()


def policy_for(y):
    return gpytorch.settings.observation_nan_policy("mask" if bool(torch.isnan(y).any()) else "ignore")


def check(kernel, likelihood, mean, x, y, has_gradients=True):
    """Evidence, gradients, mean, covariance and variance of both models against dense algebra with the features."""
    model, test = WeightSpaceGP(kernel, likelihood, mean), points()
    outcomes = [(model.condition(x, y).log_marginal_likelihood(), model.posterior(test))]
    is_many_by_one = isinstance(likelihood, gpytorch.likelihoods.GaussianLikelihood) and y.dim() > 1
    if not is_many_by_one:  # which GPyTorch's likelihood does not add to several outputs
        exact = ExactOutputModel(x, y, likelihood, model.covar_module, mean)
        with policy_for(y):
            outcomes.append((exact_evidence(exact), exact.eval()(test)))
            latent = outcomes[-1][1]
            assert latent.mean.isfinite().all()
    expected, center, covariance = dense_model(model, x, y, test)
    prior = model.covar_module.features(test).square().sum(-1).max().detach()
    reference = gradients(expected, model) if has_gradients else None
    for evidence, latent in outcomes:
        close(evidence.detach(), expected.detach())
        if has_gradients:
            check_gradients(gradients(evidence, model), reference)
        close(latent.mean.detach(), center.detach())
        close(latent.covariance_matrix.detach(), covariance.detach(), prior)
        close(latent.variance.detach(), covariance.diagonal().detach(), prior)


@pytest.mark.smoke_for_each("name")
@pytest.mark.parametrize(("name", "noise", "pattern"), CASES)
def test_every_kernel_noise_and_pattern(name, noise, pattern):
    x, y = output_rows(name, pattern=pattern)
    check(output_kernel(name), output_likelihood(name, noise), output_mean(name), x, y)


FEW_ROWS = [case for case in CASES if case[2] == "random" and case[1] in ("per task", "full", "fixed+learned")]


@pytest.mark.parametrize(("name", "noise", "pattern"), FEW_ROWS)
def test_more_columns_than_observations(name, noise, pattern):
    x, y = output_rows(name, 6, pattern)
    kernel = output_kernel(name, 24)
    assert kernel.features(x).shape[-1] > y.numel()
    check(kernel, output_likelihood(name, noise, 6), output_mean(name), x, y)


LITTLE_NOISE = [
    (name, noise, pattern)
    for name, noise, pattern in CASES
    if noise in ("per task", "fixed") and pattern in ("none", "random")
]


@pytest.mark.parametrize(("name", "noise", "pattern"), LITTLE_NOISE)
def test_a_kernel_a_million_times_the_noise(name, noise, pattern):
    x, y = output_rows(name, 40, pattern)
    likelihood = output_likelihood(name, noise, 40)
    kernel = rfgp.approximation.with_features(ScaleKernel(output_kernel(name)))
    with torch.no_grad():
        smallest = dense_noise(likelihood, 40, y.numel() // 40).diagonal().min()
        kernel.outputscale = 1e6 * smallest / torch.linalg.eigvalsh(of_features(kernel.base_kernel)(x, x)).max()
    check(kernel, likelihood, output_mean(name), x, y, has_gradients=False)


MEANS = {
    "zero": lambda outputs: ZeroMean(),
    "constant": lambda outputs: ConstantMean(),
    "linear": lambda outputs: LinearMean(2),
    "linear without bias": lambda outputs: LinearMean(2, bias=False),
    "zeros": lambda outputs: MultitaskMean(ZeroMean(), num_tasks=outputs),
    "constants": lambda outputs: MultitaskMean(ConstantMean(), num_tasks=outputs),
    "linear ones": lambda outputs: MultitaskMean(LinearMean(2), num_tasks=outputs),
    "linear ones without bias": lambda outputs: MultitaskMean(LinearMean(2, bias=False), num_tasks=outputs),
    "linear and constant": lambda outputs: MultitaskMean(
        [LinearMean(2), ConstantMean(), ZeroMean()][:outputs], outputs
    ),
}


WITH_MEANS = [
    (mean, name, noise, pattern)
    for mean in MEANS
    for name in ("curl-free", "multitask")
    for noise, pattern in (("per task", "none"), ("full", "random"), ("fixed", "random"))
] + [(mean, "laplacian", "fixed", "random") for mean in MEANS if not isinstance(MEANS[mean](1), MultitaskMean)]


@pytest.mark.parametrize(("mean", "name", "noise", "pattern"), WITH_MEANS)
def test_means(mean, name, noise, pattern):
    outputs = OUTPUT_KERNELS[name][1]
    (x, y), test = output_rows(name, pattern=pattern), points()
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise), randomised(MEANS[mean](outputs)))
    evidence = model.condition(x, y).log_marginal_likelihood()
    expected, center, _ = dense_model(model, x, y, test)
    close(evidence.detach(), expected.detach())
    check_gradients(gradients(evidence, model), gradients(expected, model))
    close(model.posterior(test).mean.detach(), center.detach())


def forbidden(*arguments, **options):
    raise AssertionError("features of all rows and outputs were formed")


@pytest.mark.parametrize("pattern", ["none", "random"])
@pytest.mark.parametrize("noise", ["per task", "full", "fixed+learned"])
@pytest.mark.parametrize("name", ["curl-free", "one measure", "value and gradient", "multitask", "mixed sum"])
def test_no_features_of_all_rows_and_outputs_are_formed(name, noise, pattern, monkeypatch):
    x, y = output_rows(name, 40, pattern)
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise, 40), output_mean(name))
    exact = ExactOutputModel(x, y, model.likelihood, model.covar_module, model.mean_module)
    monkeypatch.setattr(OutputFactor, "features", forbidden)
    model.condition(x, y).log_marginal_likelihood().backward()
    with torch.no_grad():
        model.condition(x, y).weight_posterior()
        mean = model.posterior(points()).mean
    with policy_for(y):
        if pattern == "none":
            exact_evidence(exact).backward()
        with torch.no_grad():
            close(exact.eval()(points()).mean, mean)
    with pytest.raises(AssertionError, match="were formed"):
        model.covar_module.features(x)


@pytest.mark.parametrize("noise", ["one", "per task", "full", "full alone", "shared"])
@pytest.mark.parametrize("name", SEPARABLE)
def test_separable_models_of_complete_rows_need_two_small_spectra(name, noise):
    x, y = output_rows(name)
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise))
    with torch.no_grad():
        assert isinstance(model.condition(x, y).weight_posterior(), KroneckerPosterior)
        y[3, 1] = float("nan")
        assert not isinstance(model.condition(x, y).weight_posterior(), KroneckerPosterior)

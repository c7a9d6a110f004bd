"""ExactGP of several outputs: GPyTorch's settings and suites, predictions; training; divergences from exact models."""

import copy
import unittest

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase
from gpytorch.test.model_test_case import BaseModelTestCase
from linear_operator.operators import ZeroLinearOperator
from output_problems import (
    CASES,
    OUTPUT_KERNELS,
    ExactOutputModel,
    dense_model,
    dense_noise,
    of_exact,
    output_kernel,
    output_likelihood,
    output_mean,
    output_model,
    output_noise,
    output_rows,
)

import rfgp
from rfgp.diagnostics import exact_posterior, kl_to_exact
from rfgp.functionals import Value
from rfgp.kernels import LinearlyObservedKernel
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

MODELS = [
    ("curl-free", "per task"),
    ("curl-free", "full"),
    ("helmholtz", "fixed"),
    ("multitask", "one"),
    ("multitask", "fixed+learned"),
    ("laplacian", "one"),
    ("mixed sum", "full"),
]
models = pytest.mark.parametrize(("name", "noise"), MODELS)
patterns = pytest.mark.parametrize("pattern", ["none", "random"])


def points(num_points=4):
    return torch.randn(num_points, 2, generator=torch.Generator().manual_seed(9))


def close(actual, expected):
    assert (actual.reshape(expected.shape) - expected).abs().max() <= 1e-9 * expected.abs().max()


def exact_model(name, noise, pattern="none"):
    x, y = output_rows(name, pattern=pattern)
    return ExactOutputModel(x, y, output_likelihood(name, noise), output_kernel(name), output_mean(name)).eval()


def dense_prediction(model, test):
    return [value.detach() for value in dense_model(model, *model.train_inputs, model.train_targets, test)[1:]]


def policy_for(pattern):
    return gpytorch.settings.observation_nan_policy("ignore" if pattern == "none" else "mask")


# GPyTorch's settings


@patterns
@models
@torch.no_grad()
def test_skipped_variances_leave_the_mean(name, noise, pattern):
    with policy_for(pattern), gpytorch.settings.skip_posterior_variances():
        latent = exact_model(name, noise, pattern)(points())
        assert isinstance(latent.lazy_covariance_matrix, ZeroLinearOperator)
        close(latent.mean, dense_prediction(exact_model(name, noise, pattern), points())[0])


@patterns
@models
def test_predictions_carry_gradients_where_gpytorch_is_told_so(name, noise, pattern):
    model, weights = exact_model(name, noise, pattern), torch.randn(2, *output_rows(name, 4)[1].shape)
    parameters = [p for p in model.parameters() if p.requires_grad]
    with policy_for(pattern), gpytorch.settings.detach_test_caches(False):
        latent = model(points())
        found = (weights * torch.stack([latent.mean, latent.variance])).sum()
        _, mean, covariance = dense_model(model, *model.train_inputs, model.train_targets, points())
        both = torch.stack([mean, covariance.diagonal()]).reshape(weights.shape)
        gradients = [torch.autograd.grad(v, parameters) for v in (found, (weights * both).sum())]
    for a, b in zip(*gradients, strict=True):
        assert (a - b).abs().max() <= 1e-7 * b.abs().max().clamp_min(1e-3)


@models
@torch.no_grad()
def test_masked_and_filled_missing_targets_are_left_out(name, noise):
    model = exact_model(name, noise, "random")
    mean, covariance = dense_prediction(model, points())
    with gpytorch.settings.observation_nan_policy("mask"):
        close(model(points()).mean, mean)
        close(model(points()).covariance_matrix, covariance)
    with gpytorch.settings.observation_nan_policy("fill"):
        close(model(points()).mean, mean)
    assert model.train_targets.isnan().any()


@patterns
@models
@torch.no_grad()
def test_new_weights_data_and_parameters_are_noticed(name, noise, pattern):
    model = exact_model(name, noise, pattern)
    with policy_for(pattern):
        before = model(points()).mean
        model.covar_module.resample(torch.Generator().manual_seed(5))
        mean, covariance = dense_prediction(model, points())
        close(model(points()).mean, mean)
        close(model(points()).covariance_matrix, covariance)
        assert not torch.allclose(mean, before.reshape(-1))
        x, y = output_rows(name, 20, pattern, seed=8)
        model.set_train_data(x, y, strict=False)
        close(model(points()).mean, dense_prediction(model, points())[0])
        model.train()
        next(model.covar_module.parameters()).data += 0.3
        close(model.eval()(points()).mean, dense_prediction(model, points())[0])


@models
@torch.no_grad()
def test_likelihoods_add_their_noise(name, noise):
    model = exact_model(name, noise)
    latent = model(output_rows(name, seed=4)[0])
    noisy, outputs = model.likelihood(latent), OUTPUT_KERNELS[name][1]
    expected = latent.covariance_matrix + dense_noise(model.likelihood, 20, outputs)
    close(noisy.covariance_matrix, expected)
    close(noisy.variance, expected.diagonal())
    y = torch.randn(noisy.mean.shape)
    reference = torch.distributions.MultivariateNormal(latent.mean.flatten(), expected)
    torch.testing.assert_close(noisy.log_prob(y), reference.log_prob(y.flatten()))
    assert noisy.sample(torch.Size([3])).shape == (3, *latent.mean.shape)


@patterns
@models
@torch.no_grad()
def test_predictions_do_not_depend_on_the_batch_of_points(name, noise, pattern):
    model, x = exact_model(name, noise, pattern), points(9)
    with policy_for(pattern):
        whole = model(x)
        parts = [model(rows) for rows in x.split(4)]
        close(torch.cat([part.mean for part in parts]), whole.mean)
        close(torch.cat([part.variance for part in parts]), whole.variance)
        latent = whole.lazy_covariance_matrix
        close(latent @ torch.ones(latent.shape[-1]), whole.covariance_matrix.sum(-1))


@torch.no_grad()
def test_draws_have_the_moments_of_the_posterior():
    for name, noise in (("curl-free", "full"), ("multitask", "one")):
        latent = exact_model(name, noise)(points(2))
        torch.manual_seed(0)
        centered = latent.rsample(torch.Size([20_000])).flatten(1) - latent.mean.flatten()
        covariance = latent.covariance_matrix
        scales = covariance.diagonal()
        spread = scales[:, None] * scales + covariance.square()
        assert (centered.mean(0).abs() <= 5.0 * (scales / len(centered)).sqrt()).all()
        assert ((centered.mT @ centered / len(centered) - covariance).abs() <= 5.0 * (spread / 20_000).sqrt()).all()


@patterns
@models
@torch.no_grad()
def test_both_models_agree(name, noise, pattern):
    model = exact_model(name, noise, pattern)
    other = WeightSpaceGP(model.covar_module, model.likelihood, model.mean_module)
    latent = other.condition(*model.train_inputs, model.train_targets).posterior(points())
    with policy_for(pattern):
        close(model(points()).mean, latent.mean)
        close(model(points()).covariance_matrix, latent.covariance_matrix)


# Training


TRAINED = [
    (name, noise, pattern)
    for name, noise in [("curl-free", "per task"), ("multitask", "full"), ("laplacian", "one")]
    for pattern in ("none", "random", "an output")
    if (name, pattern) != ("laplacian", "an output")  # it has one output alone
]


@pytest.mark.parametrize("kind", ["weight space", "exact"])
@pytest.mark.parametrize(("name", "noise", "pattern"), TRAINED)
def test_training_raises_the_evidence(name, noise, kind, pattern):
    x, y = output_rows(name, 40, pattern)
    y = torch.where(y.isnan(), y, torch.sin(2.0 * x.sum(-1).reshape(-1, *[1] * (y.dim() - 1))) + 0.1 * y)
    kernel, likelihood = output_kernel(name), output_likelihood(name, noise, 40)
    outputs = OUTPUT_KERNELS[name][1]
    mean = ConstantMean() if outputs == 1 else MultitaskMean(ConstantMean(), num_tasks=outputs)
    is_exact = kind == "exact"
    model = ExactOutputModel(x, y, likelihood, kernel, mean) if is_exact else WeightSpaceGP(kernel, likelihood, mean)
    with policy_for(pattern):
        summary = rfgp.fit(model, x, y, max_evaluations=8, progress=False)
        assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood + 1.0
        assert all(bool(p.isfinite().all()) for p in model.parameters())
        with torch.no_grad():
            latent = model(points()) if is_exact else model.posterior(points())
            expected, center, _ = dense_model(model, x, y, points())
            close(latent.mean, center)
            assert summary.log_marginal_likelihood == pytest.approx(float(expected), rel=1e-8)


def test_both_models_start_alike_whatever_the_pattern():
    x, y = output_rows("curl-free", 40, "random")
    starts = []
    for is_exact in (False, True):
        kernel, likelihood = output_kernel("curl-free"), output_likelihood("curl-free", "full")
        mean = MultitaskMean(ConstantMean(), num_tasks=2)
        model = (
            ExactOutputModel(x, y, likelihood, kernel, mean) if is_exact else WeightSpaceGP(kernel, likelihood, mean)
        )
        with policy_for("random"):
            starts.append(rfgp.fit(model, x, y, max_evaluations=1, progress=False).initial_log_marginal_likelihood)
    assert starts[0] == pytest.approx(starts[1], rel=1e-9)


def test_one_output_with_a_list_of_means_can_be_trained():
    x, y = output_rows("laplacian", 40, "random")
    mean = MultitaskMean(ConstantMean(), num_tasks=1)
    model = WeightSpaceGP(output_kernel("laplacian"), output_likelihood("laplacian", "one"), mean)
    summary = rfgp.fit(model, x, y, max_evaluations=10, progress=False)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood


# The exact posterior, and divergences from it


EXACT = [case for case in CASES if case[2] == "random" and case[1] != "full alone"]


@pytest.mark.parametrize(("name", "noise", "pattern"), EXACT)
@torch.no_grad()
def test_exact_posterior_is_that_of_dense_algebra(name, noise, pattern):
    x, y = output_rows(name, pattern=pattern)
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise), output_mean(name))
    arguments = model.covar_module, model.likelihood, x, y, points(), model.mean_module
    found = exact_posterior(*arguments)
    _, mean, covariance = dense_model(model, x, y, points(), of_exact(model.covar_module))
    close(found.mean, mean)
    close(found.variance, covariance.diagonal())
    if noise == "fixed":
        ours = copy.deepcopy(model.likelihood)
        ours.noise_covar.noise = torch.ones_like(ours.noise_covar.noise)
        again = exact_posterior(model.covar_module, ours, *arguments[2:], noise=output_noise(name))
        close(again.mean, mean)
        close(again.variance, covariance.diagonal())


def gaussian_divergence(mean_p, variance_p, mean_q, variance_q):
    ratio = variance_p / variance_q
    return 0.5 * (ratio - 1.0 - ratio.log() + (mean_p - mean_q).square() / variance_q).sum()


@pytest.mark.parametrize("noisy", [False, True], ids=["latent", "noisy"])
@pytest.mark.parametrize("direction", ["approximate_from_exact", "exact_from_approximate"])
@patterns
@models
@torch.no_grad()
def test_divergence_from_the_exact_posterior(name, noise, pattern, direction, noisy):
    x, y = output_rows(name, pattern=pattern)
    model = output_model(name, noise)
    exact = ExactOutputModel(x, y, model.likelihood, model.covar_module, model.mean_module).eval()
    known = output_noise(name) if noise.startswith("fixed") else None
    model.condition(x[:13], y[:13], None if known is None else known[:13])
    model.update(x[13:], y[13:], None if known is None else known[13:])
    if noisy and known is not None:
        with pytest.raises(ValueError, match="expected a likelihood with one noise variance for noisy=True"):
            kl_to_exact(model, points(), noisy=True)
        return
    pairs = []
    for matrix in (None, of_exact(model.covar_module)):
        _, mean, covariance = dense_model(model, x, y, points(), matrix)
        outputs = OUTPUT_KERNELS[name][1]
        added = dense_noise(model.likelihood, 4, outputs).diagonal() if noisy else 0.0
        pairs.append((mean, covariance.diagonal() + added))
    expected = gaussian_divergence(*pairs[0], *pairs[1])
    if direction == "exact_from_approximate":
        expected = gaussian_divergence(*pairs[1], *pairs[0])
    found = kl_to_exact(model, points(), direction=direction, noisy=noisy)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)
    with policy_for(pattern):
        same = kl_to_exact(exact, points(), direction=direction, noisy=noisy)
    torch.testing.assert_close(same, expected, rtol=1e-7, atol=1e-10)


@torch.no_grad()
def test_divergence_of_a_single_output_given_as_a_column():
    x, y = output_rows("laplacian", pattern="random")
    values = []
    for targets in (y, y.unsqueeze(-1)):
        values.append(kl_to_exact(output_model("laplacian").condition(x, targets), points(), noisy=True))
    torch.testing.assert_close(*values)
    assert values[0] > 0


@torch.no_grad()
def test_divergence_vanishes_as_features_are_added():
    x, y = output_rows("curl-free", 30, "random")
    values = [
        float(kl_to_exact(output_model("curl-free", width=width).condition(x, y), points(), noisy=True))
        for width in (8, 64, 512)
    ]
    assert values[0] > values[1] > values[2] > 0.0


# GPyTorch's own suites


@pytest.mark.filterwarnings("ignore:The input matches the stored training data")
class TestModelsWithGPyTorch(BaseModelTestCase, unittest.TestCase):
    """GPyTorch's own suite for models, whose shapes are those of one output."""

    def create_model(self, train_x, train_y, likelihood):
        exact = LinearlyObservedKernel(RBFKernel(), [Value()])
        kernel = rfgp.approximate(exact, 8, input_dim=1, seed=0)
        return ExactOutputModel(train_x, train_y, likelihood, kernel, ConstantMean())

    def create_test_data(self):
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self):
        return GaussianLikelihood(), torch.randn(50) + 2.0

    def create_batch_test_data(self, batch_shape=(3,)):
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(self, batch_shape=(3,)):
        return GaussianLikelihood(batch_shape=torch.Size(batch_shape)), torch.randn(*batch_shape, 50) + 2.0


class TestLikelihoodOfFeatures(BaseLikelihoodTestCase, unittest.TestCase):
    """GPyTorch's own suite for likelihoods, with functions that have the covariance of features."""

    def create_likelihood(self):
        return MultitaskGaussianLikelihood(num_tasks=2, rank=1)

    def _create_marginal_input(self, batch_shape=()):
        if batch_shape:
            self.skipTest("models of several outputs have no batches")
        model = output_model("curl-free").condition(*output_rows("curl-free"))
        return model.posterior(points(5))

    def _create_conditional_input(self, batch_shape=()):
        return torch.randn(*batch_shape, 5, 2)

    def _create_targets(self, batch_shape=()):
        return torch.randn(*batch_shape, 5, 2)

    def test_marginal_keeps_the_kind(self):
        with torch.no_grad():
            assert isinstance(self.create_likelihood()(self._create_marginal_input()), MultitaskMultivariateNormal)

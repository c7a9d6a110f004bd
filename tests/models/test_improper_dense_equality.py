"""Improper complex posteriors, evidence, divergences and gradients equal dense augmented algebra to 1e-9."""

import copy
import math

import gpytorch
import pytest
import torch
from embedding import embedded, parts
from gpytorch.kernels import MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, MultitaskMean
from torch.distributions import kl_divergence
from widely_linear import WidelyLinear

import rfgp
from rfgp.likelihoods import ComplexGaussianLikelihood, ComplexNormal, FixedNoiseComplexGaussianLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

RELATIVE = 1e-9


def scalar(method):
    def make():
        exact = ScaleKernel(RBFKernel())
        exact.outputscale, exact.base_kernel.lengthscale = 1.7, 0.8
        return rfgp.approximate(exact, 12, method=method, input_dim=2, seed=0)

    return make


def polynomial():
    return rfgp.approximate(PolynomialKernel(power=2), 12, method="tensor_srht:complex", input_dim=2, seed=0)


def multitask():
    torch.manual_seed(3)
    return rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=2), 12, input_dim=2, seed=0)


def curl_free():
    return rfgp.approximate(rfgp.kernels.CurlFreeKernel(RBFKernel()), 12, input_dim=2, seed=0)


KERNELS = {
    "real features": scalar("fourier"),
    "complex features": scalar("fourier:complex"),
    "complex sketch": polynomial,
    "multitask": multitask,
    "curl-free": curl_free,
}
NOISES = ("circular", "improper", "fixed", "fixed improper", "fixed improper + learned")
PAIRS = [
    (kernel, noise)
    for kernel in KERNELS
    for noise in NOISES
    if kernel in ("multitask", "curl-free") or "improper" in noise
]


def likelihood_of(noise, known):
    is_improper = "improper" in noise
    if noise.startswith("fixed"):
        made = FixedNoiseComplexGaussianLikelihood(known, "learned" in noise, is_improper)
        if "learned" in noise:
            made.second_noise = 0.3
    else:
        made = ComplexGaussianLikelihood(has_pseudo_noise=is_improper)
        made.noise = 0.4
    if is_improper:
        made.circularity = 0.5 - 0.6j
    return made


def mean_of(kernel):
    if kernel == "real features":
        mean = MultitaskMean([ConstantMean(), ConstantMean()], num_tasks=2)
        for part, value in zip(mean.base_means, (0.3, -0.2), strict=True):
            part.constant = value
        return mean
    mean = ConstantMean()
    mean.constant = 0.3
    return mean


def problem(kernel, noise, num_rows=60, missing=0, with_mean=True):
    """A model that is not fitted, and its rows (x, y, noise)."""
    torch.manual_seed(1)
    x, y = torch.randn(num_rows, 2), torch.randn(num_rows, dtype=torch.complex128)
    known = 0.2 + torch.rand(num_rows)
    y[:missing] = torch.complex(torch.tensor(math.nan), torch.tensor(1.0))
    mean = mean_of(kernel) if with_mean else None
    model = WeightSpaceGP(KERNELS[kernel](), likelihood_of(noise, known), mean, keep_data=True)
    return model, x, y


def dense(model, x, y):
    observed = ~torch.isnan(y)
    variances = model.likelihood.noise.expand(len(y))[observed]
    mean = model.mean_module(x[observed])
    mean = torch.complex(mean[:, 0], mean[:, 1]) if mean.dim() > 1 else mean
    pseudo = model.likelihood.circularity.to(torch.complex128) * variances
    return WidelyLinear(model.covar_module, (x[observed], y[observed] - mean), variances, pseudo)


def close(actual, expected):
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= RELATIVE * expected.abs().max()


cases = pytest.mark.parametrize(("kernel", "noise"), PAIRS)


@pytest.mark.parametrize("missing", [0, 7])
@cases
def test_posterior_and_evidence_are_the_augmented_ones(kernel, noise, missing):
    model, x, y = problem(kernel, noise, missing=missing)
    model.condition(x, y)
    reference, points = dense(model, x, y), torch.randn(5, 2)
    mean, covariance, pseudo = reference.posterior(points)
    offset = model.mean_module(points)
    offset = torch.complex(offset[:, 0], offset[:, 1]) if offset.dim() > 1 else offset
    posterior = model.posterior(points)
    assert isinstance(posterior, ComplexNormal) and not posterior.is_proper
    close(posterior.mean, mean + offset)
    close(posterior.covariance_matrix, covariance)
    close(posterior.pseudo_covariance, pseudo)
    close(posterior.variance, covariance.diagonal().real)
    close(posterior.pseudo_variance, pseudo.diagonal())
    close(model.log_marginal_likelihood(), reference.evidence())
    noisy = model.likelihood(posterior, noise=torch.full((5,), 0.7)) if noise.startswith("fixed") else None
    if noisy is None:
        noisy = model.likelihood(posterior)
        close(noisy.variance, posterior.variance + model.likelihood.noise)
        close(noisy.pseudo_variance, posterior.pseudo_variance + model.likelihood.pseudo_noise)
    truth = ComplexNormal(mean + offset, noisy.covariance_matrix, pseudo_covariance=noisy.pseudo_covariance)
    other = ComplexNormal(truth.loc + 0.1j, truth.covariance_matrix + torch.eye(5))
    close(kl_divergence(noisy, other), kl_divergence(embedded(truth), embedded(other)))
    close(noisy.log_prob(other.loc), embedded(truth).log_prob(parts(other.loc)))


@cases
def test_gradients_are_those_of_the_dense_evidence(kernel, noise):
    model, x, y = problem(kernel, noise, num_rows=40, missing=3)
    model.condition(x, y).log_marginal_likelihood().backward()
    twin = copy.deepcopy(model)
    twin.zero_grad()
    dense(twin, x, y).evidence().backward()
    learned = [(name, p, q) for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True)]
    assert len([p for _, p, _ in learned if p.grad is not None]) >= 2
    for name, p, q in learned:
        if p.grad is None:
            assert q.grad is None or (q.grad == 0).all(), name
        else:
            assert (p.grad - q.grad).abs().max() <= 1e-8 * max(1.0, float(q.grad.abs().max())), name


@pytest.mark.parametrize("num_rows", [5, 12, 30])
@pytest.mark.parametrize("kernel", ["real features", "complex features", "multitask"])
def test_few_rows_and_tiny_noise(kernel, num_rows):
    model, x, y = problem(kernel, "improper", num_rows)
    model.likelihood.noise_covar.register_constraint("raw_noise", gpytorch.constraints.Positive())
    model.likelihood.noise = 1e-8
    value = model.condition(x, y).log_marginal_likelihood()
    expected = dense(model, x, y).evidence()
    assert abs(value - expected) <= 1e-6 * abs(expected)


@pytest.mark.parametrize("noise", NOISES)
def test_proper_kernels_with_a_circularity_of_zero_are_the_proper_model(noise):
    if "improper" not in noise:
        return
    for kernel in ("real features", "complex features"):
        model, x, y = problem(kernel, noise, with_mean=False, missing=2)
        model.likelihood.circularity = 0.0
        proper = WeightSpaceGP(model.covar_module, likelihood_of(noise.replace(" improper", ""), torch.ones(1)))
        if noise == "improper":
            proper = WeightSpaceGP(model.covar_module, likelihood_of("circular", None))
        given = model.likelihood.noise_covar.noise if noise.startswith("fixed") else None
        if "learned" in noise:
            proper.likelihood.second_noise = 0.3
        for each in (model, proper):
            each.condition(x, y, given)
        points = torch.randn(4, 2)
        close(model.log_marginal_likelihood(), proper.log_marginal_likelihood())
        ours, theirs = model.posterior(points), proper.posterior(points)
        assert theirs.is_proper
        close(ours.mean, theirs.mean)
        close(ours.covariance_matrix, theirs.covariance_matrix)
        assert ours.pseudo_covariance.abs().max() <= RELATIVE * ours.covariance_matrix.abs().max()

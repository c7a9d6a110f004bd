"""Likelihoods of counts: GPyTorch's own tests of likelihoods, moments, and closed forms against quadrature."""

import copy
import unittest

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.priors import GammaPrior
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase
from scipy import special, stats

from rfgp.likelihoods import NegativeBinomialLikelihood, PoissonLikelihood

KINDS = pytest.mark.parametrize("make", [PoissonLikelihood, NegativeBinomialLikelihood])


class Counts(BaseLikelihoodTestCase):
    """GPyTorch's test case, with functions whose exponentials have moments that sampling can find."""

    seed = 1

    def _create_marginal_input(self, batch_shape=()):
        root = 0.2 * torch.randn(*batch_shape, 5, 5)
        covariance = root @ root.mT + 0.05 * torch.eye(5)
        return MultivariateNormal(0.5 * torch.randn(*batch_shape, 5), covariance)

    def _create_targets(self, batch_shape=()):
        return torch.poisson(torch.ones(*batch_shape, 5))


class TestPoissonLikelihood(Counts, unittest.TestCase):
    def create_likelihood(self):
        return PoissonLikelihood()


class TestNegativeBinomialLikelihood(Counts, unittest.TestCase):
    def create_likelihood(self):
        return NegativeBinomialLikelihood()


def function(batch=()):
    return MultivariateNormal(torch.randn(*batch, 4), torch.diag_embed(0.1 + torch.rand(*batch, 4)))


def by_quadrature(density, mean, variance):
    """The expectation of a function under normals, with many points."""
    points, weights = special.roots_hermitenorm(80)
    values = mean[..., None] + np.sqrt(variance)[..., None] * points
    return (density(values) * weights).sum(-1) / np.sqrt(2.0 * np.pi)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("batch", [(), (3,)])
def test_expected_log_density_of_poisson_counts_is_exact(batch):
    latent, y = function(batch), torch.tensor([0.0, 1.0, 3.0, 20.0])
    found = PoissonLikelihood().expected_log_prob(y, latent)
    counts = y.expand(*batch, 4).numpy()[..., None]
    expected = by_quadrature(
        lambda f: stats.poisson.logpmf(counts, np.exp(f)), latent.mean.numpy(), latent.variance.numpy()
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.usefixtures("float64_default")
def test_dispersed_counts_have_their_moments_and_densities():
    likelihood, f = NegativeBinomialLikelihood(), torch.linspace(-2.0, 3.0, 6)
    likelihood.dispersion = 0.4
    conditional, mean = likelihood(f), f.exp()
    torch.testing.assert_close(conditional.mean, mean)
    torch.testing.assert_close(conditional.variance, mean + 0.4 * mean.square())
    y, size = torch.arange(6.0), 1.0 / 0.4
    expected = stats.nbinom.logpmf(y.numpy(), size, size / (size + mean.numpy()))
    np.testing.assert_allclose(conditional.log_prob(y).detach(), expected, rtol=1e-12)
    likelihood.dispersion = 1e-6
    torch.testing.assert_close(likelihood(f).log_prob(y), PoissonLikelihood()(f).log_prob(y), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("float64_default")
def test_expected_log_density_of_dispersed_counts():
    likelihood, latent, y = NegativeBinomialLikelihood(), function(), torch.tensor([0.0, 1.0, 3.0, 20.0])
    likelihood.dispersion = 0.4
    expected = by_quadrature(
        lambda f: stats.nbinom.logpmf(y.numpy()[:, None], 2.5, 2.5 / (2.5 + np.exp(f))),
        latent.mean.numpy(),
        latent.variance.numpy(),
    )
    found = likelihood.expected_log_prob(y, latent)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)
    found.sum().backward()
    assert torch.isfinite(likelihood.raw_dispersion.grad).all() and bool(likelihood.raw_dispersion.grad != 0)


@KINDS
def test_float32_stays(make):
    latent = MultivariateNormal(torch.zeros(3), torch.eye(3))
    assert make().expected_log_prob(torch.ones(3), latent).dtype == torch.float32
    assert make()(torch.zeros(3)).mean.dtype == torch.float32


def test_priors_constraints_and_batches_of_the_dispersion():
    prior, constraint = GammaPrior(2.0, 1.0), GreaterThan(0.1)
    likelihood = NegativeBinomialLikelihood(torch.Size([2]), prior, constraint)
    likelihood.dispersion = torch.tensor([[0.2], [0.5]])
    torch.testing.assert_close(likelihood.dispersion, torch.tensor([[0.2], [0.5]]))
    assert likelihood(torch.zeros(2, 5)).variance.shape == (2, 5)
    assert [name for name, *_ in likelihood.named_priors()] == ["dispersion_prior"]
    assert float(likelihood.dispersion.min()) > 0.1
    copied = copy.deepcopy(likelihood)
    copied.load_state_dict(likelihood.state_dict())
    assert torch.equal(copied.dispersion, likelihood.dispersion)
    sampled = likelihood.pyro_sample_from_prior()
    assert isinstance(sampled, NegativeBinomialLikelihood)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dispersion", [0.0, 0.4])
def test_marginals_have_the_moments_of_counts(dispersion, batch):
    likelihood = NegativeBinomialLikelihood() if dispersion else PoissonLikelihood()
    if dispersion:
        likelihood.dispersion = dispersion
    latent = function(batch)
    marginal = likelihood(latent)
    mean = (latent.mean + 0.5 * latent.variance).exp()
    second = (1.0 + dispersion) * (2.0 * latent.mean + 2.0 * latent.variance).exp()
    torch.testing.assert_close(marginal.mean, mean)
    torch.testing.assert_close(marginal.variance, mean + second - mean.square(), rtol=1e-6, atol=0.0)
    assert marginal.log_prob(torch.ones(4)).shape == marginal.sample().shape == (*batch, 4)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("dispersion", [0.0, 0.01, 0.4])
def test_log_marginals_of_counts_whose_densities_are_narrow_or_far_out(dispersion):
    """Where the rate is known to less than the root of it, the fixed points of a rule pass the density by."""
    likelihood = NegativeBinomialLikelihood() if dispersion else PoissonLikelihood()
    if dispersion:
        likelihood.dispersion = dispersion
    y = torch.tensor([0.0, 3.0, 2_000.0, 40_000.0, 5_000.0])
    latent = MultivariateNormal(torch.tensor([1.0, 1.0, 7.0, 9.0, 1.0]), torch.diag(torch.tensor([4, 1, 1, 2, 0.01])))
    f = (latent.mean + torch.linspace(-10.0, 10.0, 200_001).unsqueeze(-1)).numpy()
    rate, size = np.exp(f), 1.0 / max(dispersion, 1e-9)
    terms = stats.nbinom.logpmf(y, size, size / (size + rate)) if dispersion else stats.poisson.logpmf(y, rate)
    terms = terms + stats.norm.logpdf(f, latent.mean.numpy(), latent.stddev.numpy())
    expected = special.logsumexp(terms, axis=0) + np.log(1e-4)
    with torch.inference_mode():
        np.testing.assert_allclose(likelihood(latent).log_prob(y), expected, rtol=0, atol=1e-5)
    found = likelihood.log_marginal(y, MultivariateNormal(latent.mean.float(), latent.covariance_matrix.float()))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-5)
    if dispersion:
        found.sum().backward()
        assert torch.isfinite(likelihood.raw_dispersion.grad).all()


@KINDS
def test_draws_of_counts_have_function_values_of_their_own(make):
    latent, count = MultivariateNormal(torch.full((1,), 12.0), torch.eye(1)), 4000
    likelihood = make()
    if isinstance(likelihood, NegativeBinomialLikelihood):
        likelihood.dispersion = 1e-4
    torch.manual_seed(0)
    drawn = likelihood(latent).sample((count,))
    assert drawn.shape == (count, 1)
    share = (drawn.log() - 12.0).abs().lt(0.2).double().mean()
    assert abs(share - 0.1585) < 4.0 * (0.1585 * 0.8415 / count) ** 0.5


@pytest.mark.usefixtures("float64_default")
@KINDS
def test_an_exposure_multiplies_the_rate(make):
    likelihood, latent, y = make(), function(), torch.tensor([0.0, 1.0, 3.0, 20.0])
    exposure = torch.tensor([0.1, 1.0, 5.0, 100.0])
    shifted = MultivariateNormal(latent.mean + exposure.log(), latent.covariance_matrix)
    torch.testing.assert_close(likelihood(latent.mean, exposure=exposure).mean, exposure * latent.mean.exp())
    torch.testing.assert_close(likelihood(latent, exposure=exposure).mean, likelihood(shifted).mean)
    for density in (likelihood.log_marginal, likelihood.expected_log_prob):
        torch.testing.assert_close(density(y, latent, exposure=exposure), density(y, shifted))

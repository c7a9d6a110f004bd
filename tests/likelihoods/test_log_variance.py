"""Normal values whose log variance is the function: GPyTorch's own tests, and the closed form against quadrature."""

import unittest

import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase
from scipy import special, stats

from rfgp.likelihoods import LogVarianceLikelihood


class TestLogVarianceLikelihood(BaseLikelihoodTestCase, unittest.TestCase):
    seed = 1

    def _create_marginal_input(self, batch_shape=()):
        root = 0.2 * torch.randn(*batch_shape, 5, 5)
        return MultivariateNormal(0.5 * torch.randn(*batch_shape, 5), root @ root.mT + 0.05 * torch.eye(5))

    def _create_targets(self, batch_shape=()):
        return torch.randn(*batch_shape, 5)

    def create_likelihood(self):
        return LogVarianceLikelihood()


@pytest.mark.usefixtures("float64_default")
def test_expected_log_density_is_exact():
    mean, variance, values = torch.randn(4), 0.1 + torch.rand(4), torch.tensor([0.0, 0.5, -2.0, 4.0])
    points, weights = special.roots_hermitenorm(80)
    functions = mean.numpy()[:, None] + np.sqrt(variance.numpy())[:, None] * points
    density = stats.norm.logpdf(values.numpy()[:, None], scale=np.exp(0.5 * functions))
    wanted = (density * weights).sum(-1) / np.sqrt(2.0 * np.pi)
    found = LogVarianceLikelihood().expected_log_prob(values, MultivariateNormal(mean, torch.diag(variance)))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10)


@pytest.mark.usefixtures("float64_default")
def test_log_marginals_of_values_far_out():
    values, spread = torch.tensor([0.0, 1.0, 30.0]), torch.tensor([1.0, 2.0, 0.1])
    functions = torch.linspace(-30.0, 30.0, 100_001)[:, None]
    terms = stats.norm.logpdf(values, scale=(0.5 * functions).exp()) + stats.norm.logpdf(functions, -1.0, spread)
    wanted = special.logsumexp(terms, axis=0) + np.log(6e-4)
    latent = MultivariateNormal(torch.full((3,), -1.0), torch.diag(spread.square()))
    np.testing.assert_allclose(LogVarianceLikelihood()(latent).log_prob(values), wanted, rtol=0, atol=1e-4)

"""Predictions of sums, multiples, stacks and compositions of operators that act on features alone."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean

import rfgp
from rfgp.diagnostics import exact_posterior, kl_to_exact
from rfgp.functionals import (
    CurlFreePart,
    Divergence,
    DivergenceFreePart,
    Gradient,
    Potential,
    RotatedGradient,
    Stacked,
    Streamfunction,
    Value,
    Vorticity,
)
from rfgp.kernels import CurlFreeKernel, HelmholtzKernel
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

EQUAL = {
    "a multiple": (-Streamfunction(), lambda p: -p(Streamfunction())),
    "a sum of parts": (CurlFreePart() + DivergenceFreePart(), lambda p: p(Value()) - CONSTANT),
    "a stack": (
        Stacked(Potential(), Streamfunction()),
        lambda p: torch.stack([p(Potential()), p(Streamfunction())], dim=-1),
    ),
    "a gradient of the potential": (Gradient() @ Potential(), lambda p: p(CurlFreePart())),
    "a rotated one": (RotatedGradient() @ Streamfunction(), lambda p: p(DivergenceFreePart())),
    "a part of a part": (CurlFreePart() @ DivergenceFreePart(), lambda p: torch.zeros(5, 2)),
    "a divergence of a part": (Divergence() @ CurlFreePart(), lambda p: p(Divergence())),
    "a vorticity of a part": (Vorticity() @ CurlFreePart(), lambda p: torch.zeros(5)),
}
CONSTANT = torch.tensor([2.0, -3.0], dtype=torch.float64)


@pytest.fixture
def model(float64_default):
    x, y = torch.randn(30, 2), torch.randn(30, 2) + CONSTANT
    mean = MultitaskMean([ConstantMean(), ConstantMean()], num_tasks=2)
    for part, value in zip(mean.base_means, CONSTANT, strict=True):
        part.constant = value
    kernel = rfgp.approximate(HelmholtzKernel(RBFKernel()), 16, input_dim=2, seed=0)
    with torch.no_grad():
        return WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2), mean).condition(x, y)


@pytest.mark.parametrize("name", EQUAL)
def test_operators_of_features_combine(name, model):
    operator, expected = EQUAL[name]
    x = torch.randn(5, 2)
    with torch.no_grad():
        mean = model.posterior(x, operator).mean
        torch.testing.assert_close(mean, expected(lambda other: model.posterior(x, other).mean), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", [MultitaskGaussianLikelihood(2), MultitaskGaussianLikelihood(2, rank=1)])
def test_divergence_from_the_exact_posterior_of_a_field(likelihood, float64_default):
    """In exact arithmetic by hand; the noise covariance of several outputs must not need that of the field."""
    torch.manual_seed(1)
    x, y, points = torch.randn(12, 2), torch.randn(12, 2), torch.randn(4, 2)
    kernel = rfgp.approximate(CurlFreeKernel(RBFKernel()), 32, input_dim=2, seed=0)
    with torch.no_grad():
        model = WeightSpaceGP(kernel, likelihood, keep_data=True).condition(x, y)
        exact = kernel.exact_kernel
        zero = torch.zeros(12, 2)
        prior = gpytorch.distributions.MultitaskMultivariateNormal(zero, exact(x))
        solved = torch.linalg.solve(likelihood(prior).covariance_matrix, exact(x, points).to_dense())
        mean = (solved.mT @ y.flatten()).unflatten(0, (4, 2))
        variance = exact(points, diag=True) - (exact(x, points).to_dense() * solved).sum(0)
        by_hand = torch.distributions.Normal(mean, variance.unflatten(0, (4, 2)).sqrt())
        result = exact_posterior(kernel, likelihood, x, y, points)
        torch.testing.assert_close(result.mean, by_hand.mean)
        torch.testing.assert_close(result.variance, by_hand.variance)
        latent = model.posterior(points)
        own = torch.distributions.Normal(latent.mean, latent.variance.sqrt())
        torch.testing.assert_close(kl_to_exact(model, points), torch.distributions.kl_divergence(own, by_hand).sum())

"""A likelihood that rfgp has never heard of: its noise model is a subclass, and all that follows works."""

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

import rfgp
from rfgp.inference.noise import KnownNoise, registered

pytestmark = pytest.mark.usefixtures("float64_default")


class RelativeNoiseLikelihood(FixedNoiseGaussianLikelihood):
    """Noise whose relative variances are known, and whose scale is learned."""

    def __init__(self, noise):
        super().__init__(noise)
        self.log_scale = torch.nn.Parameter(torch.tensor(0.3))


@registered(RelativeNoiseLikelihood)
class RelativeNoise(KnownNoise):
    """The scale divides the precisions, which the statistics do not contain."""

    def precisions(self, num_groups):
        return [precision / self.likelihood.log_scale.exp() for precision in super().precisions(num_groups)]

    def log_noise(self, statistics):
        return super().log_noise(statistics) + statistics.num_rows * self.likelihood.log_scale

    def parameters(self):
        return {}


@pytest.mark.parametrize("width", [24, 64], ids=["fewer features than rows", "more"])
def test_a_likelihood_from_outside_is_that_of_dense_algebra(width):
    x, noise = torch.randn(40, 2), 0.1 + torch.rand(40)
    y = torch.sin(x[:, 0])
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    kernel = rfgp.approximate(exact, width, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, RelativeNoiseLikelihood(noise))
    evidence = model.condition(x, y).log_marginal_likelihood()
    features = kernel.features(x)
    covariance = features @ features.mT + torch.diag(noise * model.likelihood.log_scale.exp())
    dense = torch.distributions.MultivariateNormal(torch.zeros(40), covariance).log_prob(y)
    torch.testing.assert_close(evidence, dense)
    parameters = list(model.parameters())
    for found, expected in zip(*(torch.autograd.grad(v, parameters) for v in (evidence, dense)), strict=True):
        torch.testing.assert_close(found, expected)
    cross = kernel.features(x[:3] + 0.1) @ features.mT
    latent = model.posterior(x[:3] + 0.1)
    torch.testing.assert_close(latent.mean, cross @ torch.linalg.solve(covariance, y))


def test_other_likelihoods_have_their_own_noise():
    noise = rfgp.inference.noise_model(FixedNoiseGaussianLikelihood(torch.ones(3)))
    assert type(noise) is KnownNoise

"""A likelihood that rfgp has never heard of: its noise model is a subclass, and all that follows works."""

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

import rfgp
from rfgp.inference.noise import KnownNoise, registered
from rfgp.training.exact_regression import exact_regression
from rfgp.training.objectives import WeightSpaceObjective

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


class ScaledNoiseLikelihood(RelativeNoiseLikelihood):
    """The same, which GPyTorch asks for its noise too."""

    def _shaped_noise_covar(self, base_shape, *params, **kwargs):
        return super()._shaped_noise_covar(base_shape, *params, **kwargs) * self.log_scale.exp()


def test_exact_posteriors_ask_the_likelihood_for_its_noise():
    x, noise = torch.randn(20, 2), 0.1 + torch.rand(20)
    y, new, kernel = torch.sin(x[:, 0]), torch.randn(3, 2), gpytorch.kernels.RBFKernel()
    likelihood = ScaledNoiseLikelihood(noise)
    covariance = kernel(x).to_dense() + torch.diag(noise * likelihood.log_scale.exp())
    expected = kernel(new, x).to_dense() @ torch.linalg.solve(covariance, y)
    for given in (None, noise):
        found = rfgp.diagnostics.exact_posterior(kernel, likelihood, x, y, new, noise=given)
        torch.testing.assert_close(found.mean, expected)


def test_tuning_by_exact_rows_refuses_noise_that_it_does_not_know():
    x, noise = torch.randn(40, 2), torch.ones(40)
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 8, input_dim=2, seed=0)
    objective = WeightSpaceObjective(rfgp.WeightSpaceGP(kernel, RelativeNoiseLikelihood(noise)), x, x[:, 0], noise)
    with pytest.raises(ValueError, match="fixed-noise"):
        exact_regression(objective)


def test_some_rows_have_the_noise_that_the_likelihood_knows():
    x, noise = torch.randn(40, 2), 0.1 + torch.rand(40)
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 8, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(noise))
    rows = torch.tensor([3, 5, 7])
    assert torch.equal(WeightSpaceObjective(model, x, x[:, 0], None).data(rows)[2], noise[rows])

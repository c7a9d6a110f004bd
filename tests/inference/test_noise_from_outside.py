"""A likelihood that rfgp has never heard of: its noise model is a subclass, and all that follows works."""

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

import rfgp
from rfgp.inference import NoiseModel
from rfgp.inference.noise import KnownNoise, registered
from rfgp.inference.sums.rows import Rows
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


class EqualCorrelationLikelihood(gpytorch.likelihoods.MultitaskGaussianLikelihood):
    """Noise of two tasks with a common variance, and a correlation that is learned."""

    def __init__(self):
        super().__init__(num_tasks=2, has_task_noise=False)
        self.raw_correlation = torch.nn.Parameter(torch.tensor(0.4))

    def covariance(self):
        return self.noise * (torch.eye(2) + self.raw_correlation.tanh() * (1.0 - torch.eye(2)))


@registered(EqualCorrelationLikelihood)
class EqualCorrelation(NoiseModel):
    """Rows of one group, all of which are complete."""

    has_one_covariance = True

    def __init__(self, targets, likelihood):
        super().__init__(targets)
        self.covariance = likelihood.covariance

    @classmethod
    def of_likelihood(cls, likelihood, targets):
        return cls(targets, likelihood)

    def observations(self, x, y, noise, basis, is_all):
        return self.targets.columns(x, y, basis)

    def rows_of(self, observations):
        return Rows(observations.columns)

    def precisions(self, num_groups):
        return [torch.linalg.inv(self.covariance())]

    def log_noise(self, statistics):
        return statistics.num_rows * torch.logdet(self.covariance())

    def num_values(self, statistics):
        return 2.0 * statistics.num_rows


@pytest.mark.parametrize("kind", ["separable", "not separable"])
@pytest.mark.parametrize("block_size", [None, 60])
def test_a_noise_model_from_outside_serves_features_and_blocks(kind, block_size):
    x, new = torch.rand(24, 2), torch.rand(3, 2)
    y, parts = torch.randn(24, 2), [gpytorch.kernels.MaternKernel(nu=1.5), gpytorch.kernels.RBFKernel()]
    kernel = gpytorch.kernels.MultitaskKernel(parts[0], num_tasks=2, rank=1)
    if kind == "not separable":
        kernel = gpytorch.kernels.LCMKernel(parts, num_tasks=2, rank=1)
    made = rfgp.approximate(kernel, 6, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(made, EqualCorrelationLikelihood(), block_size=block_size, num_neighbors=None)
    evidence = model.condition(x, y).log_marginal_likelihood()
    every = torch.cat([x, new])
    whole = made.features(every) @ made.features(every).mT if block_size is None else kernel(every).to_dense()
    rows = whole[:48, :48] + torch.kron(torch.eye(24), model.likelihood.covariance())
    dense = torch.distributions.MultivariateNormal(torch.zeros(48), rows).log_prob(y.flatten())
    torch.testing.assert_close(evidence, dense)
    slopes = [torch.autograd.grad(value, model.likelihood.raw_correlation)[0] for value in (evidence, dense)]
    torch.testing.assert_close(*slopes)
    mean = whole[48:, :48] @ torch.linalg.solve(rows, y.flatten())
    torch.testing.assert_close(model.posterior(new).mean.flatten(), mean)


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

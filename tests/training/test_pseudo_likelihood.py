"""GPyTorch's leave-one-out objective, in weight space, equals its dense value with gradients."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from linear_operator.operators import to_linear_operator
from problems import ExactModel, randomised, regression_rows

import rfgp
from rfgp.training import LeaveOneOutPseudoLikelihood

pytestmark = pytest.mark.usefixtures("float64_default")


class DenseModel(ExactModel):
    """The same model with a dense covariance, which takes GPyTorch's own path."""

    def forward(self, x):
        prior = super().forward(x)
        return gpytorch.distributions.MultivariateNormal(prior.mean, to_linear_operator(prior.covariance_matrix))


def value_and_gradients(objective, model, y):
    value = objective(model.likelihood, model)(model.train()(*model.train_inputs), y)
    return value, torch.autograd.grad(value, [p for p in model.parameters() if p.requires_grad])


def likelihoods(kind, count):
    if kind == "gaussian":
        return randomised(GaussianLikelihood())
    noise = 0.1 + torch.rand(count, generator=torch.Generator().manual_seed(0))
    return FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)


@pytest.mark.parametrize("method", ["auto", "optimized_maclaurin", "landmarks"])
@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
@pytest.mark.parametrize("width", [12, 80])
def test_value_and_gradients_are_those_of_gpytorch(kind, method, width):
    x, y = regression_rows(60)
    exact = randomised(ScaleKernel(RBFKernel()))
    kernel = rfgp.approximate(exact, width, input_dim=3, method=method, train_inputs=x, seed=0)
    likelihood = likelihoods(kind, len(x))
    fast, slow = (model(x, y, likelihood, kernel) for model in (ExactModel, DenseModel))
    expected, wanted = value_and_gradients(gpytorch.mlls.LeaveOneOutPseudoLikelihood, slow, y)
    found, gradients = value_and_gradients(LeaveOneOutPseudoLikelihood, fast, y)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for actual, gradient in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(actual, gradient, rtol=1e-9, atol=1e-10)


def test_a_batch_of_models_and_added_terms():
    x, y = regression_rows(60)
    batch = torch.stack([x, 0.5 * x])
    exact = ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    exact.register_prior("scale_prior", gpytorch.priors.NormalPrior(0.0, 1.0), "outputscale")
    kernel = rfgp.approximate(exact, 12, input_dim=3, seed=0)
    targets = torch.stack([y, y.flip(0)])
    likelihood = GaussianLikelihood(batch_shape=torch.Size([2]))
    mean = gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))
    fast, slow = (model(batch, targets, likelihood, kernel, mean) for model in (ExactModel, DenseModel))
    objectives = (LeaveOneOutPseudoLikelihood, fast), (gpytorch.mlls.LeaveOneOutPseudoLikelihood, slow)
    found, expected = (objective(model.likelihood, model)(model(batch), targets) for objective, model in objectives)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_an_exact_kernel_is_left_to_gpytorch():
    x, y = regression_rows(30)
    model = ExactModel(x, y, GaussianLikelihood(), RBFKernel())
    found, expected = (
        value_and_gradients(objective, model, y)[0]
        for objective in (LeaveOneOutPseudoLikelihood, gpytorch.mlls.LeaveOneOutPseudoLikelihood)
    )
    assert torch.equal(found, expected)


def test_no_matrix_of_all_rows_is_made():
    x, y = regression_rows(100_000)
    kernel = rfgp.approximate(RBFKernel(), 12, input_dim=3, seed=0)
    model = ExactModel(x, y, GaussianLikelihood(), kernel)
    value, gradients = value_and_gradients(LeaveOneOutPseudoLikelihood, model, y)
    assert torch.isfinite(value) and all(bool(torch.isfinite(g).all()) for g in gradients)


def test_the_mean_is_that_of_the_log_densities_of_a_weight_space_model():
    x, y = regression_rows(60)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 12, input_dim=3, seed=0)
    model = ExactModel(x, y, GaussianLikelihood(), kernel)
    fitted = rfgp.WeightSpaceGP(model.covar_module, model.likelihood, model.mean_module).condition(x, y)
    value, _ = value_and_gradients(LeaveOneOutPseudoLikelihood, model, y)
    torch.testing.assert_close(value.detach(), fitted.leave_one_out(x, y).log_prob.mean(), rtol=1e-10, atol=1e-10)

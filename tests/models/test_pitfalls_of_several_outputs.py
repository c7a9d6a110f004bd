"""What is easily got wrong with several outputs: shared bases, selected columns, means, priors, counts."""

import warnings

import gpytorch
import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import IndexKernel, MaternKernel, MultitaskKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean, ZeroMean

import rfgp
from rfgp.functionals import Component, CurlFreePart, Gradient, Laplacian, Partial, Stacked, Value, Vorticity
from rfgp.kernels import (
    ConstantCovariance,
    CurlFreeKernel,
    DecomposableKernel,
    HelmholtzKernel,
    LinearlyObservedKernel,
    SpectralDensityKernel,
)
from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import VectorLeastSquares, WeightSpaceGP, task_columns
from rfgp.training.parts import log_prior, parts_of

pytestmark = pytest.mark.usefixtures("float64_default")


def relative_error(kernel, x, num_features):
    approximated = rfgp.approximate(kernel, num_features, input_dim=x.shape[-1], seed=0)
    with torch.no_grad():
        exact = kernel(x).to_dense()
        return float((approximated(x).to_dense() - exact).norm() / exact.norm())


def test_a_base_shared_by_parts_of_different_inputs_gets_frequencies_for_each():
    base = RBFKernel()
    kernel = CurlFreeKernel(base, active_dims=[0, 1]) + CurlFreeKernel(base, active_dims=[2, 3])
    x = torch.randn(6, 4)
    assert rfgp.approximate(kernel, 64, input_dim=4).num_scalar_features == 64
    assert relative_error(kernel, x, 20_000) < 0.05
    one_map = CurlFreeKernel(base, active_dims=[0, 1]) + CurlFreeKernel(base, active_dims=[0, 1])
    shared = rfgp.approximate(one_map, 64, input_dim=4)
    assert shared.num_scalar_features == 64 and shared.output_factor().num_columns == 128


@pytest.mark.parametrize("operator", [Vorticity(), CurlFreePart(), Partial(1), Gradient() / 2])
def test_operators_count_the_columns_of_the_kernel(operator):
    x, y = torch.randn(40, 3), torch.randn(40, 2)
    mean = MultitaskMean(ConstantMean(), num_tasks=2)
    selected = rfgp.approximate(HelmholtzKernel(RBFKernel(active_dims=[2, 0])), 32, input_dim=3, seed=0)
    plain = rfgp.approximate(HelmholtzKernel(RBFKernel()), 32, input_dim=2, seed=0)
    models = [WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2), mean) for kernel in (selected, plain)]
    models[0].condition(x, y)
    models[1].condition(x[:, [2, 0]], y)
    points = torch.randn(5, 3)
    first, second = models[0].posterior(points, operator), models[1].posterior(points[:, [2, 0]], operator)
    assert torch.allclose(first.mean, second.mean) and torch.allclose(first.variance, second.variance)


def test_one_mean_for_values_and_slopes_raises():
    kernel = rfgp.approximate(LinearlyObservedKernel(RBFKernel(), [Value(), Gradient()]), 32, input_dim=1, seed=0)
    with pytest.raises(ValueError, match="MultitaskMean"):
        WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2), ConstantMean())
    x = torch.linspace(-3, 3, 50).unsqueeze(-1)
    y = torch.cat([torch.sin(x) + 100.0, torch.cos(x)], dim=-1)
    mean = MultitaskMean([ConstantMean(), ZeroMean()], num_tasks=2)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2), mean)
    rfgp.fit(model, x, y, max_evaluations=40)
    with torch.no_grad():
        assert float((model.posterior(x).mean - y).abs().max()) < 0.3
        curvature = model.posterior(x, Laplacian() @ Component(0)).mean
    assert float((curvature + torch.sin(x.squeeze(-1)))[5:-5].abs().max()) < 0.3


def test_a_prior_of_a_shared_base_counts_once():
    base = RBFKernel(lengthscale_prior=gpytorch.priors.NormalPrior(0.0, 1.0))
    kernel = rfgp.approximate(HelmholtzKernel(base, base), 16, input_dim=2)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2))
    assert torch.allclose(log_prior(parts_of(model)), base.lengthscale_prior.log_prob(base.lengthscale).sum())


def test_a_posterior_notices_a_new_covariance_of_the_outputs():
    covariance = ConstantCovariance(torch.eye(2))
    kernel = rfgp.approximate(DecomposableKernel(RBFKernel(), covariance), 16, input_dim=2, seed=0)
    x, y = torch.randn(40, 2), torch.randn(40, 2)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x, y)
    model.posterior(x)
    covariance.covar_matrix.mul_(0.01)
    assert torch.equal(model.posterior(x).variance, model.condition(x, y).posterior(x).variance)


def test_columns_are_selected_in_one_place():
    with pytest.raises(ValueError, match="move them"):
        DecomposableKernel(RBFKernel(active_dims=[0]), ConstantCovariance(torch.eye(2)))
    with pytest.raises(ValueError, match="got two that differ"):
        CurlFreeKernel(RBFKernel(active_dims=[0, 1]), active_dims=[2, 3])


def test_features_are_counted_against_values():
    x, y = torch.randn(60, 10), torch.randn(60, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = rfgp.approximate(CurlFreeKernel(RBFKernel()), 128, train_inputs=x)
        WeightSpaceGP(kernel, MultitaskGaussianLikelihood(10)).condition(x, y)
    with pytest.warns(UserWarning, match="exceed the 100 training rows"):
        WeightSpaceGP(kernel, MultitaskGaussianLikelihood(10)).condition(x[:10], y[:10])


def test_weights_that_do_not_fit_in_memory_are_refused_before_the_data_are_read():
    exact = gpytorch.kernels.LCMKernel([RBFKernel(), RBFKernel()], num_tasks=40, rank=1)
    kernel = rfgp.approximate(exact, 4096, input_dim=2, seed=0)
    x, y = torch.randn(50, 2), torch.randn(50, 40)
    y[0, 0] = float("nan")
    with pytest.raises(ValueError, match="weights"):
        WeightSpaceGP(kernel, MultitaskGaussianLikelihood(40)).condition(x, y)


class OneTaskPerRow(gpytorch.models.ExactGP):
    """GPyTorch's model of rows that each belong to one task, whose number is the last input."""

    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = ZeroMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_one_task_per_row_is_the_multitask_model_with_missing_outputs():
    x, tasks, y = torch.randn(60, 2), torch.arange(60) % 3, torch.randn(60)
    index = IndexKernel(num_tasks=3, rank=2, active_dims=[2])
    product = rfgp.approximate(RBFKernel(active_dims=[0, 1]) * index, 16, input_dim=3, seed=0)
    data = parts(product)[0]
    rows = torch.cat([x, tasks.double().unsqueeze(-1)], dim=-1)
    exact = OneTaskPerRow(rows, y, GaussianLikelihood(), product).eval()

    multitask = MultitaskKernel(RBFKernel(), num_tasks=3, rank=2)
    multitask.task_covar_module.load_state_dict(index.state_dict(), strict=False)
    kernel = rfgp.approximate(multitask, data.feature_map.num_features * 2, input_dim=2, method="fourier", seed=0)
    kernel.feature_map.weight.copy_(data.feature_map.weight)
    likelihood = MultitaskGaussianLikelihood(3, has_task_noise=False)
    likelihood.noise = exact.likelihood.noise.detach()
    model = WeightSpaceGP(kernel, likelihood).condition(x, task_columns(y, tasks, 3))

    points = torch.randn(7, 2)
    every = model.posterior(points)
    for task in range(3):
        one = exact(torch.cat([points, torch.full((7, 1), float(task))], dim=-1))
        assert torch.allclose(one.mean, every.mean[:, task], atol=1e-9)
        assert torch.allclose(one.variance, every.variance[:, task], atol=1e-9)


@pytest.mark.parametrize("tasks", [torch.tensor([0, 3]), torch.tensor([0.0, 1.0]), torch.tensor([0]), [0, 1]])
def test_bad_tasks_raise(tasks):
    with pytest.raises(ValueError, match="expected integer tasks"):
        task_columns(torch.zeros(2), tasks, 3)
    with pytest.raises(ValueError, match="floating-point targets"):
        task_columns(torch.zeros(2, 1), tasks, 3)


@pytest.mark.parametrize(
    ("nu", "operator", "exists"),
    [
        (1.5, Partial(1), False),
        (1.5, Vorticity(), True),
        (1.5, CurlFreePart(), True),
        (2.5, Gradient(), True),
        (2.5, Partial(0, 0) + 0.5 * Partial(1, 1), False),
        (2.5, Stacked(Value(), Partial(0)), True),
        (1.5, Stacked(Value(), Partial(0)), False),
    ],
)
def test_derivatives_that_do_not_exist_are_not_predicted(nu, operator, exists):
    kernel = rfgp.approximate(CurlFreeKernel(MaternKernel(nu=nu)), 32, input_dim=2, seed=0)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(torch.randn(40, 2), torch.randn(40, 2))
    if exists:
        assert torch.isfinite(model.posterior(torch.randn(3, 2), operator).variance).all()
        return
    with pytest.raises(ValueError, match="derivatives"):
        model.posterior(torch.randn(3, 2), operator)


def test_divergences_need_the_noise_of_the_training_rows():
    x, y, noise = torch.randn(50, 2), torch.randn(50, 2), 0.5 + torch.rand(50, 2)
    kernel = rfgp.approximate(CurlFreeKernel(RBFKernel()), 32, input_dim=2, seed=0)
    model = WeightSpaceGP(kernel, MultitaskFixedNoiseGaussianLikelihood(noise[:30]), keep_data=True)
    model.condition(x[:30], y[:30])
    model.update(x[30:], y[30:], noise[30:])
    points = torch.randn(6, 2)
    kept = rfgp.diagnostics.kl_to_exact(model, points)
    passed = {"train_inputs": x, "train_targets": y}
    assert torch.allclose(kept, rfgp.diagnostics.kl_to_exact(model, points, **passed, train_noise=noise))
    with pytest.raises(ValueError, match="train_noise"):
        rfgp.diagnostics.kl_to_exact(model, points, **passed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Partial("x"), "expected integers"),
        (lambda: SpectralDensityKernel("density", 2), "expected a function"),
        (lambda: VectorLeastSquares(rfgp.approximate(RBFKernel(), 8, input_dim=2), regularization="a"), "got 'a'"),
        (
            lambda: WeightSpaceGP(rfgp.approximate(RBFKernel(), 8, input_dim=2), GaussianLikelihood()).condition(
                torch.randn(20, 2).numpy(), torch.randn(20)
            ),
            "expected a torch.Tensor for x beside y, got ndarray",
        ),
    ],
    ids=["coordinates", "density", "regularization", "numpy inputs"],
)
def test_arguments_of_another_type_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_predictions_made_without_gradients_stay_without():
    kernel = rfgp.approximate(HelmholtzKernel(RBFKernel()), 16, input_dim=2, seed=0)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(torch.randn(40, 2), torch.randn(40, 2))
    with torch.no_grad():
        prediction = model.posterior(torch.randn(3, 2))
    assert not prediction.stddev.requires_grad

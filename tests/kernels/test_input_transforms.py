"""Kernels of transformed inputs: equal to their base kernels there, in every model, and found where they matter."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import rfgp
from rfgp.kernels import InputTransformKernel, KumaraswamyWarp, LinearMap, SinhArcsinhWarp
from rfgp.sklearn import RandomFeatureGPRegressor
from rfgp.training.stationary import covariance

ROWS = torch.rand(80, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor(
    [1.0, 5.0, 0.1]
)


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()


TRANSFORMS = {
    "map": lambda: LinearMap(ROWS),
    "low rank": lambda: LinearMap(ROWS, rank=2),
    "Kumaraswamy": lambda: KumaraswamyWarp(ROWS),
    "sinh-arcsinh": lambda: SinhArcsinhWarp(ROWS),
    "network": network,
}


def kernel_of(name, base=None):
    transform = TRANSFORMS[name]()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in transform.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=noise, dtype=parameter.dtype)
    return ScaleKernel(InputTransformKernel(base or MaternKernel(1.5), transform)).double()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_and_gradients_are_those_of_the_base_kernel(name):
    kernel = kernel_of(name)
    inner = kernel.base_kernel
    points = inner.transform(ROWS)
    wanted = kernel.outputscale * inner.base_kernel(points).to_dense()
    torch.testing.assert_close(kernel(ROWS).to_dense(), wanted, rtol=0.0, atol=1e-12)
    fast = covariance(kernel, ROWS)
    weights = torch.sin(torch.arange(80.0 * 80).reshape(80, 80).double())
    weights = weights + weights.mT
    parameters = [parameter for parameter in kernel.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad((wanted * weights).sum(), parameters)
    for found, gradient in zip(torch.autograd.grad((fast * weights).sum(), parameters), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-6, atol=1e-8)


def test_an_output_scale_inside_the_transform_is_part_of_the_features():
    exact = InputTransformKernel(ScaleKernel(RBFKernel()), TRANSFORMS["map"]()).double()
    exact.base_kernel.outputscale = 3.0
    kernel = rfgp.approximate(exact, 32, method="fourier", input_dim=3, seed=0)
    three = torch.full((len(ROWS),), 3.0, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(kernel(ROWS, diag=True), three)
        torch.testing.assert_close(kernel.features(ROWS).square().sum(-1), three)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_features_and_models_are_those_of_transformed_inputs(name):
    kernel = kernel_of(name, RBFKernel())
    plain = ScaleKernel(copy.deepcopy(kernel.base_kernel.base_kernel)).double()
    plain.load_state_dict({key: value for key, value in kernel.state_dict().items() if "transform" not in key}, False)
    y = torch.sin(ROWS.sum(-1))
    points = kernel.base_kernel.transform(ROWS).detach()
    for method in ("fourier", "landmarks"):
        means = []
        for exact, x in ((kernel, ROWS), (plain, points)):
            approximate = rfgp.approximate(exact, 32, method=method, train_inputs=x, seed=0)
            model = rfgp.WeightSpaceGP(approximate, gpytorch.likelihoods.GaussianLikelihood().double())
            with torch.no_grad():
                posterior = model.condition(x, y).posterior(x[:5])
                means.append(torch.stack([posterior.mean, posterior.variance]))
        torch.testing.assert_close(means[0], means[1], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["Kumaraswamy", "sinh-arcsinh"])
def test_warpings_are_monotone_everywhere_and_nearly_linear_at_first(name):
    warp = TRANSFORMS[name]()
    low, high = ROWS.amin(0), ROWS.amax(0)
    line = low + torch.linspace(-1.0, 2.0, 300, dtype=torch.float64).unsqueeze(-1) * (high - low)
    slopes = warp(line).detach().diff(dim=0) / line.diff(dim=0)
    assert float((slopes / slopes.mean(0) - 1.0).abs().max()) < 1e-4
    with torch.no_grad():
        for parameter in warp.parameters():
            parameter += 0.5
    assert bool((warp(line).diff(dim=0) > 0).all())


def test_a_map_of_too_high_a_rank_and_a_function_are_refused():
    with pytest.raises(ValueError, match="rank of at most the 3 inputs, got 4"):
        LinearMap(ROWS, rank=4)
    with pytest.raises(ValueError, match="a module"):
        InputTransformKernel(RBFKernel(), torch.tanh)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda x: x.flatten(-2), "shape"),
        (lambda x: x[:-1], "keeps the rows of inputs"),
        (lambda x: x.sum(-2, keepdim=True), "keeps the rows of inputs"),
        (lambda x: x.long(), "floating-point"),
    ],
)
def test_a_transform_that_mixes_rows_is_refused(change, told):
    transform = torch.nn.Identity()
    transform.forward = change
    kernel = InputTransformKernel(RBFKernel(), transform).double()
    with pytest.raises(ValueError, match=told):
        kernel(ROWS).to_dense()
    with pytest.raises(ValueError, match=told):
        rfgp.approximate(kernel, 8, method="fourier", train_inputs=ROWS)


@pytest.mark.parametrize("name", ["map", "low rank", "Kumaraswamy", "sinh-arcsinh"])
def test_transforms_refuse_other_columns_and_precisions(name):
    transform = TRANSFORMS[name]()
    with pytest.raises(ValueError, match="3 columns, got 1"):
        transform(ROWS[:, :1])
    with pytest.raises(ValueError, match="as the transform has"):
        transform(ROWS.float())


@pytest.mark.parametrize("strategy", ["neighbors", "blocks"])
def test_training_finds_a_direction_and_a_file_keeps_it(strategy, tmp_path):
    noise = torch.Generator().manual_seed(2)
    x = torch.randn(500, 3, dtype=torch.float64, generator=noise)
    y = torch.sin(2.0 * (x[:, 0] + x[:, 1])) + 0.05 * torch.randn(500, dtype=torch.float64, generator=noise)
    exact = ScaleKernel(InputTransformKernel(MaternKernel(2.5), LinearMap(x))).double()
    kernel = rfgp.approximate(exact, 64, method="landmarks", train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double(), block_size=64)
    rfgp.fit(model, x[:400], y[:400], strategy=strategy, max_evaluations=60, progress=False)
    metric = exact.base_kernel.transform.weight.detach() @ exact.base_kernel.transform.weight.detach().mT
    direction = torch.linalg.eigh(metric).eigenvectors[:, -1]
    assert float((direction[:2].sum() / 2.0**0.5).abs()) > 0.99
    posterior = model.posterior(x[400:])
    assert float((posterior.mean - y[400:]).square().mean().sqrt()) < 0.2
    rfgp.save(model, tmp_path / "model.rfgp", with_rows=True)
    assert torch.equal(rfgp.load(tmp_path / "model.rfgp").posterior(x[400:]).mean, posterior.mean)


@pytest.mark.parametrize("has_map", [True, False])
def test_the_estimator_takes_a_map_where_it_predicts_better(has_map):
    noise = torch.Generator().manual_seed(3)
    x = torch.randn(400, 3, dtype=torch.float64, generator=noise)
    level = torch.sin(4.0 * (x[:, 0] + x[:, 1])) if has_map else torch.zeros(400)
    y = level + 0.05 * torch.randn(400, dtype=torch.float64, generator=noise)
    estimator = RandomFeatureGPRegressor(random_state=0, max_evaluations=60).fit(x.numpy(), y.numpy())
    assert any(isinstance(module, LinearMap) for module in estimator.model_.modules()) is has_map

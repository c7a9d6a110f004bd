"""Gradients of the evidence in every kernel, mean and likelihood parameter equal those of dense autograd."""

import gpytorch
import pytest
import torch
from dense import covariance, evidence
from feature_parts import parts
from gpytorch.kernels import LinearKernel, PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

import rfgp
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def gradients(value, module):
    parameters = dict(module.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(value, list(parameters.values())), strict=True))


def check(fast, dense, module):
    fast, dense = gradients(fast, module), gradients(dense, module)
    for name in dense:
        scale = dense[name].abs().max().clamp_min(1e-3)
        assert (fast[name] - dense[name]).abs().max() <= 1e-8 * scale, name


def kernels(seed=0):
    polynomial = ScaleKernel(PolynomialKernel(power=3))
    linear = ScaleKernel(LinearKernel(ard_num_dims=3))
    return {
        "polynomial:ctr": rfgp.approximate(polynomial, 12, input_dim=3, seed=seed),
        "polynomial:complex": rfgp.approximate(polynomial, 12, input_dim=3, seed=seed, method="rademacher:complex"),
        "tensor_sketch": rfgp.approximate(polynomial, 12, input_dim=3, seed=seed, method="tensor_sketch"),
        "linear": rfgp.approximate(linear, 3, seed=seed),
        "linear sketch": rfgp.approximate(linear, 8, seed=seed, method="gaussian:real"),
    }


LIKELIHOODS = {
    "gaussian": lambda n: GaussianLikelihood(),
    "fixed": lambda n: FixedNoiseGaussianLikelihood(0.1 + torch.rand(n)),
    "fixed+learned": lambda n: FixedNoiseGaussianLikelihood(0.1 + torch.rand(n), learn_additional_noise=True),
    "complex": lambda n: ComplexGaussianLikelihood(),
}
MEANS = {
    "zero": gpytorch.means.ZeroMean,
    "constant": gpytorch.means.ConstantMean,
    "linear": lambda: gpytorch.means.LinearMean(3),
}


REGRESSIONS = [
    (kernel, likelihood)
    for kernel in kernels()
    for likelihood in LIKELIHOODS
    if likelihood == "complex" or not kernel.endswith(":complex")
]


def dense_noise(likelihood, num_rows):
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        extra = likelihood.second_noise_covar
        return likelihood.noise_covar.noise + (0.0 if extra is None else extra.noise)
    return likelihood.noise.expand(num_rows)


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("num_rows", [9, 30])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize(("kernel", "likelihood"), REGRESSIONS)
def test_regression(kernel, likelihood, mean, num_rows):
    x = torch.randn(num_rows, 3)
    y = torch.randn(num_rows)
    if likelihood == "complex":
        y = torch.complex(y, torch.randn(num_rows))
    model = WeightSpaceGP(kernels()[kernel], LIKELIHOODS[likelihood](num_rows), MEANS[mean]())
    fast = model.condition(x, y).log_marginal_likelihood()
    matrix = covariance(model.covar_module, x, x)
    dense = evidence(matrix, dense_noise(model.likelihood, num_rows), y - model.mean_module(x))
    assert (fast - dense).abs() <= 1e-9 * dense.abs()
    check(fast, dense, model)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
def test_dirichlet(mean, learned):
    x, labels = torch.randn(40, 3), torch.arange(40) % 4
    batch = torch.Size([4])
    means = {
        "zero": gpytorch.means.ZeroMean(),
        "constant": gpytorch.means.ConstantMean(batch_shape=batch),
        "linear": gpytorch.means.LinearMean(3, batch_shape=batch),
    }
    exact = ScaleKernel(PolynomialKernel(power=2), batch_shape=batch)
    exact.outputscale = torch.tensor([0.5, 1.0, 1.5, 2.0])
    kernel = rfgp.approximate(exact, 10, input_dim=3, seed=0)
    likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=learned)
    model = WeightSpaceGP(kernel, likelihood, means[mean])
    fast = model.condition(x, labels).log_marginal_likelihood()
    base = covariance(parts(kernel)[0], x, x)
    offset = model.mean_module(x).expand(4, 40)
    extra = likelihood.second_noise_covar.noise if learned else torch.zeros(4, 1)
    dense = sum(
        evidence(
            kernel.outputscale[c] * base,
            likelihood.noise_covar.noise[c] + extra[c],
            likelihood.transformed_targets[c] - offset[c],
        )
        for c in range(4)
    )
    assert (fast - dense).abs() <= 1e-9 * dense.abs()
    check(fast, dense, model)


class ExactModel(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("num_rows", [9, 30])
@pytest.mark.parametrize("likelihood", ["gaussian", "fixed", "fixed+learned"])
@pytest.mark.parametrize("kernel", [name for name in kernels() if not name.endswith(":complex")])
def test_exact_gp(kernel, likelihood, num_rows):
    x, y = torch.randn(num_rows, 3), torch.randn(num_rows)
    model = ExactModel(x, y, LIKELIHOODS[likelihood](num_rows), kernels()[kernel])
    fast = model.likelihood(model(x), x).log_prob(y)
    matrix = covariance(model.covar_module, x, x)
    dense = evidence(matrix, dense_noise(model.likelihood, num_rows), y - model.mean_module(x))
    check(fast, dense, model)


@pytest.mark.parametrize("classes", [None, 3])
def test_chunks_of_rows_do_not_change_the_gradient(monkeypatch, classes):
    x, y = torch.randn(50, 3), torch.randn(50)
    likelihood = GaussianLikelihood()
    if classes is not None:
        y = torch.arange(50) % classes
        likelihood = DirichletClassificationLikelihood(y, num_classes=classes + 1)
    model = WeightSpaceGP(kernels()["polynomial:ctr"], likelihood)
    whole = gradients(model.condition(x, y).log_marginal_likelihood(), model)
    calls = []

    def small_chunks(num_rows, *_):
        calls.append(num_rows)
        return [slice(start, start + 7) for start in range(0, num_rows, 7)]

    monkeypatch.setattr("rfgp.inference.sums.statistics.row_chunks", small_chunks)
    chunked = gradients(model.condition(x, y).log_marginal_likelihood(), model)
    assert calls
    for name in whole:
        torch.testing.assert_close(chunked[name], whole[name], rtol=1e-10, atol=1e-12)

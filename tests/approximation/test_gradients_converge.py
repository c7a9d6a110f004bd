"""Gradients in the hyperparameters converge to those of the exact kernel as D^(-1/2), but for those of Matern-1/2."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from problems import mixture, scaled

import rfgp
from rfgp.kernels import ExponentialDotProductKernel

pytestmark = pytest.mark.usefixtures("float64_default")

COLUMNS, ROWS = 2, 6
WIDTHS = (32, 512)


def points(seed):
    return 0.6 * torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed))


def gradients(kernel, parameters):
    """Of the sum of the entries of the kernel matrix, with fixed random weights."""
    weights = torch.randn(ROWS, ROWS, generator=torch.Generator().manual_seed(2))
    value = (weights * kernel(points(0), points(1)).to_dense()).sum()
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(value, parameters)])


def errors(exact, method, width, draws):
    """Differences of the gradients from the exact ones, (draws, parameters); output scales are not looked at."""
    parameters = [p for n, p in exact.named_parameters() if not n.endswith("outputscale")]
    target = gradients(exact, parameters)
    options = {"train_inputs": points(3)} if method.startswith("optimized") else {"input_dim": COLUMNS}

    def make(seed):
        return rfgp.approximate(exact, width, method=method, seed=seed, **options)

    kernel, generator, found = make(0), torch.Generator().manual_seed(width), []
    for seed in range(draws):
        # degrees are drawn when a map is made, and not again
        drawn = make(seed) if method.startswith("random_maclaurin") else kernel.resample(generator)
        found.append(gradients(drawn, parameters) - target)
    return torch.stack(found)


def slope(values, widths=WIDTHS):
    """Of the logarithm of values against the logarithm of widths, by least squares."""
    x = torch.tensor([math.log(width) for width in widths])
    y = torch.stack(list(values)).log()
    return ((x - x.mean()) @ (y - y.mean(0))) / (x - x.mean()).square().sum()


CONVERGENT = {
    "rbf": (lambda: RBFKernel(), "fourier"),
    "rbf, orthogonal": (lambda: RBFKernel(), "fourier_orthogonal"),
    "rbf, Maclaurin": (lambda: RBFKernel(), "random_maclaurin:ctr"),
    "rbf, ARD, complex": (lambda: RBFKernel(ard_num_dims=COLUMNS), "fourier:complex"),
    "matern 3/2": (lambda: MaternKernel(nu=1.5), "fourier"),
    "matern 5/2": (lambda: MaternKernel(nu=2.5), "fourier"),
    "rational quadratic": (lambda: RQKernel(), "fourier"),
    "rational quadratic, orthogonal": (lambda: RQKernel(), "fourier_orthogonal"),
    "periodic": (lambda: PeriodicKernel(), "fourier"),
    "spectral mixture": (lambda: mixture(COLUMNS), "fourier"),
    "polynomial": (lambda: PolynomialKernel(power=3), "tensor_srht"),
    "polynomial, real": (lambda: PolynomialKernel(power=3), "gaussian:real"),
    "polynomial, Maclaurin": (lambda: PolynomialKernel(power=3), "random_maclaurin:real"),
    "polynomial, optimized Maclaurin": (lambda: PolynomialKernel(power=3), "optimized_maclaurin:ctr"),
    "exponential": (lambda: ExponentialDotProductKernel(), "random_maclaurin:ctr"),
    "scaled": (lambda: scaled(RBFKernel()), "fourier"),
    "sum": (lambda: RQKernel() + ScaleKernel(MaternKernel(nu=2.5)), "fourier"),
    "product": (lambda: RBFKernel() * PeriodicKernel(), "fourier"),
}


def start(exact):
    """Parameters near one, where neither kernel nor gradients are small."""
    generator = torch.Generator().manual_seed(4)
    for parameter in exact.parameters():
        parameter.data.copy_(0.6 + 0.2 * torch.rand(parameter.shape, generator=generator))
    return exact


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize("name", CONVERGENT)
def test_gradients_converge_at_the_rate_of_monte_carlo(name):
    """Mean squares over draws fall as 1/D within four standard errors, and means are exact within five."""
    make, method = CONVERGENT[name]
    draws = 200 if method.startswith("gaussian") else 40  # their tails are heavy
    found = {width: errors(start(make()), method, width, draws) for width in WIDTHS}
    squares = [values.square().mean(-1) for values in found.values()]
    relative = [float(square.std() / square.mean()) / math.sqrt(draws) for square in squares]
    error = abs(float(slope([square.mean() for square in squares])) + 1.0)
    assert error <= 4.0 * math.hypot(*relative) / math.log(WIDTHS[1] / WIDTHS[0]) <= 0.8
    for values in found.values():
        assert (values.mean(0).abs() <= 5.0 * values.std(0) / math.sqrt(draws)).all()


def test_the_gradient_of_matern_one_half_does_not_converge():
    """Its frequencies have no mean: more features bring the gradient no closer, unlike that of Matern-3/2."""
    widths = (32, 512)

    def medians(nu):
        return [errors(start(MaternKernel(nu=nu)), "fourier", width, 120).abs().median() for width in widths]

    assert abs(float(slope(medians(0.5), widths))) <= 0.15
    assert float(slope(medians(1.5), widths)) <= -0.35


@pytest.mark.parametrize(("nu", "expected"), [(0.5, 1.0), (1.5, 0.0), (2.5, 0.0)])
@pytest.mark.long("many wide draws")
def test_second_moments_of_the_frequencies(nu, expected):
    """The variance of the gradient grows with the second moment of the frequencies, which is infinite for nu = 1/2.

    In a sample of D Student-t frequencies with 2 nu degrees of freedom it grows as D for nu = 1/2, and settles else.
    """
    widths, generator = (2**8, 2**11, 2**14), torch.Generator().manual_seed(0)
    moments = []
    for width in widths:
        kernel = rfgp.approximate(MaternKernel(nu=nu), 2 * width, input_dim=COLUMNS, method="fourier", seed=0)
        draws = [kernel.resample(generator).feature_map.get_buffer("weight").square().sum(-1).mean() for _ in range(60)]
        moments.append(torch.stack(draws).median())
    assert abs(float(slope(moments, widths)) - expected) <= 0.15

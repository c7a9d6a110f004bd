"""Gradients of feature kernels in their hyperparameters against those of the exact kernels, as features are added."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import (
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    SpectralMixtureKernel,
)

import rfgp
from rfgp.features import Laplace, Matern
from rfgp.kernels import ExponentialDotProductKernel

pytestmark = pytest.mark.usefixtures("float64_default")

WIDTHS, SEEDS = (16, 64, 256, 1024), 60
CASES = {
    "RBF": (RBFKernel, "fourier"),
    "RBF, orthogonal": (RBFKernel, "fourier_orthogonal"),
    "Matern 3/2": (lambda: MaternKernel(nu=1.5), "fourier"),
    "Matern 5/2": (lambda: MaternKernel(nu=2.5), "fourier"),
    "rational quadratic": (RQKernel, "fourier"),
    "periodic": (PeriodicKernel, "fourier"),
    "spectral mixture": (lambda: SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2), "fourier"),
    "polynomial": (lambda: PolynomialKernel(power=2), "tensor_srht"),
    "exponential": (ExponentialDotProductKernel, "random_maclaurin"),
}


def inputs():
    return torch.rand(6, 2, generator=torch.Generator().manual_seed(0))


def gradients(kernel, parameters, x, cotangent):
    value = (cotangent * kernel(x).to_dense()).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)])


@pytest.mark.parametrize("case", CASES)
def test_gradients_converge_with_the_root_of_the_width(case):
    make, method = CASES[case]
    exact, x = make(), inputs()
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(6, 6, generator=generator)
    cotangent = cotangent + cotangent.mT
    parameters = list(exact.parameters())
    wanted = gradients(exact, parameters, x, cotangent)
    log_errors = []
    for width in WIDTHS:
        squares = []
        for seed in range(SEEDS):
            kernel = rfgp.approximate(exact, width, input_dim=2, method=method, seed=1000 * width + seed)
            squares.append((gradients(kernel, parameters, x, cotangent) - wanted).square().sum())
        log_errors.append(0.5 * torch.stack(squares).mean().log())
    widths = torch.tensor(WIDTHS).double().log()
    centred = widths - widths.mean()
    slope = float((centred * torch.stack(log_errors)).sum() / centred.square().sum())
    assert abs(slope + 0.5) <= 0.12


@pytest.mark.parametrize("spectrum", [Matern(0.5), Laplace()], ids=["Matern 1/2", "Laplace"])
def test_frequencies_without_second_moments(spectrum):
    """The lengthscale gradient has the variance of the squared frequencies: it does not converge for these kernels."""
    moments = [
        spectrum.draw(width, 2, torch.Generator().manual_seed(seed))["weight"].square().sum(-1).mean()
        for seed in range(20)
        for width in (100, 100_000)
    ]
    few, many = torch.stack(moments[::2]).median(), torch.stack(moments[1::2]).median()
    assert many > 30.0 * few
    light = Matern(2.5).draw(100_000, 2, torch.Generator().manual_seed(0))["weight"].square().sum(-1).mean()
    assert abs(float(light) - 2.0 * 5.0 / 3.0) < 0.2

"""Every spectral law has the values of its exact kernel, and gives features that converge to it."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import gpytorch
import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

import rfgp.features.spectra
from rfgp.features import (
    Advected,
    Gaussian,
    HyperbolicSecant,
    Laplace,
    Matern,
    Periodic,
    PowerWeighted,
    RandomFourier,
    RationalQuadratic,
    SpectralMixture,
    Spectrum,
    TraceMeasure,
    WidenedGaussian,
)
from rfgp.features.spectra import Spherical
from rfgp.features.spectra.special_functions import gamma_root
from rfgp.kernels import AdvectedKernel, LaplaceKernel, SkewedChiSquaredKernel, SpectralDensityKernel

STANDARD_ERRORS = 5.0
DIM = 3


class Case(NamedTuple):
    """A spectrum with its parameters, the exact kernel, and the inputs of the features of points."""

    spectrum: Spectrum
    exact: gpytorch.kernels.Kernel
    inputs: Callable[[torch.Tensor], torch.Tensor] = lambda x: x / 0.8
    parameters: Mapping[str, torch.Tensor] = MappingProxyType({})
    tolerance: float = 1e-6
    factor: float = 1.0


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_lengthscale(kernel):
    kernel.lengthscale = 0.8
    return kernel


def rational_quadratic():
    exact = with_lengthscale(gpytorch.kernels.RQKernel())
    exact.alpha = 2.3
    return Case(RationalQuadratic(), exact, parameters={"alpha": exact.alpha[0].detach().double()})


def spectral_mixture():
    exact = gpytorch.kernels.SpectralMixtureKernel(num_mixtures=3, ard_num_dims=DIM).double()
    weights, means, scales = (0.2 + random(3, k, seed=k).abs() for k in (1, DIM, DIM + 1))
    means, scales = 0.2 * means, 0.1 * scales[:, :DIM]
    exact.mixture_weights, exact.mixture_means, exact.mixture_scales = weights[:, 0], means[:, None], scales[:, None]
    parameters = {"weights": weights[:, 0], "means": means, "scales": scales}
    return Case(SpectralMixture(3), exact, lambda x: x, parameters)


def advected():
    exact = AdvectedKernel(DIM - 1, ard_num_dims=DIM).double()
    exact.lengthscale = torch.tensor([[0.6, 0.9, 1.4]])
    exact.velocity, exact.spread = torch.tensor([0.7, -0.3]), torch.tensor([0.5, 0.8])
    drift = {name: value.detach() for name, value in exact.hyperparameters().items()}
    return Case(Advected(), exact, lambda x: x / exact.lengthscale.detach(), drift)


def periodic():
    exact = gpytorch.kernels.PeriodicKernel(ard_num_dims=DIM).double()
    exact.lengthscale = torch.tensor([[0.6, 1.0, 1.4]])
    exact.period_length = 1.7
    parameters = {"concentration": 1.0 / exact.lengthscale[0].detach()}
    return Case(Periodic(), exact, lambda x: 2.0 * math.pi * x / 1.7, parameters)


def hyperbolic_secant():
    exact = SkewedChiSquaredKernel(4.0)
    return Case(HyperbolicSecant(), exact, exact.scaled)


def spherical():
    exact = gpytorch.kernels.PolynomialKernel(power=3)
    exact.offset = 1.0
    spectrum = Spherical(3, 2.0, DIM)
    return Case(spectrum, exact, lambda x: x, tolerance=1.05 * spectrum.fit_error, factor=0.125)


def trace_measure():
    def density(w):
        normal = torch.exp(-0.5 * w.square().sum(-1)) / (2.0 * math.pi) ** (0.5 * DIM)
        return normal[:, None, None].to(w)

    exact = SpectralDensityKernel(density, DIM, 1.5)
    exact.lengthscale = 0.8
    return Case(TraceMeasure(density, DIM, 1.5), exact, tolerance=1e-5)


def rbf():
    return with_lengthscale(gpytorch.kernels.RBFKernel())


def matern(nu):
    return with_lengthscale(gpytorch.kernels.MaternKernel(nu=nu))


CASES = {
    "Gaussian": lambda: Case(Gaussian(), rbf()),
    "Matern, 1/2": lambda: Case(Matern(0.5), matern(0.5)),
    "Matern, 3/2": lambda: Case(Matern(1.5), matern(1.5)),
    "Matern, 5/2": lambda: Case(Matern(2.5), matern(2.5)),
    "RationalQuadratic": rational_quadratic,
    "Laplace": lambda: Case(Laplace(), with_lengthscale(LaplaceKernel())),
    "HyperbolicSecant": hyperbolic_secant,
    "SpectralMixture": spectral_mixture,
    "Periodic": periodic,
    "Advected": advected,
    "Spherical": spherical,
    "PowerWeighted": lambda: Case(PowerWeighted(), rbf()),
    "PowerWeighted, Matern": lambda: Case(PowerWeighted(Matern(2.5), (0, 1)), matern(2.5)),
    "WidenedGaussian": lambda: Case(WidenedGaussian(), rbf()),
    "TraceMeasure": trace_measure,
}
every_case = pytest.mark.parametrize("name", CASES)


def spectra(cls=Spectrum):
    for child in cls.__subclasses__():
        yield from spectra(child)
        if not inspect.isabstract(child) and child.__module__.startswith("rfgp."):
            yield child


def points(num_rows, seed=0):
    """Inputs on the unit sphere, which are in the domain of every kernel."""
    return torch.nn.functional.normalize(random(num_rows, DIM, seed=seed), dim=-1)


def dense(case, x, y):
    return case.factor * case.exact.double()(x, y).to_dense().detach()


def test_every_spectrum_has_a_case():
    for module in pkgutil.walk_packages(rfgp.features.spectra.__path__, "rfgp.features.spectra."):
        importlib.import_module(module.name)
    assert {type(make().spectrum) for make in CASES.values()} == set(spectra())


@pytest.mark.smoke
@every_case
def test_values_are_those_of_the_exact_kernel(name):
    case = CASES[name]()
    x, y = points(6), torch.cat([points(1), points(4, seed=1)])
    values = case.spectrum.kernel(case.inputs(x), case.inputs(y), **case.parameters)
    torch.testing.assert_close(values, dense(case, x, y), rtol=0.0, atol=case.tolerance)


@every_case
@pytest.mark.parametrize("is_complex", [False, True])
def test_features_converge_to_the_exact_kernel(name, is_complex):
    case, width = CASES[name](), 20000
    generator = torch.Generator().manual_seed(0)
    features = RandomFourier(DIM, width, case.spectrum, is_complex=is_complex, generator=generator).double()
    x, y = points(3), points(4, seed=1)
    left, right = (features(case.inputs(z), **case.parameters) for z in (x, y))
    products = left.unsqueeze(-2) * right.unsqueeze(-3).conj()
    if not is_complex:
        products = products.unflatten(-1, (2, -1)).sum(-2)
    samples = (products * products.shape[-1]).real
    error = (samples.mean(-1) - dense(case, x, y)).abs()
    assert (error <= STANDARD_ERRORS * samples.std(-1) / math.sqrt(samples.shape[-1]) + case.tolerance).all()


DENSITIES = {
    "gaussian": (Gaussian(), {}, 8.0),
    "matern 3/2": (Matern(1.5), {}, 400.0),
    "rational quadratic": (RationalQuadratic(), {"alpha": torch.tensor(2.5, dtype=torch.float64)}, 16.0),
    "laplace": (Laplace(), {}, 4000.0),
    "hyperbolic secant": (HyperbolicSecant(), {}, 16.0),
    "spectral mixture": (SpectralMixture(2), {}, 16.0),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_the_fourier_transform_of_a_density_is_the_kernel(name):
    spectrum, parameters, edge = DENSITIES[name]
    x, step = torch.tensor([[0.3], [1.0], [2.5]], dtype=torch.float64), 0.04
    w = torch.arange(-edge, edge + 0.5 * step, step, dtype=torch.float64).unsqueeze(-1)
    found = step * torch.cos(x @ w.mT) @ spectrum.density_at(w, **parameters)
    wanted = spectrum.kernel(x, torch.zeros_like(x[:1]), **parameters).squeeze(-1)
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-4)
    if name in ("gaussian", "rational quadratic"):  # three dimensions
        axis = torch.arange(-8.0, 8.2, 0.4, dtype=torch.float64)
        grid = torch.cartesian_prod(axis, axis, axis)
        total = 0.4**3 * spectrum.density_at(grid, **parameters).sum()
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0.0, atol=1e-2)


@pytest.mark.parametrize("alpha", [2e-4, 0.02, 0.5, 3.0, 4e3])
def test_slopes_of_gamma_roots_are_those_of_the_implicit_function(alpha):
    """d q / d alpha = -(dP / d alpha) / p at the quantile q, by differences of P in its own unit."""
    quantile = alpha + np.array([-0.7, 0.1, 2.0]) * np.sqrt(alpha) if alpha > 1.0 else np.array([1e-3, 0.1, 2.0])
    uniform = torch.from_numpy(scipy.special.gammainc(alpha, quantile))
    shape = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    root = gamma_root(shape, uniform)
    np.testing.assert_allclose(root.detach().square(), quantile, rtol=1e-9)
    step = 1e-5 * alpha
    change = scipy.special.gammainc(alpha + step, quantile) - scipy.special.gammainc(alpha - step, quantile)
    wanted = -change / (2.0 * step) / scipy.stats.gamma.pdf(quantile, alpha) / (2.0 * np.sqrt(quantile))
    found = [float(torch.autograd.grad(value, shape, retain_graph=True)[0]) for value in root]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)

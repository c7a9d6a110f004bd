"""Frequencies from scrambled Sobol points: strata, laws, and errors below those of independent frequencies."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import rfgp
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
    TraceMeasure,
    WidenedGaussian,
)
from rfgp.features.spectra import Spherical
from rfgp.linalg import sampling

SPECTRA = [Gaussian(), Matern(0.5), Matern(2.5), RationalQuadratic(1.3), Laplace(), HyperbolicSecant(), Periodic()]
SPECTRA += [SpectralMixture(2), Advected(), PowerWeighted(Matern(2.5), (0, 1)), WidenedGaussian()]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def mean_squared_error(features, x, draws=20):
    target, errors = features.target(x, x), []
    for seed in range(draws):
        rows = features.resample(seeded(seed))(x)
        errors.append((rows @ rows.mH - target).abs().square().mean())
    return float(torch.stack(errors).mean())


def test_every_stratum_has_one_point():
    points = sampling.sobol(64, 5, seeded(0))
    strata = (64.0 * points).long().sort(dim=0).values
    assert torch.equal(strata, torch.arange(64)[:, None].expand(64, 5))


def test_draws_pair_at_random():
    """Products of features of two draws converge: the order of one has nothing to do with that of the other."""
    signs = [(sampling.sobol(256, 1, seeded(seed)) - 0.5).sign() for seed in range(200)]
    means = torch.stack([(left * right).mean() for left, right in zip(signs[::2], signs[1::2], strict=True)])
    assert float(means.square().mean()) < 2.0 / 256  # one, if each sign said which the other is


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("spectrum", SPECTRA, ids=str)
def test_errors_are_below_those_of_independent_frequencies(spectrum, is_complex):
    x = torch.randn(20, 2, generator=seeded(1), dtype=torch.float64)
    errors = [
        mean_squared_error(RandomFourier(2, 512, spectrum, structure, is_complex, dtype=torch.float64), x)
        for structure in ("qmc", "independent")
    ]
    assert errors[0] < errors[1] / 3.0


@pytest.mark.parametrize("spectrum", [Spherical(3, 2.0, 2), TraceMeasure(lambda w: torch.exp(-w * w)[..., None], 1)])
def test_laws_without_quantiles(spectrum):
    with pytest.raises(ValueError, match=r'expected a spectrum with inverse distribution functions for qmc.*"fourier"'):
        RandomFourier(2, 8, spectrum, "qmc")
    with pytest.raises(ValueError, match=r'expected a spectrum with inverse distribution functions for qmc.*"fourier"'):
        spectrum.from_uniforms(torch.rand(4, 2))


@pytest.mark.parametrize("exact", [RBFKernel(), MaternKernel(1.5)], ids=["Gaussian", "Matern"])
def test_the_best_of_random_features_for_one_input(exact):
    x = torch.rand(100, 1, generator=seeded(0), dtype=torch.float64)
    exact = exact.double()
    exact.lengthscale = 0.2
    methods = ["fourier", "fourier_orthogonal", "fourier_qmc"]
    best = rfgp.rank_methods(exact, 64, x, methods=methods)[0]
    assert best.method == "fourier_qmc" and best.error.standard_error > 0.0


def test_many_inputs_do_without_it():
    methods = [[str(m) for m in rfgp.approximation.family(RBFKernel()).applicable(dim)] for dim in (8, 9)]
    assert ["fourier_qmc" in names for names in methods] == [True, False]
    assert rfgp.approximate(RBFKernel(), 8, method="fourier_qmc", input_dim=40)(torch.rand(3, 40)).shape == (3, 3)

"""Spherical Fourier features: the Bessel function, the fit of the polynomial kernel, and inputs on the sphere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.special
import torch

from rfgp.features import SphericalFourier
from rfgp.features.spectra import Spherical
from rfgp.features.spectra.sphere_mixture import fit_mixture, sphere_mean

STANDARD_ERRORS = 5.0
DIMENSIONS = (2, 16, 128, 1024, 10000)
FITS = list(itertools.product((3, 10, 20), (2.0, 4.0), DIMENSIONS))


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def on_sphere(num_rows, dim, seed=0):
    x = torch.randn(num_rows, dim, generator=seeded(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1)


def lambda_by_quadrature(dim, r):
    """The mean of cos(r u) over the first coordinate u = sin t of a uniform direction."""
    if dim <= 3:
        return {1: np.cos, 2: scipy.special.j0, 3: lambda z: np.sinc(z / math.pi)}[dim](r)
    angle = np.linspace(-0.5 * math.pi, 0.5 * math.pi, 4001)[1:-1]
    density = np.exp((dim - 2) * np.log(np.cos(angle)))
    return np.cos(r[:, None] * np.sin(angle)) @ density / density.sum()


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 16, 33, 127, 128, 129, 130, 200, 341, 342, 784, 1024, 4096, 10000])
def test_lambda_against_quadrature(dim):
    r = np.concatenate([[0.0, 1e-8, 1e-3], np.linspace(0.1, 30.0 * math.sqrt(dim), 200)])
    bound = 1e-10 if dim <= 128 else 1e-5
    assert np.abs(sphere_mean(dim, r) - lambda_by_quadrature(dim, r)).max() <= bound


@pytest.mark.parametrize("dim", [2, 3, 7, 32, 100])
def test_lambda_against_the_bessel_function(dim):
    r, order = np.linspace(0.5, 10.0 * math.sqrt(dim), 100), 0.5 * dim - 1.0
    log_scale = scipy.special.gammaln(0.5 * dim) + order * np.log(2.0 / r)
    expected = np.exp(log_scale) * scipy.special.jv(order, r)
    np.testing.assert_allclose(sphere_mean(dim, r), expected, rtol=0.0, atol=1e-10)


def mixture(radii, shares, dim, distance):
    return sum(share * sphere_mean(dim, radius * distance) for radius, share in zip(radii, shares, strict=True))


@pytest.mark.parametrize(("degree", "a", "dim"), FITS)
def test_fit_is_a_mixture_as_close_as_it_says(degree, a, dim):
    radii, shares, error = fit_mixture(degree, a, dim)
    assert np.isfinite(radii).all() and (radii >= 0.0).all() and len(radii) == len(shares) >= 1
    assert (shares > 0.0).all() and abs(shares.sum() - 1.0) <= 1e-12
    distance = np.linspace(0.0, 2.0, 3001)
    measured = np.abs(mixture(radii, shares, dim, distance) - (1.0 - (distance / a) ** 2) ** degree).max()
    assert 0.999 * error <= measured <= 1.2 * error and Spherical(degree, a, dim).fit_error == error


@pytest.mark.parametrize("dim", [128, 1024, 10000])
def test_fit_is_the_better_the_larger_the_degree(dim):
    errors = [Spherical(degree, 4.0, dim).fit_error for degree in (3, 10, 20)]
    assert errors[0] > errors[1] > errors[2]


def test_fit_is_cached():
    first = fit_mixture(3, 2.5, 7)
    hits = fit_mixture.cache_info().hits
    assert Spherical(3, 2.5, 7).fit_error == first[2]
    assert SphericalFourier(7, 8, 3, 2.5).fit_error == first[2]
    assert fit_mixture.cache_info().hits >= hits + 2 and fit_mixture(3, 2.5, 7)[0] is first[0]


def test_radii_are_drawn_with_their_shares():
    spectrum = Spherical(3, 2.0, 3)
    radii, shares, _ = fit_mixture(3, 2.0, 3)
    draws = spectrum.radius(20000, 3, seeded(0))
    assert set(draws.tolist()) <= set(radii.tolist())
    for radius, share in zip(radii, shares, strict=True):
        standard_error = math.sqrt(share * (1.0 - share) / 20000)
        assert abs(float((draws == radius).double().mean()) - share) <= STANDARD_ERRORS * standard_error + 1e-4


@pytest.mark.parametrize("structure", ["independent", "orthogonal", "hadamard"])
@pytest.mark.parametrize(("degree", "a", "dim"), [(3, 2.0, 5), (10, 4.0, 5), (20, 2.0, 16), (3, 4.0, 130)])
def test_target_is_within_the_fit_error_of_the_polynomial(degree, a, dim, structure):
    features = SphericalFourier(dim, 8, degree, a, structure, generator=seeded(0)).double()
    x = on_sphere(20, dim)
    x = torch.cat([x, -x])
    polynomial = features.polynomial(x, x)
    nu, gamma = 1.0 - 2.0 / a**2, 2.0 / a**2
    torch.testing.assert_close(polynomial, (nu + gamma * x @ x.mT) ** degree, rtol=0.0, atol=1e-7)
    assert (features.target(x, x) - polynomial).abs().max() <= 1.05 * features.fit_error + 1e-7
    assert not features.is_unbiased and features.spectrum.dim == (
        features.padded_dim if structure == "hadamard" else dim
    )


@pytest.mark.parametrize("structure", ["independent", "orthogonal"])
def test_many_features_approach_the_polynomial(structure):
    features = SphericalFourier(6, 40000, 10, 2.0, structure, generator=seeded(1)).double()
    x = on_sphere(8, 6)
    rows = features(x)
    bound = features.fit_error + STANDARD_ERRORS * math.sqrt(2.0 / 40000)
    assert (rows @ rows.mT - features.polynomial(x, x)).abs().max() <= bound


@pytest.mark.parametrize("is_complex", [False, True])
def test_inputs_off_the_sphere_raise(is_complex):
    features = SphericalFourier(4, 8, 3, 2.0, is_complex=is_complex).double()
    x = on_sphere(3, 4)
    features((1.0 + 5e-5) * x)
    for wrong in (1.01 * x, 0.99 * x, 0.0 * x, torch.full_like(x, math.nan)):
        with pytest.raises(ValueError, match="expected x on the unit sphere"):
            features(wrong)
        with pytest.raises(ValueError, match="expected y on the unit sphere"):
            features.target(x, wrong)
        with pytest.raises(ValueError, match="expected y on the unit sphere"):
            features.polynomial(x, wrong)


def test_single_precision_inputs_are_on_the_sphere():
    features = SphericalFourier(784, 8, 3, 2.0)
    x = torch.nn.functional.normalize(torch.randn(50, 784, generator=seeded(0)), dim=-1)
    assert torch.isfinite(features(x)).all()


@pytest.mark.parametrize("a", [1.99, 0.0, -4.0, math.nan])
def test_radii_below_two_raise(a):
    with pytest.raises(ValueError, match="expected a of at least 2"):
        SphericalFourier(3, 8, 3, a)


@pytest.mark.parametrize("degree", [0, -1, 1.5, True])
def test_wrong_degrees_raise(degree):
    with pytest.raises(ValueError, match="expected a positive integer for degree"):
        SphericalFourier(3, 8, degree, 2.0)

"""Fourier features: spectral laws, their kernels and parameters, and orthogonal frequencies."""

from __future__ import annotations

import functools
import math

import pytest
import scipy.linalg
import scipy.special
import scipy.stats
import torch

from rfgp.features import (
    Gaussian,
    HyperbolicSecant,
    Laplace,
    Matern,
    Periodic,
    RandomFourier,
    RationalQuadratic,
    SpectralMixture,
)
from rfgp.features.fourier import _orthogonal_pair
from rfgp.features.spectra import IsotropicSpectrum
from rfgp.features.spectra.sphere_mixture import sphere_mean

STANDARD_ERRORS = 5.0
EXACT = {"rtol": 0.0, "atol": 1e-12}
MATERN = (0.5, 1.5, 2.5)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def points(num_rows, dim, seed=0):
    return torch.randn(num_rows, dim, generator=seeded(seed), dtype=torch.float64)


def mixture(dim, *batch):
    """Parameters of a spectral mixture of three components, by name."""
    weights, means, scales = (torch.rand(*batch, 3, k, generator=seeded(k), dtype=torch.float64) for k in (1, dim, dim))
    return {"weights": 0.2 + weights[..., 0], "means": 0.3 * means, "scales": 0.1 + 0.2 * scales}


every_dimension = pytest.mark.parametrize("dim", [1, 3])


@every_dimension
@pytest.mark.parametrize(
    ("spectrum", "function"),
    [
        (Laplace(), lambda difference: math.exp(-sum(abs(t) for t in difference))),
        (HyperbolicSecant(), lambda difference: math.prod(1.0 / math.cosh(0.5 * t) for t in difference)),
        (RationalQuadratic(0.7), lambda difference: (1.0 + sum(t * t for t in difference) / 1.4) ** -0.7),
        (Periodic(), lambda difference: math.exp(-sum(1.0 - math.cos(t) for t in difference))),
        (SpectralMixture(2), lambda tau: math.prod(math.exp(-0.5 * t * t) * math.cos(2 * math.pi * t) for t in tau)),
    ],
    ids=["Laplace", "HyperbolicSecant", "RationalQuadratic", "Periodic", "SpectralMixture"],
)
def test_kernel_equals_its_formula(spectrum, function, dim):
    x, y = points(6, dim), torch.cat([points(1, dim), points(4, dim, seed=1)])
    expected = torch.tensor([[function((a - b).tolist()) for b in y] for a in x], dtype=torch.float64)
    torch.testing.assert_close(spectrum.kernel(x, y), expected, **EXACT)


def spectrum_cases(dim, *batch):
    """By name: a spectrum with its parameters, of a batch shape where there are some."""
    scale = 1.0 + torch.rand(batch, generator=seeded(4), dtype=torch.float64)
    cases = {str(s): (s, {}) for s in (Gaussian(), *map(Matern, MATERN), Laplace(), HyperbolicSecant())}
    cases["rational quadratic"] = (RationalQuadratic(), {"alpha": 0.6 * scale})
    cases["spectral mixture"] = (SpectralMixture(3), mixture(dim, *batch))
    concentration = scale[..., None] * torch.linspace(0.5, 1.5, dim, dtype=torch.float64)
    cases["periodic"] = (Periodic(), {"concentration": concentration})
    return cases


every_spectrum = pytest.mark.parametrize("name", spectrum_cases(1))
parametric = pytest.mark.parametrize(
    "name", [name for name, (_, hyperparameters) in spectrum_cases(1).items() if hyperparameters]
)


@every_dimension
@every_spectrum
def test_kernel_of_a_factor_is_that_of_scaled_inputs(name, dim):
    spectrum, hyperparameters = spectrum_cases(dim)[name]
    x, y = points(4, dim), points(3, dim, seed=1)
    expected = spectrum.kernel(2.0 * x, 2.0 * y, **hyperparameters)
    torch.testing.assert_close(spectrum.kernel(x, y, 2.0, **hyperparameters), expected, **EXACT)


@every_dimension
@every_spectrum
def test_kernel_of_a_point_with_itself(name, dim):
    spectrum, hyperparameters = spectrum_cases(dim, 2)[name]
    x = points(4, dim)
    diagonal = spectrum.kernel(x, x, **hyperparameters).diagonal(dim1=-2, dim2=-1).reshape(-1, 4)
    zero = torch.as_tensor(spectrum.at_zero(**hyperparameters), dtype=torch.float64).reshape(-1, 1)
    torch.testing.assert_close(diagonal, zero.expand_as(diagonal), **EXACT)


@every_spectrum
def test_kernel_of_distant_points_is_finite_and_differentiable(name):
    spectrum, hyperparameters = spectrum_cases(2)[name]
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1e4, -1e4]], dtype=torch.float64).requires_grad_()
    kernel = spectrum.kernel(x, x, **hyperparameters)
    kernel.sum().backward()
    assert torch.isfinite(kernel).all() and torch.isfinite(x.grad).all()


@every_dimension
@every_spectrum
def test_frequencies_have_the_characteristic_function(name, dim):
    spectrum, hyperparameters = spectrum_cases(dim)[name]
    frequencies, amplitude = spectrum.frequencies(spectrum.draw(20000, dim, seeded(5)), **hyperparameters)
    assert frequencies.shape == (20000, dim)
    shift = points(6, dim, seed=2)
    weights = torch.ones(20000, dtype=torch.float64) if amplitude is None else amplitude.square()
    expected = spectrum.kernel(torch.zeros(1, dim, dtype=torch.float64), shift, **hyperparameters)[0]
    phases = frequencies @ shift.mT
    for samples, mean in [(phases.cos(), expected), (phases.sin(), torch.zeros_like(expected))]:
        samples = samples * weights[:, None]
        error = (samples.mean(0) - mean).abs()
        assert (error <= STANDARD_ERRORS * samples.std(0) / math.sqrt(len(samples))).all()


COORDINATE_LAWS = {Gaussian(): scipy.stats.norm, Laplace(): scipy.stats.cauchy}
COORDINATE_LAWS |= {Matern(nu): scipy.stats.t(2.0 * nu) for nu in MATERN}
COORDINATE_LAWS |= {HyperbolicSecant(): scipy.stats.hypsecant(scale=1.0 / math.pi)}


@every_dimension
@pytest.mark.parametrize("spectrum", COORDINATE_LAWS, ids=str)
def test_law_of_one_coordinate(spectrum, dim):
    frequencies, amplitude = spectrum.frequencies(spectrum.draw(20000, dim, seeded(6)))
    assert amplitude is None
    for column in frequencies.mT:
        assert scipy.stats.kstest(column.numpy(), COORDINATE_LAWS[spectrum].cdf).pvalue >= 1e-3


def test_coordinates_of_a_mixture_are_independent():
    frequencies, _ = SpectralMixture(1).frequencies(SpectralMixture(1).draw(20000, 2, seeded(6)))
    distribution = scipy.stats.foldnorm(2.0 * math.pi)
    assert all(scipy.stats.kstest(column.abs().numpy(), distribution.cdf).pvalue >= 1e-3 for column in frequencies.mT)
    signs = frequencies.sign().prod(-1)
    assert signs.mean().abs() <= STANDARD_ERRORS / math.sqrt(20000)


def features_of(name, dim, width=8, seed=0, is_complex=False, batch=()):
    spectrum, hyperparameters = spectrum_cases(dim, *batch)[name]
    return RandomFourier(dim, width, spectrum, is_complex=is_complex, generator=seeded(seed)).double(), hyperparameters


def test_gradient_in_alpha_is_that_of_implicit_differentiation():
    base = RationalQuadratic().draw(300, 2, seeded(0))
    for value in (0.3, 1.0, 4.0, 30.0):
        alpha = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        frequencies, _ = RationalQuadratic().frequencies(base, alpha=alpha)
        (gradient,) = torch.autograd.grad(frequencies.norm(dim=-1).sum(), alpha)
        quantile = torch.as_tensor(scipy.special.gammaincinv(value, base["uniform"].numpy()))
        slope = torch._standard_gamma_grad(torch.full_like(quantile, value), quantile)
        root = (quantile / value).sqrt()
        expected = (base["weight"].norm(dim=-1) * (slope / value - quantile / value**2) / (2.0 * root)).sum()
        torch.testing.assert_close(gradient, expected, rtol=2e-3, atol=0.0)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_gradcheck_in_alpha(shape):
    features, x = RandomFourier(2, 6, RationalQuadratic(), generator=seeded(1)).double(), points(2, 2)
    alpha = (0.2 + torch.rand(shape, generator=seeded(2), dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda alpha: features(x, alpha=alpha), (alpha,))


@parametric
@every_dimension
def test_parameters_have_unbiased_gradients(name, dim):
    """The mean gradient of kernel estimates is the gradient of the kernel, in standard errors that resolve it."""
    features, hyperparameters = features_of(name, dim, width=64)
    x, y = torch.zeros(1, dim, dtype=torch.float64), torch.linspace(0.7, 0.3, dim, dtype=torch.float64)[None]
    if name == "rational quadratic":
        y = 2.0 * y
    hyperparameters = {key: value.clone().requires_grad_() for key, value in hyperparameters.items()}

    def gradient(kernel):
        return torch.cat([part.flatten() for part in torch.autograd.grad(kernel.sum(), list(hyperparameters.values()))])

    exact = gradient(features.target(x, y, **hyperparameters))
    generator, samples = seeded(7), []
    for _ in range(250):
        features.resample(generator)
        samples.append(gradient(features(x, **hyperparameters) @ features(y, **hyperparameters).mT))
    samples = torch.stack(samples)
    standard_errors = samples.std(0) / math.sqrt(len(samples))
    assert ((samples.mean(0) - exact).abs() <= STANDARD_ERRORS * standard_errors).all()
    sizes = [value.numel() for value in hyperparameters.values()]
    for part, error in zip(exact.split(sizes), standard_errors.split(sizes), strict=True):
        assert (part.abs() >= STANDARD_ERRORS * error).any()
        assert len(part) < 3 or part.max() - part.min() >= STANDARD_ERRORS * error.max()


@parametric
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_batch_of_parameters_equals_loop(name, is_complex, needs_gradient):
    features, hyperparameters = features_of(name, 2, is_complex=is_complex, batch=(3,))
    hyperparameters = {key: value.requires_grad_(needs_gradient) for key, value in hyperparameters.items()}
    x, batch = points(5, 2), torch.stack([points(5, 2, seed=seed) for seed in range(3)])
    for values in (x, batch):
        result = features(values, **hyperparameters)
        assert result.shape == (3, 5, 8) and result.requires_grad == needs_gradient
        for i in range(3):
            one = {key: value[i] for key, value in hyperparameters.items()}
            row = values if values.dim() == 2 else values[i]
            torch.testing.assert_close(result[i], features(row, **one), **EXACT)
            target = features.target(values, x, **hyperparameters)[i]
            torch.testing.assert_close(target, features.target(row, x, **one), **EXACT)
            for part, single in zip(
                features.moments(values, x, **hyperparameters), features.moments(row, x, **one), strict=True
            ):
                torch.testing.assert_close(part[i], single, **EXACT)


def test_parameters_override_those_of_the_spectrum():
    features = RandomFourier(2, 8, RationalQuadratic(0.7), generator=seeded(0)).double()
    x = points(4, 2)
    alpha = torch.tensor(0.7, dtype=torch.float64)
    torch.testing.assert_close(features(x), features(x, alpha=alpha), **EXACT)
    torch.testing.assert_close(features.target(x, x), features.target(x, x, alpha=alpha), **EXACT)
    assert (features(x) - features(x, alpha=2.0 * alpha)).abs().max() > 0.01


@pytest.mark.parametrize("alpha", [0.01, 0.05, 1.0, 1e5])
def test_gradient_in_alpha_is_finite_in_single_precision(alpha):
    features = RandomFourier(2, 4000, RationalQuadratic(), generator=seeded(0))
    alpha = torch.tensor(alpha, requires_grad=True)
    features(points(3, 2).float(), alpha=alpha).sum().backward()
    assert torch.isfinite(alpha.grad)


@parametric
@pytest.mark.parametrize("level", [2.0**-53, 1.0])
def test_uniform_draws_may_be_rounded_to_one(name, level):
    features, hyperparameters = features_of(name, 2)
    features = features.float()
    features.uniform.fill_(level)
    hyperparameters = {key: value.float().requires_grad_() for key, value in hyperparameters.items()}
    result = features(points(3, 2).float(), **hyperparameters)
    result.sum().backward()
    assert torch.isfinite(result).all() and all(torch.isfinite(value.grad).all() for value in hyperparameters.values())


def independent_variance(kernel, twice, width, is_complex):
    """T 2.1: the variance and pseudo-variance with ``width`` independent frequencies, and k(0) = 1."""
    variance, pseudo_variance = (1.0 - kernel**2) / width, (twice - kernel**2) / width
    return (variance, pseudo_variance) if is_complex else 2 * (0.5 * (variance + pseudo_variance),)


@pytest.mark.parametrize("is_complex", [False, True])
def test_moments_of_independent_frequencies(is_complex):
    x, y = points(4, 3), points(3, 3, seed=1)
    square = torch.cdist(x, y).square()
    features = RandomFourier(3, 10, is_complex=is_complex).double()
    kernel, twice = torch.exp(-0.5 * square), torch.exp(-2.0 * square)
    expected = independent_variance(kernel, twice, 10 if is_complex else 5, is_complex)
    for part, wanted in zip(features.moments(x, y), expected, strict=True):
        torch.testing.assert_close(part, wanted, **EXACT)


def test_moments_of_a_mixture_scale_with_its_weights():
    features, hyperparameters = features_of("spectral mixture", 2)
    x, y = points(4, 2), points(3, 2, seed=1)
    total = hyperparameters["weights"].sum()
    unit = features.moments(x, y, **hyperparameters | {"weights": hyperparameters["weights"] / total})
    scaled = features.moments(x, y, **hyperparameters)
    torch.testing.assert_close(scaled.variance, total**4 * unit.variance, **EXACT)


@pytest.mark.parametrize("structure", ["independent", "orthogonal"])
@pytest.mark.parametrize("is_complex", [False, True])
def test_error_falls_with_the_root_of_the_width(structure, is_complex):
    widths, generator, log_errors = [8, 32, 128, 512], seeded(31), []
    x = points(6, 4, seed=4)
    for width in widths:
        features = RandomFourier(4, width, structure=structure, is_complex=is_complex).double()
        target, squares = features.target(x, x), []
        for _ in range(100):
            rows = features.resample(generator)(x)
            squares.append((rows @ rows.mH - target).abs().square().mean())
        log_errors.append(0.5 * torch.stack(squares).mean().log())
    log_widths = torch.tensor(widths, dtype=torch.float64).log()
    centered = log_widths - log_widths.mean()
    slope = float((centered * torch.stack(log_errors)).sum() / centered.square().sum())
    assert abs(slope + 0.5) <= 0.1


def test_no_moments_where_there_is_no_closed_form():
    x = points(2, 3)
    assert RandomFourier(3, 8, Matern(1.5), "orthogonal").double().moments(x, x) is None
    assert RandomFourier(3, 8, Gaussian(), "hadamard").double().moments(x, x) is None
    assert RandomFourier(3, 8, Gaussian(), "qmc").double().moments(x, x) is None
    assert RandomFourier(3, 8, Matern(1.5)).double().moments(x, x) is not None


isotropic = pytest.mark.parametrize("spectrum", [Gaussian(), Matern(1.5), Matern(2.5)], ids=str)


@isotropic
@pytest.mark.parametrize(("dim", "width"), [(1, 4), (3, 9), (5, 12), (8, 3)])
def test_orthogonal_frequencies_are_orthogonal_within_blocks(spectrum, dim, width):
    features = RandomFourier(dim, width, spectrum, "orthogonal", is_complex=True, generator=seeded(0)).double()
    for block in features.weight.split(dim):
        cosines = torch.nn.functional.normalize(block, dim=-1)
        torch.testing.assert_close(
            cosines @ cosines.mT, torch.eye(len(block), dtype=torch.float64), rtol=0.0, atol=1e-6
        )


@isotropic
@pytest.mark.parametrize("structure", ["independent", "orthogonal", "hadamard", "qmc"])
def test_norms_of_frequencies_have_the_right_law(spectrum, structure):
    """They are chi, or the root of d times an F variable for Student's t frequencies, and independent."""
    features = RandomFourier(4, 20000, spectrum, structure, is_complex=True, generator=seeded(3)).double()
    norms = features.weight.norm(dim=-1)
    if isinstance(spectrum, Gaussian):
        assert scipy.stats.kstest(norms.numpy(), scipy.stats.chi(4).cdf).pvalue >= 1e-3
    else:
        distribution = scipy.stats.f(4, 2.0 * spectrum.nu)
        assert scipy.stats.kstest((norms.square() / 4.0).numpy(), distribution.cdf).pvalue >= 1e-3
    levels = norms.argsort().argsort() / 20000.0
    products = (levels[1:] - 0.5) * (levels[:-1] - 0.5)
    assert products.mean().abs() <= STANDARD_ERRORS * products.std() / math.sqrt(len(products))


@functools.cache
def pair_by_quadrature(dim, distance):
    """The mean of Lambda_d(R tau) over R, a chi variable of 2 d degrees: orthogonal w and v, and R = |w - v|."""
    levels = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000.0
    radii = (2.0 * scipy.special.gammaincinv(dim, levels.numpy())) ** 0.5
    return float(sphere_mean(dim, radii * distance).mean())


@pytest.mark.parametrize("dim", [2, 3, 8, 64, 128, 784])
def test_covariance_of_orthogonal_frequencies_against_quadrature(dim):
    distance = torch.tensor([0.0, 0.3, 1.0, 2.0, 3.0], dtype=torch.float64)
    expected = torch.tensor([pair_by_quadrature(dim, float(t)) for t in distance], dtype=torch.float64)
    pair = _orthogonal_pair(torch.exp(-0.5 * distance.square()), dim)
    torch.testing.assert_close(pair, expected, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("dim", [2, 8])
def test_covariance_of_orthogonal_frequencies_against_simulation(dim):
    features = RandomFourier(dim, 4000 * dim, structure="orthogonal", is_complex=True, generator=seeded(9)).double()
    for distance in (0.5, 1.5, 3.0):
        shift = distance * torch.nn.functional.normalize(torch.ones(dim, dtype=torch.float64), dim=0)
        waves = torch.polar(torch.ones_like(features.weight[:, 0]), features.weight @ shift).unflatten(0, (4000, dim))
        samples = (waves.sum(-1).abs().square() - dim) / (dim * (dim - 1))
        expected = _orthogonal_pair(torch.tensor(math.exp(-0.5 * distance**2), dtype=torch.float64), dim)
        assert (samples.mean() - expected).abs() <= STANDARD_ERRORS * samples.std() / math.sqrt(len(samples))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 3, 128, 784, 1000])
def test_moments_of_orthogonal_frequencies_are_finite(dim, dtype):
    features = RandomFourier(dim, 2 * dim + 2, structure="orthogonal").to(dtype)
    shift = torch.tensor([0.0, 0.1, 1.0, 5.0, 20.0, 100.0], dtype=dtype)[:, None] / math.sqrt(dim)
    for part in features.moments(torch.zeros(1, dim, dtype=dtype), shift.expand(-1, dim)):
        assert torch.isfinite(part).all() and part.min() >= -1e-6 and part.max() <= 1.0


def test_orthogonal_frequencies_have_the_smaller_variance_nearby():
    x, y = torch.zeros(1, 16, dtype=torch.float64), 0.25 * points(20, 16)
    independent, orthogonal = (RandomFourier(16, 32, structure=kind).double() for kind in ("independent", "orthogonal"))
    assert (orthogonal.moments(x, y).variance < independent.moments(x, y).variance).all()


@pytest.mark.parametrize("spectrum", [Gaussian(), Matern(1.5), RationalQuadratic(1.3)], ids=str)
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(("dim", "frequencies"), [(1, 3), (3, 6), (4, 8), (5, 20), (16, 5)])
def test_hadamard_frequencies_are_rows_of_three_dense_products(dim, frequencies, is_complex, spectrum):
    width = frequencies if is_complex else 2 * frequencies
    features = RandomFourier(dim, width, spectrum, "hadamard", is_complex, generator=seeded(0)).double()
    padded = features.padded_dim
    hadamard = torch.tensor(scipy.linalg.hadamard(padded), dtype=torch.float64) / math.sqrt(padded)
    blocks = []
    for first, second, third in features.signs.movedim(-1, 0):
        blocks.append(hadamard @ third.diag() @ hadamard @ second.diag() @ hadamard @ first.diag())
    draws = {name: buffer for name, buffer in features.named_buffers() if name != "signs"}
    radii, _ = spectrum.frequencies(draws)
    w = radii * torch.cat(blocks)[:frequencies, :dim]
    x = points(7, dim)
    phases = x @ w.mT
    parts = torch.cat([phases.cos(), phases.sin()], dim=-1) / math.sqrt(frequencies)
    expected = torch.complex(*parts.chunk(2, dim=-1)) if is_complex else parts
    torch.testing.assert_close(features(x), expected, **EXACT)
    torch.testing.assert_close(features(x.requires_grad_()).detach(), expected, **EXACT)


@pytest.mark.parametrize(("dim", "bias"), [(2, -0.109), (4, -0.059), (8, -0.014)])
def test_bias_of_hadamard_frequencies(dim, bias):
    """The figures of the errata, rounded to three digits: input along an axis, distance 1.5."""
    features = RandomFourier(dim, 40000 * dim, structure="hadamard", is_complex=True, generator=seeded(11)).double()
    x = torch.zeros(2, dim, dtype=torch.float64)
    x[1, 0] = 1.5
    rows = features(x) * math.sqrt(features.num_features)
    samples = (rows[0].conj() * rows[1]).real.unflatten(0, (40000, dim)).mean(-1)
    standard_error = samples.std() / math.sqrt(len(samples))
    error = (samples.mean() - features.target(x[:1], x[1:])[0, 0] - bias).abs()
    assert not features.is_unbiased and standard_error < 0.002
    assert error <= STANDARD_ERRORS * standard_error + 5e-4


@pytest.mark.parametrize("structure", ["independent", "orthogonal", "hadamard"])
def test_features_are_those_of_the_frequencies(structure):
    feature_map = RandomFourier(3, 8, structure=structure, is_complex=True, generator=seeded(0)).double()
    x = torch.randn(5, 3, generator=seeded(1), dtype=torch.float64)
    wave = torch.exp(1j * (x @ feature_map.frequencies().mT)) / math.sqrt(8)
    torch.testing.assert_close(feature_map(x), wave)
    real = RandomFourier(3, 8, structure=structure, generator=seeded(0))
    assert not real.has_unbiased_columns
    assert feature_map.has_unbiased_columns == (structure != "hadamard")


@pytest.mark.parametrize(("is_complex", "expected"), [(False, 5), (True, 10)])
def test_number_of_frequencies(is_complex, expected):
    features = RandomFourier(3, 10, is_complex=is_complex)
    assert features.num_frequencies == expected and features.weight.shape == (expected, 3)


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="expected an even num_features"):
        RandomFourier(3, 7)
    assert RandomFourier(3, 7, is_complex=True).num_features == 7
    with pytest.raises(ValueError, match="expected a Spectrum"):
        RandomFourier(3, 8, "gaussian")
    for structure in ("sparse", "dense", True, False, 1, None):
        with pytest.raises(ValueError, match="expected one of independent, orthogonal, hadamard"):
            RandomFourier(3, 8, structure=structure)
    for size in [(0, 4), (3, 0), (3, -4), (2.5, 4), (3, 4.5)]:
        with pytest.raises(ValueError, match="expected a positive integer"):
            RandomFourier(*size)


@pytest.mark.parametrize("spectrum", [Laplace(), HyperbolicSecant(), SpectralMixture(2), Periodic()], ids=str)
@pytest.mark.parametrize("structure", ["orthogonal", "hadamard"])
def test_only_isotropic_spectra_are_orthogonal(spectrum, structure):
    assert not isinstance(spectrum, IsotropicSpectrum)
    with pytest.raises(ValueError, match="expected an isotropic spectrum"):
        RandomFourier(3, 8, spectrum, structure)


@pytest.mark.parametrize("nu", [0, 1, 2.0, 3.5, -0.5])
def test_other_matern_kernels_raise(nu):
    with pytest.raises(ValueError, match=r"expected nu 0\.5, 1\.5 or 2\.5"):
        Matern(nu)

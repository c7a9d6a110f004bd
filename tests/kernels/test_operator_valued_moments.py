"""The Hilbert-Schmidt variance of operator-valued features: against simulation and the closed forms of the errata."""

from __future__ import annotations

import math

import pytest
import torch
from feature_parts import map_inputs, parts
from gpytorch.kernels import LinearKernel, MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from problems import randomised

import rfgp
from rfgp.approximation import hilbert_schmidt_variance
from rfgp.features import Matern, PowerWeighted, RandomFourier, WidenedGaussian
from rfgp.functionals import Component, Divergence, Gradient, Laplacian, Partial, Value
from rfgp.kernels import (
    ConstantCovariance,
    CurlFreeKernel,
    DecomposableKernel,
    DivergenceFreeKernel,
    GraphLaplacianCovariance,
    HelmholtzKernel,
    LinearlyObservedKernel,
    SpectralDensityKernel,
)

pytestmark = pytest.mark.usefixtures("float64_default")

STANDARD_ERRORS = 5.0
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def points(num_rows, dim, seed=0):
    return 0.7 * torch.randn(num_rows, dim, generator=seeded(seed))


def matern(nu=2.5, **options):
    return MaternKernel(nu=nu, **options)


def approximated(exact, spectrum=None, dim=3, width=8, structure="independent", seed=0):
    feature_map = RandomFourier(dim, width, spectrum, structure, generator=seeded(seed))
    return rfgp.approximate(exact, width, method=feature_map)


def exact_norm(kernel, x, y):
    """The squared Frobenius norms of the blocks of the exact kernel, (N, M)."""
    matrix = kernel(x, y).to_dense().detach()
    outputs = len(matrix) // len(x)
    return matrix.reshape(len(x), outputs, len(y), outputs).square().sum((1, 3))


# The closed forms of the errata, for lengthscale sigma


def unbounded_form(kind, sigma, tau, norm):
    d = tau.shape[-1]
    u = 4.0 * tau.square().sum(-1) / sigma**2
    bracket = d * (d + 2) + torch.exp(-u / 2.0) * (u**2 - 2.0 * (d + 2) * u + d * (d + 2))
    return (1 if kind is CurlFreeKernel else d - 1) * bracket / (2.0 * sigma**4) - norm


def trace_form(kind, sigma, tau, norm):
    d = tau.shape[-1]
    u = 4.0 * tau.square().sum(-1) / sigma**2
    first = (d / sigma**2) ** 2 * (1.0 + torch.exp(-u / 2.0) * (1.0 - u / d)) / 2.0
    return (1 if kind is CurlFreeKernel else d - 1) * first - norm


@pytest.mark.parametrize(
    ("form", "spectrum"), [(unbounded_form, None), (trace_form, PowerWeighted())], ids=["plain", "trace"]
)
@pytest.mark.parametrize(
    ("kind", "dim"), [(CurlFreeKernel, 1), (CurlFreeKernel, 3), (DivergenceFreeKernel, 2), (DivergenceFreeKernel, 5)]
)
@pytest.mark.parametrize("width", [2, 10])
def test_closed_forms_of_the_errata(form, spectrum, kind, dim, width):
    base = RBFKernel()
    base.lengthscale = 1.3
    kernel = approximated(kind(base), spectrum, dim, width)
    x, y = points(3, dim), torch.cat([points(1, dim), points(2, dim, seed=1)])
    expected = form(kind, 1.3, x[:, None] - y[None], exact_norm(kind(base), x, y)) / (width // 2)
    torch.testing.assert_close(hilbert_schmidt_variance(kernel, x, y).detach(), expected, **CLOSE)
    assert (expected > 0).all() or dim == 1


# By simulation


EXACT = {
    "curl-free": CurlFreeKernel,
    "divergence-free": DivergenceFreeKernel,
    "value and gradient": lambda k: LinearlyObservedKernel(k, [Value(), Gradient()]),
    "gradient": lambda k: LinearlyObservedKernel(k, [Gradient()]),
    "sums": lambda k: LinearlyObservedKernel(k, [Value() + 2.0 * Partial(0), Partial(1) - 0.5 * Value()]),
    "laplacian": lambda k: LinearlyObservedKernel(k, [Laplacian()]),
    "divergence": lambda k: LinearlyObservedKernel(CurlFreeKernel(k), [Divergence()]),
    "value": lambda k: LinearlyObservedKernel(k, [Value()]),
    "component": lambda k: LinearlyObservedKernel(CurlFreeKernel(k), [Component(0)]),
}
KNOWN = [(key, "rbf", measure) for key in EXACT for measure in ("unbounded", "widened")]
KNOWN += [(key, "rbf", "trace") for key in ("curl-free", "divergence-free", "gradient", "laplacian", "divergence")]
KNOWN += [("value", "matern", "unbounded")]
KNOWN += [(key, "matern", "trace") for key in ("curl-free", "divergence-free", "laplacian", "divergence")]
KNOWN += [(key, "rough", "trace") for key in ("curl-free", "divergence-free", "gradient")]
KNOWN += [("value", "rough", "unbounded")]
SPECTRA = {"rbf": None, "matern": Matern(2.5), "rough": Matern(1.5)}
BASES = {"rbf": RBFKernel, "matern": matern, "rough": lambda **options: matern(1.5, **options)}


def kernel_of(key, name, measure, dim=2, width=8, **options):
    exact = randomised(EXACT[key](BASES[name](**options)))
    weighted = PowerWeighted(SPECTRA[name] or rfgp.features.Gaussian(), exact.powers(dim))
    spectrum = {"unbounded": SPECTRA[name], "widened": WidenedGaussian(), "trace": weighted}[measure]
    return exact, approximated(exact, spectrum, dim, width)


def squared_errors(kernel, exact, x, y, groups, per_group):
    """Squared Frobenius errors (G, N, M) of independent estimates, from groups of frequencies of one wide map."""
    outputs = exact.num_outputs_per_input(x, y)
    with torch.no_grad():
        left, right = (kernel.features(z).unflatten(-1, (2, groups, -1)) for z in (x, y))
        estimates = groups * torch.einsum("acgs,bcgs->gab", left, right)
        errors = (estimates - exact(x, y).to_dense()).reshape(groups, len(x), outputs, len(y), outputs)
    return errors.square().sum((2, 4))


def agrees(samples, expected):
    error = samples.std(0) / math.sqrt(len(samples))
    return bool(((samples.mean(0) - expected).abs() <= STANDARD_ERRORS * error + 1e-12).all())


@pytest.mark.parametrize(("key", "name", "measure"), KNOWN)
def test_variance_is_that_of_many_estimates(key, name, measure):
    groups, per_group = 5000, 4
    exact, kernel = kernel_of(key, name, measure, width=2 * groups * per_group)
    x, y = points(1, 2), torch.cat([points(1, 2), points(1, 2, seed=1)])
    samples = squared_errors(kernel, exact, x, y, groups, per_group)
    predicted = hilbert_schmidt_variance(kernel, x, y).detach() * groups
    assert predicted.shape == (1, 2) and (predicted >= -1e-12).all()
    assert agrees(samples, predicted)
    assert not agrees(samples, 1.5 * predicted)


@pytest.mark.parametrize("key", ["curl-free", "divergence-free", "sums"])
def test_variance_of_unbounded_matern_features_is_that_of_weighted_means(key):
    """Squared errors have no variance there: their mean is that of bounded ones under another measure."""
    exact, kernel = kernel_of(key, "matern", "unbounded")
    x, y = points(1, 2), torch.cat([points(1, 2), points(1, 2, seed=1)])
    measure = PowerWeighted(Matern(2.5), (0, 2))
    w, amplitude = measure.frequencies(measure.draw(40000, 2, seeded(4)))
    with torch.no_grad():
        w = w / exact.scalar_kernel.lengthscale
        b = exact.factor(w)
    outer = (b @ b.mH).to(torch.complex128)[:, None]
    waves = torch.exp(1j * (w @ (x - y).mT))[..., None, None]
    samples = amplitude.square()[:, None] * (outer * waves).real.square().sum((-2, -1))
    predicted = hilbert_schmidt_variance(kernel, x, y).detach() * kernel.feature_map.num_frequencies
    second = (predicted + exact_norm(exact, x, y))[0]
    assert agrees(samples, second)
    assert not agrees(samples, 1.05 * second)


@pytest.mark.parametrize("key", ["curl-free", "divergence-free", "value and gradient"])
@pytest.mark.parametrize("measure", ["unbounded", "widened"])
def test_variance_with_ard(key, measure):
    exact, kernel = kernel_of(key, "rbf", measure, dim=3, width=20000, ard_num_dims=3)
    x, y = points(1, 3), torch.cat([points(1, 3), points(1, 3, seed=1)])
    samples = squared_errors(kernel, exact, x, y, 5000, 2)
    assert agrees(samples, 5000.0 * hilbert_schmidt_variance(kernel, x, y).detach())


COMPOSED = {
    "scaled": lambda: ScaleKernel(CurlFreeKernel(RBFKernel())),
    "multitask": lambda: MultitaskKernel(RBFKernel(), num_tasks=3, rank=2),
    "multitask of a scale": lambda: MultitaskKernel(ScaleKernel(matern(1.5)), num_tasks=2),
    "multitask of a sum": lambda: MultitaskKernel(ScaleKernel(RBFKernel()) + matern(0.5), num_tasks=2),
    "graph": lambda: ScaleKernel(DecomposableKernel(RBFKernel(), GraphLaplacianCovariance(torch.ones(2, 2)))),
    "lmc": lambda: MultitaskKernel(RBFKernel(), 2) + MultitaskKernel(matern(), 2),
    "multitask on some columns": lambda: MultitaskKernel(RBFKernel(), 2, active_dims=[1]),
    "scalar": lambda: ScaleKernel(RBFKernel(active_dims=[1])) + LinearKernel(),
}


@pytest.mark.parametrize("key", COMPOSED)
def test_variance_of_compositions(key):
    exact, x = randomised(COMPOSED[key]()), points(1, 2)
    y, generator = torch.cat([x, points(1, 2, seed=1)]), seeded(3)
    if key == "scaled":
        kernel = approximated(exact, None, 2, 16)
    else:
        kernel = rfgp.approximate(exact, 16, input_dim=2, method="fourier", seed=0)
    outputs = exact.num_outputs_per_input(x, y)
    target, samples = exact(x, y).to_dense().detach(), []
    for _ in range(100):
        with torch.no_grad():
            error = kernel.resample(generator)(x, y).to_dense() - target
        samples.append(error.reshape(1, outputs, 2, outputs).square().sum((1, 3)))
    predicted = hilbert_schmidt_variance(kernel, x, y).detach()
    assert agrees(torch.stack(samples), predicted)
    assert not agrees(torch.stack(samples), 2.0 * predicted)


@pytest.mark.parametrize("is_complex", [False, True])
def test_variance_of_separable_kernels(is_complex):
    gamma = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    method = "fourier:complex" if is_complex else "fourier_orthogonal"
    data = RBFKernel()
    scalar, x, y = rfgp.approximate(data, 16, input_dim=2, method=method, seed=0), points(3, 2), points(2, 2, seed=1)
    moments = scalar.feature_map.moments(x / data.lengthscale, y / data.lengthscale)
    variance = 0.5 * (moments.variance + moments.pseudo_variance).real
    torch.testing.assert_close(hilbert_schmidt_variance(scalar, x, y), variance, **CLOSE)
    if not is_complex:
        tasks = DecomposableKernel(data, ConstantCovariance(gamma))
        kernel = rfgp.approximate(tasks, 16, input_dim=2, method=method, seed=0)
        expected = gamma.square().sum() * variance
        torch.testing.assert_close(hilbert_schmidt_variance(kernel, x, y), expected, **CLOSE)
        # the errata, for independent frequencies
        kernel = rfgp.approximate(tasks, 16, input_dim=2, method="fourier", seed=0)
        k, twice = (data(a * x, a * y).to_dense().detach() for a in (1.0, 2.0))
        expected = gamma.square().sum() * ((1.0 + twice) / 2.0 - k**2) / 8.0
        torch.testing.assert_close(hilbert_schmidt_variance(kernel, x, y).detach(), expected, rtol=1e-6, atol=1e-6)


def test_variance_is_inverse_to_the_number_of_frequencies_and_smallest_under_the_trace_measure():
    x, y = points(3, 4), points(3, 4)
    exact = CurlFreeKernel(RBFKernel())
    one, ten = (hilbert_schmidt_variance(approximated(exact, None, 4, width), x, y) for width in (2, 20))
    torch.testing.assert_close(one, 10.0 * ten, **CLOSE)
    trace = hilbert_schmidt_variance(approximated(exact, PowerWeighted(), 4, 2), x, y)
    widened = hilbert_schmidt_variance(approximated(exact, WidenedGaussian(), 4, 2), x, y)
    assert (trace.diagonal() < one.diagonal()).all() and (trace.diagonal() < widened.diagonal()).all()
    norm = exact_norm(exact, x, x).diagonal()
    second = [2.0 * v.detach().diagonal() + 2.0 * norm for v in (trace, widened, one)]  # E tr Q^2 a^4, twice
    torch.testing.assert_close(second[0] / second[2], torch.full((3,), 4.0 / 6.0), **CLOSE)  # n/(n + 2)
    torch.testing.assert_close(second[1] / second[2], torch.full((3,), 4.0 / 9.0 * (4.0 / 3.0) ** 2), **CLOSE)


def test_active_dims_batches_and_gradients():
    exact = ScaleKernel(CurlFreeKernel(RBFKernel(active_dims=[2, 0])))
    feature_map = RandomFourier(2, 8, generator=seeded(0))
    kernel = rfgp.approximate(exact, 8, method=feature_map)
    plain = rfgp.approximate(ScaleKernel(CurlFreeKernel(RBFKernel())), 8, method=feature_map)
    x, y = points(3, 3), points(2, 3, seed=1)
    expected = hilbert_schmidt_variance(plain, x[:, [2, 0]], y[:, [2, 0]])
    torch.testing.assert_close(hilbert_schmidt_variance(kernel, x, y), expected, **CLOSE)
    batch = hilbert_schmidt_variance(kernel, torch.stack([x, 2.0 * x]), y)
    assert batch.shape == (2, 3, 2)
    torch.testing.assert_close(batch[0], expected, **CLOSE)
    expected.sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().max() > 0 for p in plain.parameters())
    lengthscales = CurlFreeKernel(RBFKernel(batch_shape=torch.Size([2])))
    lengthscales.base_kernel.lengthscale = torch.tensor([0.5, 2.0]).reshape(2, 1, 1)
    for spectrum in (None, WidenedGaussian(), PowerWeighted()):
        both = hilbert_schmidt_variance(approximated(lengthscales, spectrum), x, y)
        for i in range(2):
            one = hilbert_schmidt_variance(approximated(lengthscales[i], spectrum), x, y)
            torch.testing.assert_close(both[i], one, **CLOSE)
            inputs = torch.stack([x[:2], 2.0 * x[:2]])
            batch = hilbert_schmidt_variance(approximated(lengthscales[i], spectrum), inputs, y)
            torch.testing.assert_close(batch[0], one[:2], **CLOSE)


def gaussian_density(w):
    return torch.exp(-0.5 * w.square().sum(-1))[:, None, None] * torch.eye(2, dtype=w.dtype)


UNKNOWN = {
    "orthogonal": lambda: approximated(CurlFreeKernel(RBFKernel()), None, structure="orthogonal"),
    "infinite": lambda: approximated(CurlFreeKernel(matern(1.5)), Matern(1.5)),
    "infinite, second derivatives": lambda: approximated(LinearlyObservedKernel(matern(), [Laplacian()]), Matern(2.5)),
    "several orders": lambda: approximated(
        LinearlyObservedKernel(RBFKernel(), [Value(), Gradient()]), PowerWeighted(powers=(0, 1))
    ),
    "trace measure with ARD": lambda: approximated(CurlFreeKernel(RBFKernel(ard_num_dims=3)), PowerWeighted()),
    "component under the trace measure": lambda: approximated(
        LinearlyObservedKernel(CurlFreeKernel(RBFKernel()), [Component(0)]), PowerWeighted()
    ),
    "one measure, orthogonal": lambda: (
        lambda k: rfgp.approximate(HelmholtzKernel(k, k), 16, input_dim=3, method="fourier_orthogonal", seed=0)
    )(RBFKernel()),
    "part of a sum": lambda: rfgp.approximate(HelmholtzKernel(RBFKernel()), 16, input_dim=3, seed=0),
    "spectral density": lambda: rfgp.approximate(
        SpectralDensityKernel(gaussian_density, input_dim=3), 16, input_dim=3, method="fourier", seed=0
    ),
    "product": lambda: rfgp.approximate(RBFKernel() * matern(), 16, input_dim=3, seed=0),
    "biased": lambda: rfgp.approximate(RBFKernel(), 16, input_dim=3, method="fourier_hadamard", seed=0),
    "scaled": lambda: rfgp.approximate(ScaleKernel(CurlFreeKernel(RBFKernel())), 16, input_dim=3, seed=0),
}


@pytest.mark.parametrize("key", UNKNOWN)
def test_no_variance_where_there_is_no_closed_form(key):
    assert hilbert_schmidt_variance(UNKNOWN[key](), points(2, 3), points(2, 3)) is None


def test_helmholtz_kernels_of_two_scalar_kernels_add_up():
    kernel = rfgp.approximate(HelmholtzKernel(RBFKernel(), matern()), 16, input_dim=3, method="fourier", seed=0)
    x, y = points(2, 3), points(3, 3, seed=1)
    first, second = (hilbert_schmidt_variance(part, x, y) for part in parts(kernel))
    torch.testing.assert_close(hilbert_schmidt_variance(kernel, x, y), first + second, **CLOSE)
    assert (first > 0).all() and (second > 0).all()


def test_polynomials_have_the_variance_of_their_sketch():
    kernel = rfgp.approximate(PolynomialKernel(power=2), 16, input_dim=2, method="rademacher:ctr", seed=0)
    x = points(2, 2)
    variance = hilbert_schmidt_variance(kernel, x, x)
    inputs = map_inputs(kernel, x)
    torch.testing.assert_close(variance, kernel.feature_map.moments(inputs, inputs).variance, **CLOSE)


def test_exact_kernels_have_no_features():
    with pytest.raises(ValueError, match="expected a kernel with random features, got CurlFreeKernel"):
        hilbert_schmidt_variance(CurlFreeKernel(RBFKernel()), points(2, 2), points(2, 2))
    kernel = approximated(CurlFreeKernel(RBFKernel(active_dims=[0, 4])), dim=2)
    with pytest.raises(ValueError, match="expected x with at least 5 columns"):
        hilbert_schmidt_variance(kernel, points(2, 2), points(2, 2))

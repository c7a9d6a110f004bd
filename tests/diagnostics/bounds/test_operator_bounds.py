"""Error bounds for operator-valued features: no failure rate exceeds one, and the constants are what they stand for.

Rates are counted over fixed seeds and compared without an allowance: bounds are multiples of the true probabilities.
"""

from __future__ import annotations

import itertools
import math

import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
import torch
from tail_forms import failure_probability, num_features

from rfgp.diagnostics import bounds

REPEATS = 2000
GAMMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]], dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# Features of Gaussian kernels with lengthscale 1


def gaussian_frequencies(count, dim, generator):
    return torch.randn(*count, dim, generator=generator, dtype=torch.float64)


def trace_frequencies(count, dim, generator):
    """Frequencies with a density proportional to |w|^2 times the Gaussian one: radius chi(d + 2)."""
    w = gaussian_frequencies(count, dim, generator)
    radius = gaussian_frequencies(count, dim + 2, generator).norm(dim=-1, keepdim=True)
    return w / w.norm(dim=-1, keepdim=True) * radius


def curl(w):
    return w[..., :, None] * w[..., None, :]


def divergence(w):
    return w.square().sum(-1)[..., None, None] * torch.eye(w.shape[-1], dtype=w.dtype) - curl(w)


def over_mean(matrix):
    return lambda w: matrix(w) * (w.shape[-1] / w.square().sum(-1))[..., None, None]


def curl_kernel(tau):
    d = tau.shape[-1]
    return torch.exp(-tau.square().sum(-1) / 2)[..., None, None] * (torch.eye(d, dtype=tau.dtype) - curl(tau))


def divergence_kernel(tau):
    k, d = curl_kernel(tau), tau.shape[-1]
    return k.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] * torch.eye(d, dtype=tau.dtype) - k


def decomposable_kernel(tau):
    return torch.exp(-tau.square().sum(-1) / 2)[..., None, None] * GAMMA


KINDS = {
    "decomposable": (gaussian_frequencies, lambda w: GAMMA.expand(*w.shape[:-1], 3, 3), decomposable_kernel),
    "curl-free, bounded": (trace_frequencies, over_mean(curl), curl_kernel),
    "divergence-free, bounded": (trace_frequencies, over_mean(divergence), divergence_kernel),
    "curl-free, unbounded": (gaussian_frequencies, curl, curl_kernel),
    "divergence-free, unbounded": (gaussian_frequencies, divergence, divergence_kernel),
}
BOUNDED = [name for name in KINDS if "unbounded" not in name]
UNBOUNDED = [name for name in KINDS if "unbounded" in name]
every_bounded = pytest.mark.parametrize("kind", BOUNDED)
every_unbounded = pytest.mark.parametrize("kind", UNBOUNDED)


def constants(kind, dim):
    if kind == "decomposable":
        return bounds.decomposable_constants(GAMMA, scipy.stats.chi(dim).mean(), variance=0.5)
    function = bounds.curl_free_constants if "curl" in kind else bounds.divergence_free_constants
    return function(dim, 1.0, bounded="unbounded" not in kind)


def hilbert_schmidt(kind, dim):
    """M and m of the bounds in the Hilbert-Schmidt norm; sigma is M."""
    if kind == "decomposable":
        return float(GAMMA.norm()), float(GAMMA.norm()) * scipy.stats.chi(dim).mean()
    rank = 1 if "curl" in kind else dim - 1
    return dim * math.sqrt(rank), math.sqrt(rank) * scipy.stats.chi(dim).moment(3)


def errors(kind, count, tau, repeats, seed=0):
    """Errors (repeats, points, p, p) of estimates from ``count`` frequencies at differences tau (points, d)."""
    draw, factor, kernel = KINDS[kind]
    w = draw((repeats, count), tau.shape[-1], seeded(seed))
    return torch.einsum("rft,rfab->rtab", torch.cos(w @ tau.mT), factor(w)) / count - kernel(tau)


def largest(kind, count, diameter, repeats, norm, dim=2):
    """Largest norms of the errors over differences of length up to the diameter, in ``repeats`` draws."""
    directions = gaussian_frequencies((24,), dim, seeded(99))
    radii = torch.linspace(0, diameter, 24, dtype=torch.float64)[:, None]
    tau = directions / directions.norm(dim=-1, keepdim=True) * radii
    parts = [errors(kind, count, tau, repeats // 10, seed) for seed in range(10)]
    return torch.cat([torch.linalg.matrix_norm(part, norm).amax(-1) for part in parts])


def rate(norms, epsilon):
    return float((norms >= epsilon).double().mean())


def bernstein(variance, largest_error, count, epsilon):
    return math.exp(-count * epsilon**2 / 2 / (variance + largest_error * epsilon / 3))


def minimum(dim, diameter, slope, epsilon, at_center):
    """The sum of what the proof adds up, at its smallest over the radius: as printed by the authors, unsimplified."""

    def proof(log_r):
        return 4 * slope * math.exp(log_r) / epsilon + (4 * diameter / math.exp(log_r)) ** dim * at_center

    return scipy.optimize.minimize_scalar(proof, bounds=(-60, 20), method="bounded", options={"xatol": 1e-10}).fun


# One pair of inputs, Hilbert-Schmidt norm


@pytest.mark.parametrize("tau", [0.0, 0.7, 2.5])
@every_bounded
def test_pointwise_rates_stay_below_the_bound(kind, tau):
    count = 60
    size, _ = hilbert_schmidt(kind, 3)
    point = torch.tensor([[tau, 0.0, 0.0]], dtype=torch.float64)
    norms = errors(kind, count, point, REPEATS).flatten(1).norm(dim=-1)
    for probability in (1.0, 0.9, 0.5, 0.1, 0.01):
        found = scipy.optimize.brentq(
            lambda z, p=probability: math.log(2 / p) - count * z / 2 * math.log1p(z), 1e-9, 10
        )
        epsilon = found * size
        bound = bounds.operator_fourier_bound(size).failure_probability(2 * count, epsilon)
        assert bound == pytest.approx(probability, rel=1e-9, abs=0.0) and rate(norms, epsilon) <= bound
    assert rate(norms, epsilon / 20) > 0.1 or (kind == "decomposable" and tau == 0.0)


def test_pointwise_bound_is_the_theorem():
    """M Eq. 62, with D frequencies."""
    for count, epsilon, size, moment in ((10, 0.5, 2.0, 3.0), (1000, 0.1, 0.7, 0.3), (200, 3.0, 5.0, 25.0)):
        printed = 2 * math.exp(-count * epsilon / (2 * size) * math.log(1 + size * epsilon / moment))
        found = bounds.operator_fourier_bound(size, moment).failure_probability(2 * count, epsilon)
        assert found == pytest.approx(min(1.0, printed), rel=1e-9, abs=0.0)
    without = bounds.operator_fourier_bound(2.0).failure_probability(500, 0.3)
    assert without == bounds.operator_fourier_bound(2.0, 4.0).failure_probability(500, 0.3)
    assert bounds.operator_fourier_bound(2.0, 0.1).failure_probability(500, 0.3) < without < 1.0


def test_pointwise_bound_fails_for_half_the_frequencies():
    """num_features counts columns: read as frequencies, the bound would be false for a kernel of two signs."""
    count, epsilon = 100, 0.3
    tail = 2.0 * scipy.stats.binom.sf(64, count, 0.5)  # 65 or more signs of a kind
    bound = bounds.operator_fourier_bound(1.0)
    assert bound.failure_probability(4 * count, epsilon) < tail <= bound.failure_probability(2 * count, epsilon)


def test_bounds_on_terms_suffice_for_their_differences_from_the_mean():
    """Pinelis' inequality with bound M + |k| and variance sigma^2 - |k|^2 is never above that of Smale and Zhou."""
    for sigma, share in itertools.product((0.01, 0.1, 0.3, 0.6, 0.9, 1.0), (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 0.999)):
        mean = sigma * share
        size, variance = 1.0 + mean, sigma**2 - mean**2
        for epsilon in torch.logspace(-3, 0, 40, dtype=torch.float64).tolist():
            u = size * epsilon * size / variance  # errors are at most the size
            exponent = variance / size**2 * ((1 + u) * math.log1p(u) - u)
            count = math.ceil(20 / exponent)
            claimed = bounds.operator_fourier_bound(1.0, sigma**2).failure_probability(2 * count, epsilon * size)
            assert 2 * math.exp(-count * exponent) <= claimed


# A compact set, Hilbert-Schmidt norm


@every_bounded
def test_uniform_rates_stay_below_minhs_bound(kind):
    size, slope = hilbert_schmidt(kind, 2)
    bound = bounds.minh_bound(2, 2.0, slope, size)
    needed = bound.num_features(size, 0.1)
    norms = largest(kind, needed // 2, 2.0, 200, "fro")
    assert 0.09 < bound.failure_probability(needed, size) <= 0.1
    assert rate(norms, size) <= 0.1 < rate(norms, size / 20)


def test_minhs_bound_is_the_theorem():
    """M Eq. 64, with D frequencies and the diameter of the set of differences, and what its proof adds up."""
    for n, diameter, slope, epsilon, size, moment in (
        (1, 3.0, 1.0, 0.5, 1.0, 1.0),
        (2, 4.0, 2.0, 0.3, 2.0, 3.0),
        (9, 1.0, 20.0, 1.0, 3.0, 4.0),
    ):
        bound = bounds.minh_bound(n, diameter, slope, size, moment)
        count = bound.num_features(epsilon, 1e-3) // 2
        a = 2 ** ((3 * n + 1) / (n + 1)) * (n ** (1 / (n + 1)) + n ** (-n / (n + 1)))
        power = (slope * 2 * diameter / epsilon) ** (n / (n + 1))
        exponent = count * epsilon / (4 * (n + 1) * size) * math.log(1 + size * epsilon / (2 * moment))
        found = bound.failure_probability(2 * count, epsilon)
        assert 9e-4 < found <= 1e-3 and found == pytest.approx(a * power * math.exp(-exponent), rel=1e-9, abs=0.0)
        at_center = bounds.operator_fourier_bound(size, moment).failure_probability(2 * count, epsilon / 2)
        assert found == pytest.approx(minimum(n, diameter, slope, epsilon, at_center), rel=1e-6, abs=0.0)


def test_minhs_bound_is_false_as_printed_for_small_slopes():
    """The error at the origin does not go away with the frequencies, which the printed bound goes to zero with."""
    count, epsilon, tiny = 10, 0.3, 1e-9
    origin = torch.zeros(1, 2, dtype=torch.float64)
    norms = errors("curl-free, bounded", count, origin, REPEATS).flatten(1).norm(dim=-1) / 2  # A = w w^T/|w|^2
    printed = 2 ** (7 / 3) * (2 ** (1 / 3) + 2 ** (-2 / 3)) * (tiny / epsilon) ** (2 / 3)
    assert printed < 1e-4 < 0.01 < rate(norms, epsilon)
    assert rate(norms, epsilon) <= bounds.minh_bound(2, 0.5, tiny, 1.0).failure_probability(2 * count, epsilon)
    count = 400
    bound = bounds.minh_bound(2, 0.5, tiny, 1.0).failure_probability(2 * count, 0.5)
    at_center = bounds.operator_fourier_bound(1.0).failure_probability(2 * count, 0.25)
    assert bound < 0.1 and bound == pytest.approx(
        (2 ** (1 / 3) + 2 ** (-2 / 3)) * at_center ** (1 / 3), rel=1e-9, abs=0.0
    )


# A compact set, operator norm


def at_center(bound, dim, columns, epsilon, **options):
    """What the bound takes for the probability of an error epsilon at one point: where the set is a point, its root."""
    found = bound(dim, 1e-300, **({"slope": 1.0} | options)).failure_probability(columns, 2 * epsilon)
    return (found / (dim ** (1 / (dim + 1)) + dim ** (-dim / (dim + 1)))) ** (dim + 1), found


@pytest.mark.parametrize("tau", [0.0, 0.7, 2.5])
@pytest.mark.parametrize("kind", KINDS)
def test_rates_at_a_point_stay_below_what_braults_bounds_take(kind, tau):
    count, dim = 80, 2
    options = constants(kind, dim)
    bound = bounds.brault_subexponential_bound if "unbounded" in kind else bounds.brault_bounded_bound
    point = torch.tensor([[tau, 0.0]], dtype=torch.float64)
    norms = torch.linalg.matrix_norm(errors(kind, count, point, REPEATS), 2)
    compared = 0
    for epsilon in torch.linspace(0.02, 3.0, 90, dtype=torch.float64) * options["variance"] ** 0.5:
        probability, found = at_center(bound, dim, 2 * count, float(epsilon), **options)
        compared += found < 1.0
        assert found == 1.0 or rate(norms, epsilon) <= probability
    assert compared >= 10
    assert rate(norms, options["variance"] ** 0.5 / 20) > 0.1 or (kind == "decomposable" and tau == 0.0)


def test_rates_at_a_point_exceed_what_a_tenth_of_the_variance_would_give():
    count, options = 400, constants("curl-free, bounded", 2)
    norms = torch.linalg.matrix_norm(errors("curl-free, bounded", count, torch.zeros(1, 2).double(), REPEATS), 2)
    epsilon = 2.0 * math.sqrt(options["variance"] / count)
    wrong = 8 * bernstein(options["variance"] / 10, options["largest_error"], count, epsilon)
    assert wrong < rate(norms, epsilon) <= 8 * bernstein(options["variance"], options["largest_error"], count, epsilon)


@every_bounded
def test_uniform_rates_stay_below_braults_bound(kind):
    options = constants(kind, 2)
    epsilon = math.sqrt(options["variance"])
    bound = bounds.brault_bounded_bound(2, 2.0, **options)
    needed = bound.num_features(epsilon, 0.1)
    norms = largest(kind, needed // 2, 2.0, 200, 2)
    assert 0.09 < bound.failure_probability(needed, epsilon) <= 0.1
    assert rate(norms, epsilon) <= 0.1 < rate(norms, epsilon / 25)


@every_unbounded
def test_uniform_rates_stay_below_the_bound_for_unbounded_features(kind):
    options = constants(kind, 2)
    epsilon = 1.5 * math.sqrt(options["variance"])
    bound = bounds.brault_subexponential_bound(2, 2.0, **options)
    needed = bound.num_features(epsilon, 0.1)
    norms = largest(kind, needed // 2, 2.0, 100, 2)
    assert 0.09 < bound.failure_probability(needed, epsilon) <= 0.1
    assert rate(norms, epsilon) <= 0.1 < rate(norms, epsilon / 100)


BRAULT = [(1, 3.0, 1.0, 0.5, 0.5, 2.0), (2, 4.0, 2.0, 0.3, 2.0, 3.0), (9, 1.0, 20.0, 1.0, 3.0, 4.0)]


@pytest.mark.parametrize("dim, diameter, slope, epsilon, variance, size", BRAULT)
def test_braults_bound_is_the_corrected_corollary(dim, diameter, slope, epsilon, variance, size):
    """B Corollary 32 with the covering number (4 |C|/r)^d, psi at epsilon/2, and what its proof adds up."""
    options = {"variance": variance, "largest_error": size, "intrinsic_dim": 2.5}
    bound = bounds.brault_bounded_bound(dim, diameter, slope, **options)
    count = bound.num_features(epsilon, 1e-3) // 2
    found = bound.failure_probability(2 * count, epsilon)
    front = (
        4 * (dim ** (1 / (dim + 1)) + dim ** (-dim / (dim + 1))) * (4 * slope * diameter / epsilon) ** (dim / (dim + 1))
    )
    psi = epsilon**2 / (8 * (dim + 1) * (variance + size * epsilon / 6))
    assert 9e-4 < found <= 1e-3 and found == pytest.approx(
        front * 2.5 ** (1 / (dim + 1)) * math.exp(-count * psi), rel=1e-9, abs=0.0
    )
    center = 4 * 2.5 * bernstein(variance, size, count, epsilon / 2)
    assert found == pytest.approx(minimum(dim, diameter, slope, epsilon, center), rel=1e-6, abs=0.0)


@pytest.mark.parametrize("dim, diameter, slope, epsilon, variance, size", BRAULT)
@pytest.mark.parametrize("p, intrinsic", [(1, None), (4, None), (4, 1.5), (1000, 1.0)])
def test_bound_for_unbounded_features_is_its_formula(dim, diameter, slope, epsilon, variance, size, p, intrinsic):
    options = {"variance": variance, "orlicz_norm": size, "output_dim": p, "intrinsic_dim": intrinsic}
    bound = bounds.brault_subexponential_bound(dim, diameter, slope, **options)
    count = bound.num_features(epsilon, 1e-3) // 2
    found = bound.failure_probability(2 * count, epsilon)
    log_ratio = math.log(2 * p * size**2 / variance)
    kappa = scipy.optimize.brentq(lambda s: s - 2 * math.log(s) - 3 - log_ratio, 2, 1000)
    assert kappa**2 * math.exp(3 - kappa) * size**2 == pytest.approx(variance / (2 * p)) and kappa > 5
    center = (
        4 * ((intrinsic or p) + 1) / (1 + 1 / p) * bernstein(variance * (1 + 1 / p), kappa * size, count, epsilon / 2)
    )
    assert 9e-4 < found <= 1e-3 and found == pytest.approx(
        minimum(dim, diameter, slope, epsilon, center), rel=1e-6, abs=0.0
    )


def test_a_variance_above_the_orlicz_norm_does_not_lower_kappa():
    options = {"orlicz_norm": 1.0, "output_dim": 1}
    found, _ = at_center(bounds.brault_subexponential_bound, 1, 6000, 1.0, variance=9.0, **options)
    kappa = scipy.optimize.brentq(lambda s: s - 2 * math.log(s) - 3, 2, 100)
    assert found == pytest.approx(4 * bernstein(18.0, kappa, 3000, 1.0), rel=1e-9, abs=0.0)


def orlicz_norm(values, probabilities):
    def excess(size):
        return sum(p * math.exp(min(700.0, v / size)) for v, p in zip(values, probabilities, strict=True)) - 2.0

    return scipy.optimize.brentq(excess, 1e-3, 1e3)


@pytest.mark.parametrize("p", [1, 10, 100, 1000])
@pytest.mark.parametrize("q", [0.01, 0.001, 1e-6])
def test_bound_for_unbounded_features_holds_for_rare_large_ones(q, p):
    """A is one in a share q of all frequencies, and zero elsewhere, in one of p outputs; the tail is binomial."""
    variance, size = q * (1 - q), orlicz_norm((q, 1 - q), (1 - q, q))
    options = {"variance": variance, "orlicz_norm": size, "output_dim": p, "intrinsic_dim": 1.0}
    compared = 0
    for expected, epsilon in itertools.product((3, 10, 100, 10_000, 10**6), (0.05, 0.2, 1.0, 3.0, 10.0)):
        count = round(expected / q)
        largest_count = math.ceil(count * q * (1 + epsilon))
        distance = largest_count / count - q
        found, bound = at_center(bounds.brault_subexponential_bound, 1, 2 * count, distance, **options)
        if found > 1e-290 and bound < 1.0:
            compared += 1
            assert scipy.stats.binom.logsf(largest_count - 1, count, q) <= math.log(found)
    assert compared >= 3


def test_the_inequality_that_b_prints_is_false_for_rare_large_features():
    """B Theorem 45, with 4 in place of 2 as B uses it, at the largest error that its first case allows."""
    q, p, count = 0.001, 100, 11_000_000
    variance, size = q * (1 - q), orlicz_norm((q, 1 - q), (1 - q, q))
    k = math.log(16 * math.sqrt(2) * p) + math.log(size**2 / variance)
    largest_count = math.floor(count * (q + variance * (1 + 1 / p) / (2 * size * k)))
    epsilon, total = largest_count - count * q, count * variance
    assert epsilon <= total / (2 * size) * (1 + 1 / p) / k
    r = 1 + 3 / (epsilon * math.log(1 + epsilon / total)) ** 2
    printed = math.log(4 * r) - epsilon**2 / (2 * total * (1 + 1 / p))
    tail = scipy.stats.binom.logsf(largest_count - 1, count, q)
    assert printed < tail - 20
    options = {"variance": variance, "orlicz_norm": size, "output_dim": p, "intrinsic_dim": 1.0}
    found, _ = at_center(bounds.brault_subexponential_bound, 1, 2 * count, epsilon / count, **options)
    assert tail <= math.log(found)


def test_bernsteins_inequality_for_norms_has_no_four_only_where_it_is_vacuous():
    """What cosh gives is at most 4 e^{-a/2} from a = 1.23 on, and 4 e^{-a/2} is above 1 before."""
    limit = -math.log(1 - math.sqrt(0.5))
    assert limit == pytest.approx(1.23, abs=0.01) and 4 * math.exp(-limit / 2) > 2
    for a in torch.linspace(limit, 20, 50, dtype=torch.float64).tolist():
        assert math.exp(a / 2) / (math.cosh(a) - 1) <= 4 * math.exp(-a / 2) * (1 + 1e-9)


# Constants


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [2, 3, 6])
def test_constants_are_what_they_stand_for(kind, dim):
    draw, factor, kernel = KINDS[kind]
    options = constants(kind, dim)
    w = draw((100_000,), dim, seeded(dim))
    a = factor(w)
    terms = w.norm(dim=-1) * torch.linalg.matrix_norm(a, 2)
    assert abs(float(terms.mean()) - options["slope"]) <= 5 * float(terms.std()) / math.sqrt(len(w)) + 1e-12
    smallest = math.inf
    for tau in (0.0, 0.5, 1.5, 8.0):
        point = torch.full((dim,), tau / math.sqrt(dim), dtype=torch.float64)
        x = torch.cos(w @ point)[:, None, None] * a - kernel(point)
        spread = torch.linalg.eigvalsh((x @ x).mean(0))
        error = 5 * float((x @ x).std(0).norm()) / math.sqrt(len(w)) + 1e-9
        smallest = min(smallest, options["variance"] - float(spread[-1]))
        assert float(spread[-1]) <= options["variance"] + error
        assert float(spread.sum()) <= options["variance"] * options.get("intrinsic_dim", dim) + dim * error
        norms = torch.linalg.matrix_norm(x, 2)
        if "unbounded" in kind:
            grown = torch.exp(norms / options["orlicz_norm"])
            assert float(grown.mean()) <= 2.0 and float(grown.mean()) > 1.1
        else:
            assert float(norms.max()) <= options["largest_error"] + 1e-9
    loose = 0.5 if kind == "divergence-free, unbounded" else 0.0
    assert smallest <= error + 2 * loose * (dim - 1)


def test_orlicz_norm_of_squared_frequencies():
    """B 4.4.3: the moment generating function of |w|^2 is 2 at its inverse."""
    for dim, scale in ((1, 1.0), (2, 0.5), (7, 3.0)):
        norm = bounds.curl_free_constants(dim, scale, bounded=False)["orlicz_norm"] - 1 / scale**2 / math.log(2)

        def integrand(x, dim=dim, n=norm * scale**2):
            return math.exp(x / n + scipy.stats.chi2.logpdf(x, dim))

        assert scipy.integrate.quad(integrand, 0, math.inf)[0] == pytest.approx(2.0, rel=1e-6, abs=0.0)


def variances(kind, dim, x):
    """Eigenvalues of the exact variance at |tau|^2 = x, from derivatives of Gaussian kernels, across and along tau."""
    k, k2, d = torch.exp(-x / 2), torch.exp(-2 * x), dim
    across, along = k2 * (d + 2 - 4 * x), k2 * (d + 2 - 4 * (d + 5) * x + 16 * x**2)  # E cos(2 w tau) |w|^2 w w^T
    if kind == "curl-free, unbounded":
        return (d + 2 + across) / 2 - k**2, (d + 2 + along) / 2 - ((1 - x) * k) ** 2
    if kind == "divergence-free, unbounded":
        far = (d + 2) * (d - 1)
        return (far + (d - 2) * across + along) / 2 - ((d - 1 - x) * k) ** 2, (far + (d - 1) * across) / 2 - (
            (d - 1) * k
        ) ** 2
    if kind == "curl-free, bounded":
        return d * (1 + k2) / 2 - k**2, d * (1 + k2 * (1 - 4 * x)) / 2 - ((1 - x) * k) ** 2
    return d * (d - 1 + k2 * (d - 1 - 4 * x)) / 2 - ((d - 1 - x) * k) ** 2, d * (d - 1) * (1 + k2) / 2 - (
        (d - 1) * k
    ) ** 2


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "decomposable"])
def test_variances_are_the_largest_on_a_grid(kind):
    x = torch.cat([torch.linspace(0, 10, 4001, dtype=torch.float64), torch.linspace(10, 2000, 4001).double()])
    for dim in (2, 3, 4, 5, 6, 7, 8, 10, 20, 50, 200, 1000):
        top = float(torch.stack(variances(kind, dim, x)).max())
        bound = constants(kind, dim)["variance"]
        assert top <= bound * (1 + 1e-12)
        assert bound <= top * (1.17 if kind == "divergence-free, unbounded" else 1 + 1e-9)
    draw, factor, kernel = KINDS[kind]
    w = draw((200_000,), 3, seeded(1))
    point = torch.tensor([1.2, 0.0, 0.0], dtype=torch.float64)
    terms = (torch.cos(w @ point)[:, None, None] * factor(w) - kernel(point)).matrix_power(2)
    across, along = (float(v) for v in variances(kind, 3, torch.tensor(1.44, dtype=torch.float64)))
    for entry, expected in ((terms[:, 0, 0], along), (terms[:, 1, 1], across)):
        assert abs(float(entry.mean()) - expected) <= 4 * float(entry.std()) / math.sqrt(len(w))


def test_intrinsic_dimension_of_a_decomposable_kernel():
    found = bounds.decomposable_constants(torch.diag(torch.tensor([3.0, 1.0, 1.0])), 1.0)
    assert found == pytest.approx({"slope": 3.0, "variance": 9.0, "largest_error": 6.0, "intrinsic_dim": 11 / 9})


def test_constants_scale_with_the_lengthscale():
    for kind, power in itertools.product((bounds.curl_free_constants, bounds.divergence_free_constants), (True, False)):
        unit, scaled = kind(3, 1.0, bounded=power), kind(3, 0.5, bounded=power)
        powers = {"slope": 3, "variance": 4, "largest_error": 2, "orlicz_norm": 2, "intrinsic_dim": 0, "output_dim": 0}
        assert scaled == pytest.approx({name: value * 2 ** powers[name] for name, value in unit.items()})
    assert bounds.curl_free_constants(1, 1.0)["variance"] == 0.5


@pytest.mark.parametrize("tau", [0.0, 0.6, 1.7])
def test_variance_of_a_decomposable_kernel(tau):
    point = torch.tensor([tau, 0.0], dtype=torch.float64)
    w = gaussian_frequencies((100_000,), 2, seeded(4))
    k, k2 = torch.exp(-point.square().sum() / 2), torch.exp(-2 * point.square().sum())
    found = bounds.operator_fourier_variance(k, k2, GAMMA)
    terms = (torch.cos(w @ point) - k)[:, None, None] * GAMMA
    squares = terms @ terms
    assert found.shape == (3, 3) and found.dtype == torch.float64
    assert ((squares.mean(0) - found).abs() <= 4 * squares.std(0) / math.sqrt(len(w)) + 1e-12).all()
    norm = float(torch.linalg.matrix_norm(GAMMA, 2))
    expected = norm**2 * ((1 + float(k2)) / 2 - float(k) ** 2)
    assert float(torch.linalg.matrix_norm(found, 2)) == pytest.approx(expected, abs=1e-12)
    batch = bounds.operator_fourier_variance(k.expand(4, 2), k2.expand(4, 2), GAMMA.float())
    torch.testing.assert_close(batch, found.expand(4, 2, 3, 3), rtol=1e-6, atol=1e-9)


# Both forms


def every_bound():
    yield bounds.operator_fourier_bound(2.0, 3.0)
    for dim, size in ((1, 2.0), (3, 0.01), (64, 30.0)):
        yield bounds.minh_bound(dim, size, 1.3, 2.0, 3.0)
        yield bounds.brault_bounded_bound(dim, size, 1.3, variance=1.5, largest_error=2.0, intrinsic_dim=1.7)
        yield bounds.brault_subexponential_bound(dim, size, 1.3, variance=1.5, orlicz_norm=2.0, output_dim=3)


@pytest.mark.parametrize("bound", list(every_bound()))
def test_forms_are_inverse_and_monotone(bound):
    for epsilon, delta in ((0.1, 0.05), (1.0, 0.5), (0.02, 1e-8), (5.0, 0.9)):
        needed = bound.num_features(epsilon, delta)
        assert isinstance(needed, int) and needed % 2 == 0 and needed >= 2
        assert bound.failure_probability(needed, epsilon) <= delta * (1 + 1e-9)
        assert needed == 2 or bound.failure_probability(needed - 2, epsilon) > delta
        assert bound.num_features(2 * epsilon, delta) <= needed <= bound.num_features(epsilon, delta / 10)
    columns = (2, 10, 100, 10_000, 10**6, 10**8)
    falling = [bound.failure_probability(n, 0.1) for n in columns]
    assert falling == sorted(falling, reverse=True) and falling[0] == 1.0 and falling[-1] < 1e-9
    falling = [bound.failure_probability(10_000, epsilon) for epsilon in (0.001, 0.1, 0.5, 1.0, 3.0, 1e10)]
    assert falling == sorted(falling, reverse=True) and falling[0] == 1.0 and falling[-1] < 1e-9


def test_bounds_grow_with_their_constants():
    arguments = dict(input_dim=2, diameter=2.0, slope=3.0, num_features=200_000, epsilon=0.3)
    own = {"variance": 3.0, "orlicz_norm": 4.0, "intrinsic_dim": 2.0}
    arguments["output_dim"] = 3
    middle = failure_probability(bounds.brault_subexponential_bound)(**arguments, **own)
    for name, value in (arguments | own).items():
        larger = failure_probability(bounds.brault_subexponential_bound)(**(arguments | own | {name: 2 * value}))
        assert larger < middle if name in ("num_features", "epsilon", "output_dim") else larger > middle
    del arguments["output_dim"]  # a larger one moves error from the variance to kappa
    own = {"variance": 3.0, "largest_error": 4.0, "intrinsic_dim": 2.0}
    middle = failure_probability(bounds.brault_bounded_bound)(**arguments, **own)
    for name, value in (arguments | own).items():
        larger = failure_probability(bounds.brault_bounded_bound)(**(arguments | own | {name: 2 * value}))
        assert larger < middle if name in ("num_features", "epsilon") else larger > middle
    own = {"largest_norm": 4.0, "second_moment": 5.0}
    middle = failure_probability(bounds.minh_bound)(**arguments, **own)
    for name, value in (arguments | own).items():
        larger = failure_probability(bounds.minh_bound)(**(arguments | own | {name: 2 * value}))
        assert larger < middle if name in ("num_features", "epsilon") else larger > middle


# Wrong input

SET = dict(input_dim=2, diameter=1.0, slope=1.0)
MINH = dict(largest_norm=1.0, second_moment=0.5)
BOUND = dict(variance=1.0, largest_error=1.0, intrinsic_dim=1.0)
ORLICZ = dict(variance=1.0, orlicz_norm=1.0, output_dim=2, intrinsic_dim=1.0)
FAILURE, NEEDED = dict(num_features=10, epsilon=0.1), dict(epsilon=0.1, delta=0.1)
VALUES = torch.full((2, 3), 0.5)
EVERY_BOUND = [
    (bounds.operator_fourier_bound, MINH),
    (bounds.minh_bound, SET | MINH),
    (bounds.brault_bounded_bound, SET | BOUND),
    (bounds.brault_subexponential_bound, SET | ORLICZ),
]
EVERY_FORM = [
    *((failure_probability(bound), FAILURE | options) for bound, options in EVERY_BOUND),
    *((num_features(bound), NEEDED | options) for bound, options in EVERY_BOUND),
    (bounds.operator_fourier_variance, dict(kernel=VALUES, kernel_at_double=VALUES, coregionalization=GAMMA)),
    (bounds.decomposable_constants, dict(coregionalization=GAMMA, mean_norm=1.0, variance=0.5)),
    (bounds.curl_free_constants, dict(input_dim=2, lengthscale=1.0)),
    (bounds.divergence_free_constants, dict(input_dim=2, lengthscale=1.0)),
]
NOT_POSITIVE = [0.0, -1.0, math.nan, math.inf, "1", True]
NOT_COUNTS = [0, -2, 1.5, "2", None, True]
WRONG = {name: NOT_POSITIVE for name in ("epsilon", "diameter", "slope", "variance", "largest_error", "orlicz_norm")}
WRONG |= {name: [*NOT_POSITIVE, None] for name in ("largest_norm", "mean_norm", "lengthscale")}
WRONG |= {
    "input_dim": NOT_COUNTS,
    "output_dim": NOT_COUNTS,
    "num_features": [*NOT_COUNTS, 7],
    "delta": [*NOT_POSITIVE, 1.0, 2.0],
    "second_moment": [*NOT_POSITIVE, 1.1],
    "intrinsic_dim": [*NOT_POSITIVE, 0.9],
    "kernel": [3.0 * VALUES, VALUES * math.nan],
    "kernel_at_double": [-3.0 * VALUES, VALUES[0]],
    "coregionalization": [
        GAMMA - 1.0,
        GAMMA[:2],
        GAMMA[0],
        GAMMA.tril(),
        GAMMA * math.nan,
        GAMMA.long(),
        [[1.0]],
        GAMMA[None],
    ],
}


@pytest.mark.parametrize("function, arguments", EVERY_FORM, ids=lambda value: getattr(value, "__name__", ""))
def test_wrong_input_raises(function, arguments):
    function(**arguments)
    for name in arguments:
        for value in WRONG[name]:
            with pytest.raises(ValueError, match="expected"):
                function(**(arguments | {name: value}))


def test_wrong_input_is_explained():
    with pytest.raises(ValueError, match=r"expected a second_moment of at most 4, .* got 5; increase largest_norm"):
        bounds.operator_fourier_bound(2.0, 5.0)
    with pytest.raises(ValueError, match=r"expected a number of at least 1 for intrinsic_dim, got 0.5"):
        bounds.brault_bounded_bound(2, 1.0, 1.0, variance=1.0, largest_error=1.0, intrinsic_dim=0.5)
    with pytest.raises(ValueError, match=r"expected an input_dim of at least 2, got 1"):
        bounds.divergence_free_constants(1, 1.0)
    with pytest.raises(ValueError, match=r"expected a coregionalization matrix other than zero"):
        bounds.decomposable_constants(torch.zeros(2, 2), 1.0)
    with pytest.raises(ValueError, match=r"expected numbers from 0 to 1 for variance, got 2"):
        bounds.decomposable_constants(GAMMA, 1.0, variance=2.0)
    with pytest.raises(ValueError, match=r"that 2\^53 features can reach"):
        bounds.minh_bound(2, 1.0, 1.0, 1.0).num_features(1e-9, 0.1)

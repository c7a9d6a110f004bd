"""Error bounds: no failure rate exceeds one, both forms agree, and their constants are those of independent formulas.

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
from rfgp.features import ProductSketch

REPEATS = 4000


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def bernstein(variance, count, epsilon):
    """Bernstein's inequality for the mean of ``count`` terms that are off by 2 at most."""
    return min(1.0, 2.0 * math.exp(-count * epsilon**2 / 2.0 / (variance + 2.0 * epsilon / 3.0)))


def epsilons(variance, count):
    """Errors of half to three standard deviations, and those of which Bernstein's bound is 0.9, 0.5, 0.1 and 0.01."""
    spread = math.sqrt(variance / count)
    logs = [math.log(2.0 / bound) / count for bound in (0.9, 0.5, 0.1, 0.01)]
    return [spread * z for z in (0.5, 1, 2, 3)] + [
        2 * z / 3 + math.sqrt(4 * z * z / 9 + 2 * z * variance) for z in logs
    ]


# Rademacher sketches

PAIRS = {"equal": ((0.5, 0.5), (0.5, 0.5)), "opposite": ((0.5, 0.5), (0.6, -0.4)), "three": ((3, 1, 2), (1, 4, 1))}
every_sketch = pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])


def relative_errors(x, y, degree, num_features, is_complex):
    """Errors of REPEATS sketches relative to the product of 1-norms, and the relative variance of one feature."""
    generator = seeded(degree)
    sketch = ProductSketch(x.shape[-1], REPEATS * num_features, degree, is_complex=is_complex, generator=generator)
    left, right = (sketch.double()(z) for z in (x, y))
    products = (left * right.conj()).reshape(REPEATS, num_features).sum(-1) * REPEATS
    scale = float(x.abs().sum() * y.abs().sum()) ** degree
    variance = float(sketch.moments(x, y).variance) * REPEATS * num_features / scale**2
    return (products - (x @ y.mT).squeeze() ** degree).abs() / scale, variance


@every_sketch
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("pair", PAIRS)
def test_rademacher_rates_stay_below_the_bound(pair, degree, is_complex):
    x, y = (tensor(z) for z in PAIRS[pair])
    num_features = 128
    errors, variance = relative_errors(x, y, degree, num_features, is_complex)
    for epsilon in epsilons(variance, num_features):
        bound = bounds.rademacher_bound(x, y, degree, is_complex).failure_probability(num_features, epsilon)
        assert bound.shape == (1, 1) and bound.dtype == torch.float64
        assert float(bound) == pytest.approx(bernstein(variance, num_features, epsilon), rel=1e-9)
        assert float((errors >= epsilon).double().mean()) <= float(bound)
    assert float(bound) == pytest.approx(0.01)


@every_sketch
def test_rademacher_rates_exceed_a_bound_with_a_tenth_of_the_variance(is_complex):
    x = tensor((0.5, 0.5))
    errors, variance = relative_errors(x, x, 2, 400, is_complex)
    epsilon = 2.0 * math.sqrt(variance / 400)
    rate = float((errors >= epsilon).double().mean())
    assert bernstein(variance / 10.0, 400, epsilon) < rate <= bernstein(variance, 400, epsilon)


@every_sketch
@pytest.mark.parametrize("degree", [1, 2, 5])
@pytest.mark.parametrize("dim", [2, 3, 8])
def test_rademacher_bound_of_equal_entries(dim, degree, is_complex):
    """T after Eq. 3.21: sigma^2 = (2 - 1/d)^p - 1 or (3 - 2/d)^p - 1, here divided by d^2p."""
    x = torch.ones(1, dim, dtype=torch.float64) / math.sqrt(dim)
    variance = ((2 - 1 / dim if is_complex else 3 - 2 / dim) ** degree - 1) / dim ** (2 * degree)
    found = bounds.rademacher_bound(x, x, degree, is_complex).failure_probability(1000, 0.05)
    assert float(found) == pytest.approx(bernstein(variance, 1000, 0.05), rel=1e-9)
    printed = 2 * (2 / (3 * 0.05) + variance * dim ** (2 * degree) / 0.05**2) * math.log(2 / 0.1)
    assert int(bounds.rademacher_bound(x, x, degree, is_complex).num_features(0.05, 0.1)) <= math.ceil(printed)


@every_sketch
def test_rademacher_forms_are_inverse(is_complex):
    x, y = (torch.randn(2, 3, 4, generator=seeded(seed), dtype=torch.float64) for seed in (1, 2))
    for epsilon, delta in ((0.1, 0.05), (0.01, 0.5), (1.5, 1e-6)):
        needed = bounds.rademacher_bound(x, y, 3, is_complex).num_features(epsilon, delta)
        assert needed.shape == (2, 3, 3) and needed.dtype == torch.int64
        for batch, i, j in ((0, 0, 0), (1, 2, 0), (1, 1, 2)):
            bound = bounds.rademacher_bound(x[batch, i][None], y[batch, j][None], 3, is_complex)
            count = int(needed[batch, i, j])
            at, below = (float(bound.failure_probability(n, epsilon)) for n in (count, max(1, count - 1)))
            assert at <= delta * (1 + 1e-9) and (count == 1 or below > delta)


def test_rademacher_bound_does_not_depend_on_scale_and_falls_with_width():
    x, y = tensor((1, 2, -1), (0.5, 0, 3)), tensor((1, -1, 4))
    falling = [bounds.rademacher_bound(x, y, 2).failure_probability(n, 0.1) for n in (1, 10, 100, 1000, 10_000)]
    assert all((after <= before).all() for before, after in itertools.pairwise(falling))
    assert (falling[-1] < 1e-3).all()
    torch.testing.assert_close(bounds.rademacher_bound(1e9 * x, 1e-9 * y, 2).failure_probability(100, 0.1), falling[2])
    single = bounds.rademacher_bound(x.float(), y.float(), 2).failure_probability(100, 0.1)
    torch.testing.assert_close(single, falling[2], rtol=1e-4, atol=0.0)


def test_rademacher_sketches_of_zero_never_fail():
    x, y = tensor((0, 0), (1, 2)), tensor((1, 1))
    bound = bounds.rademacher_bound(x, y, 2)
    assert bound.failure_probability(1, 0.01).tolist() == [[0.0], [1.0]]
    assert bound.num_features(0.01, 0.01)[0] == 1


# Random Fourier features, one kernel value


def gaussian(tau):
    return torch.exp(-(tau**2) / 2.0)


@pytest.mark.parametrize("tau", [0.3, 1.0, 3.0])
def test_fourier_rates_stay_below_the_bounds(tau):
    m = 200
    estimates = torch.cos(tau * torch.randn(REPEATS, m, generator=seeded(), dtype=torch.float64)).mean(-1)
    errors = (estimates - gaussian(tensor(tau))).abs()
    variance = bounds.fourier_variance(gaussian(tensor(tau)), gaussian(tensor(2 * tau)))
    assert float(variance) == pytest.approx(float(estimates.var()) * m, rel=0.1)
    for epsilon in epsilons(float(variance), m):
        rate = float((errors >= epsilon).double().mean())
        with_variance = float(bounds.fourier_bound(variance).failure_probability(2 * m, epsilon))
        without = float(bounds.fourier_bound().failure_probability(2 * m, epsilon))
        assert rate <= with_variance <= without
        assert without == pytest.approx(min(1.0, 2.0 * math.exp(-m * epsilon**2 / 2.0)))
        assert with_variance == pytest.approx(min(without, bernstein(float(variance), m, epsilon)))
    assert with_variance == pytest.approx(0.01)
    epsilon = 2.0 * math.sqrt(float(variance) / m)
    rate = float((errors >= epsilon).double().mean())
    assert rate > bernstein(float(variance) / 10.0, m, epsilon) or tau < 0.5
    assert rate > 2.0 * math.exp(-10.0 * m * epsilon**2 / 2.0) or tau < 0.5


def test_fourier_bounds_fail_for_half_the_frequencies():
    """num_features counts columns: read as frequencies, Hoeffding's bound would be false for a kernel of two signs."""
    m, epsilon = 100, 0.23
    signs = torch.randint(0, 2, (20 * REPEATS, m), generator=seeded(), dtype=torch.int8)
    rate = float(((2.0 * signs.float().mean(-1) - 1.0).abs() >= epsilon).double().mean())
    assert (
        2.0 * math.exp(-2 * m * epsilon**2 / 2.0)
        < rate
        <= float(bounds.fourier_bound().failure_probability(2 * m, epsilon))
    )


def test_fourier_variance_of_a_gaussian_kernel():
    tau = torch.linspace(0, 5, 20, dtype=torch.float64)
    expected = (1.0 - gaussian(tau) ** 2) ** 2 / 2.0
    found = bounds.fourier_variance(gaussian(tau), gaussian(2 * tau))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    single = bounds.fourier_variance(gaussian(tau).float(), gaussian(2 * tau).float())
    torch.testing.assert_close(single, expected, rtol=0.0, atol=1e-6)


def test_fourier_forms_are_inverse():
    variance = torch.linspace(0, 1, 7, dtype=torch.float64).reshape(7, 1)
    for epsilon, delta in ((0.1, 0.05), (0.01, 0.5), (1.5, 0.9), (0.3, 1e-9)):
        needed = bounds.fourier_bound(variance).num_features(epsilon, delta)
        assert needed.shape == variance.shape and needed.dtype == torch.int64 and (needed % 2 == 0).all()
        for v, count in zip(variance.flatten(), needed.flatten().tolist(), strict=True):
            bound = bounds.fourier_bound(v)
            assert bound.failure_probability(count, epsilon) <= delta * (1 + 1e-9)
            assert count == 2 or bound.failure_probability(count - 2, epsilon) > delta
    assert int(bounds.fourier_bound().num_features(0.1, 0.05)) == 2 * math.ceil(200 * math.log(40))
    assert int(bounds.fourier_bound().num_features(0.1, 0.05)) == 2 * math.ceil(200 * math.log(40))


# Random Fourier features, all kernel values on a compact set

UNIFORM = {
    "rahimi_recht": bounds.rahimi_recht_bound,
    "sutherland_schneider": bounds.sutherland_schneider_bound,
}
every_uniform = pytest.mark.parametrize("name", UNIFORM)


def largest_errors(m, diameter, repeats=200):
    """Largest error on [0, diameter] for a Gaussian kernel in one dimension, in ``repeats`` draws of m frequencies."""
    tau = torch.linspace(0, diameter, 60, dtype=torch.float64)
    w = torch.randn(repeats, m, 1, generator=seeded(3), dtype=torch.float64)
    return (torch.cos(w * tau).mean(1) - gaussian(tau)).abs().amax(-1)


@every_uniform
@pytest.mark.parametrize("diameter", [0.5, 4.0])
def test_uniform_rates_stay_below_the_bounds(name, diameter):
    options = {} if name == "rahimi_recht" else {"variance": 0.5}
    bound = UNIFORM[name](1, diameter, 1.0, **options)
    needed = bound.num_features(0.5, 0.1)
    errors = largest_errors(needed // 2, diameter)
    assert bound.failure_probability(needed, 0.5) <= 0.1
    assert float((errors >= 0.5).double().mean()) <= 0.1
    assert float((errors >= 0.5 / 10).double().mean()) > 0.1 or diameter < 1.0


def test_slopes_stay_below_what_the_uniform_bounds_need():
    """Pr[L >= t] <= sigma_p^2/t^2 for t^2 = 5 sigma_p^2 and four frequencies, the worst case that is used."""
    w = torch.randn(500, 4, 1, generator=seeded(5), dtype=torch.float64)
    tau = torch.linspace(0, 20, 1000, dtype=torch.float64)
    slopes = ((w * torch.sin(w * tau)).mean(1) - tau * gaussian(tau)).abs().amax(-1)
    assert float((slopes.square() >= 5.0).double().mean()) <= 0.2


def test_a_single_frequency_breaks_the_printed_bound_on_the_mean_squared_slope():
    """L^2 is never below w^2 on a long interval, and exceeds it wherever the slope of the kernel adds to it."""
    w = torch.tensor(scipy.stats.norm.ppf((torch.arange(1000).double() + 0.5) / 1000))[:, None]
    tau = torch.linspace(0, 200, 40_001, dtype=torch.float64)
    kernel_slope = tau * gaussian(tau)
    largest = torch.cat([(part * torch.sin(part * tau) - kernel_slope).abs().amax(-1) for part in w.split(50)])
    assert float(largest.square().mean()) > 1.05


def test_uniform_constants():
    """The minimum over r of what the proof adds up, and the closed values for two dimensions."""
    for d, diameter, second_moment, epsilon, variance in (
        (1, 2.0, 1.0, 0.3, 0.5),
        (2, 4.0, 2.0, 0.1, 1.0),
        (9, 3, 9, 1, 0.2),
    ):
        bound = bounds.sutherland_schneider_bound(d, diameter, second_moment, variance)
        columns = bound.num_features(epsilon, 0.01)
        m, alpha = columns // 2, min(1.0, variance + epsilon / 3)

        def proof(log_r, d=d, l=diameter, s=second_moment, e=epsilon, m=m, a=alpha):  # noqa: E741
            r = math.exp(log_r)
            return 2 * (4 * l / r) ** d * math.exp(-m * e**2 / (8 * a)) + (2 * r / e) ** 2 * s

        best = scipy.optimize.minimize_scalar(proof, bounds=(-80, 10), method="bounded", options={"xatol": 1e-10}).fun
        found = bound.failure_probability(columns, epsilon)
        assert 0.009 < found <= 0.01 and found == pytest.approx(best, rel=1e-6)
    found = bounds.sutherland_schneider_bound(2, 4.0, 2.0).failure_probability(40_000, 0.1)
    assert found == pytest.approx(2**4.5 * math.sqrt(2) * 40 * math.exp(-400 / 32))
    found = bounds.rahimi_recht_bound(2, 4.0, 2.0).failure_probability(60_000, 0.1)
    assert found == pytest.approx(2**8 * 3200 * math.exp(-600 / 32))
    found = bounds.rahimi_recht_bound(2, 0.1, 0.01).failure_probability(1000, 1.0)
    assert found == pytest.approx(2**8 * math.exp(-1000 / 32))


@every_uniform
@pytest.mark.parametrize("settings", [(1, 2.0, 1.0), (8, 10.0, 8.0), (64, 1.0, 640.0), (3, 0.01, 0.5)])
def test_uniform_forms_are_inverse(name, settings):
    bound = UNIFORM[name](*settings)
    for epsilon, delta in ((0.1, 0.05), (1.0, 0.2), (0.02, 1e-8), (0.1, 0.9)):
        needed = bound.num_features(epsilon, delta)
        assert isinstance(needed, int) and needed % 2 == 0 and needed >= 8
        assert bound.failure_probability(needed, epsilon) <= delta * (1 + 1e-9)
        assert needed == 8 or bound.failure_probability(needed - 2, epsilon) > delta
    falling = [bound.failure_probability(columns, 0.1) for columns in (2, 6, 8, 100, 10_000, 100_000, 10**7)]
    assert falling == sorted(falling, reverse=True) and falling[0] == falling[1] == 1.0 and falling[-1] < 1e-9


def test_uniform_bounds_are_one_where_they_are_not_proven():
    bound = bounds.sutherland_schneider_bound(1, 0.01, 0.01)
    small = [bound.failure_probability(columns, 1.0) for columns in (2, 4, 6, 8)]
    assert small[:3] == [1.0] * 3 and small[3] < 0.2
    bound = bounds.rahimi_recht_bound(2, 4.0, 2.0)
    needed = bound.num_features(0.1, 0.2)
    assert bound.failure_probability(needed, 0.1) > 0.199
    assert bound.failure_probability(needed - 2, 0.1) == 1.0


@pytest.mark.parametrize("dim", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_sutherland_schneider_is_never_above_rahimi_recht(dim, size):
    loose, tight = bounds.rahimi_recht_bound(dim, size, 1.0), bounds.sutherland_schneider_bound(dim, size, 1.0)
    tightest = bounds.sutherland_schneider_bound(dim, size, 1.0, variance=0.3)
    for epsilon in (0.05, 0.5):
        columns = loose.num_features(epsilon, 0.2)
        found = [bound.failure_probability(columns, epsilon) for bound in (tightest, tight, loose)]
        assert found == sorted(found) and found[-1] <= 0.2


# Derivatives

INDICES = [((0, 0), (0, 0)), ((1, 0), (0, 0)), ((0, 1), (0, 0)), ((1, 0), (1, 0)), ((0, 0), (0, 2)), ((1, 0), (0, 1))]
every_index = pytest.mark.parametrize("p, q", INDICES, ids=str)
LENGTHSCALE = (0.5, 2.0)


def moment(power, lengthscale):
    """E |w|^power for w ~ N(0, 1/lengthscale^2), by quadrature."""
    density = scipy.stats.norm(scale=1.0 / lengthscale).pdf
    return 2.0 * scipy.integrate.quad(lambda w: w**power * density(w), 0, 20 / lengthscale, epsabs=0, epsrel=1e-11)[0]


def expected_error(p, q, diameter, m, delta):
    r = [i + j for i, j in zip(p, q, strict=True)]
    first, second = ([moment(2 * k, s) for k, s in zip(powers, LENGTHSCALE, strict=True)] for powers in (r, (1, 1)))
    scale = math.sqrt(math.prod(first))
    raised = [moment(2 * k + 2, s) for k, s in zip(r, LENGTHSCALE, strict=True)]
    lipschitz = math.sqrt(raised[0] * first[1] + first[0] * raised[1]) / scale
    assert sum(r) > 0 or lipschitz == pytest.approx(math.sqrt(sum(second)))
    growth, t = 2 / math.sqrt(3) if 2 in r else 1.0, math.log(2 / delta)
    c1, c2 = 14 * math.sqrt(6 * math.log(2)) + 1, 36 * growth * (math.log(2) + 1)
    c3 = 7 * math.sqrt(6) * (1 + math.sqrt(math.pi) / math.log(2) ** 1.5)
    entropy = math.sqrt(2 * math.log(16 * diameter * lipschitz + 4))
    slope = math.sqrt(t) + math.sqrt(6) * growth / (2 * math.sqrt(m)) * t / 2
    return scale * ((c3 * entropy + c1 + 24 * math.sqrt(6) * slope) / math.sqrt(m) + c2 / m)


@every_index
@pytest.mark.parametrize("m, delta", [(10, 0.5), (100_000, 0.01)])
def test_derivative_error_is_the_theorem(p, q, m, delta):
    found = bounds.derivative_bound(p, q, 3.0, lengthscale=LENGTHSCALE).error(2 * m, delta)
    assert found == pytest.approx(expected_error(p, q, 3.0, m, delta), rel=1e-9)


def log_moment(orders, n):
    """log E |w^orders|^n for standard normal w."""
    powers = [n * order for order in orders]
    return sum(0.5 * k * math.log(2) + math.lgamma((k + 1) / 2) - 0.5 * math.log(math.pi) for k in powers)


@pytest.mark.parametrize("orders", [(1,), (2,), (1, 1), (3,), (2, 1), (1, 1, 1)], ids=str)
def test_moments_grow_slowly_enough_up_to_order_two_only(orders):
    needed = []  # the smallest logarithms of K
    for n in (3, 4, 5, 10, 100, 1000, 100_000):
        excess = log_moment(orders, n) - 0.5 * n * log_moment(orders, 2) - math.lgamma(n + 1) + math.log(2)
        needed.append(excess / (n - 2))
    if sum(orders) > 2:
        assert needed[-1] > math.log(100)
    else:
        assert max(needed) <= (math.log(4 / 3) / 2 if 2 in orders else 0.0)


@every_index
def test_derivative_forms_are_inverse(p, q):
    options = {"lengthscale": LENGTHSCALE}
    for m, delta in ((50, 0.3), (1000, 1e-3), (10**7, 1e-12)):
        epsilon = bounds.derivative_bound(p, q, 2.0, **options).error(2 * m, delta)
        found = bounds.derivative_bound(p, q, 2.0, **options).failure_probability(2 * m, epsilon)
        assert found == pytest.approx(delta, rel=1e-6)
        assert bounds.derivative_bound(p, q, 2.0, **options).num_features(epsilon * (1 + 1e-12), delta) == 2 * m
        assert bounds.derivative_bound(p, q, 2.0, **options).num_features(epsilon * (1 - 1e-12), delta) == 2 * m + 2
    epsilon = bounds.derivative_bound(p, q, 2.0, **options).error(2000, 0.1)
    columns = (100, 1500, 2000, 3000, 10_000)
    falling = [bounds.derivative_bound(p, q, 2.0, **options).failure_probability(n, epsilon) for n in columns]
    assert falling == sorted(falling, reverse=True) and falling[0] == 1.0 and falling[-1] < 1e-6


@pytest.mark.parametrize("order", [0, 1, 2])
def test_derivative_rates_stay_below_the_bound(order):
    """The bound is hundreds of times what errors are."""
    m, repeats, scale = 20_000, 20, math.sqrt((1.0, 1.0, 3.0)[order])
    w = torch.randn(repeats, m, 1, generator=seeded(order), dtype=torch.float64)
    tau = torch.linspace(-3, 3, 31, dtype=torch.float64)
    terms = (torch.cos(w * tau), -w * torch.sin(w * tau), -(w**2) * torch.cos(w * tau))[order]
    exact = (1.0, -tau, tau**2 - 1.0)[order] * gaussian(tau)
    errors = (terms.mean(1) - exact).abs().amax(-1)
    bound = bounds.derivative_bound([order], [0], 3.0, lengthscale=1.0).error(2 * m, 0.1)
    assert 150 * scale / math.sqrt(m) < bound < 300 * scale / math.sqrt(m)
    assert float((errors >= bound).double().mean()) <= 0.1
    assert 20 < bound / float(errors.mean()) < 1000


def test_derivative_bound_is_never_small():
    smallest = bounds.derivative_bound([0], [0], 1e-9, second_moment=1e-9).error(2 * 10**12, 1 - 1e-9)
    assert smallest * 1e6 == pytest.approx(160.7, abs=0.1)


def test_derivative_bound_takes_any_kernel_for_values():
    gaussian_bound = bounds.derivative_bound([0] * 3, [0] * 3, 2.0, lengthscale=[1.0, 2.0, 0.5]).error(1000, 0.1)
    other = bounds.derivative_bound([0] * 3, [0] * 3, 2.0, second_moment=1 + 0.25 + 4).error(1000, 0.1)
    assert gaussian_bound == pytest.approx(other)
    equal = bounds.derivative_bound([1, 0], [0, 0], 2.0, lengthscale=tensor((0.3, 0.3))).error(1000, 0.1)
    assert equal == bounds.derivative_bound([1, 0], [0, 0], 2.0, lengthscale=0.3).error(1000, 0.1)
    assert equal == bounds.derivative_bound(torch.tensor([1, 0]), (0, 0), 2.0, lengthscale=0.3).error(1000, 0.1)


# Wrong input

X = torch.ones(2, 3, dtype=torch.float64)
GAUSSIAN = {"lengthscale": 1.0}
EVERY_BOUND = [
    (bounds.rademacher_bound, dict(x=X, y=X, degree=2)),
    (bounds.fourier_bound, dict(variance=0.5)),
    (bounds.rahimi_recht_bound, dict(input_dim=2, diameter=1.0, second_moment=1.0)),
    (bounds.sutherland_schneider_bound, dict(input_dim=2, diameter=1.0, second_moment=1.0, variance=0.5)),
]
DERIVATIVE = dict(p=[1], q=[1], diameter=1.0, lengthscale=1.0)


def derivative_error(num_features, delta, **options):
    return bounds.derivative_bound(**options).error(num_features, delta)


EVERY_FORM = [
    *((failure_probability(bound), dict(num_features=10, epsilon=0.1) | options) for bound, options in EVERY_BOUND),
    *((num_features(bound), dict(epsilon=0.1, delta=0.1) | options) for bound, options in EVERY_BOUND),
    (bounds.fourier_variance, dict(kernel=X, kernel_at_double=X)),
    (derivative_error, dict(num_features=10, delta=0.1) | DERIVATIVE),
    (failure_probability(bounds.derivative_bound), dict(num_features=10, epsilon=0.1) | DERIVATIVE),
    (num_features(bounds.derivative_bound), dict(epsilon=0.1, delta=0.1) | DERIVATIVE),
]
NOT_POSITIVE = [0.0, -1.0, math.nan, math.inf, "1", None, True]
NOT_COUNTS = [0, -2, 1.5, "2", None, True]
WRONG = {
    "x": [X.long(), X[0], X[:0], X.tolist(), X * math.nan],
    "y": [X.long(), X[0], X[:0], X[:, :2], X.float(), X / 0.0],
    "degree": NOT_COUNTS,
    "num_features": NOT_COUNTS,
    "input_dim": NOT_COUNTS,
    "epsilon": [*NOT_POSITIVE, 1e-200],
    "delta": [*NOT_POSITIVE, 1.0, 2.0],
    "diameter": NOT_POSITIVE,
    "second_moment": NOT_POSITIVE,
    "variance": [-0.1, 1.1, math.nan],
    "kernel": [2.0 * X, X * math.nan],
    "kernel_at_double": [-2.0 * X, X[0]],
    "lengthscale": [0.0, -1.0, math.nan, [1.0, 1.0], [], None],
    "p": [[], [-1], [1.0], [True], 1, [1, 0], [2], None],
    "q": [[], [-1], [1.0], [True], 1, [1, 0], [2], None],
}


def is_allowed(function, name, value):
    return name == "epsilon" and value == 1e-200 and not function.__name__.endswith("num_features")


@pytest.mark.parametrize("function, arguments", EVERY_FORM, ids=lambda value: getattr(value, "__name__", ""))
def test_wrong_input_raises(function, arguments):
    function(**arguments)
    for name in arguments:
        for value in WRONG[name]:
            if not is_allowed(function, name, value):
                with pytest.raises(ValueError, match="expected"):
                    function(**(arguments | {name: value}))


def test_wrong_input_is_explained():
    with pytest.raises(ValueError, match=r"expected an even num_features, .* got 7; add one"):
        bounds.fourier_bound().failure_probability(7, 0.1)
    with pytest.raises(ValueError, match=r"total order 2 at most, got p \+ q = \[2, 1\]; the moments of"):
        bounds.derivative_bound([1, 1], [1, 0], 1.0, **GAUSSIAN).error(10, 0.1)
    with pytest.raises(ValueError, match=r"expected p = q = 0 with a second_moment, got p \+ q = \[1\]; .*Matérn"):
        bounds.derivative_bound([1], [0], 1.0, second_moment=1.0).error(10, 0.1)
    for options, got in (({}, "neither"), (dict(second_moment=1.0, **GAUSSIAN), "both")):
        with pytest.raises(ValueError, match=f"got {got}; pass lengthscale"):
            bounds.derivative_bound([0], [0], 1.0, **options).error(10, 0.1)
    with pytest.raises(ValueError, match=r"that 2\^53 features can reach"):
        bounds.sutherland_schneider_bound(2, 1.0, 1.0).num_features(1e-9, 0.1)

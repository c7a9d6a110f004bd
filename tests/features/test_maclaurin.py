"""Maclaurin features: their terms, and how many features every degree gets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from rfgp.features import ComplexToReal, LinearFeatures, Maclaurin, ProductSketch, TensorSRHT, polynomial_sketch
from rfgp.features.allocation import CONVEX_SKETCHES, allocate, optimized_maclaurin, random_maclaurin
from rfgp.features.allocation.gains import _take, sorted_gains
from rfgp.features.allocation.pairs import _SAMPLE, PairTerms, sample_pairs
from rfgp.features.sketch_registry import FORMS
from rfgp.linalg import next_power_of_two

STANDARD_ERRORS = 5.0
SERIES = torch.tensor([1.0 / math.factorial(n) for n in range(7)], dtype=torch.float64)
GAPS = torch.tensor([0.0, 0.7, 0.0, 0.4, 0.3], dtype=torch.float64)

every_form = pytest.mark.parametrize("form", FORMS)
every_sketch = pytest.mark.parametrize("sketch", CONVEX_SKETCHES)
gaussian_or_not = pytest.mark.parametrize("is_gaussian", [False, True])


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def points(num_rows, dim, seed=0):
    x = torch.randn(num_rows, dim, generator=seeded(seed), dtype=torch.float64) + 0.3
    return torch.nn.functional.normalize(x, dim=-1)


def term_form(form, degree):
    return "real" if form == "ctr" and degree == 1 else form


def columns_of(width, form, degree):
    return 2 * width if term_form(form, degree) == "ctr" else width


def pair_terms(x, sketch, is_gaussian=False):
    """All pairs of different inputs, their weights, and the number of columns that share their signs."""
    left, right, weights, _ = sample_pairs(x, None, None)
    block = next_power_of_two(x.shape[-1]) if sketch.startswith("tensor") else 1
    return PairTerms(left, right, is_gaussian, sketch, block), weights, block


def statistics(x, coefficients, form, sketch):
    pairs, weights, block = pair_terms(x, sketch)
    degrees = [n for n in range(1, len(coefficients)) if coefficients[n] > 0]
    return {n: pairs.statistics(n, float(coefficients[n]), term_form(form, n), weights) for n in degrees}, block


@every_form
@every_sketch
@gaussian_or_not
def test_variance_is_the_mean_of_the_moments(form, sketch, is_gaussian):
    x = 1.2 * points(8, 5)
    pairs, weights, block = pair_terms(x, sketch, is_gaussian)
    squares = x.square().sum(-1)
    envelope = torch.exp(-squares[:, None] - squares) if is_gaussian else torch.ones_like(weights)
    for degree, width in itertools.product((1, 2, 3, 6), (1, 3, 8, 11, 16)):
        features = polynomial_sketch(sketch, form, 5, 2 * width if form == "ctr" else width, degree).double()
        variance = 0.3**2 * envelope * features.moments(x, x).variance
        expected = float((weights * variance).sum())
        means = pairs.statistics(degree, 0.3, form, weights)
        assert abs(means.true_variance(width, block) - expected) <= 1e-12
        each = pairs.variances(degree, 0.3, form, width)
        torch.testing.assert_close(weights * each, weights * variance, rtol=1e-10, atol=1e-14)


@every_form
@every_sketch
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dim", [1, 3, 4])
def test_surrogate_is_convex_and_bounds_or_equals_the_variance(form, sketch, degree, dim):
    """Equal at all multiples of d, and up to d where the covariance is negative; above it where that is positive."""
    pairs, weights, block = pair_terms(points(10, dim, seed=degree), sketch)
    covariance = pairs.single(degree, 0.5, form)[1]
    widths = np.arange(1.0, 4.0 * block + 6.0)
    for chosen in (covariance <= 0, covariance > 0, covariance < math.inf):
        means = pairs.statistics(degree, 0.5, form, weights * chosen)
        surrogate = means.surrogate(widths, block)
        true = np.array([means.true_variance(int(width), block) for width in widths])
        steps = np.diff(surrogate)
        assert (steps <= 1e-14).all() and (np.diff(steps) >= -1e-14).all()
        is_multiple = widths % block == 0
        np.testing.assert_allclose(surrogate[is_multiple], true[is_multiple], rtol=0.0, atol=1e-14)
        if means.positive == 0.0:
            np.testing.assert_allclose(surrogate[:block], true[:block], rtol=0.0, atol=1e-14)
            assert (surrogate <= true + 1e-14).all()
        if means.negative_variance == 0.0:
            assert (surrogate >= true - 1e-14).all()


def all_widths(degrees, form, budget):
    """Every way to spend exactly the budget, with at least one feature per degree."""
    if not degrees:
        return [{}] if budget == 0 else []
    first, *others = degrees
    unit = columns_of(1, form, first)
    options = range(1, budget // unit + 1)
    return [{first: width} | rest for width in options for rest in all_widths(others, form, budget - unit * width)]


@every_form
@every_sketch
@pytest.mark.parametrize("coefficients", [SERIES[:3], SERIES[:5], GAPS], ids=["p = 2", "p = 4", "gaps"])
def test_allocation_against_brute_force(form, sketch, coefficients):
    constant = int(coefficients[0] > 0)
    for num_features, seed in itertools.product((9, 10, 13, 14, 16), (0, 1)):
        x = points(12, (3, 5)[seed], seed)
        means, block = statistics(x, coefficients, form, sketch)

        def objective(widths, means=means, block=block):
            return sum(float(means[n].surrogate(np.array([float(width)]), block)[0]) for n, width in widths.items())

        unit, budget = {n: columns_of(1, form, n) for n in means}, num_features - constant
        order = sorted_gains(means, unit, block, budget)
        widths = _take(order, list(means), unit, budget - sum(unit.values()))
        best = min(objective(other) for other in all_widths(list(means), form, budget))
        assert objective(widths) <= best * (1.0 + 1e-10)


@every_form
@every_sketch
def test_exact_linear_term_and_repeated_constant_never_hurt(form, sketch):
    """The true variance is at most that of the best sketches of all terms, with one column for the constant."""
    for num_features, seed in itertools.product((9, 10, 13, 14, 16), (0, 1)):
        x = points(12, (3, 5)[seed], seed)
        means, block = statistics(x, SERIES[:4], form, sketch)
        result = allocate(x, num_features, SERIES[:4], sketch=sketch, form=form, min_degree=3)
        unit, budget = {n: columns_of(1, form, n) for n in means}, num_features - 1
        order = sorted_gains(means, unit, block, budget)
        widths = _take(order, list(means), unit, budget - sum(unit.values()))
        plain = sum(means[n].true_variance(width, block) for n, width in widths.items())
        assert sum(result.num_columns.values()) == num_features
        assert result.variance <= plain * (1.0 + 1e-10)


@every_form
@every_sketch
def test_truncation_is_the_best_one(form, sketch):
    x = points(20, 4, seed=3)
    best = allocate(x, 80, SERIES, function=torch.exp, form=form, sketch=sketch)
    single = [
        allocate(x, 80, SERIES[: p + 1], function=torch.exp, form=form, sketch=sketch, min_degree=p)
        for p in range(1, len(SERIES))
    ]
    assert [option.degree for option in single] == list(range(1, len(SERIES)))
    assert best.error == min(option.error for option in single)
    assert 1 < best.degree < 6
    least = allocate(x, 80, SERIES, function=torch.exp, form=form, sketch=sketch, min_degree=5)
    assert least.error == min(option.error for option in single[4:])


@gaussian_or_not
def test_squared_bias_is_that_of_the_terms_left_out(is_gaussian):
    x = 1.1 * points(15, 3)
    result = allocate(x, 12, SERIES, function=torch.exp, is_gaussian=is_gaussian, form="real")
    kept = [SERIES[n] * (x @ x.mT) ** n for n in result.num_columns]
    squares = x.square().sum(-1)
    envelope = torch.exp(-0.5 * (squares[:, None] + squares)) if is_gaussian else 1.0
    residual = envelope * (torch.exp(x @ x.mT) - torch.stack(kept).sum(0))
    expected = float((residual.square() * (1.0 - torch.eye(15))).sum()) / (15 * 14)
    assert math.isclose(result.squared_bias, expected, rel_tol=1e-9)
    assert result.error == result.variance + result.squared_bias and result.num_pairs == 15 * 14


def test_a_finite_series_has_no_bias_at_full_degree():
    result = allocate(points(15, 3), 40, GAPS, min_degree=4, form="real")
    assert 0.0 <= result.squared_bias <= 1e-28 and result.degree == 4


@every_form
@pytest.mark.parametrize("coefficients", [SERIES, GAPS, SERIES[:2]], ids=["constant", "gaps", "linear"])
def test_budget_is_met_exactly(form, coefficients):
    x = points(15, 3)
    degrees = [n for n in range(len(coefficients)) if coefficients[n] > 0]
    least = sum(columns_of(1, form, n) if n else 1 for n in degrees)
    for num_features in [*range(least, least + 20), 64, 257, 1000]:
        result = allocate(x, num_features, coefficients, form=form, min_degree=len(coefficients) - 1)
        assert sum(result.num_columns.values()) == num_features
        assert list(result.num_columns) == degrees
        assert result.num_columns.get(0, 1) in (1, 2) or len(coefficients) == 2
        assert form != "ctr" or all(result.num_columns[n] % 2 == 0 for n in degrees if n > 1)
    with pytest.raises(ValueError, match=f"expected at least {least} features"):
        allocate(x, least - 1, coefficients, form=form, min_degree=len(coefficients) - 1)


@every_form
def test_least_budget_named_in_the_error_is_enough(form):
    series = torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    least = {"real": 4, "complex": 4, "ctr": 6}[form]
    with pytest.raises(ValueError, match=f"expected at least {least} features"):
        allocate(points(5, 3), least - 1, series, form=form, min_degree=3)
    assert allocate(points(5, 3), least, series, form=form, min_degree=3).degree == 4
    most = {"real": 5, "complex": 5, "ctr": 8}[form]  # of all degrees, where the least asked for is beyond them
    with pytest.raises(ValueError, match=f"expected at least {most} features"):
        allocate(points(5, 3), most - 1, series, form=form, min_degree=9)


def test_pairs_alone_cannot_spend_an_odd_budget():
    series = torch.tensor([0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="expected an even number of features"):
        allocate(points(5, 3), 9, series)
    assert allocate(points(5, 3), 8, series).num_columns == {2: 8}


def test_truncation_is_at_most_of_degree_twenty():
    x = points(6, 3)
    assert allocate(x, 200, torch.ones(30), min_degree=25).degree == 20
    assert allocate(3.0 * x, 200, 0.5 ** torch.arange(30.0), min_degree=25).error < math.inf
    with pytest.raises(ValueError, match="expected finite non-negative coefficients"):
        allocate(x, 200, torch.tensor([1.0] + [0.0] * 20 + [1.0]))


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (torch.ones(1, 3), "expected at least two inputs"),
        (torch.ones(2, 4, 3), "expected at least two inputs"),
        (torch.full((4, 3), math.nan), "expected finite values"),
        (torch.ones(4, 3, dtype=torch.long), "expected floating-point x"),
        (40.0 * torch.ones(4, 3), "expected a kernel that is finite"),
    ],
)
def test_wrong_inputs_raise(x, match):
    with pytest.raises(ValueError, match=match):
        allocate(x, 16, SERIES, function=torch.exp)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sketch": "tensor_sketch"}, "expected one of rademacher, gaussian, tensor_srht_stacked"),
        ({"form": "imaginary"}, "expected one of real, complex, ctr"),
        ({"num_features": 0}, "expected a positive integer for num_features"),
        ({"num_pairs": 0}, "expected a positive integer for num_pairs"),
        ({"coefficients": torch.tensor([1.0, -1.0])}, "expected finite non-negative coefficients"),
        ({"coefficients": torch.tensor([1.0, 0.0])}, "expected finite non-negative coefficients"),
    ],
)
def test_wrong_options_raise(options, match):
    match = match.replace("rademacher, gaussian, tensor_srht_stacked", ", ".join(CONVEX_SKETCHES))
    with pytest.raises(ValueError, match=match):
        allocate(points(4, 3), **{"num_features": 16, "coefficients": SERIES} | options)


@every_form
@pytest.mark.parametrize(("sketch", "is_gaussian"), [("tensor_srht_stacked", False), ("rademacher", True)])
def test_predicted_error_is_the_measured_one(form, sketch, is_gaussian):
    x, series = 0.9 * points(12, 3), SERIES.float()
    options = {"function": torch.exp, "is_gaussian": is_gaussian, "sketch": sketch, "form": form}
    predicted = allocate(x, 21, series, **options)
    features = optimized_maclaurin(x, 21, series, **options, generator=seeded(0)).double()
    exact = torch.exp(-0.5 * torch.cdist(x, x).square()) if is_gaussian else torch.exp(x @ x.mT)
    is_pair, generator, samples = ~torch.eye(12, dtype=torch.bool), seeded(5), []
    for _ in range(300):
        rows = features.resample(generator)(x)
        samples.append((rows @ rows.mH - exact)[is_pair].abs().square().mean())
    samples = torch.stack(samples)
    assert abs(samples.mean() - predicted.error) <= 3.0 * samples.std() / math.sqrt(300)


@every_form
def test_predicted_error_falls_with_the_budget(form):
    x = points(30, 6)
    errors = [allocate(x, width, SERIES, function=torch.exp, form=form).error for width in (17, 65, 257, 1025)]
    assert all(larger > 1.5 * smaller for larger, smaller in itertools.pairwise(errors))


@every_form
def test_one_more_column_does_not_spoil_the_others(form):
    """A column that is no pair must not go to a linear term that is exact without it."""
    x = points(30, 6)
    errors = [allocate(x, width, SERIES, function=torch.exp, form=form).error for width in range(255, 260)]
    assert all(after <= 1.1 * before for before, after in itertools.pairwise(errors))


@every_form
def test_random_pairs_agree_with_all_pairs(form):
    x = points(80, 4)
    options = {"function": torch.exp, "form": form, "min_degree": 4}
    full = allocate(x, 30, SERIES[:5], **options)
    drawn = allocate(x, 30, SERIES[:5], **options, num_pairs=20000, generator=seeded(0))
    values = torch.tensor([full.error, drawn.error, drawn.standard_error])
    assert drawn.num_pairs == 20000 and values.isfinite().all()
    assert abs(drawn.error - full.error) <= 3.0 * drawn.standard_error
    assert all(abs(full.num_columns[n] - drawn.num_columns[n]) <= 2 for n in full.num_columns)


@pytest.mark.parametrize("num_pairs", [None, 60, 600, 6000])
def test_standard_error_is_the_spread_over_data_sets(num_pairs):
    options = {"function": torch.exp, "min_degree": 4, "num_pairs": num_pairs}
    results = [allocate(points(60, 4, s), 32, SERIES[:5], **options, generator=seeded(s)) for s in range(60)]
    spread = torch.tensor([result.error for result in results]).std()
    mean = torch.tensor([result.standard_error for result in results]).mean()
    assert 0.5 * spread <= mean <= 2.0 * spread


def test_many_inputs_are_subsampled():
    x = points(1100, 2)
    result = allocate(x, 16, SERIES[:2], function=torch.exp, generator=seeded(0))
    assert result.num_pairs == _SAMPLE * (_SAMPLE - 1) < 1100 * 1099
    assert result == allocate(x, 16, SERIES[:2], function=torch.exp, generator=seeded(0))


@every_form
@gaussian_or_not
def test_optimized_map_has_the_allocated_columns(form, is_gaussian):
    x = points(20, 5)
    options = {"function": torch.exp, "form": form, "is_gaussian": is_gaussian, "num_pairs": 300}
    features = optimized_maclaurin(x, 40, SERIES, **options, generator=seeded(1))
    assert features.num_columns == allocate(x, 40, SERIES, **options, generator=seeded(1)).num_columns
    assert features.num_features == 40 and features.is_gaussian == is_gaussian
    assert features.is_complex == (form == "complex") and features.has_constant
    for degree, sketch in features.maps_by_degree.items():
        base = sketch.feature_map if term_form(form, degree) == "ctr" else sketch
        if degree == 1 and sketch.num_features == 5 and form != "complex":
            assert isinstance(base, LinearFeatures)
            continue
        assert isinstance(base, TensorSRHT) and base.variant == "stacked" and base.degree == degree
    again = optimized_maclaurin(x, 40, SERIES, **options, generator=seeded(1))
    assert torch.equal(features(x.float()), again(x.float()))


def maps(form="real", dim=3, degrees=(1, 2, 3), width=4, seed=0):
    generator = seeded(seed)
    return {n: polynomial_sketch("rademacher", term_form(form, n), dim, width, n, generator) for n in degrees}


@every_form
@gaussian_or_not
def test_features_are_weighted_terms(form, is_gaussian):
    x, coefficients = 1.3 * points(6, 3), torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0], dtype=torch.float64)
    importance = torch.tensor([2.0, 0.5, 1.0, 1.0, 1.5], dtype=torch.float64)
    features = Maclaurin(maps(form, degrees=(4, 1, 2)), coefficients, is_gaussian, importance).double()
    envelope = torch.exp(-0.5 * x.square().sum(-1, keepdim=True)) if is_gaussian else torch.ones(6, 1)
    parts = [torch.ones(6, 1)] + [math.sqrt(w) * features.maps_by_degree[n](x) for n, w in ((1, 0.5), (2, 2), (4, 4.5))]
    torch.testing.assert_close(features(x), (envelope * torch.cat(parts, dim=-1)).to(features(x).dtype))
    assert list(features.num_columns.items()) == [(0, 1), (1, 4), (2, 4), (4, 4)]
    inner = x @ x.mT
    expected = envelope * envelope.mT * (1.0 + 0.5 * inner + 2.0 * inner**2 + 4.5 * inner**4)
    torch.testing.assert_close(features.target(x, x), expected)


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.6])
def test_gaussian_form_tends_to_the_gaussian_kernel(scale):
    coefficients = SERIES[:4]
    features = Maclaurin(maps(), coefficients, is_gaussian=True).double()
    x = scale * points(10, 3)
    error = (features.target(x, x) - torch.exp(-0.5 * torch.cdist(x, x).square())).abs().max()
    assert error <= scale**8 / math.factorial(4) * 1.5 + 1e-12


@every_form
def test_coefficients_may_come_with_the_call(form):
    features = Maclaurin(maps(form), SERIES[:4]).double()
    x, y = points(5, 3), points(4, 3, seed=1)
    torch.testing.assert_close(features(x, coefficients=SERIES[:4]), features(x))
    batch = torch.rand(2, 1, 4, generator=seeded(2), dtype=torch.float64)
    rows, target = features(x, coefficients=batch), features.target(x, y, coefficients=batch)
    moments = features.moments(x, y, coefficients=batch)
    assert rows.shape == (2, 1, 5, features.num_features) and target.shape == moments.variance.shape == (2, 1, 5, 4)
    for i in range(2):
        one = Maclaurin(features.maps_by_degree, batch[i, 0]).double()
        torch.testing.assert_close(rows[i, 0], one(x), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(target[i, 0], one.target(x, y), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(moments.variance[i, 0], one.moments(x, y).variance, rtol=1e-6, atol=1e-7)


@every_form
def test_gradients_flow_to_coefficients(form):
    features = Maclaurin(maps(form, degrees=(1, 2)), SERIES[:4]).double()
    x = points(4, 3)
    coefficients = SERIES[:4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: features(x, coefficients=a), (coefficients,))
    assert torch.autograd.gradcheck(lambda a: features.target(x, x, coefficients=a), (coefficients,))


@every_form
def test_gradients_are_finite_where_a_term_is_left_out(form):
    features = Maclaurin(maps(form, degrees=(1, 3)), GAPS[:4]).double()
    coefficients = GAPS[:4].clone().requires_grad_()
    rows = features(points(4, 3), coefficients=coefficients)
    (rows @ rows.mH).abs().sum().backward()
    assert torch.isfinite(coefficients.grad).all() and coefficients.grad[0] == coefficients.grad[2] == 0.0


def test_a_sketch_without_moments_leaves_none():
    parts = maps() | {2: polynomial_sketch("tensor_sketch", "real", 3, 4, 2)}
    x = points(3, 3)
    assert Maclaurin(parts, SERIES[:4]).double().moments(x, x) is None


@pytest.mark.parametrize(
    ("maps_by_degree", "coefficients", "match"),
    [
        ({}, [1.0, 1.0], "expected maps of degrees 1 to 1"),
        ({0: ProductSketch(3, 4, 1)}, [1.0, 1.0], "expected maps of degrees 1 to 1"),
        (maps(), [1.0, 1.0, 1.0], "expected maps of degrees 1 to 2"),
        (maps(), [[1.0, 1.0, 1.0, 1.0]], "expected a vector of numbers"),
        (maps(), [1.0, 1.0, -1.0, 1.0], "expected finite non-negative coefficients"),
        (maps(), [1.0, 1.0, math.inf, 1.0], "expected finite non-negative coefficients"),
        (maps(), [1.0, 1.0, math.nan, 1.0], "expected finite non-negative coefficients"),
        (maps() | {2: ProductSketch(4, 4, 2)}, [1.0, 1.0, 1.0, 1.0], "expected maps of one input_dim"),
        (maps() | {2: ProductSketch(3, 4, 2, is_complex=True)}, [1.0, 1.0, 1.0, 1.0], "expected maps of one input_dim"),
    ],
)
def test_wrong_maps_and_coefficients_raise(maps_by_degree, coefficients, match):
    with pytest.raises(ValueError, match=match):
        Maclaurin(maps_by_degree, coefficients)


RANDOM_SERIES = torch.tensor([1.0, 1.0, 0.5, 0.0, 0.3], dtype=torch.float64)


@pytest.mark.parametrize("draws", [2, 20])
@pytest.mark.parametrize(("form", "is_gaussian"), [("real", False), ("complex", True), ("ctr", False)])
def test_random_degrees_are_unbiased(draws, form, is_gaussian):
    """Over degrees and weights: also for few features, where draws of constants alone are repeated."""
    num_features = 2 * draws if form == "ctr" else draws
    x, generator, samples = points(3, 3), seeded(4), []
    options = {"is_gaussian": is_gaussian, "form": form, "generator": generator}
    for _ in range(400):
        features = random_maclaurin(3, num_features, RANDOM_SERIES, **options).double()
        rows = features(x)
        samples.append((rows @ rows.mH).real)
    samples = torch.stack(samples)
    inner = x @ x.mT
    expected = sum(a * inner**n for n, a in enumerate(RANDOM_SERIES.tolist()))
    expected = expected * math.exp(-1.0) if is_gaussian else expected
    assert ((samples.mean(0) - expected).abs() <= STANDARD_ERRORS * samples.std(0) / math.sqrt(400)).all()


@every_form
@pytest.mark.parametrize("ratio", [1.5, 2.0])
def test_law_of_random_degrees(form, ratio):
    generator, repeats, draws = seeded(6), 300, 40
    counts = torch.zeros(repeats, 5, dtype=torch.float64)
    unit = 2 if form == "ctr" else 1
    for row in counts:
        features = random_maclaurin(3, unit * draws, RANDOM_SERIES, ratio=ratio, form=form, generator=generator)
        assert all(sketch.num_features % unit == 0 for sketch in features.maps_by_degree.values())
        for degree, columns in features.num_columns.items():
            row[degree] = columns / unit
    probabilities = torch.where(RANDOM_SERIES > 0, ratio ** -(torch.arange(5.0, dtype=torch.float64) + 1.0), 0.0)
    probabilities = probabilities / probabilities.sum()
    assert counts[:, 3].max() == 0.0
    for degree in (1, 2, 4):
        standard_error = math.sqrt(draws * probabilities[degree] * (1.0 - probabilities[degree]) / repeats)
        assert abs(counts[:, degree].mean() - draws * probabilities[degree]) <= STANDARD_ERRORS * standard_error


def test_random_degrees_have_their_importance():
    features = random_maclaurin(3, 50, RANDOM_SERIES, generator=seeded(0))
    probabilities = torch.where(RANDOM_SERIES > 0, 2.0 ** -(torch.arange(5.0) + 1.0), 0.0)
    probabilities = probabilities / probabilities.sum()
    columns = torch.tensor([features.num_columns.get(n, 0) for n in range(5)])
    columns[0] = 50 - columns[1:].sum()
    expected = torch.where(probabilities > 0, columns / (50 * probabilities), 0.0).float()
    torch.testing.assert_close(features.importance, expected)
    assert features.num_features == 1 + columns[1:].sum() <= 50


def test_random_degrees_follow_the_seed():
    x = points(3, 3).float()
    first, same, other = (random_maclaurin(3, 20, SERIES, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first(x), same(x)) and first.num_columns == same.num_columns
    assert first.num_columns != other.num_columns
    columns = first.num_columns
    assert first.resample(seeded(3)).num_columns == columns and not torch.equal(first(x), same(x))


def test_random_sketches_have_the_form_asked_for():
    features = random_maclaurin(3, 40, SERIES, form="ctr", sketch="tensor_srht", generator=seeded(0))
    assert all(isinstance(sketch, ComplexToReal) for sketch in features.maps_by_degree.values())
    assert all(sketch.feature_map.variant == "upsampled" for sketch in features.maps_by_degree.values())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ratio": 1.0}, "expected a finite ratio above 1"),
        ({"ratio": math.nan}, "expected a finite ratio above 1"),
        ({"form": "imaginary"}, "expected one of real, complex, ctr"),
        ({"sketch": "cauchy"}, "expected one of"),
        ({"num_features": 0}, "expected a positive integer"),
        ({"num_features": 1, "form": "ctr"}, "expected at least 2 features"),
        ({"coefficients": torch.tensor([1.0, 0.0])}, "expected finite non-negative coefficients"),
    ],
)
def test_wrong_random_options_raise(options, match):
    with pytest.raises(ValueError, match=match):
        random_maclaurin(**{"input_dim": 3, "num_features": 16, "coefficients": SERIES} | options)

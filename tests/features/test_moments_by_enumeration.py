"""Moments of feature maps against exact enumeration of all weights, or of quadrature nodes for Gaussian ones."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest
import torch

from rfgp.features import ComplexToReal, Maclaurin, OpticalFeatures, ProductSketch, TensorSRHT

REAL_SIGNS = (1.0, -1.0)
COMPLEX_SIGNS = (1.0, 1.0j, -1.0, -1.0j)
DEGREES = (1, 2, 3, 5, 8, 12, 20)


def two_inputs(dim):
    generator = torch.Generator().manual_seed(dim)
    x, shift = torch.nn.functional.normalize(torch.randn(2, dim, generator=generator, dtype=torch.float64))
    return x[None], torch.nn.functional.normalize(0.9 * x + 0.5 * shift, dim=0)[None]


def products(sketch, x, y):
    """Column-wise products f_l(x) conj(f_l(y)), (D,), without the factor 1/D."""
    features = sketch(torch.cat([x, y]))
    return (sketch.num_features * features[0] * features[1].conj()).to(torch.complex128)


def planes(values, dim):
    values = torch.tensor(values, dtype=torch.complex128)
    return torch.cat([values.real, values.imag], dim=dim)


class Law:
    """First and second moments of weighted outcomes of a vector: E g, E g g^H and E g g^T."""

    def __init__(self, outcomes):
        weights, vectors = zip(*outcomes, strict=True)
        g, p = torch.stack(vectors), torch.tensor(weights, dtype=torch.complex128)[:, None]
        torch.testing.assert_close(p.sum().real, torch.tensor(1.0, dtype=torch.float64), rtol=0.0, atol=1e-12)
        self.mean = (p * g).sum(0)
        self.second = (p * g).mT @ g.conj()
        self.pseudo = (p * g).mT @ g


def check(moments, variance, pseudo_variance):
    for actual, expected in [(moments.variance, variance), (moments.pseudo_variance, pseudo_variance)]:
        assert abs(complex(expected).imag) <= 1e-10 * max(abs(complex(expected)), 1.0)
        assert actual.shape == (1, 1)
        expected = torch.tensor([[complex(expected).real]], dtype=torch.float64)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def check_estimates(moments, target, outcomes):
    """Compare with the moments of weighted outcomes of the kernel estimate itself."""
    law = Law([(weight, estimate.reshape(1)) for weight, estimate in outcomes])
    torch.testing.assert_close(law.mean.reshape(1, 1).real, target, rtol=1e-10, atol=1e-10)
    check(moments, law.second[0, 0] - target[0, 0] ** 2, law.pseudo[0, 0] - target[0, 0] ** 2)


def product_weights(is_complex, *shape):
    """All Rademacher weights of a product sketch of shape (p, D, d), with equal probabilities."""
    signs = COMPLEX_SIGNS if is_complex else REAL_SIGNS
    count = len(signs) ** math.prod(shape)
    for values in itertools.product(signs, repeat=math.prod(shape)):
        weight = np.array(values).reshape(shape)
        yield 1.0 / count, planes(weight, 1) if is_complex else torch.tensor(weight)


@pytest.mark.parametrize(
    ("num_features", "degree", "is_complex"),
    [
        *[(1, 1, False), (1, 2, False), (1, 4, False), (1, 5, False), (3, 1, False), (2, 2, False)],
        *[(1, 1, True), (1, 2, True), (2, 1, True), (1, 3, True)],
    ],
)
def test_rademacher_product_over_all_weights(num_features, degree, is_complex):
    x, y = two_inputs(2)
    sketch = ProductSketch(2, num_features, degree, is_complex=is_complex).double()
    outcomes = []
    for probability, weight in product_weights(is_complex, degree, num_features, 2):
        sketch.weight.copy_(weight)
        outcomes.append((probability, products(sketch, x, y).mean()))
    check_estimates(sketch.moments(x, y), sketch.target(x, y), outcomes)


@pytest.mark.parametrize("degree", [1, 2])
def test_complex_to_real_over_all_weights(degree):
    x, y = two_inputs(2)
    base = ProductSketch(2, 1, degree, is_complex=True).double()
    sketch = ComplexToReal(base)
    outcomes = []
    for probability, weight in product_weights(True, degree, 1, 2):
        base.weight.copy_(weight)
        outcomes.append((probability, products(sketch, x, y).mean()))
    check_estimates(sketch.moments(x, y), sketch.target(x, y), outcomes)


def gaussian_nodes(is_complex, dim):
    """Nodes of a product quadrature that is exact for the fourth moments of one Gaussian weight vector."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    weights = weights / weights.sum()
    parts = 2 if is_complex else 1
    for choice in itertools.product(range(3), repeat=parts * dim):
        weight = torch.tensor(nodes[list(choice)]).reshape(1, parts, dim) / math.sqrt(parts)
        yield weights[list(choice)].prod(), weight


@pytest.mark.parametrize("weights", ["rademacher", "gaussian"])
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_product_by_independence_of_its_factors(weights, is_complex, dim):
    x, y = two_inputs(dim)
    factor = ProductSketch(dim, 1, 1, weights, is_complex).double()
    law = product_weights(is_complex, 1, 1, dim) if weights == "rademacher" else gaussian_nodes(is_complex, dim)
    outcomes = []
    for probability, weight in law:
        factor.weight.copy_(weight)
        outcomes.append((probability, products(factor, x, y)))
    one = Law(outcomes)
    for degree, width in itertools.product(DEGREES, (1, 7)):
        sketch = ProductSketch(dim, width, degree, weights, is_complex).double()
        mean = one.mean[0] ** degree
        torch.testing.assert_close(sketch.target(x, y)[0, 0], mean.real, rtol=1e-10, atol=1e-12)
        variance = (one.second[0, 0] ** degree - mean**2) / width
        pseudo_variance = (one.pseudo[0, 0] ** degree - mean**2) / width
        check(sketch.moments(x, y), variance, pseudo_variance)
        if is_complex:
            real = 0.5 * (variance + pseudo_variance)
            check(ComplexToReal(sketch).moments(x, y), real, real)


def all_signs(is_complex, blocks, padded):
    signs = COMPLEX_SIGNS if is_complex else REAL_SIGNS
    for values in itertools.product(signs, repeat=blocks * padded):
        values = np.array(values).reshape(1, blocks, padded)
        yield planes(values[:, None], 1) if is_complex else torch.tensor(values[:, None])


def index_law(variant, padded, num_features):
    """Probabilities of the row indices of one degree, by enumerating shuffles."""
    copies = -(-num_features // padded)
    if variant == "upsampled":
        shuffles = itertools.permutations(range(copies * padded), num_features)
        count = collections.Counter(tuple(i % padded for i in shuffle) for shuffle in shuffles)
    else:
        blocks = itertools.product(itertools.permutations(range(padded)), repeat=copies)
        count = collections.Counter(
            tuple(b * padded + i for b, block in enumerate(chosen) for i in block)[:num_features] for chosen in blocks
        )
    return [(n / count.total(), index) for index, n in count.items()]


def srht_widths(dim):
    return (1, 2, 3, 4, 5, 6) if dim == 2 else (1, 3, 4, 5, 6)


@pytest.mark.parametrize("variant", ["upsampled", "stacked"])
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(("dim", "num_features"), [(dim, width) for dim in (2, 3, 4) for width in srht_widths(dim)])
def test_srht_by_independence_over_degrees(variant, is_complex, dim, num_features):
    x, y = two_inputs(dim)
    padded = 2 if dim == 2 else 4
    block = TensorSRHT(dim, padded, 1, variant, is_complex).double()
    block.index.copy_(torch.arange(padded)[None])
    outcomes = []
    for signs in all_signs(is_complex, 1, padded):
        block.signs.copy_(signs)
        outcomes.append(products(block, x, y))
    rows = Law([(1.0 / len(outcomes), g) for g in outcomes])

    blocks = 1 if variant == "upsampled" else -(-num_features // padded)
    mean = rows.mean.repeat(blocks)
    second, pseudo = torch.outer(mean, mean.conj()), torch.outer(mean, mean)
    for b in range(blocks):
        own = slice(b * padded, (b + 1) * padded)
        second[own, own], pseudo[own, own] = rows.second, rows.pseudo

    probabilities, indices = zip(*index_law(variant, padded, num_features), strict=True)
    probabilities, indices = torch.tensor(probabilities, dtype=torch.float64), torch.tensor(indices)
    columns, pseudo_columns = (
        torch.einsum("i,iab->ab", probabilities.to(m.dtype), m[indices[:, :, None], indices[:, None, :]])
        for m in (second, pseudo)
    )
    for degree in DEGREES:
        sketch = TensorSRHT(dim, num_features, degree, variant, is_complex).double()
        target = sketch.target(x, y)[0, 0]
        variance = (columns**degree).mean() - target**2
        pseudo_variance = (pseudo_columns**degree).mean() - target**2
        check(sketch.moments(x, y), variance, pseudo_variance)
        if is_complex:
            real = 0.5 * (variance + pseudo_variance)
            check(ComplexToReal(sketch).moments(x, y), real, real)


@pytest.mark.parametrize(
    ("num_features", "degree", "is_complex"),
    [(2, 1, False), (3, 1, False), (3, 2, False), (2, 3, False), (3, 1, True), (2, 2, True)],
)
@pytest.mark.parametrize("variant", ["upsampled", "stacked"])
def test_srht_over_all_weights(variant, num_features, degree, is_complex):
    x, y = two_inputs(2)
    sketch = TensorSRHT(2, num_features, degree, variant, is_complex).double()
    one_degree = list(all_signs(is_complex, sketch.num_blocks, 2))
    all_degrees = [torch.cat(signs) for signs in itertools.product(one_degree, repeat=degree)]
    outcomes = []
    for chosen in itertools.product(index_law(variant, 2, num_features), repeat=degree):
        probability = math.prod(p for p, _ in chosen) / len(all_degrees)
        sketch.index.copy_(torch.tensor([index for _, index in chosen]))
        for signs in all_degrees:
            sketch.signs.copy_(signs)
            outcomes.append((probability, products(sketch, x, y).mean()))
    check_estimates(sketch.moments(x, y), sketch.target(x, y), outcomes)


@pytest.mark.parametrize("variant", ["upsampled", "stacked"])
@pytest.mark.parametrize("is_complex", [False, True])
def test_srht_of_one_column_is_exact(variant, is_complex):
    x, y = two_inputs(1)
    sketch = TensorSRHT(1, 3, 4, variant, is_complex).double()
    estimate = products(sketch, x, y).mean()
    assert abs(estimate - sketch.target(x, y)[0, 0]) <= 1e-14
    assert all(part.abs().max() == 0.0 for part in sketch.moments(x, y))


@pytest.mark.parametrize("is_gaussian", [False, True])
@pytest.mark.parametrize(("degrees", "is_complex"), [((1, 2), False), ((2,), True)])
def test_maclaurin_over_all_weights(degrees, is_complex, is_gaussian):
    x, y = two_inputs(2)
    x, y = 1.1 * x, 0.8 * y
    maps = {n: ProductSketch(2, 1, n, is_complex=is_complex) for n in degrees}
    features = Maclaurin(maps, [0.3, 0.7, 1.9], is_gaussian, torch.tensor([2.0, 0.5, 1.2])).double()
    outcomes = []
    for chosen in itertools.product(*[product_weights(is_complex, n, 1, 2) for n in degrees]):
        for sketch, (_, weight) in zip(features.maps_by_degree.values(), chosen, strict=True):
            sketch.weight.copy_(weight)
        values = features(torch.cat([x, y])).to(torch.complex128)
        outcomes.append((math.prod(probability for probability, _ in chosen), (values[0] * values[1].conj()).sum()))
    check_estimates(features.moments(x, y), features.target(x, y), outcomes)
    inner = x @ y.mT
    series = 0.6 + 0.35 * inner * (1 in degrees) + 2.28 * inner**2
    envelope = torch.exp(-0.5 * (x.square().sum() + y.square().sum())) if is_gaussian else 1.0
    torch.testing.assert_close(features.target(x, y), envelope * series, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("exponent", [2, 4, 6])
def test_optical_features_over_quadrature_nodes(exponent):
    """Products of features have the degree 4 m in the real and imaginary parts of the weights."""
    x, y = two_inputs(2)
    x, y = 1.1 * x, 0.8 * y
    nodes, weights = np.polynomial.hermite_e.hermegauss(2 * exponent + 1)
    grid = torch.tensor(nodes / math.sqrt(2.0))
    real, imaginary = torch.cartesian_prod(grid, grid), torch.cartesian_prod(grid, grid)
    law = torch.tensor(weights / weights.sum())
    law = torch.outer(law, law).flatten()

    def features(z):
        projected = torch.complex((real @ z[0])[:, None].expand(-1, len(law)), (imaginary @ z[0]).expand(len(law), -1))
        return projected.abs() ** exponent

    products = features(x) * features(y)
    mean = (torch.outer(law, law) * products).sum()
    second = (torch.outer(law, law) * products.square()).sum()
    feature_map = OpticalFeatures(2, 5, exponent).double()
    torch.testing.assert_close(feature_map.target(x, y), mean.reshape(1, 1), rtol=1e-10, atol=0.0)
    check(feature_map.moments(x, y), (second - mean**2) / 5.0, (second - mean**2) / 5.0)

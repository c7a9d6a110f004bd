"""Seeded draws: their support, their moments, and what they must not depend on."""

from __future__ import annotations

import collections
import itertools
import math

import pytest
import scipy.stats
import torch

from rfgp.linalg import sampling

COUNT = 20000
DRAWS = {
    "rademacher": lambda g: sampling.rademacher((COUNT,), g),
    "fourth_roots": lambda g: torch.stack(sampling.fourth_roots((COUNT,), g)),
    "gaussian": lambda g: sampling.gaussian((COUNT,), g),
    "complex_gaussian": lambda g: torch.stack(sampling.complex_gaussian((COUNT,), g)),
    "uniform": lambda g: sampling.uniform((COUNT,), g),
    "sobol": lambda g: sampling.sobol(COUNT, 2, g),
    "chi": lambda g: sampling.chi(3.0, (COUNT,), g),
    "orthogonal_directions": lambda g: sampling.orthogonal_directions(1000, 3, g),
    "shuffled_copies": lambda g: sampling.shuffled_copies(8, COUNT, g),
    "stacked_permutations": lambda g: sampling.stacked_permutations(8, COUNT, g),
}

every_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def within(samples, expected):
    return (samples.mean() - expected).abs() <= 5.0 * samples.std() / math.sqrt(len(samples))


@every_draw
def test_one_seed_one_draw(draw):
    assert torch.equal(draw(seeded(1)), draw(seeded(1)))
    assert not torch.equal(draw(seeded(1)), draw(seeded(2)))


@every_draw
def test_default_generator(draw):
    torch.manual_seed(3)
    first = draw(None)
    torch.manual_seed(3)
    assert torch.equal(draw(None), first)
    assert not torch.equal(draw(None), first)


@every_draw
def test_explicit_generator_leaves_the_default_one_alone(draw):
    before = torch.get_rng_state()
    draw(seeded(1))
    assert torch.equal(torch.get_rng_state(), before)


@every_draw
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_draws_do_not_depend_on_the_default_dtype(draw, dtype):
    expected = draw(seeded(1))
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        result = draw(seeded(1))
    finally:
        torch.set_default_dtype(default)
    assert result.dtype == expected.dtype and result.dtype in (torch.float64, torch.int64)
    assert torch.equal(result, expected)


@every_draw
def test_draws_do_not_depend_on_the_default_device(draw):
    expected = draw(seeded(1))
    with torch.device("meta"):
        result = draw(seeded(1))
    assert result.device.type == "cpu"
    assert torch.equal(result, expected)


@pytest.mark.parametrize("name", ["rademacher", "fourth_roots", "gaussian", "complex_gaussian", "uniform"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_shapes(name, shape):
    result = getattr(sampling, name)(shape, seeded(0))
    for part in result if isinstance(result, tuple) else (result,):
        assert part.shape == shape and part.dtype == torch.float64


def test_rademacher():
    signs = sampling.rademacher((COUNT,), seeded(0))
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert within(signs, 0.0)
    assert within(signs[1:] * signs[:-1], 0.0)


def test_fourth_roots():
    roots = torch.complex(*sampling.fourth_roots((COUNT,), seeded(0)))
    counts = collections.Counter(roots.tolist())
    assert set(counts) == {1, 1j, -1, -1j}
    for count in counts.values():
        assert abs(count - COUNT / 4) <= 5.0 * math.sqrt(COUNT * 0.25 * 0.75)
    assert torch.equal(roots.abs(), torch.ones(COUNT, dtype=torch.float64))


def test_gaussian():
    draws = sampling.gaussian((COUNT,), seeded(0))
    for power, expected in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)]:
        assert within(draws**power, expected)
    assert not torch.equal(draws, draws.float().double())


def test_complex_gaussian():
    real, imaginary = sampling.complex_gaussian((COUNT,), seeded(0))
    for part in (real, imaginary):
        for power, expected in [(1, 0.0), (2, 0.5), (4, 0.75)]:
            assert within(part**power, expected)
    assert within(real * imaginary, 0.0)
    assert within(real**2 + imaginary**2, 1.0)


@pytest.mark.parametrize(("size", "length"), [(1, 1), (1, 5), (4, 1), (4, 4), (4, 7), (4, 12), (8, 3)])
def test_shuffled_copies(size, length):
    copies = -(-length // size)
    for seed in range(20):
        index = sampling.shuffled_copies(size, length, seeded(seed))
        assert index.shape == (length,) and index.dtype == torch.int64
        counts = torch.bincount(index, minlength=size)
        assert len(counts) == size and counts.max() <= copies
        if length % size == 0:
            assert (counts == copies).all()


@pytest.mark.parametrize(("size", "length"), [(1, 1), (1, 5), (4, 1), (4, 4), (4, 7), (4, 12), (8, 3)])
def test_stacked_permutations(size, length):
    for seed in range(20):
        index = sampling.stacked_permutations(size, length, seeded(seed))
        assert index.shape == (length,) and index.dtype == torch.int64
        assert torch.equal(index // size, torch.arange(length) // size)
        assert len(index.unique()) == length


@pytest.mark.parametrize(
    ("draw", "outcomes"),
    [
        (sampling.shuffled_copies, set(itertools.product((0, 1), repeat=3)) - {(0, 0, 0), (1, 1, 1)}),
        (sampling.stacked_permutations, {(*first, last) for first in [(0, 1), (1, 0)] for last in (2, 3)}),
    ],
)
def test_every_order_is_equally_likely(draw, outcomes):
    generator, repeats = seeded(0), 6000
    counts = collections.Counter(tuple(draw(2, 3, generator).tolist()) for _ in range(repeats))
    assert set(counts) == outcomes
    chance = 1.0 / len(outcomes)
    for count in counts.values():
        assert abs(count - repeats * chance) <= 5.0 * math.sqrt(repeats * chance * (1.0 - chance))


def follows(samples, law):
    """Whether a Kolmogorov-Smirnov test at the level 1e-3 accepts samples, at a fixed seed."""
    return scipy.stats.kstest(samples.flatten().numpy(), law).pvalue >= 1e-3


def test_uniform():
    draws = sampling.uniform((COUNT,), seeded(0))
    assert draws.min() > 0.0 and draws.max() < 1.0
    assert follows(draws, scipy.stats.uniform.cdf)
    assert within(draws[1:] * draws[:-1], 0.25)


@pytest.mark.parametrize("cell", ["lowest", "highest"])
def test_uniform_stays_inside_the_open_interval(cell, monkeypatch):
    def extreme(low, high, shape, **options):
        return torch.full(shape, low if cell == "lowest" else high - 1)

    monkeypatch.setattr(torch, "randint", extreme)
    assert 0.0 < float(sampling.uniform((1,))) < 1.0


@pytest.mark.parametrize("degrees", [0.5, 1.0, 3, 5.0, 784])
def test_chi(degrees):
    draws = sampling.chi(degrees, (COUNT,), seeded(0))
    assert draws.shape == (COUNT,) and draws.dtype == torch.float64 and draws.min() > 0.0
    assert follows(draws, scipy.stats.chi(degrees).cdf)
    assert within(draws.square(), float(degrees))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_chi_shapes(shape):
    assert sampling.chi(2.0, shape, seeded(0)).shape == shape


@pytest.mark.parametrize(("size", "dim"), [(1, 1), (5, 1), (2, 3), (3, 3), (8, 3), (12, 4), (5, 16)])
def test_orthogonal_directions_are_orthonormal_within_blocks(size, dim):
    directions = sampling.orthogonal_directions(size, dim, seeded(0))
    assert directions.shape == (size, dim)
    for block in directions.split(dim):
        torch.testing.assert_close(block @ block.mT, torch.eye(len(block), dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_orthogonal_directions_are_uniform(dim):
    """The square of a coordinate of a uniform direction follows the beta law with parameters 1/2 and (d - 1)/2."""
    blocks = sampling.orthogonal_directions(4000 * dim, dim, seeded(1)).unflatten(0, (4000, dim))
    for row in range(dim):
        for column in range(dim):
            assert within(blocks[:, row, column], 0.0)
    if dim > 1:
        law = scipy.stats.beta(0.5, 0.5 * (dim - 1)).cdf
        assert all(follows(blocks[:, row, 0].square(), law) for row in range(dim))


def test_blocks_of_orthogonal_directions_are_independent():
    blocks = sampling.orthogonal_directions(16000, 4, seeded(2)).unflatten(0, (4000, 4))
    inner = blocks[1:, 0] * blocks[:-1, 0]
    assert within(inner.sum(-1), 0.0) and within(inner.sum(-1).square(), 0.25)
    determinants = torch.linalg.det(blocks)
    assert within(determinants, 0.0)

"""Random rows and moments from one pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.data import ArraySource, ColumnMoments, sample

ROWS, COUNT = 60, 20


def table(rows=ROWS, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = 3.0 * torch.randn(rows, 2, dtype=dtype, generator=generator) + 1e6
    y = torch.randn(rows, 3, dtype=dtype, generator=generator)
    y[torch.rand(rows, 3, generator=generator) < 0.3] = torch.nan
    return x, y


def equal(left, right):
    return all(torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0)) for a, b in zip(left, right, strict=True))


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 7, 60, 1000])
def test_rows_do_not_depend_on_batches(size):
    x, y = table()
    found = sample(ArraySource(x, y, y.exp(), batch_size=size), COUNT, seed=3)
    assert found.num_rows == ROWS and len(set(found.rows.tolist())) == len(found.rows) == COUNT
    assert equal((found.x, found.y, found.noise), (x[found.rows], y[found.rows], y.exp()[found.rows]))
    assert found.rows.tolist() == sample([(x, y)], COUNT, seed=3).rows.tolist()
    assert found.rows.tolist() != sample([(x, y)], COUNT, seed=4).rows.tolist()
    assert found.rows[:5].tolist() == sample([(x, y)], 5, seed=3).rows.tolist()


def test_a_table_of_fewer_rows_is_drawn_whole():
    x, y = table()
    found = sample(ArraySource(x, y), 1000)
    assert sorted(found.rows.tolist()) == list(range(ROWS)) and equal(found.tensors, (x[found.rows], y[found.rows]))


@pytest.mark.parametrize("parts", [2, 5])
def test_samples_of_parts_are_merged_to_that_of_all(parts):
    source = ArraySource(*table(), batch_size=7)
    first, *others = (sample(part, COUNT, seed=1) for part in source.partitions(parts))
    for other in others:
        first = first.merge(other)
    wanted = sample(source, COUNT, seed=1)
    assert first.rows.tolist() == wanted.rows.tolist() and equal(first.tensors, wanted.tensors)
    assert first.num_rows == ROWS
    torch.testing.assert_close(first.inputs.std, wanted.inputs.std, rtol=1e-9, atol=0.0)


def test_every_set_of_rows_is_as_likely():
    """Frequencies of rows and of pairs of rows in samples of many seeds, in standard errors."""
    seeds, rows, count = 1000, 12, 4
    x = torch.arange(rows, dtype=torch.float64).unsqueeze(-1)
    chosen = np.zeros((seeds, rows))
    first = np.zeros(rows)
    for seed in range(seeds):
        found = sample(ArraySource(x, batch_size=7), count, seed=seed).rows
        chosen[seed, found] = 1.0
        first[found[0]] += 1.0
    share = count / rows
    pair = share * (count - 1) / (rows - 1)
    together = (chosen.T @ chosen / seeds)[np.triu_indices(rows, 1)]
    assert np.abs(chosen.mean(0) - share).max() < 4.0 * np.sqrt(share * (1.0 - share) / seeds)
    assert np.abs(together - pair).max() < 4.0 * np.sqrt(pair * (1.0 - pair) / seeds)
    assert np.abs(first / seeds - 1.0 / rows).max() < 4.0 * np.sqrt(1.0 / rows * (1.0 - 1.0 / rows) / seeds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_moments_are_those_of_all_values_that_are_there(dtype, size):
    x, y = table(dtype=dtype)
    found = sample(ArraySource(x, y, batch_size=size), COUNT)
    exact = x.double()
    torch.testing.assert_close(found.inputs.mean, exact.mean(0), rtol=1e-13, atol=0.0)
    torch.testing.assert_close(found.inputs.std, exact.std(0, correction=0), rtol=1e-8, atol=0.0)
    assert torch.equal(found.inputs.minimum, exact.amin(0)) and torch.equal(found.inputs.maximum, exact.amax(0))
    for column, target in enumerate(y.double().unbind(-1)):
        known = target[~target.isnan()]
        assert int(found.targets.count[column]) == len(known)
        torch.testing.assert_close(found.targets.mean[column], known.mean(), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(found.targets.std[column], known.std(correction=0), rtol=1e-12, atol=0.0)
        assert found.targets.minimum[column] == known.min() and found.targets.maximum[column] == known.max()


def test_moments_of_one_column_of_labels_and_of_complex_values():
    x, _ = table()
    labels = torch.arange(ROWS) % 3
    found = sample(ArraySource(x, labels, batch_size=7), 5)
    assert found.y.dtype == torch.int64 and found.targets.mean.shape == () and float(found.targets.mean) == 1.0
    values = torch.complex(x[:, 0], x[:, 1])
    values[3] = torch.nan
    known = values[~values.isnan()]
    moments = sample(ArraySource(x, values, batch_size=7), 5).targets
    torch.testing.assert_close(moments.mean, known.mean(), rtol=1e-13, atol=0.0)
    torch.testing.assert_close(moments.std, (known - known.mean()).abs().square().mean().sqrt(), rtol=1e-8, atol=0.0)
    assert moments.minimum.isnan() and moments.maximum.isnan()


def test_a_column_without_values_has_the_moments_of_the_others():
    nothing, some = (ColumnMoments.of(torch.tensor(values)) for values in ([torch.nan] * 2, [1.0, 3.0]))
    for both in (nothing.merge(some), some.merge(nothing)):
        assert (int(both.count), float(both.mean), float(both.std)) == (2, 2.0, 1.0)
        assert (float(both.minimum), float(both.maximum)) == (1.0, 3.0)
    assert (int(nothing.count), float(nothing.std)) == (0, 0.0)


def test_one_pass_over_any_batches():
    x, y = table()
    batches = iter([(x[:30], y[:30], None), (x[30:], y[30:], None)])
    found = sample(batches, 30, seed=0)
    assert found.num_rows == ROWS and found.noise is None and not list(batches)
    loader = DataLoader(TensorDataset(x, y), 7)
    assert equal(sample(loader, 30, seed=0).tensors, found.tensors)
    kernel = rfgp.approximate(RBFKernel().double(), 30, method="landmarks", train_inputs=found.x)
    assert kernel(x[:2]).shape == (2, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: sample(ArraySource(x, y), 0),
        lambda x, y: sample(ArraySource(x, y), 3, seed=-1),
        lambda x, y: sample(3, 3),
        lambda x, y: sample([], 3),
        lambda x, y: sample([x], 3),
        lambda x, y: sample([(x, y), (x,)], 3),
        lambda x, y: sample([(x, y[:3])], 3),
        lambda x, y: sample([(x.long(), y)], 3),
        lambda x, y: sample([(x, y)], 3).merge(sample([(x, y)], 4)),
        lambda x, y: sample([(x, y)], 3).merge(sample([(x,)], 3)),
        lambda x, y: sample([(x, y)], ROWS).merge(sample([(x, y)], ROWS)),
        lambda x, y: sample([(x, y)], 3).merge(x),
    ],
)
def test_bad_calls_are_refused(call):
    with pytest.raises(ValueError, match=r"expected .+, got .+; \w+"):
        call(*table())

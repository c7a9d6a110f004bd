"""Arrays as sources: dtypes, memory maps and their views, chunks, and what is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
import zarr

import rfgp.data.arrays
from rfgp.data import ArraySource, GridSource, MappedSource, Standardize
from rfgp.data.batches import batches
from rfgp.data.row_noise import weighted


def only(source):
    (batch,) = source
    return batch


@pytest.mark.parametrize("kind", ["<f4", ">f8", "f2", "i4", "u1", "u8", "?"])
def test_inputs_are_floating_point(kind):
    values = np.array([[0, 1], [1, 0]], dtype=kind)
    (x,) = only(ArraySource(values))
    wanted = {"<f4": torch.float32, ">f8": torch.float64, "f2": torch.float16}.get(kind, torch.get_default_dtype())
    assert x.dtype == wanted and x.tolist() == values.tolist()
    assert only(ArraySource(values, dtype=torch.float64))[0].dtype == torch.float64


def test_targets_keep_their_kind():
    x = torch.rand(3, 2)
    for y, dtype in (
        (torch.tensor([True, False, True]), torch.int64),
        (np.array([0, 1, 2], np.uint16), torch.int64),
        (torch.tensor([0, 1, 2], dtype=torch.int32), torch.int64),
        (np.ones(3, np.float32), torch.float64),
        (torch.ones(3, 2, dtype=torch.complex64), torch.complex128),
    ):
        found = only(ArraySource(x, y, dtype=torch.float64))[1]
        assert found.dtype == dtype and found.tolist() == y.tolist()
    assert only(ArraySource(x, torch.ones(3, dtype=torch.complex64)))[1].dtype == torch.complex64


def test_tensors_are_not_copied_and_arrays_are_not_changed():
    x = torch.rand(10, 2)
    first = next(iter(ArraySource(x, batch_size=4)))[0]
    assert first.data_ptr() == x.data_ptr()
    array = x.numpy()
    next(iter(ArraySource(array)))[0].zero_()
    assert array.any()


@pytest.mark.parametrize(
    "view", [lambda a: a, lambda a: a[5:], lambda a: a[::2, 1:], lambda a: np.asarray(a)[3:], lambda a: a[::-1]]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_views_of_memory_maps_are_opened_anew(view, order, tmp_path):
    """Their offset and strides are those in the file, and what is pickled has none of their numbers."""
    np.save(tmp_path / "x.npy", np.asarray(np.random.default_rng(0).normal(size=(400, 3)), order=order))
    array = view(np.load(tmp_path / "x.npy", mmap_mode="r"))
    pickled = pickle.dumps(ArraySource(array))
    assert len(pickled) < 2000 and np.array_equal(only(pickle.loads(pickled))[0].numpy(), array)


def test_changed_copies_of_memory_maps_are_pickled_with_their_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    array = np.load(tmp_path / "x.npy", mmap_mode="c")
    array[:] = 1.0
    assert float(only(pickle.loads(pickle.dumps(ArraySource(array))))[0].sum()) == 8.0


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("size", [7, 20, 45, 1000])
def test_chunks_are_read_once(size, parts, monkeypatch):
    """And parts that begin inside of a chunk read it again."""
    x = zarr.create_array(store={}, shape=(100, 2), chunks=(20, 2), dtype="float64")
    x[:] = np.arange(200.0).reshape(100, 2)
    source = ArraySource(x, batch_size=size)
    read = []
    rows = ArraySource._rows
    monkeypatch.setattr(
        ArraySource, "_rows", lambda self, k, begin, end: (read.append((begin, end)), rows(self, k, begin, end))[1]
    )
    pieces = [batch[0] for part in source.partitions(parts) for batch in part]
    assert np.array_equal(torch.cat(pieces).numpy(), x[:]) and all(len(piece) <= size for piece in pieces)
    assert sum(end - begin for begin, end in read) == 100
    within = {row for begin, end in read for row in (begin, end) if row % 20}
    assert len(within) <= parts - 1


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: ArraySource([[1.0]]),
        lambda x, y: ArraySource(x[:, 0]),
        lambda x, y: ArraySource(x[:0]),
        lambda x, y: ArraySource(x, y[:2]),
        lambda x, y: ArraySource(x, y[:, None, None]),
        lambda x, y: ArraySource(x, y, torch.ones(3, 2)),
        lambda x, y: ArraySource(x, noise=y),
        lambda x, y: ArraySource(np.array([["a"]])),
        lambda x, y: ArraySource(x, y.numpy().astype(np.longdouble)),
        lambda x, y: ArraySource(x, np.ma.masked_less(y.numpy(), 0.5)),
        lambda x, y: ArraySource(scipy.sparse.csr_array(x.numpy())),
        lambda x, y: ArraySource(x.to_sparse()),
        lambda x, y: ArraySource(x, y, batch_size=0),
        lambda x, y: ArraySource(x, y, dtype=torch.int64),
        lambda x, y: GridSource([]),
        lambda x, y: GridSource(y),
        lambda x, y: GridSource([x]),
        lambda x, y: GridSource([y, y.double()]),
        lambda x, y: GridSource([y.long()]),
        lambda x, y: GridSource([y], batch_size=1.5),
        lambda x, y: MappedSource(ArraySource(x), "double"),
        lambda x, y: MappedSource([(x, y)], lambda x, y: (x, y)),
        lambda x, y: Standardize(y, y, y),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match=r"expected .+, got .+; \w+"):
        call(torch.rand(3, 2), torch.rand(3))


def test_scaled_columns():
    x, y = torch.rand(50, 2), torch.rand(50, 3)
    x[:, 1] = 7.0
    known = rfgp.data.sample(ArraySource(x, y), 5)
    both = Standardize(known.inputs.mean, known.inputs.std, known.targets.mean, known.targets.std)
    scaled, targets, noise = both(x, y, y.exp())
    torch.testing.assert_close(scaled.std(0, correction=0), torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(targets.std(0, correction=0), torch.ones(3))
    torch.testing.assert_close(targets.mean(0), torch.zeros(3), atol=1e-6, rtol=0.0)
    torch.testing.assert_close(noise, y.exp() / y.var(0, correction=0))
    inputs = Standardize(known.inputs.mean, known.inputs.std)
    assert len(inputs(x)) == 1 and inputs(x, y)[1] is y and {values.dtype for values in (scaled, noise)} == {x.dtype}
    source = MappedSource(ArraySource(x, y, batch_size=10), both)
    assert repr(both) in source.description and torch.equal(
        next(iter(pickle.loads(pickle.dumps(source))))[0], scaled[:10]
    )


def test_weights_count_in_double_precision_and_batches_are_asked_for():
    x, weights = torch.ones(3, 2), torch.tensor([0.1, 0.2, 0.3])
    noise = weighted(None, weights, x)
    assert noise.weights.dtype == torch.float64 and noise.variances is None
    assert torch.equal(noise.weights, weights.double())
    picked = weighted(0.5 * weights, weights, x)[1:]
    assert torch.equal(picked.weights, weights[1:].double()) and torch.equal(picked.variances, 0.5 * weights[1:])
    for value in (3, None):
        with pytest.raises(ValueError, match="expected inputs x, or batches from a loader, got"):
            batches(value, None, None)

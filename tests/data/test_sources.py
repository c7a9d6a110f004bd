"""What all sources have in common: found by their base class, compared with the table that they read."""

from __future__ import annotations

import inspect
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
import zarr

from rfgp import data
from rfgp.data import ArraySource, ArrowSource, CsvSource, GridSource, MappedSource, ParquetSource, Source

ROWS, SIZE = 250, 32
NAMES = ["a", "b", "c"]


def table():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(ROWS, dtype=torch.float64, generator=generator)
    return x, y


def columns(begin=0, end=ROWS):
    x, y = (values[begin:end].numpy() for values in table())
    return pa.table({"name": [f"row {n}" for n in range(len(y))], **dict(zip(NAMES, x.T, strict=True)), "y": y})


def doubled(x, y):
    return 2.0 * x, y


def tensors(folder):
    return ArraySource(*table(), batch_size=SIZE)


def memory_maps(folder):
    for name, values in zip(("x", "y"), table(), strict=True):
        np.save(folder / f"{name}.npy", values.numpy())
    maps = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y")]
    return ArraySource(*maps, batch_size=SIZE)


def zarr_arrays(folder, chunk=20):
    arrays = []
    for name, values in zip(("x", "y"), table(), strict=True):
        kind = {"shape": tuple(values.shape), "chunks": (chunk, *values.shape[1:]), "dtype": "float64"}
        arrays.append(zarr.create_array(store=str(folder / f"{name}.zarr"), **kind))
        arrays[-1][:] = values.numpy()
    return ArraySource(*arrays, batch_size=SIZE)


def large_chunks(folder):
    return zarr_arrays(folder, chunk=100)


def parquet(folder, rows=100):
    pa.parquet.write_table(columns(), folder / "table.parquet", row_group_size=rows)
    return ParquetSource(folder / "table.parquet", NAMES, "y", batch_size=SIZE)


def small_row_groups(folder):
    return parquet(folder, rows=10)


def parquet_files(folder):
    for number, rows in enumerate([(0, 70), (70, 71), (71, ROWS)]):
        pa.parquet.write_table(columns(*rows), folder / f"table-{number}.parquet", row_group_size=50)
    return ParquetSource(folder, NAMES, "y", batch_size=SIZE)


def arrow_file(folder, rows=70, compression="uncompressed"):
    pa.feather.write_feather(columns(), str(folder / "table.arrow"), chunksize=rows, compression=compression)
    return ArrowSource(folder / "table.arrow", NAMES, "y", batch_size=SIZE)


def compressed_arrow(folder):
    return arrow_file(folder, rows=9, compression="lz4")


def csv(folder):
    pa.csv.write_csv(columns(), folder / "table.csv")
    return CsvSource(folder / "table.csv", NAMES, "y", batch_size=SIZE)


def csv_files(folder):
    for number, rows in enumerate([(0, 100), (100, 120), (120, 200), (200, ROWS)]):
        pa.csv.write_csv(columns(*rows), folder / f"table-{number}.csv")
    return CsvSource(str(folder / "table-*.csv"), NAMES, "y", batch_size=SIZE)


def mapped(folder):
    return MappedSource(parquet(folder), doubled)


def grid(folder):
    axes = [torch.linspace(0, 1, n, dtype=torch.float64) for n in (5, 10, 5)]
    return GridSource(axes, batch_size=SIZE)


CASES = {
    make.__name__: (kind, make)
    for kind, make in (
        (ArraySource, tensors),
        (ArraySource, memory_maps),
        (ArraySource, zarr_arrays),
        (ArraySource, large_chunks),
        (ParquetSource, parquet),
        (ParquetSource, small_row_groups),
        (ParquetSource, parquet_files),
        (ArrowSource, arrow_file),
        (ArrowSource, compressed_arrow),
        (CsvSource, csv),
        (CsvSource, csv_files),
        (MappedSource, mapped),
        (GridSource, grid),
    )
}


def expected(name):
    x, y = table()
    if name == "grid":
        return (torch.cartesian_prod(*(torch.linspace(0, 1, n, dtype=torch.float64) for n in (5, 10, 5))),)
    return (2.0 * x, y) if name == "mapped" else (x, y)


def joined(batches):
    return tuple(torch.cat(values) for values in zip(*batches, strict=True))


def same(left, right):
    left, right = list(left), list(right)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert len(a) == len(b) and all(torch.equal(u, v) for u, v in zip(a, b, strict=True))
    return True


def most_parts(name):
    return {"csv": 1, "csv_files": 4}.get(name, 5)


every_source = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def source(name, tmp_path):
    return CASES[name][1](tmp_path)


def test_every_source_has_a_case():
    public = {value for value in vars(data).values() if inspect.isclass(value) and issubclass(value, Source)}
    assert {kind for kind, _ in CASES.values()} == public - {Source}


@pytest.mark.smoke_for_each("name")
@every_source
def test_rows_are_those_of_the_table(name, source):
    found = list(source)
    assert all(torch.equal(a, b) for a, b in zip(joined(found), expected(name), strict=True))
    assert all(0 < len(x) <= SIZE and x.is_contiguous() for x, *_ in found)
    assert source.num_rows in (None, ROWS) and (source.num_rows is None) == name.startswith("csv")


@every_source
def test_batches_are_the_same_at_every_pass_and_from_any_one_on(name, source):
    found = list(source)
    for start in range(len(found) + 2):
        assert same(source.batches(start), found[start:])


@every_source
def test_parts_have_the_batches_of_the_source(name, source):
    found = list(source)
    for count in range(1, most_parts(name) + 1):
        parts = source.partitions(count)
        assert len(parts) == count and all(isinstance(part, Source) for part in parts)
        assert same([batch for part in parts for batch in part], found)
        assert len({part.description for part in parts}) == count
        assert len({part.first_row for part in parts}) == count and parts[0].first_row == 0
        for part in parts:
            assert same(part.batches(1), list(part)[1:])


@every_source
def test_batches_are_on_the_device_of_the_data_whatever_the_default_is(name, source):
    wanted = list(source)
    drawn = data.sample(source, 10, seed=0)
    with torch.device("meta"):
        assert same(source, wanted)
        found = data.sample(source, 10, seed=0)
    assert same([found.tensors], [drawn.tensors]) and torch.equal(found.inputs.std, drawn.inputs.std)


@every_source
def test_parts_of_parts_have_all_rows(name, source):
    parts = [inner for part in source.partitions(min(3, most_parts(name))) for inner in part.partitions(1)]
    if not name.startswith("csv"):
        parts = [inner for part in source.partitions(3) for inner in part.partitions(30)]
        assert len(parts) == 90 and sum(part.num_rows for part in parts) == ROWS
    assert same([joined([batch for part in parts for batch in part])], [joined(source)])


@every_source
def test_a_pickled_part_reads_the_same(name, source):
    for part in source.partitions(most_parts(name)):
        again = pickle.loads(pickle.dumps(part))
        assert again.description == part.description and again.num_rows == part.num_rows
        assert same(again, part)
        assert same(again.batches(1), part.batches(1))


@every_source
def test_the_description_names_what_is_read(name, source):
    assert source.description in repr(source) and str(SIZE) in source.description
    if not name.startswith("csv"):
        assert f"rows 0 to {ROWS}" in source.description
    if "." in source.description and name not in ("grid", "zarr_arrays", "large_chunks"):
        assert "table" in source.description or "x.npy" in source.description


@every_source
@pytest.mark.parametrize("start", [-1, 1.0, None])
def test_bad_starts_are_refused(name, source, start):
    with pytest.raises(ValueError, match=r"expected .*, got .*; use 0"):
        source.batches(start)


@every_source
def test_more_parts_than_rows_are_refused(name, source):
    with pytest.raises(ValueError, match=r"expected at least 251 .*, got .*; \w+"):
        source.partitions(ROWS + 1)
    with pytest.raises(ValueError, match="positive integer for count"):
        source.partitions(0)


def test_files_are_opened_anew_and_pickled_by_name(tmp_path):
    sources = [CASES[name][1](tmp_path) for name in ("memory_maps", "zarr_arrays", "parquet", "arrow_file", "csv")]
    assert all(len(pickle.dumps(source)) < 3000 for source in sources)
    for source in pickle.loads(pickle.dumps(sources)):
        assert math.isclose(sum(float(x.sum()) for x, _ in source), float(table()[0].sum()), rel_tol=1e-12)


def test_parts_of_arrays_in_memory_are_pickled_with_their_rows_alone():
    x, y = table()
    for make in (lambda a: a, lambda a: a.numpy()):
        part = ArraySource(make(x), make(y), batch_size=1).partitions(ROWS)[7]
        assert len(pickle.dumps(part)) < 3000

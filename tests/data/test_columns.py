"""Columns of files as inputs, targets and noise variances: dtypes, missing values, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch

from rfgp.data import ArrowSource, CsvSource, ParquetSource

KINDS = {"parquet": ParquetSource, "arrow": ArrowSource, "csv": CsvSource}
COLUMNS = {
    "a": [0.5, 1.5, -2.0, 3.0],
    "b": [1, 2, 3, 4],
    "y": [1.0, None, 3.0, None],
    "z": [5.0, 6.0, None, 8.0],
    "noise": [0.1, 0.2, 0.3, 0.4],
    "label": [0, 2, 1, 2],
    "gap": [1, None, 3, None],
    "text": ["one", "two", "three", "four"],
}


def source(folder, kind, *arguments, table=None, **options):
    path = folder / f"table.{kind}"
    table = pa.table(COLUMNS) if table is None else table
    if kind == "parquet":
        pa.parquet.write_table(table, path)
    elif kind == "arrow":
        pa.feather.write_feather(table, str(path))
    else:
        pa.csv.write_csv(table, path)
    return KINDS[kind](path, *arguments, **options)


every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.smoke
@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_all_kinds_come_in_one_dtype(kind, dtype, tmp_path):
    for size in (3, 4):
        batches = list(source(tmp_path, kind, ["b", "a"], ["y", "z"], ["noise", "a"], dtype=dtype, batch_size=size))
        x, y, noise = (torch.cat(values) for values in zip(*batches, strict=True))
        nan = float("nan")
        wanted = torch.tensor([[1.0, 5.0], [nan, 6.0], [3.0, nan], [nan, 8.0]], dtype=dtype)
        torch.testing.assert_close(y, wanted, equal_nan=True, rtol=0.0, atol=0.0)
        assert torch.equal(x, torch.tensor([COLUMNS["b"], COLUMNS["a"]], dtype=dtype).T)
        assert torch.equal(noise, torch.tensor([COLUMNS["noise"], COLUMNS["a"]], dtype=dtype).T)
        assert {values.dtype for values in (x, y, noise)} == {dtype}


@every_kind
def test_one_target_has_one_dimension_and_labels_stay_integers(kind, tmp_path):
    ((x, y),) = source(tmp_path, kind, ["a"], "label", target_dtype=torch.int64)
    assert x.shape == (4, 1) and y.tolist() == COLUMNS["label"] and y.dtype == torch.int64
    ((_, y, noise),) = source(tmp_path, kind, ["a"], "label", "noise")
    assert y.dtype == torch.float64 and y.shape == noise.shape == (4,)
    ((x,),) = source(tmp_path, kind, ["a"])
    assert x.shape == (4, 1)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_integers_booleans_and_single_precision_are_numbers(kind, tmp_path):
    columns = {
        "u": pa.array([1, 200], pa.uint8()),
        "flag": pa.array([True, False]),
        "f": pa.array([0.5, 1.5], pa.float32()),
        "h": pa.array(np.array([0.5, 1.5], np.float16)),
    }
    ((x, y),) = source(tmp_path, kind, list(columns), "flag", table=pa.table(columns), target_dtype=torch.int64)
    assert x.tolist() == [[1.0, 1.0, 0.5, 0.5], [200.0, 0.0, 1.5, 1.5]] and y.tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "column", [["x", "y"], pa.array(["x", "y"]).dictionary_encode(), pa.array([0, 1], pa.timestamp("s"))]
)
def test_what_is_no_number_is_refused_by_the_name_of_its_column(kind, column, tmp_path):
    with pytest.raises(ValueError, match=r"numbers in column 'bad' of .*table.*, got .*; write it as numbers"):
        source(tmp_path, kind, ["bad"], table=pa.table({"bad": column}))


@every_kind
def test_labels_that_are_no_integers_are_refused(kind, tmp_path):
    with pytest.raises(ValueError, match=r"expected .*, got .*; \w+"):
        list(source(tmp_path, kind, ["a"], "z", target_dtype=torch.int64, table=pa.table({"a": [1.0], "z": [1.5]})))


@every_kind
@pytest.mark.parametrize(
    ("arguments", "options", "column"),
    [
        ((["a", "gap"], "y"), {}, "gap"),
        ((["a"], "gap"), {"target_dtype": torch.int64}, "gap"),
        ((["a"], "y", "gap"), {}, "gap"),
    ],
)
def test_missing_inputs_labels_and_noise_are_refused_by_row(kind, arguments, options, column, tmp_path):
    """The rows are numbered in the table, not in the batch."""
    found = source(tmp_path, kind, *arguments, batch_size=3, **options).batches(1)
    with pytest.raises(ValueError, match=rf"column '{column}' .*table\.{kind}, got nulls in 1 rows .*: 3; "):
        list(found)


def test_fields_of_csv_that_are_no_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected numbers in .*table\.csv, got .*'one'.*; correct"):
        list(source(tmp_path, "csv", ["a", "text"]))
    (tmp_path / "table.csv").write_text("a\n" + "1\n" * 5_000_000 + "late\n")
    batches = CsvSource(tmp_path / "table.csv", ["a"]).batches()
    assert len(next(batches)[0]) == 65536
    with pytest.raises(ValueError, match=r"expected numbers in .*table\.csv, got .*'late'.*; correct"):
        list(batches)


def test_csv_with_another_delimiter(tmp_path):
    (tmp_path / "table.csv").write_text("a;y\n1.5;2\n")
    ((x, y),) = CsvSource(tmp_path / "table.csv", ["a"], "y", delimiter=";")
    assert x.tolist() == [[1.5]] and y.tolist() == [2.0]


@every_kind
@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((["a", "missing"],), {}),
        (("a",), {}),
        (([],), {}),
        ((["a", "a"],), {}),
        ((["a"], 3), {}),
        ((["a"], []), {}),
        ((["a"], None, "noise"), {}),
        ((["a"], ["y", "z"], "noise"), {}),
        ((["a"], ["y"], "noise"), {}),
        ((["a"], "y"), {"dtype": torch.int64}),
        ((["a"], "y"), {"dtype": torch.float16}),
        ((["a"], "y"), {"dtype": torch.bfloat16}),
        ((["a"], "y"), {"dtype": "float32"}),
        ((["a"], "y"), {"target_dtype": torch.bfloat16}),
        ((["a"], "y"), {"target_dtype": torch.int32}),
        ((["a"], "y"), {"batch_size": 0}),
    ],
)
def test_bad_arguments_are_refused(kind, arguments, options, tmp_path):
    with pytest.raises(ValueError, match=r"expected .+, got .+; \w+"):
        source(tmp_path, kind, *arguments, **options)


@every_kind
def test_bad_files_are_refused(kind, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "foreign").write_bytes(b"\x00\xff foreign")
    for path in (tmp_path / "none", tmp_path / "folder", str(tmp_path / "none-*"), [], None, 3, tmp_path / "foreign"):
        with pytest.raises(ValueError, match=r"expected .+, got .+; \w+"):
            KINDS[kind](path, ["a"])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_truncated_file_is_named(kind, tmp_path):
    whole = source(tmp_path, kind, ["a"]).paths[0]
    with open(whole, "r+b") as file:
        file.truncate(200)
    with pytest.raises(ValueError, match=rf"expected .*, got .*table\.{kind}.*; check"):
        KINDS[kind](whole, ["a"])


@every_kind
def test_a_file_that_is_gone_is_named(kind, tmp_path):
    whole = source(tmp_path, kind, ["a"])
    (tmp_path / f"table.{kind}").unlink()
    with pytest.raises(ValueError, match=rf"expected .*table\.{kind}.*; \w+") as error:
        list(whole)
    assert "other text" not in str(error.value)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("rows", [2, 20_000])
def test_a_file_that_has_changed_is_named(kind, rows, tmp_path):
    whole = source(tmp_path, kind, ["a"])
    source(tmp_path, kind, ["a"], table=pa.table({"a": [0.5] * rows}))
    with pytest.raises(ValueError, match=rf"expected .*table\.{kind} as it was .*; make"):
        list(whole)


@every_kind
def test_several_columns_of_one_name_are_refused(kind, tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(ValueError, match=rf"one column of each name in .*table\.{kind}, got several \['a'\]; rename"):
        source(tmp_path, kind, ["a"], table=table)


def test_names_in_another_encoding_are_refused(tmp_path):
    (tmp_path / "table.csv").write_bytes("höhe,a\n1,2\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"UTF-8 in .*table\.csv, got .*; convert"):
        CsvSource(tmp_path / "table.csv", ["a"])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_an_empty_table_is_refused(kind, tmp_path):
    with pytest.raises(ValueError, match=r"at least one row in .*, got none"):
        source(tmp_path, kind, ["a"], table=pa.table({"a": pa.array([], pa.float64())}))


def test_a_file_that_lacks_a_column_is_named(tmp_path):
    for number, names in enumerate([["a", "y"], ["a"]]):
        pa.parquet.write_table(pa.table({name: [1.0] for name in names}), tmp_path / f"{number}.parquet")
    with pytest.raises(ValueError, match=r"columns \['y'\] in .*1\.parquet"):
        ParquetSource(tmp_path, ["a"], "y")


def test_missing_pyarrow_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    path = tmp_path / "table.parquet"
    path.touch()
    with pytest.raises(ImportError, match=r"expected pyarrow .* install the extra big"):
        ParquetSource(path, ["a"])

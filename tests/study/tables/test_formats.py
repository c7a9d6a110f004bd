"""Tables of other formats than plain text: what is read is what was written."""

from __future__ import annotations

import gzip
import re
import zipfile

import numpy as np
import pandas
import pytest
import torch

from rfgp.study.tables import read

ROWS = 30


def frame():
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "size": rng.normal(size=ROWS).round(3),
            "rooms": pandas.array([2, None, 4] * 10, dtype="Int64"),
            "color": pandas.Categorical(["red", "blue", None] * 10),
            "heated": [True, False] * 15,
            "built": pandas.date_range("2020-01-01", periods=ROWS, freq="12h"),
            "price": rng.normal(size=ROWS).round(3),
        }
    )


WRITERS = {
    "table.csv": lambda table, path: table.to_csv(path, index=False),
    "table.csv.gz": lambda table, path: table.to_csv(path, index=False),
    "table.tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    "table.xlsx": lambda table, path: table.to_excel(path, index=False),
    "table.parquet": lambda table, path: table.to_parquet(path),
    "table.jsonl": lambda table, path: table.to_json(path, orient="records", lines=True, date_format="iso"),
    "table.ndjson.gz": lambda table, path: table.to_json(path, orient="records", lines=True, date_format="iso"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_read_as_its_data_frame(tmp_path, name):
    WRITERS[name](frame(), tmp_path / name)
    found, known = read(tmp_path / name, "price"), read(frame(), "price")
    with_holes, dates = (
        ("rooms", "rooms is missing", "color=red", "color is missing"),
        ("", ": day", ": weekday", ": hour"),
    )
    names = ("size", *with_holes, "heated", *(f"built{part}" for part in dates))
    assert found.input_names == known.input_names == names
    assert torch.equal(found.x, known.x) and torch.equal(found.y, known.y)
    assert known.x[1, 2:].tolist() == [1.0, 0.0, 0.0, 0.0, 18262.5, 1.0, 2.0, 12.0]
    assert known.x[1, 0] == frame()["size"][1] and 2.0 < known.x[1, 1] < 4.0
    assert [column.kind for column in known.columns] == ["number", "integer", "text", "boolean", "date", "number"]
    assert [column.num_missing for column in found.columns] == [0, 10, 10, 0, 0, 0]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries_are_read_as_those_of_pandas(library):
    known = frame().astype({"rooms": "float64", "color": "str"}).replace({"color": {"nan": None}})
    other = pytest.importorskip("pyarrow").Table.from_pandas(known)
    other = pytest.importorskip("polars").from_arrow(other) if library == "polars" else other
    found, expected = read(other, "price"), read(known, "price")
    assert torch.equal(found.x, expected.x) and found.input_names == expected.input_names
    assert torch.equal(found.encoding.encode(other), expected.x) and found.report() == expected.report()


def test_sheets(tmp_path):
    path = tmp_path / "book.xlsx"
    with pandas.ExcelWriter(path) as book:
        pandas.DataFrame({"note": ["nothing here"]}).to_excel(book, sheet_name="about", index=False)
        frame()[["size", "price"]].to_excel(book, sheet_name="houses", index=False, startrow=3)
    for sheet in ("houses", 1, "1"):
        assert len(read(path, "price", sheet=sheet).x) == ROWS
    with pytest.raises(
        ValueError, match=re.escape("expected one of the sheets about, houses of book.xlsx, got 'none'")
    ):
        read(path, "price", sheet="none")


def test_an_index_of_a_frame_tells_rows_apart():
    named = frame()[["size", "price"]].set_axis([f"h{i}" for i in range(ROWS)])
    table = read(named, "price")
    assert table.input_names == ("size",) and table.learned.index == "row names"
    assert read(named.rename_axis("house"), "price").learned.index == "house"


def test_frames_that_are_refused():
    with pytest.raises(ValueError, match="expected single values in column 'size', got 30 cells such as"):
        read(frame().assign(size=[[1.0, 2.0]] * ROWS), "price")
    with pytest.raises(ValueError, match="expected numbers, booleans, dates or text in column 'size', got complex128"):
        read(frame().assign(size=1j * np.ones(ROWS)), "price")
    with pytest.raises(ValueError, match="expected rows of data, got none"):
        read(frame()[:0], "price")
    with pytest.raises(ValueError, match="expected a table with one index, got several levels"):
        read(frame().set_index(["color", "rooms"]), "price")
    with pytest.raises(ValueError, match="expected a path or a data frame, got ndarray"):
        read(np.zeros((3, 2)), 0)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("table.npz", b"", {}, "expected a file that ends in .csv, .tsv, .txt, .dat, .jsonl, .ndjson, .parquet"),
        ("table.xlsx", b"nothing", {}, "expected a workbook in table.xlsx, got another file"),
        ("table.parquet", b"nothing", {}, "expected Parquet in table.parquet, got another file"),
        ("table.jsonl", b"nothing", {}, "expected JSON lines in table.jsonl, got another file"),
        ("table.csv.gz", b"nothing", {}, "expected a file of gzip, got table.csv.gz, which is damaged"),
        ("table.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], {}, "expected a file of gzip, got table.csv.gz"),
        ("table.parquet", b"", {"decimal": ","}, "expected separator and decimal for text files, got table.parquet"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, options, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path / name, "b", **options)


def test_a_damaged_page_is_named(tmp_path):
    path = tmp_path / "table.parquet"
    frame().to_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"expected Parquet in table\.parquet, got another file"):
        read(path, "price")


def test_a_damaged_sheet_is_named(tmp_path):
    frame().to_excel(tmp_path / "whole.xlsx", index=False)
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(tmp_path / "table.xlsx", "w") as cut:
        for member in whole.infolist():
            content = whole.read(member)
            cut.writestr(member, content[:-200] if "sheet1" in member.filename else content)
    with pytest.raises(ValueError, match=r"expected a workbook in table\.xlsx, got another file"):
        read(tmp_path / "table.xlsx", "price")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"expected an existing file, got '.*none\.csv'"):
        read(tmp_path / "none.csv", "b")


BOMBS = {
    "long.parquet": lambda path: pandas.DataFrame({"a": ["x" * 50_000] * 100, "b": range(100)}).to_parquet(path),
    "rows.parquet": lambda path: pandas.DataFrame({"a": np.zeros(700_000), "b": 1.0}).to_parquet(path),
    "zeros.csv.gz": lambda path: path.write_bytes(gzip.compress(b"0,0\n" * 1_000_000)),
    "zeros.xlsx": lambda path: zipped(path, b"0" * 4_000_000),
}


def zipped(path, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", content)


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_of_large_tables_are_refused(tmp_path, monkeypatch, name):
    BOMBS[name](tmp_path / name)
    monkeypatch.setattr("rfgp.study.tables.packed._LARGE", 2**21)
    with pytest.raises(ValueError, match=rf"expected a table of at most 500 times the bytes of {name}, got "):
        read(tmp_path / name, "b" if "parquet" in name else 1)


def test_workbooks_of_empty_cells_are_refused(tmp_path, monkeypatch):
    cells = pandas.DataFrame([[1.0, *[None] * 400, 2.0]] * 40)
    cells.to_excel(tmp_path / "far.xlsx", index=False, header=False)
    monkeypatch.setattr("rfgp.study.tables.packed._MANY_CELLS", 10_000)
    with pytest.raises(ValueError, match=r"expected values in the cells of far\.xlsx, got 50 of 10,050 cells with one"):
        read(tmp_path / "far.xlsx", 0)


def test_packed_files_beyond_memory(tmp_path, monkeypatch):
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 100_000))
    monkeypatch.setattr("os.sysconf", lambda name: 2**8)
    with pytest.raises(ValueError, match=r"expected the cells of table\.csv\.gz, of 400,000 bytes, to fit in"):
        read(tmp_path / "table.csv.gz", 1)

"""Data sets: the built-in ones, the user's own files, and what is said where a file is not as it should be."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from rfgp import datasets
from rfgp.datasets import LOADERS, Dataset, read_table
from rfgp.datasets.sources import Archive, Bundled

ARCHIVES = [name for name, source in LOADERS.items() if isinstance(source, Archive)]
BUNDLED = [name for name, source in LOADERS.items() if isinstance(source, Bundled)]
ROWS = 40


def random_numbers(*shape):
    return np.random.default_rng(1).normal(size=shape)


def archived(name, directory):
    """An archive like the real one, but small."""
    source, x = LOADERS[name], np.abs(random_numbers(ROWS, 3)).astype(np.float32)
    y = np.arange(ROWS) % 4 if source.task == "classification" else random_numbers(ROWS)
    if source.output is not None:
        y = np.stack([y, 10 + y], axis=-1)
    if name == "mnist":
        arrays = {"x_train": x[:30], "y_train": y[:30], "x_test": x[30:], "y_test": y[30:]}
    else:
        arrays = {"x": x, "y": y}
    np.savez(directory / f"{name}.npz", **arrays)
    return x, y


def csv(directory, text, name="table.csv"):
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def npz(directory, **arrays):
    path = directory / "table.npz"
    np.savez(path, **arrays)
    return path


def table_of(labels, header="a,b,label\n"):
    return header + "".join(f"{i},{i * i % 7}.5,{label}\n" for i, label in enumerate(labels))


@pytest.mark.parametrize("name", LOADERS)
def test_every_loader_documents_where_its_data_come_from(name):
    module, source = importlib.import_module(f"rfgp.datasets.{name}"), LOADERS[name]
    assert source.name == name
    assert f"Provenance: {source.provenance}." in module.__doc__
    assert f"Licence: {source.licence}." in module.__doc__


@pytest.mark.parametrize(("name", "rows", "columns"), [("digits", 1797, 64), ("diabetes", 442, 10)])
def test_bundled_data(name, rows, columns):
    data, again = datasets.load(name), datasets.load(name)
    assert len(data.x_test) == round(0.2 * rows)
    assert data.x_train.shape == (rows - len(data.x_test), columns)
    assert data.x_train.dtype == data.x_test.dtype == torch.float64
    assert torch.equal(data.x_test, again.x_test) and torch.equal(data.y_train, again.y_train)
    assert data.num_classes == (10 if name == "digits" else None)
    assert data.scaling == ("unit" if name == "digits" else "standardize")


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(name, tmp_path):
    x, y = archived(name, tmp_path)
    data = datasets.load(name, tmp_path)
    source = LOADERS[name]
    assert (data.name, data.task, data.licence) == (name, source.task, source.licence)
    if name == "mnist":
        assert np.array_equal(data.x_train.numpy(), x[:30]) and np.array_equal(data.y_test.numpy(), y[30:])
    else:
        target = y if y.ndim == 1 else y[:, 0]
        assert len(data.x_train) == 32 and len(data.x_test) == 8
        rows = {(*row, value) for row, value in zip(x.tolist(), target.tolist(), strict=True)}
        both = zip(torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test]), strict=True)
        assert {(*row.tolist(), value.item()) for row, value in both} == rows
    assert data.num_classes == (4 if source.task == "classification" else None)


def test_the_data_directory_can_come_from_the_environment(tmp_path, monkeypatch):
    archived("yacht", tmp_path)
    monkeypatch.delenv("RFGP_DATA", raising=False)
    with pytest.raises(ValueError, match=r"expected a data directory with yacht\.npz, got none; pass .*RFGP_DATA"):
        datasets.load("yacht")
    monkeypatch.setenv("RFGP_DATA", str(tmp_path))
    assert len(datasets.load("yacht").x_train) == 32


def test_bad_archives(tmp_path):
    with pytest.raises(ValueError, match=r"expected one of concrete, .*got 'moons'"):
        datasets.load("moons")
    with pytest.raises(ValueError, match=r"expected an existing file, got '.*yacht\.npz'"):
        datasets.load("yacht", tmp_path)
    (tmp_path / "yacht.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="expected a NumPy archive of plain arrays, got"):
        datasets.load("yacht", tmp_path)
    np.savez(tmp_path / "yacht.npz", inputs=random_numbers(20, 2))
    with pytest.raises(ValueError, match="expected the array 'y' for yacht, got inputs"):
        datasets.load("yacht", tmp_path)


@pytest.mark.parametrize("target", ["label", "2", "-1", 2])
def test_columns_of_a_csv_file_by_name_and_index(tmp_path, target):
    data = read_table(csv(tmp_path, table_of(["no", "yes"] * 10)), target)
    assert (data.name, data.task, data.num_classes, data.scaling) == ("table", "classification", 2, "standardize")
    assert data.x_train.shape == (16, 2)
    assert torch.equal(data.y_train, data.x_train[:, 0].long() % 2)


def test_csv_without_header_and_with_other_separators(tmp_path):
    plain = read_table(csv(tmp_path, table_of(["u", "v"] * 10, header="")), 2)
    text = table_of(["u", "v"] * 10).replace(",", " ; ") + "\n\n"
    spaced = read_table(csv(tmp_path, "\ufeff" + text, "other.CSV"), "label")
    assert torch.equal(plain.x_train, spaced.x_train) and torch.equal(plain.y_train, spaced.y_train)


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        ([3, 7] * 10, None, "classification"),
        (["True", "False"] * 10, None, "classification"),
        (["1.0", "2"] * 10, None, "regression"),
        (range(20), "regression", "regression"),
        (range(20), "classification", "classification"),
        (["1.0", "2.0"] * 10, "classification", "classification"),
    ],
)
def test_targets_tell_the_task(tmp_path, labels, task, expected):
    data = read_table(csv(tmp_path, table_of(labels)), "label", task=task)
    assert data.task == expected
    if expected == "classification":
        assert data.num_classes == len(set(labels))
        assert data.y_train.dtype == torch.int64 and int(data.y_train.max()) < data.num_classes
    else:
        assert data.y_train.dtype == torch.float64 and data.num_classes is None


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.arange(20) % 3 - 1, "classification"),
        (np.arange(20) % 2 == 0, "classification"),
        (np.array(["u", "v"] * 10), "classification"),
        (np.arange(20.0).reshape(20, 1), "regression"),
    ],
)
def test_npz_files(tmp_path, y, task):
    x = random_numbers(20, 3).astype(np.float32)
    data = read_table(npz(tmp_path, features=x, y=y), "y", inputs="features")
    assert data.task == task and data.x_train.shape == (16, 3)
    assert data.num_classes == (len(np.unique(y)) if task == "classification" else None)


@pytest.mark.parametrize(
    ("text", "target", "task", "message"),
    [
        ("", "y", None, "expected rows of data, got none"),
        ("a,b\n", "b", None, "expected rows of data, got none"),
        ("a\n1\n2\n", "a", None, "expected at least two columns, got 1"),
        ("a,b\n1,2\n3\n", "b", None, r"expected 2 cells in every row of table\.csv, got 1 in data row 2"),
        ("a,b\n1,2\n", "c", None, r"expected the name of one column of table\.csv \(a, b\) or its index .* got 'c'"),
        ("a,b\n1,2\n", "2", None, "got '2'"),
        ("b,b\n1,2\n", "b", None, "got 'b'"),
        (
            "a,b\n1,2\nnan,4\n",
            "b",
            None,
            r"expected finite numbers in column 'a' of table\.csv, got 'nan' in data row 2",
        ),
        ("a,b\n1,2\n,4\n", "b", None, "expected finite numbers in column 'a' .* got '' in data row 2"),
        ("a,b\n1,2\nred,4\n", "b", None, "expected finite numbers in column 'a' .* got 'red' in data row 2"),
        ("a,b\n1,2.5\n2,nan\n", "b", None, r"expected finite numbers in target 'b' of table\.csv, got 'nan'"),
        ("a,b\n1,2.5\n2,?\n", "b", None, r"expected finite numbers in target 'b' of table\.csv, got '\?'"),
        ("a,b\n1,u\n2,\n", "b", None, r"expected a value in every row of target 'b' .* got none in data row 2"),
        ("a,b\n1,2.5\n2,3.5\n", "b", None, r"expected inputs and targets of table\.csv .* at least 10, got 2"),
        (table_of(["u", "v"] * 10), "label", "regression", "expected numbers in target .* for regression, got 'u'"),
        (table_of(["0.5", "1.5"] * 10), "label", "classification", "expected class labels .* got fractions"),
        (table_of(range(20)), "label", None, "expected class labels .* 5 rows per class, got 20 values in 20 rows"),
        (table_of(["u"] * 20), "label", None, "expected targets of table that vary .* got 0 in all of them"),
        (table_of(["1.5"] * 20), "label", None, r"expected targets of table that vary .* got 1\.5 in all of them"),
    ],
)
def test_bad_csv_files(tmp_path, text, target, task, message):
    with pytest.raises(ValueError, match=message):
        read_table(csv(tmp_path, text), target, task=task)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.arange(20)}, r"expected one of the arrays of table\.npz \(y\) as the inputs, got 'x'"),
        ({"x": random_numbers(20, 2)}, r"expected one of the arrays of table\.npz \(x\) as the target, got 'y'"),
        ({"x": random_numbers(20), "y": np.arange(20)}, r"expected inputs 'x' .* \(N, d\) of numbers, got float64 of"),
        ({"x": np.full((20, 2), np.inf), "y": np.arange(20)}, "expected finite numbers in 'x' .* got 40 others"),
        ({"x": random_numbers(20, 2), "y": np.arange(19)}, r"expected a target 'y' .* of shape \(20,\), .*got \(19,\)"),
        ({"x": random_numbers(20, 2), "y": np.full(20, np.nan)}, "expected finite numbers in target 'y' .* got 20"),
        ({"x": random_numbers(20, 2), "y": np.ones(20) * 1j}, "expected numbers or strings .* got complex128"),
    ],
)
def test_bad_npz_files(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        read_table(npz(tmp_path, **arrays), "y")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"expected a file that ends in \.csv or \.npz, got 'table\.xlsx'"):
        read_table("table.xlsx", "y")
    with pytest.raises(ValueError, match="expected an existing file, got"):
        read_table(tmp_path / "none.csv", "y")
    (tmp_path / "latin.csv").write_bytes(b"a,b\n1,\xe9\n")
    with pytest.raises(ValueError, match="expected a CSV file in UTF-8, got other bytes"):
        read_table(tmp_path / "latin.csv", "b")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="expected a NumPy archive of plain arrays"):
        read_table(tmp_path / "objects.npz", "y")


def test_a_data_set_is_checked():
    x, y = torch.randn(4, 2), torch.tensor([0.0, 1.0, 2.0, 3.0])
    about = {"task": "regression", "num_classes": None, "provenance": "", "licence": ""}
    with pytest.raises(ValueError, match="expected finite values in x_test, got 1"):
        Dataset("toy", x, y, torch.tensor([[0.0, float("nan")]]), torch.zeros(1), **about)
    with pytest.raises(ValueError, match="expected x_test with 2 columns, got 3"):
        Dataset("toy", x, y, torch.zeros(1, 3), torch.zeros(1), **about)

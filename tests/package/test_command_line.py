"""The command on files and options that are not as they should be: one line that says what to do, and exit code 2."""

from __future__ import annotations

import builtins
import importlib
import io
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from linear_operator.utils.errors import NotPSDError

import rfgp
from rfgp import study
from rfgp.__main__ import main
from rfgp.study.result import FILES

ROWS = 30
SMALL = ["--num-features", "8", "--seeds", "1", "--methods", "rademacher:real"]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs a command that has to fail before any training, and returns its message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rfgp.study.bench.fit", None)

    def run(*arguments):
        assert main(["study", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.match(r"rfgp: error: .*expected .*got .*; .", line)
        return line

    return run


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape)


def table(cells):
    return "a,b,y\n" + "".join(f"{i},{i * i % 7},{cell}\n" for i, cell in enumerate(cells))


GOOD = table(numbers(ROWS))


def archive(path, method=zipfile.ZIP_STORED, **members):
    """An archive of arrays, or of bytes as they are."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            stream = io.BytesIO()
            if isinstance(content, bytes):
                stream.write(content)
            else:
                np.save(stream, content)
            file.writestr(f"{name}.npy", stream.getvalue())


def header(shape, dtype="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            f'{GOOD}"{"1" * 140_000}",2,3\n',
            f"'a': 1 infinite ('{'1' * 40}...' in row 31); correct them",
        ),
        (GOOD.replace("0,", '"0,', 1) + "1,2,3\n" * 40_000, "check the quotation marks and the separator"),
        (bytes(range(256)), "expected text in table.csv, got other bytes"),
        ("a,b,y\n", "expected rows of data, got none in table.csv"),
        (GOOD.replace("a,b,y", "a,y,y"), "expected the name of one column of table.csv (a, y, y (2)) or its index"),
        (GOOD + "1,2\n", "got 1 cell without one in 1 column: 'y': 1 missing (empty in row 31)"),
        (table(["u", "v"] * 15).replace("3,", "x" * 999 + ","), f"3 wrong ('{'x' * 40}...' in row 4"),
    ],
)
def test_csv_files(refused, tmp_path, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "table.csv").write_bytes(content)
    assert message in refused("table.csv", "--target", "y", "--missing", "raise")


@pytest.mark.parametrize("cells", [["--1", "--2"], ["²", "³"], ["+-1", "-+1"]])
def test_labels_that_are_almost_integers(tmp_path, cells):
    (tmp_path / "table.csv").write_text(table(cells * 15), encoding="utf-8")
    found = rfgp.study.tables.read(tmp_path / "table.csv", "y", task="classification")
    assert len(found.class_names) == 2 and len(found.x) == 30


@pytest.mark.parametrize("target", ["nope", "", "²", "--1", "1" * 5000, "3", "-4"])
def test_targets_that_are_no_column(refused, tmp_path, target):
    (tmp_path / "table.csv").write_text(GOOD, encoding="utf-8")
    line = refused("table.csv", f"--target={target}")
    assert "expected the name of one column of table.csv (a, b, y) or its index" in line and len(line) < 300


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"x": header((3 * 10**12, 1)) + bytes(80)},
            "the header of x.npy claims 24,000,000,000,000 bytes where",
        ),
        ({"x": header((-1, -1)) + bytes(8)}, "the header of x.npy claims"),
        ({"x": b"\x93NUMPY\x02\x00\xff\xff\xff\xff"}, "x.npy has version (2, 0) of the format"),
        ({"x": header((1,), "|O") + bytes(8)}, "x.npy has Python objects"),
        ({"x": b""}, "expected a NumPy archive of plain arrays, got 'table.npz', which is not one"),
        ({}, "expected one of the arrays of table.npz (y) as the inputs, got 'x'"),
        ({"x": np.zeros(ROWS, dtype=[("a", "f8")])}, "expected inputs 'x' of table.npz as an array (N, d) of numbers"),
        (
            {"x": numbers(ROWS, 2).astype(str)},
            "expected inputs 'x' of table.npz as an array (N, d) of numbers",
        ),
    ],
)
def test_npz_files(refused, tmp_path, members, message):
    archive(tmp_path / "table.npz", **members, y=numbers(ROWS))
    assert message in refused("table.npz", "--target", "y")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_files_of_other_compression(refused, tmp_path, method):
    archive(tmp_path / "table.npz", method, x=numbers(ROWS, 2), y=numbers(ROWS))
    assert f"x.npy is compressed by method {method}); save it with numpy.savez" in refused("table.npz", "--target", "y")


def flipped(path, offset, mask):
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def test_encrypted_npz_files(refused, tmp_path):
    path = tmp_path / "table.npz"
    archive(path, x=numbers(ROWS, 2), y=numbers(ROWS))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        flipped(path, path.read_bytes().index(signature) + offset, 1)
    assert "(x.npy is encrypted); save it with numpy.savez" in refused("table.npz", "--target", "y")


def test_damaged_compression_of_npz_files(refused, tmp_path):
    path = tmp_path / "table.npz"
    archive(path, zipfile.ZIP_DEFLATED, x=numbers(ROWS, 2), y=numbers(ROWS))
    for offset in range(60, 140):
        flipped(path, offset, 255)
    assert "expected a NumPy archive of plain arrays" in refused("table.npz", "--target", "y")


def test_npz_files_that_inflate_beyond_memory(refused, tmp_path, monkeypatch):
    archive(tmp_path / "table.npz", zipfile.ZIP_DEFLATED, x=np.zeros((200_000, 8), dtype=np.uint8), y=np.zeros(200_000))
    assert (tmp_path / "table.npz").stat().st_size < 10_000
    monkeypatch.setattr("os.sysconf", lambda name: 2**13)  # 64 MiB
    monkeypatch.setattr(np.lib.format, "read_array", None)  # nothing is inflated
    line = refused("table.npz", "--target", "y")
    assert "expected 8 float64 copies of the 1,800,000 elements of table.npz to fit in 0.1 GiB of memory" in line


def test_csv_files_beyond_memory(refused, tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr("os.sysconf", lambda name: 64)
    assert "expected the cells of table.csv, of" in refused("table.csv", "--target", "y")


@pytest.mark.parametrize("name", ["folder.csv", "folder.npz"])
def test_directories_as_files(refused, tmp_path, name):
    (tmp_path / name).mkdir()
    assert f"expected an existing file, got '{name}'" in refused(name, "--target", "y")


def test_names_too_long_for_a_file(refused):
    assert "expected a path that can be used, got File name too long" in refused(f"{'a' * 300}.csv", "--target", "y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-features", "1000000000000"], "expected models of 1,000,000,000,000 features to fit in"),
        (["--num-features", "8,1000000000000", "--methods", "auto"], "lower --num-features (num_features)"),
        (["--num-features", "1" + "0" * 400], "got '1000000000000000000000000000000000000000'; choose one of up to 18"),
        (["--num-features", "1e12"], "argument --num-features: expected a positive integer, got '1e12'"),
        (["--num-features", "²"], "argument --num-features: expected a positive integer, got '²'"),
        (["--num-features", ""], "expected at least one value for num_features, got none"),
        (["--methods", ""], "expected at least one value for methods, got none"),
        (["--seeds", "1000000000000"], "expected an integer from 1 to 1000 for num_seeds, got 1000000000000"),
        (["--seeds", "nan"], "argument --seeds: expected a positive integer, got 'nan'"),
        (["--exact-limit", "1" + "0" * 400], "argument --exact-limit: expected a positive integer"),
        (["--alpha-epsilon", "nan"], "argument --alpha-epsilon: expected a positive number, got 'nan'"),
        (["--alpha-epsilon", "0"], "argument --alpha-epsilon: expected a positive number, got '0'"),
        (["--kernel", "polynomial:²"], "expected polynomial:p with a degree p"),
        (["--kernel", f"polynomial:{'9' * 5000}"], "expected polynomial:p with a degree p"),
        (["--inputs", "x"], "expected --inputs for NPZ files, got the file table.csv"),
        (["--out", ""], "expected a directory for --out, got an empty name"),
        (["--out", "table.csv/results"], "expected a directory that can be written to for --out"),
        (["--out", "/proc/self"], "expected a directory that can be written to for --out, got '/proc/self'"),
        (["--out", "clash"], "expected to write study.png to --out, got a directory 'clash/study.png'"),
    ],
)
def test_options(refused, tmp_path, options, message):
    (tmp_path / "table.csv").write_text(GOOD, encoding="utf-8")
    (tmp_path / "clash" / "study.png").mkdir(parents=True)
    assert message in refused("table.csv", "--target", "y", *options)


@pytest.mark.parametrize("scaling", ["standardize", "unit"])
@pytest.mark.parametrize(("factor", "scale"), [(1e300, "inf"), (1e-300, "0")])
def test_inputs_beyond_the_range_of_squares(refused, tmp_path, scaling, factor, scale):
    archive(tmp_path / "table.npz", x=factor * numbers(ROWS, 2), y=numbers(ROWS))
    line = refused("table.npz", "--target", "y", "--scaling", scaling)
    assert f"expected inputs whose squares are within the range of float64, got a scale of {scale}" in line


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_targets_beyond_the_range_of_squares(refused, tmp_path, factor):
    archive(tmp_path / "table.npz", x=numbers(ROWS, 2), y=factor * numbers(ROWS))
    assert "expected targets whose squares are within the range of float64" in refused("table.npz", "--target", "y")


def test_an_exact_model_without_a_factor(refused, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise NotPSDError("Matrix not positive definite")

    (tmp_path / "table.csv").write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr("rfgp.study.bench.fit", fail)
    line = refused("table.csv", "--target", "y", "--kernel", "polynomial:3", *SMALL)
    assert "expected an exact model with a Cholesky factor in float64, got none (Matrix not positive definite)" in line


def test_a_terminal_without_the_signs_of_the_table(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text(GOOD, encoding="utf-8")
    printed = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", printed)
    monkeypatch.setattr(study.StudyResult, "save", lambda self, directory: [])
    options = ["--num-features", "8", "--seeds", "2", "--methods", "rademacher:real", "--out", str(tmp_path / "out")]
    assert main(["study", str(tmp_path / "table.csv"), "--target", "y", *options]) == 0
    printed.seek(0)
    assert "? standard error over seeds" in printed.read()


class ClosedPipe(io.TextIOBase):
    """A stream whose reader has left."""

    def write(self, text):
        raise BrokenPipeError

    flush = None


@pytest.mark.long("a process with a whole study")
def test_a_closed_pipe_loses_nothing(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text(GOOD, encoding="utf-8")
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", ClosedPipe())
    monkeypatch.setattr(ClosedPipe, "flush", lambda self: self.write(""))
    out = tmp_path / "out"
    assert main(["study", str(tmp_path / "table.csv"), "--target", "y", *SMALL, "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)


def test_a_pipe_that_is_closed_at_once(tmp_path):
    command = [sys.executable, "-c", "from rfgp.__main__ import main; raise SystemExit(main(['study', '--help']))"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 0


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"rfgp {rfgp.__version__}\n"


def test_help_has_no_empty_defaults(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["study", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "None" not in text
    for default in (
        "(default: x)",
        "(default: auto)",
        "(default: 128,256,512,1024)",
        "(default: study-results)",
    ):
        assert default in text


@pytest.mark.parametrize("module", ["matplotlib", "pandas", "sklearn.datasets"])
def test_missing_packages_name_the_documented_extra(module, monkeypatch, capsys, tmp_path):
    def without(importer):
        def imported(name, *args, **kwargs):
            if name.split(".")[0] == module.split(".")[0]:
                raise ImportError(name)
            return importer(name, *args, **kwargs)

        return imported

    monkeypatch.setattr(builtins, "__import__", without(builtins.__import__))
    monkeypatch.setattr("importlib.import_module", without(importlib.import_module))
    assert main(["study", "diabetes", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "install the extra study, from a checkout by pip install '.[study]'" in line

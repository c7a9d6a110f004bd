"""Checks of others are counted as they report them, and every one that fails in the stored result has a reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import public_suites

FILE = """
import unittest
import pytest

def test_right():
    pass

def test_wrong():
    assert 1 == 2, "one is not two"

@pytest.mark.skip(reason="not here")
def test_left_out():
    raise RuntimeError

@pytest.fixture
def broken():
    raise OSError("no disk")

def test_with_what_is_broken(broken):
    pass

@pytest.mark.xfail
def test_known():
    raise ValueError

class TestParts(unittest.TestCase):
    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
"""


def test_tests_of_a_file_are_counted_as_pytest_reports_them(tmp_path, capsys):
    (tmp_path / "test_some.py").write_text(FILE)
    (tmp_path / "test_unreadable.py").write_text("import no_such_module_anywhere\n")
    paths = [tmp_path / "test_some.py", tmp_path / "test_unreadable.py"]
    found = public_suites.foreign(paths)
    assert {name: status for name, (status, _) in found.items()} == {
        "test_some::test_right": "passed",
        "test_some::test_wrong": "failed",
        "test_some::test_left_out": "skipped",
        "test_some::test_with_what_is_broken": "failed",
        "test_some::test_known": "skipped",
        "test_some::TestParts::test_parts": "failed",
        "test_unreadable": "failed",
    }
    assert "one is not two" in found["test_some::test_wrong"][1] and "no disk" in str(found.values())
    assert "no_such_module_anywhere" in found["test_unreadable"][1]
    counted = public_suites.counted(found)
    assert [counted[status] for status in ("passed", "failed", "skipped")] == [1, 4, 2]
    assert "test_some::test_right" not in [name for name, *_ in counted["not passed"]]


def test_failures_of_several_objects_are_one_row_with_a_reason_or_none(monkeypatch):
    def cell(label, *failed):
        says = [[name, "failed", f"{name} of {label}"] for name in failed] + [["a skip", "skipped", ""]]
        return {"suite": "BoTorch", "version": "1", "object": label, "not passed": says}

    monkeypatch.setattr(public_suites, "REASONS", (("BoTorch", "shapes of", "it has shapes"), ("GPyTorch", "", "any")))
    cells = {name: cell(name, *failed) for name, failed in {"dense": ["shapes"], "rfgp": ["shapes", "new"]}.items()}
    assert public_suites.claims({"cells": cells}) == {
        "failures": {
            "BoTorch: shapes: it has shapes": {
                "suite": "BoTorch",
                "check": "shapes",
                "objects": "dense, rfgp",
                "reason": "it has shapes",
            },
            "BoTorch: new: ": {"suite": "BoTorch", "check": "new", "objects": "rfgp", "reason": ""},
        },
        "of BoTorch with rfgp and not with dense": ["new"],
    }


def test_what_is_not_installed_is_told_and_what_stops_is_a_failure(tmp_path, monkeypatch):
    every = [("no such package", "object", "scikit_learn", ()), ("pytest", "no such estimator", "scikit_learn", ("?",))]
    monkeypatch.setattr(public_suites, "suites", lambda options: iter(every))
    monkeypatch.setattr(public_suites.common, "alone", lambda *arguments, seconds: {"status": "KeyError: '?'"})
    monkeypatch.setattr(sys, "argv", ["public_suites", "--quick", "--out", str(tmp_path / "result.json")])
    monkeypatch.setenv("PYTHONPATH", "")
    public_suites.main()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["missing"]["no such package"] == "not installed"
    assert [*result["cells"]] == ["pytest: no such estimator"]
    assert result["cells"]["pytest: no such estimator"] == {
        "suite": "pytest",
        "version": pytest.__version__,
        "object": "no such estimator",
        "passed": 0,
        "failed": 1,
        "skipped": 0,
        "not passed": [["the whole suite", "failed", "KeyError: '?'"]],
    }


def test_every_stored_failure_has_a_reason():
    path = Path(public_suites.__file__).parent / "results" / "public_suites.json"
    failures = public_suites.claims(json.loads(path.read_text(encoding="utf-8")))["failures"]
    assert failures and [name for name, row in failures.items() if not row["reason"]] == []

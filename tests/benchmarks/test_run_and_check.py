"""Scripts that run one after the other, and stored figures that are compared with pages."""

from __future__ import annotations

import importlib
import json

import pytest

from benchmarks import check, plan, runs
from benchmarks.cells import Cell, agrees, like, replaced
from benchmarks.pages import CELLS
from benchmarks.plan import HERE, Paper, Script, scripts

SCRIPT = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--quick", action="store_true")
options = parser.parse_args()
count = json.loads(options.out.read_text())["count"] if options.out.exists() else 0
options.out.write_text(json.dumps({"environment": {"commit": "COMMIT"}, "count": count + 1}))
raise SystemExit(count == FAILS)
"""


def test_the_table_names_every_script_once():
    names = [script.name for script in scripts()]
    assert len(set(names)) == len(names) > 70
    assert all(script.file.exists() for script in scripts())
    missing = {path.stem for path in HERE.glob("[a-z]*.py")} - set(names)
    papers = {path.stem for path in (HERE / "papers").glob("[a-z]*_*.py")} - {"variance_ratios"}
    assert {script.name for script in scripts() if isinstance(script, Paper)} == papers
    stored = next(script for script in scripts() if script.name == "szabo_rates").result(HERE / "results")
    assert stored == HERE / "papers" / "results" / "szabo_rates.json"
    assert missing == {
        "cells",
        "check",
        "common",
        "grid_peers",
        "pages",
        "plan",
        "runs",
        "standard_splits",
        "steps",
    }
    assert [script.wanted for script in scripts() if script.name == "botorch_suites"] == [("--botorch",)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of scripts, one of which fails."""
    scripts_folder = tmp_path / "benchmarks"
    scripts_folder.mkdir()
    commit = runs.environment()["commit"]
    for name, fails in (("good", 9), ("bad", 0)):
        text = SCRIPT.replace("COMMIT", commit).replace("FAILS", str(fails))
        (scripts_folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(runs, "HERE", scripts_folder)
    monkeypatch.setattr(plan, "HERE", scripts_folder)
    return tmp_path


def test_scripts_run_once_for_a_commit_and_go_on_after_a_failure(folder, capsys):
    wanted = [
        Script("good"),
        Script("bad"),
        Script("peer", wanted=("--peer",)),
    ]
    out = folder / "results"
    out.mkdir()
    for name in ("good", "bad"):
        (out / f"{name}.json").write_text(json.dumps({"environment": {"commit": "of old"}, "count": 7}))
    assert runs.run_all(wanted, out, "quick", {}) == ["bad"]
    assert json.loads((out / "bad.before").read_text())["count"] == 7 and not (out / "good.before").exists()
    assert runs.run_all(wanted, out, "quick", {}) == []
    assert json.loads((out / "good.json").read_text())["count"] == 1
    assert json.loads((out / "bad.json").read_text())["count"] == 2
    record = json.loads((out / runs.RECORD).read_text())
    assert record["good"]["code"] == 0 and record["good"]["processor_seconds"] > 0.0
    assert (
        "good: measured, and nothing has changed" in (printed := capsys.readouterr().out)
        and "peer: not run, it needs --peer" in printed
    )


def test_a_script_gets_the_data_directory_also_where_it_has_no_option_for_it():
    saving, certificate = (next(s for s in scripts() if s.name == name) for name in ("saving", "certificate"))
    given = {"--data-dir": "somewhere"}
    assert saving.variables(given)["RFGP_DATA"] == "somewhere" and "somewhere" not in saving.command(
        HERE, "quick", given
    )
    assert certificate.command(HERE, "quick", given)[-3:] == ["--data-dir", "somewhere", "--quick"]


def test_results_are_labeled_by_their_runs_and_age_is_no_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "scripts", lambda: [Script(name) for name in ("saving", "laplace", "coverage", "gone")])
    new = {"commit": "a" * 40, "date": "2026-11-27", "processor": "fast"}
    for name, run in (("saving", new), ("laplace", new), ("coverage", {"commit": "0" * 40})):
        (tmp_path / f"{name}.json").write_text(json.dumps({"environment": run}))
    labels = {f"{'a' * 12}, 2026-11-27, fast": ["saving", "laplace"], f"{'0' * 12}, no date": ["coverage"]}
    assert check.labels(tmp_path) == labels
    monkeypatch.setattr(check, "CELLS", [])
    assert check.problems(tmp_path) == []


def test_a_run_says_what_it_is_of():
    assert {"commit", "date", "processor", "torch", "gpytorch", "numpy", "scipy"} <= runs.environment().keys()


@pytest.mark.parametrize(
    ("text", "value", "holds"), [(".67", 0.6749, True), ("7.6", 7.66, False), ("54", 54.4, True), ("0.5", 0.46, True)]
)
def test_a_text_agrees_with_a_value_to_its_digits(text, value, holds):
    assert agrees(text, value) == holds


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        (".67", 0.7049, ".70"),
        ("7.6", 7.66, "7.7"),
        ("1,024", 2048.0, "2,048"),
        ("-.40", -0.412, "-.41"),
        ("3", 12.4, "12"),
    ],
)
def test_a_number_is_written_with_the_digits_of_a_text(text, value, written):
    assert like(text, value) == written and agrees(written, value)


def test_columns_of_tables_stay():
    assert replaced("row  11.5    9", 5, 9, "5.4") == "row  5.4     9"
    assert replaced("row  5.4     9", 5, 8, "11.5") == "row  11.5    9"
    assert replaced("in 11.5 s", 3, 7, "5.4") == "in 5.4 s"


def test_pages_say_what_results_have(tmp_path):
    assert [problem for cell in CELLS for problem in cell.problems(HERE.parent, HERE / "results")] == []
    (tmp_path / "page.md").write_text("It takes 2.3 s.")
    (tmp_path / "grid.json").write_text('{"seconds": 2.7}')
    cell = Cell("page.md", r"takes ([\d.]+) s", "grid", lambda content: [content["seconds"]])
    assert cell.problems(tmp_path, tmp_path) == ["page.md: 2.3 where grid has 2.7"]
    cell.write(tmp_path, tmp_path)
    assert (tmp_path / "page.md").read_text() == "It takes 2.7 s." and cell.problems(tmp_path, tmp_path) == []


def test_ratios_are_compared_with_the_last_runs(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    watch = importlib.import_module("watch")
    history = {"fit / product": {str(k): 1.0 + 0.1 * k for k in range(3)}}
    assert watch.slower(history, {"fit / product": 1.4, "new / product": 9.0}) == []
    assert watch.slower({"fit / product": {"0": 1.0, "1": 1.1}}, {"fit / product": 9.0}) == []
    (found,) = watch.slower(history, {"fit / product": 1.5})
    assert found == "fit / product: 1.5, where the last 3 runs have 1.1"
    for k in range(20):
        history = watch.extended(history, str(k), {"fit / product": 1.0, "new / product": float(k)})
    assert list(history["fit / product"]) == [str(k) for k in range(10, 20)] == list(history["new / product"])

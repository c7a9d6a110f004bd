"""Results keep what was measured; what they say follows from their cells, and the README says what they have."""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import changes
import claims
import common
from accuracy.table import points

ROOT = claims.HERE.parent


def rounded(values):
    """The same to nine digits, to which processors agree."""
    return json.loads(json.dumps(values), parse_float=lambda text: f"{float(text):.9g}")


def test_stored_claims_are_those_of_the_cells():
    stored = list(claims.stored())
    assert [path.stem for path, result, found in stored if rounded(result.get("claims")) != rounded(found)] == []
    assert len(stored) > 10 and all(found for *_, found in stored)


def test_the_list_of_benchmarks_names_every_script_and_every_result_has_one():
    scripts = {path.stem for path in claims.HERE.glob("[a-z]*.py")} - {
        "changes",
        "claims",
        "common",
        "gpytorch_models",
        "grid_peers",
    }
    text = (claims.HERE / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(scripts) if f"`{name}`" not in text] == []
    assert {path.stem for path in (claims.HERE / "results").glob("*.json")} <= scripts


def result(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def of_splits(name, data_set, method, score):
    """The mean of a score over the splits of a data set."""
    return statistics.mean(points(result(name)["cells"], data_set)[method][score])


SETS = ("kin40k", "rf1")


def sentences():
    """The sentences of the README that have numbers of results."""
    (own, rough), (other, boosted) = (
        [
            {score: of_splits("accuracy_per_second", name, method, score) for score in ("error", "seconds")}
            for name in SETS
        ]
        for method in ("rfgp", "boosting, up to 1,000 trees")
    )
    ratio = own["seconds"] / other["seconds"]
    yield f"kin40k, 40,000 rows: RMSE {own['error']:.3f}, boosting {other['error']:.3f}."
    yield f"rfgp takes {ratio:.0f} times the seconds."
    yield f"Boosting wins on rf1, whose targets have spikes: {boosted['error']:.3f}, rfgp {rough['error']:.3f}."
    grid, tables, blocks = (result(name)["claims"] for name in ("fourier_grid", "messy_tables", "coverage"))
    yield f"all parameters in {grid['fit seconds']:.1f} s, a map of 10^8 points in {grid['map seconds']:.1f} s"
    yield f" s and {grid['map GB']:.1f} GB."
    yield f"cover {blocks['blocks']['least']:.2f} to {blocks['blocks']['most']:.2f} of functions drawn from the model."
    least, most = (tables[f"{end} error to boosting"] for end in ("least", "most"))
    yield f"errors are {least:.2f} to {most:.2f} times those of boosting."


def test_the_readme_says_what_results_have():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [sentence for sentence in sentences() if sentence not in readme] == []


def test_cells_of_a_run_of_this_commit_are_kept(tmp_path, monkeypatch):
    options = SimpleNamespace(out=tmp_path / "result.json", quick=False)
    measured = []

    def cells(*names):
        return [(name, lambda name=name: measured.append(name) or len(measured)) for name in names]

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        common.run_cells(
            options, [*cells("a"), ("b", stopped)], lambda result: {"count": len(result["cells"])}, width=3
        )
    assert (
        json.loads(options.out.read_text()).items() >= {"cells": {"a": 1}, "claims": {"count": 1}, "width": 3}.items()
    )
    assert common.run_cells(options, cells("a", "b"))["cells"] == {"a": 1, "b": 2} and measured == ["a", "b"]
    monkeypatch.setattr(common, "environment", lambda: {"commit": "another"})
    assert common.run_cells(options, cells("a"))["cells"] == {"a": 3}
    options.quick = True
    assert common.run_cells(options, cells("a"))["cells"] == {"a": 4}


def test_a_function_runs_alone_for_a_limited_time(tmp_path, monkeypatch):
    text = "import time, torch\n@torch.no_grad()\ndef double(x, wait):\n    time.sleep(wait)\n    return {'x': 2 * x}\n"
    (tmp_path / "script.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("script").double
    assert common.alone(double, 4, 0.0, seconds=30.0) == {"x": 8}
    assert common.alone(double, 4, 30.0, seconds=0.5) == {"status": "over 0.5 s"}
    assert "TypeError" in common.alone(double, None, 0.0, seconds=30.0)["status"]


def test_a_result_is_shown_as_a_table_for_each_part(capsys):
    cells = {"a": {"seconds": 1.23456, "holds": True}, "b": {"seconds": 2.0, "mb": {"peak": 3}}}
    common.show({"environment": {"commit": "0"}, "rows": 7, "cells": cells})
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.split("\n")[3:]]
    assert lines[0] == ["", "seconds", "holds", "mb, peak"]
    assert lines[2:4] == [["a", "1.235", "True", ""], ["b", "2", "", "3"]]


def test_changes_are_those_of_numbers_that_both_results_have():
    before = {"environment": {"threads": 1}, "cells": {"a": {"seconds": 2.0, "gone": 1.0}, "b": [{"seconds": 4.0}]}}
    after = {"environment": {"threads": 2}, "cells": {"a": {"seconds": 1.0, "new": 3.0}, "b": [{"seconds": 6.0}]}}
    found = changes.changes(before, after)
    assert [(change.place, change.ratio) for change in found] == [
        ("cells > a > seconds", 0.5),
        ("cells > b > 0 > seconds", 1.5),
    ]
    assert {kind: len(part) for kind, part in changes.kinds(found).items()} == {"seconds": 2}

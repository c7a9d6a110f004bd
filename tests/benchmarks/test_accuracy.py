"""The benchmark of accuracy per second measures sets of every kind, and its tables say what cells have."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from accuracy import boosting, installed, ours, peers
from accuracy.rows import CLASSES, load, scores
from accuracy.table import COLUMNS, details, points, summary


@pytest.mark.parametrize("name", ["imbalanced", "missing"])
def test_cells_of_every_kind(name):
    rows = load(name, None, seed=1, count=80)
    methods = {}
    for module in (peers, boosting, ours):
        methods |= module.CLASSES if name in CLASSES else module.NUMBERS
    cells, names = {}, ("linear", "boosting", "rfgp, time limit 5 s")
    for method in names:
        for label, predict in methods[method](rows):
            cells[f"{name}|{method}|1"] = {label: {"seconds": 1.0, **scores(rows, predict())}}
    for point in (cells[f"{name}|{method}|1"][""] for method in names):
        assert np.isfinite(point["error"]) and np.isfinite(point["nlpd"])
        assert len(point.get("by_output", [])) == (3 if name == "missing" else 0)
    cells[f"{name}|rfgp|1"] = {"status": "over 60 s"}
    assert len(points(cells, name)) == 3
    table = details(cells, name)
    assert table.count("\n") == 5 and "over 60 s" in table


def test_the_summary_has_means_errors_and_the_lowest_in_bold():
    def cell(error):
        return {"": {"seconds": 2.0, "error": error, "nlpd": 1.0, "coverage": 0.95}}

    cells = {f"yacht|rfgp|{seed}": cell(error) for seed, error in enumerate((0.1, 0.2, 0.3))}
    cells["yacht|rfgp, time limit 5 s|0"] = cell(0.05)
    cells |= {"yacht|SVGP, 512, rate 0.1|0": {"5 epochs": cell(0.9)[""], "20 epochs": cell(0.4)[""]}}
    row = next(line for line in summary(cells, "error").splitlines() if line.startswith("| yacht"))
    found = [text.strip() for text in row.strip("|").split("|")]
    assert found[1 + COLUMNS.index("rfgp")] == "**0.200 ± 0.058**"
    assert found[1 + COLUMNS.index("SVGP")] == "0.400" and found[1 + COLUMNS.index("xRFM")] == ""


def test_every_column_is_a_method():
    names = [*ours.NUMBERS, *boosting.NUMBERS, *peers.NUMBERS, *installed.NUMBERS]
    assert all(any(name.startswith(column) for name in names) for column in COLUMNS)


def test_sets_are_split_and_standardized():
    rows, other = (load("imbalanced", None, seed) for seed in (1, 2))
    assert len(rows.x) + len(rows.test_x) == 3_000 and not np.array_equal(rows.y, other.y)
    np.testing.assert_allclose(rows.x.std(0), 1.0)
    missing = load("missing", None, 1)
    assert 0.1 < np.isnan(missing.y).mean() < 0.3
    np.testing.assert_allclose(np.nanstd(missing.y, 0), 1.0)

"""The benchmark of accuracy per second measures sets of every kind by methods of every kind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import accuracy_per_second as benchmark
from accuracy.rows import load, scores


@pytest.mark.parametrize("name", benchmark.SHORT_SETS)
def test_cells_of_every_kind(name):
    rows = load(name, None, seed=1, count=80)
    cells = {}
    for method, fit in benchmark.methods(name).items():
        if method.endswith(("linear", "gradient boosting", "SVC", "constant", "class frequencies")):
            for label, predict in fit(rows):
                cells[f"{name}|{method}|1"] = {label: {"seconds": 1.0, **scores(rows, predict())}}
    found = benchmark.points_of(cells, name)
    assert len(found) >= 2
    for point in found.values():
        assert np.isfinite(point["error"]) and (point["nlpd"] is None or np.isfinite(point["nlpd"]))
        assert len(point.get("by_output", [])) == (3 if name == "missing" else 0)
    cells[f"{name}|rfgp, defaults|1"] = {"status": "over 1 s"}
    table = benchmark.table_of(cells, name)
    assert table.count("\n") == len(found) + 2 and "over 1 s" in table


def test_sets_are_split_and_standardized():
    rows, other = (load("noisy_labels", None, seed, count=None) for seed in (1, 2))
    assert len(rows.x) + len(rows.test_x) == 17_000 and not np.array_equal(rows.y, other.y)
    np.testing.assert_allclose(rows.x.std(0), 1.0)
    missing = load("missing", None, 1)
    assert 0.1 < np.isnan(missing.y).mean() < 0.3
    np.testing.assert_allclose(np.nanstd(missing.y, 0), 1.0)

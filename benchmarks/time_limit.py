"""Whether time limits hold: seconds by the clock of fits with a time limit, within 1.2 times the limit and 2 seconds.

Every cell is a fit of an estimator with a limit to a generated table, and its score on other rows: NLPD of standardized
targets, or the log loss of classes.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import arguments, run_cells

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

TEST_ROWS = 1000


class Table(NamedTuple):
    """What a table is like: its rows, columns, outputs or classes, and the share of targets that is missing."""

    num_rows: int
    num_columns: int
    num_outputs: int = 0
    num_classes: int = 0
    missing: float = 0.0


TABLES = {
    "300 x 3": Table(300, 3, 1),
    "3,000 x 30": Table(3000, 30, 1),
    "20,000 x 8": Table(20_000, 8, 1),
    "60,000 x 10": Table(60_000, 10, 1),
    "300 x 3, 2 outputs": Table(300, 3, 2),
    "800 x 3, 3 outputs, NaN": Table(800, 3, 3, missing=0.2),
    "9,000 x 20, 8 outputs": Table(9000, 20, 8),
    "9,000 x 20, 8 outputs, NaN": Table(9000, 20, 8, missing=0.1),
    "900 x 2, 2 classes": Table(900, 2, num_classes=2),
    "3,000 x 32, 3 classes": Table(3000, 32, num_classes=3),
    "18,000 x 16, 26 classes": Table(18_000, 16, num_classes=26),
    "60,000 x 10, 2 classes": Table(60_000, 10, num_classes=2),
}


def rows_of(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Normal inputs, and noisy targets or labels, with rows to test on at the end."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(table.num_rows + TEST_ROWS, table.num_columns))
    first = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] ** 2
    second = x[:, 0] * x[:, 1] + np.cos(x[:, 1])
    if table.num_classes:
        noisy = first + 0.3 * generator.normal(size=len(x))
        edges = np.quantile(noisy, np.linspace(0.0, 1.0, table.num_classes + 1)[1:-1])
        return x, np.digitize(noisy, edges)
    mixing = generator.normal(size=(2, table.num_outputs))
    y = np.stack([first, second], -1) @ mixing
    y = (y - y.mean(0)) / y.std(0) + 0.1 * generator.normal(size=y.shape)
    y = np.where(generator.random(y.shape) < table.missing, np.nan, y)
    return x, y[:, 0] if table.num_outputs == 1 else y


def fitted(table: Table, limit: float) -> dict[str, Any]:
    """The seconds of a fit, and the score on other rows."""
    x, y = rows_of(table)
    train, test = slice(table.num_rows), slice(table.num_rows, None)
    kind = RandomFeatureGPClassifier if table.num_classes else RandomFeatureGPRegressor
    began = time.perf_counter()
    model = kind(time_limit=limit, random_state=0).fit(x[train], y[train])
    took = time.perf_counter() - began
    if table.num_classes:
        chosen = model.predict_proba(x[test])[np.arange(TEST_ROWS), y[test]]
        score = float(-np.log(chosen + 1e-12).mean())
    else:
        mean, deviation = model.predict(x[test], return_std=True)
        density = 0.5 * (np.log(2.0 * np.pi * deviation**2) + ((y[test] - mean) / deviation) ** 2)
        score = float(np.nanmean(density))
    summary = model.fit_summary_
    found = {"seconds": took, "score": score, "holds": took <= 1.2 * limit + 2.0}
    return found | {"evaluations": summary.evaluations, "message": summary.message}


def claims(result: dict[str, Any]) -> dict[str, int]:
    """How many fits took too long."""
    return {"fits": len(result["cells"]), "too long": sum(not cell["holds"] for cell in result["cells"].values())}


def main() -> None:
    parser = arguments(__doc__, "time_limit")
    parser.add_argument("--limits", nargs="+", type=float, default=[2.0, 5.0], help="default: 2 5")
    parser.add_argument("--only", default="", help="tables whose names contain this text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    limits = [0.5] if options.quick else options.limits
    names = list(TABLES)[:1] if options.quick else [name for name in TABLES if options.only in name]
    jobs = [(f"{name}|{limit:g}", partial(fitted, TABLES[name], limit)) for name in names for limit in limits]
    run_cells(options, jobs, claims)


if __name__ == "__main__":
    main()

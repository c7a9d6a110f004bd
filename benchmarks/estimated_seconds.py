"""Whether estimates of the time of a fit are right up to a factor of two, on random tables.

Every cell is a table of random size and function: its estimate, made at once before the fit, and the seconds of the
processor that the fit takes, so that run it with one thread. The constants of the estimate come from other tables.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from common import arguments, run_cells

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor
from rfgp.training.costs import slowness

KINDS = ("one target", "several targets", "few classes", "many classes")
FUNCTIONS = ("linear", "smooth", "additive", "steps")
FACTOR, WARM_ROWS = 2.0, 1100


def rows_of(seed: int, most_rows: int) -> tuple[str, np.ndarray, np.ndarray]:
    """The kind of a table, normal inputs, and noisy targets or labels."""
    generator, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    count = {"one target": 1, "several targets": generator.integers(2, 9), "few classes": generator.integers(2, 6)}
    num_values = int(count.get(kind, generator.choice([8, 12, 20, 26])))
    least = 50 if kind.endswith(("target", "targets")) else 8 * num_values
    num_rows, num_columns = (int(np.exp(generator.uniform(*np.log(ends)))) for ends in ((least, most_rows), (2, 61)))
    x, function = generator.normal(size=(num_rows, num_columns)), str(generator.choice(FUNCTIONS))
    linear = x @ generator.normal(size=(num_columns, num_values)) / num_columns**0.5
    waves = 2.0 * x[:, :5] @ generator.normal(size=(min(num_columns, 5), num_values))
    steps = np.sign(np.sin(4.0 * x[:, :1] + np.arange(num_values))) * np.sign(x[:, -1:])
    curves = np.sin(3.0 * x[:, :1] + np.arange(num_values)) + np.abs(x[:, -1:])
    added = {"linear": 0.0, "smooth": np.sin(waves), "additive": curves, "steps": steps}[function]
    values = linear + added
    if "classes" in kind:
        labels = (2.0 * values + generator.gumbel(size=values.shape)).argmax(1)
        labels[: 2 * num_values] = np.arange(2 * num_values) % num_values
        return f"{kind}, {function}", x, labels
    values = values + 0.3 * generator.normal(size=values.shape)
    return f"{kind}, {function}", x, values.squeeze(1) if num_values == 1 else values


def measured(seed: int, most_rows: int) -> dict[str, Any]:
    """The estimate of a fit, and what it takes."""
    kind, x, y = rows_of(seed, most_rows)
    model = (RandomFeatureGPClassifier if "classes" in kind else RandomFeatureGPRegressor)(random_state=0)
    slowness.cache_clear()
    estimate, began = model.estimated_seconds(x, y), time.process_time()
    model.fit(x, y)
    seconds = time.process_time() - began
    return {
        "kind": kind,
        "rows": x.shape[0],
        "columns": x.shape[1],
        "estimate": estimate,
        "seconds": seconds,
        "ratio": estimate / seconds,
    }


def claims(result: dict[str, Any]) -> dict[str, float]:
    """The share of the tables whose estimates are right up to a factor of two."""
    ratios = np.array([cell["ratio"] for cell in result["cells"].values()])
    return {"tables": len(ratios), "share": float(np.mean((ratios > 1.0 / FACTOR) & (ratios < FACTOR)))}


def main() -> None:
    parser = arguments(__doc__, "estimated_seconds")
    parser.add_argument("--tables", type=int, default=20, help="how many (default: 20)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    x = np.random.default_rng(0).normal(size=(WARM_ROWS, 2))
    for kind in (RandomFeatureGPRegressor, RandomFeatureGPClassifier):  # what only the first fit takes
        kind(average=False, max_evaluations=2).fit(x, (x[:, 0] > 0.0) * 1)
    count, most_rows = (4, 100) if options.quick else (options.tables, 50_000)
    run_cells(options, [(str(seed), partial(measured, seed, most_rows)) for seed in range(count)], claims)


if __name__ == "__main__":
    main()

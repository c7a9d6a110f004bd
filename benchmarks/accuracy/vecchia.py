"""GPBoost's Vecchia approximation, in an interpreter of its own, which has numpy and gpboost."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import gpboost
import numpy as np

from .rows import Predictions, Rows, load, measured, per_output

KERNELS = {"rbf": {"cov_function": "gaussian_ard"}, "matern32": {"cov_function": "matern_ard", "cov_fct_shape": 1.5}}
LIKELIHOODS = {"numbers": "gaussian", "counts": "poisson", "classes": "bernoulli_logit"}
"""Classes are two."""


def vecchia(rows: Rows, approximation: str, neighbors: int) -> Iterator[tuple[str, Callable[[], Predictions]]]:
    """Its defaults, with a constant mean and as many neighbors as wanted."""
    model = gpboost.GPModel(
        gp_coords=rows.x,
        likelihood=LIKELIHOODS[rows.kind],
        gp_approx=approximation,
        num_neighbors=neighbors,
        num_parallel_threads=1,
        **KERNELS[rows.kernel],
    )
    model.fit(y=rows.y.astype(float), X=np.ones((len(rows.x), 1)))

    def predict() -> Predictions:
        found = model.predict(
            gp_coords_pred=rows.test_x, X_pred=np.ones((len(rows.test_x), 1)), predict_var=True, predict_response=True
        )
        if rows.kind == "classes":
            return np.stack([1.0 - found["mu"], found["mu"]], axis=-1)
        if rows.kind == "counts":
            return found["mu"], _log_mass(rows.test_y, found["mu"])
        return found["mu"], found["var"]

    yield "", predict


def _log_mass(counts: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Log probabilities of counts under Poisson distributions of the predicted rates."""
    factorials = np.array([math.lgamma(count + 1.0) for count in counts])
    return counts * np.log(rates) - rates - factorials


def main() -> None:
    """Print the scores of one cell as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--set", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--approximation", required=True)
    parser.add_argument("--neighbors", type=int, required=True)
    options = parser.parse_args()
    method = per_output(partial(vecchia, approximation=options.approximation, neighbors=options.neighbors))
    rows = load(options.set, options.data_dir, options.seed, options.rows)
    print(json.dumps(measured(method, rows, options.limit)))


if __name__ == "__main__":
    main()

"""Whether time limits hold: seconds by the clock of fits with a time limit, within 1.2 times the limit and 2 seconds.

Every cell is a fit of a regressor of one target, of two targets, or of a classifier of three classes, or a call of
`rfgp.fit` with 1,024 features, on a table of normal inputs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from common import arguments, environment, write
from gpytorch.kernels import RBFKernel, ScaleKernel

import rfgp
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

WIDTH = 1024


def table(num_rows: int, num_columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, a noisy target, and labels of three classes."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_rows, num_columns))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] ** 2 + 0.1 * generator.normal(size=num_rows)
    return x, y, np.digitize(y, [0.0, 0.7])


def weight_space(x: np.ndarray, y: np.ndarray, limit: float) -> rfgp.training.FitSummary:
    """`rfgp.fit` of a model of Fourier features."""
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), WIDTH, input_dim=x.shape[1], seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    return rfgp.fit(model, torch.from_numpy(x), torch.from_numpy(y), time_limit=limit, progress=False)


def fits(x: np.ndarray, y: np.ndarray, labels: np.ndarray) -> dict[str, Callable[[float], Any]]:
    """Each kind of fit, as a function of the limit that returns its summary."""
    two = np.stack([y, y**2], axis=-1)

    def estimated(kind: type, targets: np.ndarray) -> Callable[[float], Any]:
        return lambda limit: kind(time_limit=limit, random_state=0).fit(x, targets).fit_summary_

    return {
        "regressor": estimated(RandomFeatureGPRegressor, y),
        "regressor of two targets": estimated(RandomFeatureGPRegressor, two),
        "classifier": estimated(RandomFeatureGPClassifier, labels),
        "rfgp.fit": lambda limit: weight_space(x, y, limit),
    }


def main() -> None:
    options = arguments(__doc__, "time_limit").parse_args()
    warnings.simplefilter("ignore")
    limits = (0.5,) if options.quick else (0.1, 1.0, 5.0, 10.0, 20.0)
    rows = []
    for num_rows, num_columns in ((300, 3),) if options.quick else ((300, 3), (3000, 30), (20_000, 8)):
        for name, fit in fits(*table(num_rows, num_columns)).items():
            for limit in limits:
                began = time.perf_counter()
                summary = fit(limit)
                took = time.perf_counter() - began
                holds = took <= 1.2 * limit + 2.0
                rows.append(
                    {"rows": num_rows, "columns": num_columns, "fit": name, "limit": limit, "seconds": took}
                    | {"holds": holds, "evaluations": summary.evaluations, "message": summary.message}
                )
                print(
                    f"{num_rows:6d} x {num_columns:2d} {name:25s} limit {limit:5.1f} s: {took:6.2f} s, "
                    f"{summary.evaluations} evaluations{'' if holds else '  TOO LONG'}",
                    flush=True,
                )
    print(f"{sum(not row['holds'] for row in rows)} of {len(rows)} fits took too long")
    write(options.out, {"environment": environment(), "rows": rows})


if __name__ == "__main__":
    main()

"""Processor seconds and memory of a regressor by its defaults against its number of rows, and of 100,000 predictions.

The function is a sum of a sine, of a cosine of a product, and of a line, in four of eight columns; the deviation of the
noise is .3. Every size is a process of its own, whose largest resident memory is that of the process.
"""

from __future__ import annotations

import resource
import time
import warnings
from typing import Any

import common
import numpy as np
import torch

from rfgp.sklearn import RandomFeatureGPRegressor

ROWS, QUICK_ROWS = (10_000, 100_000, 1_000_000), (1_600, 2_000)
COLUMNS, NOISE, NEW, SECONDS = 8, 0.3, 100_000, 3600.0


def table(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, the function there, and measurements of it."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, COLUMNS))
    function = np.sin(x[:, 0]) + np.cos(x[:, 1] * x[:, 2]) + 0.5 * x[:, 3]
    return x, function, function + NOISE * random.normal(size=count)


def fitted(count: int, num_new: int) -> dict[str, Any]:
    """Seconds of a fit and of predictions, their errors, and the memory of the process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x, _, y = table(count, 0)
    new, function, targets = table(num_new, 1)
    began = time.process_time()
    model = RandomFeatureGPRegressor(random_state=0).fit(x, y)
    after = time.process_time()
    mean, std = model.predict(new, return_std=True)
    ended = time.process_time()
    return {
        "fit": after - began,
        "predictions": ended - after,
        "error of the function": float(np.sqrt(np.mean((mean - function) ** 2))),
        "coverage": float(np.mean(np.abs(targets - mean) < 1.96 * std)),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    options = common.arguments(__doc__.splitlines()[0], "scale_defaults").parse_args()
    found = {}
    for count in QUICK_ROWS if options.quick else ROWS:
        found[str(count)] = common.alone(fitted, count, 1000 if options.quick else NEW, seconds=SECONDS)
        print(count, "  ".join(f"{name} {value:.3f}" for name, value in found[str(count)].items()), flush=True)
    common.write(options.out, {"environment": common.environment(), "new rows": NEW, "rows": found})


if __name__ == "__main__":
    main()

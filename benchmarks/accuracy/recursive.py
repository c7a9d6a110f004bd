"""xRFM, kernel regression that learns a metric from gradients; where it is installed (``pip install xrfm``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np

from .rows import Method, Predictions, Rows, per_output

LEAF = 10_000
"""Rows of a leaf, which solves a dense system: the default of 60,000 takes hours of a processor."""


def xrfm(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
    """Its defaults, a fifth of the rows for validation, whose residuals give the variance: it has no error bars."""
    import torch
    from xrfm import xRFM

    order = np.random.RandomState(0).permutation(len(rows.x))
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    x, y = (torch.from_numpy(part).float() for part in (rows.x, rows.y.reshape(-1, 1)))
    model = xRFM(device="cpu", max_leaf_size=LEAF, random_state=0, verbose=False, tuning_metric="mse")
    model.fit(x[rest], y[rest], x[held], y[held])

    def predicted(inputs: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict(torch.from_numpy(inputs).float())).reshape(-1)

    variance = np.mean((rows.y[held] - predicted(rows.x[held])) ** 2)
    yield "", lambda: (predicted(rows.test_x), np.full(len(rows.test_x), variance))


NUMBERS: dict[str, Method] = {"xRFM": per_output(xrfm)} if importlib.util.find_spec("xrfm") else {}

"""What parts of a training will take, as measured on little data."""

from __future__ import annotations

import contextlib
import functools
import time

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..linalg.last_rows import StationaryRows
from ..linalg.stationary import Profile
from . import timing
from .objectives import Objective
from .timing import Deadline

_SIZES, _MEASUREMENTS = (256, 512, 2048), 8
"""Rows that are measured, more where there is time for so many measurements of them."""
_SMALL_SPECTRUM, _SAFETY = 128, 2.0
_SPECTRA_OF_FIT = 2
"""How many times as long as the spectrum of the covariance of outputs a fit takes, whose starts and targets need it."""

_PROBE_ROWS, _PROBE_GROUPS, _PROBE_NEIGHBORS, _PROBE_COLUMNS, _PROBES = 256, 64, 32, 8, 10
"""Of a small piece of the work of a fit, and how often it is done: the quickest time counts."""
_PROBE_SECONDS = 0.0024
"""What that took where constants of seconds were measured: on one core of an AMD EPYC."""


def fit_seconds(objective: Objective, deadline: Deadline) -> tuple[float, float]:
    """What a fit to few rows takes, and what that to all rows will; zeros after a deadline.

    Outputs so many that a fit to any rows is long are not measured.
    """
    y = getattr(objective, "y", None)
    last, measured = covariance_seconds(y) if isinstance(y, Tensor) else 0.0, list[tuple[float, int]]()
    for size in _SIZES if deadline.allows(_SAFETY * last) else ():
        rows = objective.first_rows(size)
        count = objective.num_rows if rows is None else rows.numel()
        if measured and not deadline.allows(_MEASUREMENTS * _scaled(objective, measured, count)):
            break
        seconds = _seconds(objective, rows)
        if not measured and deadline.allows(seconds):  # what only the first one takes does not count
            seconds = min(seconds, _seconds(objective, rows))
        measured.append((seconds, count))
        if rows is None:
            break
    few = measured[0][0] if measured else 0.0
    return few, _scaled(objective, measured, objective.num_rows) if measured else last


def _scaled(objective: Objective, measured: list[tuple[float, int]], num_rows: int) -> float:
    """What so many rows will take: a part of what two numbers of them have taken may be the same for any number."""
    seconds, count = measured[-1]
    most = seconds * (num_rows / count) ** objective.growth
    if len(measured) == 1:
        return most
    before, fewer = measured[-2]
    slope = (seconds - before) / (count**objective.growth - fewer**objective.growth)
    return min(most, max(seconds, seconds + slope * (num_rows**objective.growth - count**objective.growth)))


@torch.no_grad()
def _seconds(objective: Objective, rows: Tensor | None) -> float:
    began = timing.clock()
    with contextlib.suppress(ValueError, NanError, NotPSDError):
        objective.evidence(rows)
    return timing.clock() - began


def covariance_seconds(y: Tensor) -> float:
    """What the covariance of the outputs of targets (N,) or (N, T) takes in a fit to any rows, about."""
    return _SPECTRA_OF_FIT * spectrum_seconds(y.shape[-1]) if y.dim() > 1 else 0.0


def spectrum_seconds(num_features: int) -> float:
    """What the eigenvalues and eigenvectors of a matrix of features will take, at most."""
    began = timing.clock()
    torch.linalg.eigh(torch.eye(_SMALL_SPECTRUM, dtype=torch.float64))
    return _SAFETY * (timing.clock() - began) * (num_features / _SMALL_SPECTRUM) ** 3


@functools.cache
def slowness() -> float:
    """How many times as long as where constants of seconds were measured work takes here, by a probe that is made once.

    It is a Cholesky factor, and log densities of rows given near ones, with gradients. Seconds of one processor count,
    whatever else runs on the machine.
    """
    times = []
    for _ in range(_PROBES):
        began = time.thread_time()
        _work()
        times.append(time.thread_time() - began)
    return min(times) / _PROBE_SECONDS


@torch.no_grad()
def _work() -> None:
    """A small piece of the work of a fit."""
    points = torch.linspace(0.0, 1e4, _PROBE_ROWS * _PROBE_COLUMNS, dtype=torch.float64).sin()
    points = points.reshape(_PROBE_ROWS, _PROBE_COLUMNS)
    one = torch.ones(_PROBE_ROWS, 1, dtype=torch.float64)
    groups = torch.arange(_PROBE_NEIGHBORS) + torch.arange(_PROBE_GROUPS).unsqueeze(-1)
    StationaryRows(points, one, one, one[0], one[0, 0], Profile.MATERN_3_2).solve(groups, has_gradients=True)
    torch.linalg.cholesky(points @ points.mT + torch.eye(_PROBE_ROWS, dtype=torch.float64))

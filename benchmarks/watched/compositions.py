"""Sums and products of kernels that are approximated already, beside the approximation of the sum or product.

Of each a training step of an ``ExactGP``, with as many features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, IndexKernel, Kernel, LinearKernel, MaternKernel, RBFKernel

import rfgp

from .exact import ExactModel, training_step
from .ratio import ratio

ROWS, WIDTH, COLUMNS = 4_000, 256, [0, 1, 2]


def approximated(exact: Kernel, width: int = WIDTH, seed: int = 0) -> Kernel:
    """A kernel with features of three columns and the number of a task."""
    return rfgp.approximate(exact, width, input_dim=4, seed=seed)


def smooth() -> Kernel:
    """A Gaussian kernel of the columns."""
    return RBFKernel(active_dims=COLUMNS)


def rough() -> Kernel:
    """A Matern kernel of the columns."""
    return MaternKernel(active_dims=COLUMNS)


def linear() -> Kernel:
    """A linear kernel of the columns."""
    return LinearKernel(active_dims=COLUMNS)


def tasks() -> Kernel:
    """A kernel of two tasks."""
    return IndexKernel(2, active_dims=[3])


class Case(NamedTuple):
    """A composition after ``approximate``, and before."""

    after: Callable[[], Kernel]
    before: Callable[[], Kernel]


CASES = {
    "k1 + k2": Case(
        lambda: approximated(smooth()) + approximated(rough(), seed=1),
        lambda: approximated(smooth() + rough(), 2 * WIDTH),
    ),
    "AdditiveKernel(k1, k2)": Case(
        lambda: AdditiveKernel(approximated(smooth()), approximated(rough(), seed=1)),
        lambda: approximated(smooth() + rough(), 2 * WIDTH),
    ),
    "linear + k1": Case(
        lambda: linear() + approximated(smooth()), lambda: approximated(linear() + smooth(), WIDTH + len(COLUMNS))
    ),
    "k1 * k2": Case(
        lambda: approximated(smooth()) * approximated(rough(), seed=1), lambda: approximated(smooth() * rough())
    ),
    "k1 * tasks": Case(lambda: approximated(smooth()) * tasks(), lambda: approximated(smooth() * tasks())),
    "tasks * k1": Case(lambda: tasks() * approximated(smooth()), lambda: approximated(smooth() * tasks())),
}


def step(kernel: Kernel) -> Callable[[], object]:
    """A training step with this kernel."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 4, generator=generator)
    x[:, 3] = torch.arange(ROWS) % 2
    noise = 0.1 * torch.randn(ROWS, generator=generator)
    y = torch.sin(6.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * x[:, 3] + noise
    return training_step(ExactModel(x, y, kernel))


class Compositions:
    """Times the approximation of the composition."""

    params, param_names = tuple(CASES), ("composition",)
    unit = "ratio"

    def track_after_to_before(self, name: str) -> float:
        case = CASES[name]
        return ratio(step(case.after()), step(case.before()))

"""How many landmarks, how large blocks, and how long a search for parameters: by default, or in a given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

NUM_EXACT_ROWS = 1000
"""Up to so many rows every row is a landmark, and the model is the exact one."""
DEFAULT_BLOCK_SIZE = 256
_FIT_SHARE = 0.4
"""The part of a time limit that the wide model may take; parameters are found in the rest."""
_SMALLEST_TUNING_SHARE = 0.2
_PROBE = 512
_REPEATS = 3
_WIDTHS = ((64, 32), (128, 64), (256, 128), (512, 128), (512, 256), (1024, 256), (1024, 512), (2048, 512))
"""Numbers of landmarks and of rows in a block, in the order of their costs."""


class Plan(NamedTuple):
    """The size of a model, and the seconds in which its parameters are to be found.

    :param num_features: the number of features M.
    :param block_size: the number of rows B in a block; None for no blocks.
    :param tuning_seconds: the limit of the search for parameters; None for no limit.
    """

    num_features: int
    block_size: int | None
    tuning_seconds: float | None


class Speed(NamedTuple):
    """Seconds that this machine takes for what a fit consists of.

    :param product: per multiplication and addition of a matrix product.
    :param factor: per multiplication and addition of a triangular solution or factor.
    :param entry: per entry of a kernel matrix.
    """

    product: float
    factor: float
    entry: float

    def seconds(self, num_rows: int, num_features: int, block_size: int | None) -> float:
        """What the statistics of N rows with M features and blocks of B rows take, with their factor.

        .. math:: N M (k + M (p + f)) + N B (k + M (p + f) + B f / 6) + M^3 f / 3

        :param num_rows: N.
        :param num_features: M.
        :param block_size: B; None for no blocks.
        """
        n, m, b = float(num_rows), float(num_features), float(block_size or 0)
        both = self.product + self.factor
        return (
            n * m * (self.entry + m * both)
            + n * b * (self.entry + m * both + b * self.factor / 6.0)
            + m**3 * self.factor / 3.0
        )


@torch.no_grad()
def measured_speed(kernel: Kernel, x: Tensor) -> Speed:
    """Measure small examples of what a fit does.

    :param kernel: the exact kernel.
    :param x: the inputs, (N, d).
    """
    n = min(len(x), _PROBE)
    a = torch.rand(_PROBE, _PROBE, dtype=x.dtype)
    triangle = torch.eye(_PROBE, dtype=x.dtype) + a.tril() / _PROBE
    solve = torch.linalg.solve_triangular
    return Speed(
        _shortest(lambda: a @ a) / _PROBE**3,
        2.0 * _shortest(lambda: solve(triangle, a, upper=False)) / _PROBE**3,
        _shortest(lambda: kernel(x[:n], x[-n:]).to_dense()) / n**2,
    )


def _shortest(call: Callable[[], object]) -> float:
    """The shortest of a few times that a call takes, in seconds."""
    seconds = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def default_plan(num_rows: int) -> Plan:
    """All rows as landmarks of a small table; else as many as serve most tables, and blocks.

    :param num_rows: the number of rows N.
    """
    if num_rows <= NUM_EXACT_ROWS:
        return Plan(num_rows, None, None)
    return Plan(min(num_rows, 1024 if num_rows <= 10_000 else 512), DEFAULT_BLOCK_SIZE, None)


def timed_plan(num_rows: int, seconds: float, speed: Speed) -> Plan:
    """The widest model whose fit takes a given share of a time limit, and what is left to find its parameters.

    :param num_rows: the number of rows N.
    :param seconds: what is left of the time limit.
    :param speed: what the machine takes.
    """
    sizes = [(min(num_rows, m), b) for m, b in _WIDTHS]
    costs = [speed.seconds(num_rows, *size) for size in sizes]
    affordable = [i for i, cost in enumerate(costs) if cost <= _FIT_SHARE * seconds]
    chosen = affordable[-1] if affordable else 0
    num_features, block_size = sizes[chosen]
    tuning = max(seconds - costs[chosen], _SMALLEST_TUNING_SHARE * seconds)
    return Plan(num_features, None if num_features == num_rows else block_size, tuning)

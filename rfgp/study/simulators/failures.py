"""Where runs of a simulator fail: a classifier of inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from ...averaging import AveragedGPClassifier
from .random_order import in_random_order

_MOST_ROWS = 400
"""Runs that the parameters of a classifier are learned from; all others count in its predictions, too."""


class Failures:
    """Which runs (N, T) have no output, and where further runs are expected to have none.

    :param x: inputs (N, d) in the unit cube.
    :param has_run: whether a run has an output, (N, T).
    """

    def __init__(self, x: Tensor, has_run: Tensor) -> None:
        self.has_run = has_run
        patterns, place = has_run.unique(dim=1, return_inverse=True)
        by_pattern = [None if bool(one.all()) else _classifier(x, one.long()) for one in patterns.mT]
        self._classifiers = [by_pattern[k] for k in place.tolist()]

    def success(self, x: Tensor) -> Tensor:
        """The probabilities (M, T) that runs at x (M, d), in the unit cube, have outputs."""
        ones = torch.ones(len(x), dtype=torch.float64)
        by_pattern = {one: one.predictive(x).probs[:, 1] for one in {*self._classifiers} if one is not None}
        return torch.stack([ones if one is None else by_pattern[one] for one in self._classifiers], dim=-1)

    def recognized(self, t: int) -> tuple[int, int]:
        """How many runs without the output t, and with it, are recognized as such by others."""
        one = self._classifiers[t]
        if one is None:
            return 0, len(self.has_run)
        succeeds, has_run = one.leave_one_out(one.x, one.y).probs[:, 1] >= 0.5, one.y.bool()
        return int((~succeeds & ~has_run).sum()), int((succeeds & has_run).sum())


def _classifier(x: Tensor, succeeded: Tensor) -> AveragedGPClassifier:
    rows = in_random_order(succeeded)
    some, others = rows[:_MOST_ROWS], rows[_MOST_ROWS:]
    found = AveragedGPClassifier(x[some], succeeded[some])
    return found.update(x[others], succeeded[others]) if len(others) else found

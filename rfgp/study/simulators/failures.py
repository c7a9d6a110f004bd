"""Where runs of a simulator fail: a classifier of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .left_out import left_out
from .parameters import LearnedParameters, learned
from .process import Process


@dataclass(frozen=True)
class _Classifier:
    r"""The probability of success, by a Gaussian process of labels -1 and 1.

    .. math:: p(x) = \Phi\big(m(x) / \sqrt{v(x) + \sigma^2}\big)

    Source: Rasmussen and Williams (2006), section 6.5, least-squares classification.
    """

    process: Process
    learned: LearnedParameters
    offset: Tensor
    unit: Tensor

    @classmethod
    def of(cls, x: Tensor, succeeded: Tensor, generator: Generator) -> _Classifier:
        labels = 2.0 * succeeded.double() - 1.0
        offset, unit = labels.mean(), labels.std(correction=0)
        standard = (labels - offset) / unit
        known = learned(x, standard, 1, generator)
        return cls(Process(x, standard, known.parameters[0], known.kind), known, offset, unit)

    def __call__(self, x: Tensor) -> Tensor:
        return self._probability(self.process.mean(x), self.process.variance(x) + self.process.parameters.noise)

    def left_out(self) -> Tensor:
        """That of every run by others, the same every time."""
        moments = left_out(self.process.x, self.process.y, self.learned, torch.Generator().manual_seed(0))
        return self._probability(*(part.squeeze(0) for part in moments))

    def _probability(self, mean: Tensor, variance: Tensor) -> Tensor:
        return torch.special.ndtr((self.offset / self.unit + mean) / variance.sqrt())


class Failures:
    """Which runs (N, T) have no output, and where further runs are expected to have none.

    :param x: inputs (N, d) in the unit cube.
    :param has_run: whether a run has an output, (N, T).
    :param generator: the source of random numbers.
    """

    def __init__(self, x: Tensor, has_run: Tensor, generator: Generator) -> None:
        self.has_run = has_run
        patterns, place = has_run.unique(dim=1, return_inverse=True)
        by_pattern = [None if bool(one.all()) else _Classifier.of(x, one, generator) for one in patterns.mT]
        self._classifiers = [by_pattern[k] for k in place.tolist()]

    @torch.no_grad()
    def success(self, x: Tensor) -> Tensor:
        """The probabilities (M, T) that runs at x (M, d), in the unit cube, have outputs."""
        ones = torch.ones(len(x), dtype=torch.float64)
        return torch.stack([ones if one is None else one(x) for one in self._classifiers], dim=-1)

    @torch.no_grad()
    def recognized(self, t: int) -> tuple[int, int]:
        """How many runs without the output t, and with it, are recognized as such by others."""
        one = self._classifiers[t]
        if one is None:
            return 0, len(self.has_run)
        succeeds, has_run = one.left_out() >= 0.5, self.has_run[:, t]
        return int((~succeeds & ~has_run).sum()), int((succeeds & has_run).sum())

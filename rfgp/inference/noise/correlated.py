"""A full covariance of the noise of the outputs; rows are grouped by what is missing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Self

import torch
from gpytorch.likelihoods import Likelihood, MultitaskGaussianLikelihood
from torch import Tensor

from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .base import NoiseModel, ObservedTargets, Targets, registered


@registered(MultitaskGaussianLikelihood)
class CorrelatedNoise(NoiseModel):
    """Noise with one (T, T) covariance of the outputs, independent between rows.

    ``patterns`` says which outputs are observed in the rows of each group; new patterns come at the end.
    """

    def __init__(self, targets: Targets, covariance: Callable[[], Tensor]) -> None:
        super().__init__(targets)
        self._covariance = covariance

    @classmethod
    def of_likelihood(cls, likelihood: Likelihood, targets: Targets) -> Self | None:
        is_multitask = isinstance(likelihood, MultitaskGaussianLikelihood) and targets.has_columns
        if not is_multitask or not likelihood.has_task_noise or likelihood.rank == 0:
            return None
        return cls(targets, functools.partial(_task_covariance, likelihood))

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        if noise is not None:
            raise ValueError("expected no noise for a likelihood that learns its covariance, got some; leave it out")
        return self.targets.columns(x, y, basis)

    def rows_of(self, observations: ObservedTargets) -> Rows:
        columns, observed = observations[:2]
        if observed is None:
            patterns = torch.ones(1, self.num_outputs, dtype=torch.bool, device=columns.device)
            numbers = torch.zeros(len(columns), dtype=torch.long, device=columns.device)
        else:
            patterns, numbers = observed.unique(dim=0, return_inverse=True)
        rows = [tuple(pattern) for pattern in patterns.tolist()]
        self.patterns = (*self.patterns, *[pattern for pattern in rows if pattern not in self.patterns])
        names = torch.tensor([self.patterns.index(pattern) for pattern in rows], device=numbers.device)
        return Rows(columns, groups=names[numbers], num_groups=len(self.patterns))

    @property
    def has_one_covariance(self) -> bool:
        return True

    def covariance(self) -> Tensor:
        return self._covariance()

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        covariance = self._covariance()
        precisions: list[Tensor | None] = []
        for pattern in self.patterns[:num_groups]:
            if not any(pattern):
                precisions.append(None)
                continue
            selection = selection_of(pattern, covariance.device)
            inner = selection @ covariance @ selection.mT
            precisions.append(selection.mT @ torch.linalg.inv(inner) @ selection)
        return precisions

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        covariance = self._covariance()
        logs = []
        for count, log_noise, pattern in zip(statistics.count, statistics.log_noise, self.patterns, strict=False):
            if float(count) and any(pattern):
                selection = selection_of(pattern, covariance.device)
                log_det = torch.logdet(selection @ covariance @ selection.mT)
                logs.append(count * log_det + len(selection) * log_noise)
        return torch.stack(logs).sum()

    def observed(self, num_groups: int, device: torch.device) -> Tensor | None:
        return torch.tensor(self.patterns[:num_groups], device=device)

    def num_values(self, statistics: SufficientStatistics) -> float:
        return sum(float(c) * sum(p) for c, p in zip(statistics.count, self.patterns, strict=False))

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (max(len(self.patterns), 1),)

    def check_groups(self, statistics: SufficientStatistics) -> None:
        super().check_groups(statistics)
        if self.patterns:
            return
        if not bool((statistics.targets.variances[0, : self.num_outputs] > 0).all()):
            raise ValueError(
                "expected statistics of complete rows, got some of which outputs are missing, and it is not known in "
                "which rows; load the state of the model that has seen them"
            )
        self.patterns = ((True,) * self.num_outputs,)


def selection_of(pattern: tuple[bool, ...], device: torch.device) -> Tensor:
    """The rows of the identity matrix of the outputs that are observed."""
    identity = torch.eye(len(pattern), dtype=torch.float64, device=device)
    return torch.stack([*itertools.compress(identity, pattern)])


def _task_covariance(likelihood: MultitaskGaussianLikelihood) -> Tensor:
    covariance: Tensor = likelihood.task_noise_covar.double()
    if not likelihood.has_global_noise:
        return covariance
    identity = torch.eye(likelihood.num_tasks, dtype=covariance.dtype, device=covariance.device)
    return covariance + likelihood.noise.double() * identity

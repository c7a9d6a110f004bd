"""One noise variance per output, or the same for all, which the statistics do not contain."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Self

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood, MultitaskGaussianLikelihood
from torch import Tensor

from ...likelihoods import ComplexGaussianLikelihood
from ..sums.rows import Rows
from ..sums.statistics import GramStatistics
from ..sums.sufficient_statistics import SufficientStatistics
from .base import NoiseModel, ObservedTargets, Targets, registered, unit_matrices


@registered(GaussianLikelihood, MultitaskGaussianLikelihood)
class IndependentNoise(NoiseModel):
    """Noise with variances (..., T) of the outputs, the same for all rows."""

    def __init__(self, targets: Targets, variances: Callable[[], Tensor]) -> None:
        super().__init__(targets)
        self._variances = variances

    @classmethod
    def of_likelihood(cls, likelihood: Likelihood, targets: Targets) -> Self | None:
        if isinstance(likelihood, MultitaskGaussianLikelihood):
            has_variances = targets.has_columns and not (likelihood.has_task_noise and likelihood.rank)
            return cls(targets, functools.partial(_task_variances, likelihood)) if has_variances else None
        is_plain = type(likelihood) is GaussianLikelihood or not targets.has_columns
        if not isinstance(likelihood, GaussianLikelihood) or not is_plain:
            return None
        if isinstance(likelihood, ComplexGaussianLikelihood) and likelihood.has_pseudo_noise:
            return None
        if likelihood.noise.numel() != 1:
            if targets.has_columns:
                return None
            raise ValueError(
                f"expected a likelihood with one noise variance, got a batch of shape {tuple(likelihood.noise.shape)}; "
                "fit one model per element"
            )
        kind = targets._replace(is_complex=isinstance(likelihood, ComplexGaussianLikelihood))
        return cls(kind, functools.partial(_common_variance, likelihood, targets.num_outputs))

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        if noise is not None:
            other = "MultitaskFixedNoise" if self.targets.has_columns else "FixedNoise"
            raise ValueError(
                f"expected no noise for a likelihood that learns it, got some; use {other}GaussianLikelihood"
            )
        return self.targets.columns(x, y, basis)

    def rows_of(self, observations: ObservedTargets) -> Rows:
        columns, observed = observations[:2]
        if observed is None:
            return Rows(columns)
        return Rows(columns, observed.to(columns.real.dtype), num_groups=self.num_outputs)

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        variances = self._variances()
        if num_groups == 1:
            return [torch.diag_embed(1.0 / variances)]
        units = unit_matrices(self.num_outputs, variances.device)
        return [unit / variances[..., output] for output, unit in enumerate(units)]

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        logs, counts = self._variances().log(), statistics.count
        if len(counts) > 1:
            return (counts * logs).sum() + statistics.log_noise.sum()
        return counts[0] * logs.sum() + self.num_outputs * statistics.log_noise.sum()

    @property
    def has_one_covariance(self) -> bool:
        return True

    def covariance(self) -> Tensor:
        return torch.diag_embed(self._variances())

    def smallest(self, rows: Rows) -> float:
        return float(self._variances().detach().min()) / rows.largest_weight

    def num_values(self, statistics: SufficientStatistics) -> float:
        return statistics.num_rows * (self.num_outputs if len(statistics.count) == 1 else 1)

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (1,) if self.num_outputs == 1 else (1, self.num_outputs)

    def aligned(
        self, first: SufficientStatistics, second: SufficientStatistics
    ) -> tuple[SufficientStatistics, SufficientStatistics]:
        if len(first.count) == len(second.count):
            return first, second
        return self._by_output(first), self._by_output(second)

    def _by_output(self, statistics: SufficientStatistics) -> SufficientStatistics:
        if len(statistics.count) == self.num_outputs:
            return statistics
        return GramStatistics.concatenate([statistics] * self.num_outputs)


def _common_variance(likelihood: GaussianLikelihood, num_outputs: int) -> Tensor:
    return likelihood.noise.double().reshape(1).expand(num_outputs)


def _task_variances(likelihood: MultitaskGaussianLikelihood) -> Tensor:
    device = next(likelihood.parameters()).device
    total = torch.zeros(likelihood.num_tasks, dtype=torch.float64, device=device)
    if likelihood.has_task_noise:
        total = total + likelihood.task_noises.double()
    return total + likelihood.noise.double() if likelihood.has_global_noise else total

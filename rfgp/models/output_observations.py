"""Likelihoods of several outputs: how rows with noise of any kind and missing outputs enter the statistics."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import NamedTuple

import torch
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
)
from torch import Tensor

from .. import _checks
from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood
from ..output_system import OutputGroup
from ..statistics import GramStatistics
from .observations import Observations, Rows, System


class OutputSums(NamedTuple):
    """The rows of several outputs by the precision of these, and what else the evidence needs."""

    groups: list[OutputGroup]
    quadratic: Tensor
    log_noise: Tensor


class OutputObservations(Observations):
    r"""Rows of several outputs, some of which may be missing (NaN).

    Complete rows with the same noise share one scalar Gram matrix, whatever the number of outputs. Where outputs are
    missing, or the noise differs from row to row, there is one for every output, or for every pattern of missing
    outputs where their noises are correlated.

    :param likelihood: the GPyTorch likelihood.
    :param num_outputs: T.
    """

    def __init__(self, likelihood: Likelihood, num_outputs: int) -> None:
        super().__init__(likelihood)
        self.num_outputs = num_outputs

    @abc.abstractmethod
    def sums(self, statistics: GramStatistics, coefficients: Tensor) -> OutputSums:
        """What the regression needs; ``coefficients`` (k, T) are those of the mean function."""

    def systems(self, statistics: GramStatistics, coefficients: Tensor) -> Iterator[System]:
        raise ValueError("expected the factor of the outputs for their regression, got none; call sums")

    def _targets(self, x: Tensor, y: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Columns [y, basis] with the mean of y for what is missing, and where y is observed, (N, T)."""
        _checks.tensor(y, "y")
        values = y.unsqueeze(-1) if y.dim() == 1 and self.num_outputs == 1 else y
        if not y.is_floating_point() or values.shape != (len(x), self.num_outputs):
            wanted = f"({len(x)}, {self.num_outputs})"
            raise ValueError(
                f"expected floating-point targets of shape {wanted}, got {y.dtype} {tuple(y.shape)}; give a column per "
                "output, with NaN for those that are missing"
            )
        _checks.same_kind(values, x, "y", "x")
        observed = ~torch.isnan(values)
        if bool(torch.isinf(values).any()):
            raise ValueError("expected finite targets, or NaN for missing ones, got infinite ones; correct them")
        if not bool(observed.any()):
            raise ValueError("expected at least one observed target, got NaN only; leave these rows out")
        known = torch.where(observed, values, values.nanmean(0).nan_to_num(0.0))
        return torch.cat([known, basis], dim=-1), observed

    def _group(
        self, statistics: GramStatistics, index: int, precision: Tensor, residual: Tensor
    ) -> tuple[OutputGroup, Tensor]:
        """A group of rows, and its quadratic form."""
        cross, outer = statistics.of_group(index).of_combination(residual)
        return OutputGroup(precision, statistics.gram[index], cross[0]), (precision * outer[0]).sum()

    def _unit(self, output: int, like: Tensor) -> Tensor:
        unit = like.new_zeros(self.num_outputs, self.num_outputs)
        unit[output, output] = 1.0
        return unit


class IndependentNoise(OutputObservations):
    """One noise variance per output, or the same for all, which the statistics do not contain."""

    @property
    def variances(self) -> Tensor:
        """The noise variances, (T,), float64."""
        likelihood = self.likelihood
        if not isinstance(likelihood, MultitaskGaussianLikelihood):
            return likelihood.noise.double().expand(self.num_outputs)
        total = torch.zeros(self.num_outputs, dtype=torch.float64, device=next(likelihood.parameters()).device)
        if likelihood.has_task_noise:
            total = total + likelihood.task_noises.double()
        return total + likelihood.noise.double() if likelihood.has_global_noise else total

    def smallest_noise(self, rows: Rows) -> float:
        """The smallest noise variance."""
        return float(self.variances.detach().min())

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        if noise is not None:
            raise ValueError(
                "expected no noise for a likelihood that learns it, got some; use MultitaskFixedNoiseGaussianLikelihood"
            )
        targets, observed = self._targets(x, y, basis)
        if bool(observed.all()):
            return Rows(targets)
        return Rows(targets, observed.to(targets.dtype), num_groups=self.num_outputs)

    def aligned(self, first: GramStatistics, second: GramStatistics) -> tuple[GramStatistics, GramStatistics]:
        if len(first.count) == len(second.count):
            return first, second
        return self._by_output(first), self._by_output(second)

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return 1, self.num_outputs

    def _by_output(self, statistics: GramStatistics) -> GramStatistics:
        if len(statistics.count) == self.num_outputs:
            return statistics
        return GramStatistics.concatenate([statistics] * self.num_outputs)

    def num_values(self, statistics: GramStatistics) -> float:
        return statistics.num_rows * (self.num_outputs if len(statistics.count) == 1 else 1)

    def sums(self, statistics: GramStatistics, coefficients: Tensor) -> OutputSums:
        residual, variances, counts = _residual(coefficients), self.variances, statistics.count
        if len(counts) == 1:
            precisions, log_noises = [torch.diag(1.0 / variances)], [variances.log().sum()]
        else:
            precisions = [self._unit(t, variances) / variances[t] for t in range(self.num_outputs)]
            log_noises = list(variances.log())
        pairs = [self._group(statistics, g, precision, residual) for g, precision in enumerate(precisions)]
        log_noise = torch.stack([count * value for count, value in zip(counts, log_noises, strict=True)]).sum()
        return OutputSums([group for group, _ in pairs], torch.stack([q for _, q in pairs]).sum(), log_noise)


class CorrelatedNoise(OutputObservations):
    """A full covariance of the noise of the outputs; rows are grouped by what is missing.

    :param likelihood: the GPyTorch likelihood.
    :param num_outputs: T.
    :param patterns: which outputs are observed in the rows of each group; new patterns are appended.
    """

    def __init__(
        self, likelihood: MultitaskGaussianLikelihood, num_outputs: int, patterns: list[tuple[bool, ...]]
    ) -> None:
        super().__init__(likelihood, num_outputs)
        self.patterns = patterns

    @property
    def covariance(self) -> Tensor:
        """The covariance of the noise, (T, T), float64."""
        covariance = self.likelihood.task_noise_covar.double()
        if not self.likelihood.has_global_noise:
            return covariance
        identity = torch.eye(self.num_outputs, dtype=covariance.dtype, device=covariance.device)
        return covariance + self.likelihood.noise.double() * identity

    def smallest_noise(self, rows: Rows) -> float:
        """The smallest eigenvalue of the covariance of the noise."""
        return float(torch.linalg.eigvalsh(self.covariance.detach()).min())

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        if noise is not None:
            raise ValueError("expected no noise for a likelihood that learns its covariance, got some; leave it out")
        targets, observed = self._targets(x, y, basis)
        found, groups = observed.unique(dim=0, return_inverse=True)
        numbers = []
        for pattern in found.tolist():
            if tuple(pattern) not in self.patterns:
                self.patterns.append(tuple(pattern))
            numbers.append(self.patterns.index(tuple(pattern)))
        numbered = torch.tensor(numbers, device=groups.device)[groups]
        return Rows(targets, groups=numbered, num_groups=len(self.patterns))

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (max(len(self.patterns), 1),)

    def check_groups(self, statistics: GramStatistics) -> None:
        super().check_groups(statistics)
        if not self.patterns:
            if not bool((statistics.target_variances[0, : self.num_outputs] > 0).all()):
                raise ValueError(
                    "expected statistics of complete rows, got some of which outputs are missing, and it is not known "
                    "in which rows; load the state of the model that has seen them"
                )
            self.patterns.append((True,) * self.num_outputs)

    def aligned(self, first: GramStatistics, second: GramStatistics) -> tuple[GramStatistics, GramStatistics]:
        size = max(len(first.count), len(second.count))
        return _padded(first, size), _padded(second, size)

    def num_values(self, statistics: GramStatistics) -> float:
        return sum(float(c) * sum(p) for c, p in zip(statistics.count, self.patterns, strict=False))

    def sums(self, statistics: GramStatistics, coefficients: Tensor) -> OutputSums:
        residual, covariance = _residual(coefficients), self.covariance
        groups, quadratics, log_noises = [], [], []
        for index, (count, pattern) in enumerate(zip(statistics.count, self.patterns, strict=False)):
            if not float(count) or not any(pattern):
                continue
            selection = torch.eye(self.num_outputs, dtype=torch.float64, device=covariance.device)[list(pattern)]
            inner = selection @ covariance @ selection.mT
            precision = selection.mT @ torch.linalg.inv(inner) @ selection
            group, quadratic = self._group(statistics, index, precision, residual)
            groups.append(group)
            quadratics.append(quadratic)
            log_noises.append(count * torch.logdet(inner))
        return OutputSums(groups, torch.stack(quadratics).sum(), torch.stack(log_noises).sum())


class FixedOutputNoise(OutputObservations):
    """A known noise variance for every row and output, plus a learnt one where the likelihood has it."""

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (self.num_outputs,)

    def smallest_noise(self, rows: Rows) -> float:
        """The inverse of the largest precision."""
        return float("inf") if rows.weights is None else 1.0 / float(rows.weights.detach().max())

    def rows(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Rows:
        targets, observed = self._targets(x, y, basis)
        if noise is None:
            if not is_all:
                raise ValueError(f"expected the noise of {len(y)} rows beside each batch, got none; pass noise=")
            noise = self.likelihood.noise_covar.noise.to(x)
        if not isinstance(noise, Tensor) or not noise.is_floating_point():
            got = noise.dtype if isinstance(noise, Tensor) else type(noise).__name__
            raise ValueError(f"expected a floating-point tensor for noise, got {got}; pass a variance per observation")
        _checks.same_kind(noise, x, "noise", "x")
        values = noise.unsqueeze(-1) if noise.dim() == 1 and self.num_outputs == 1 else noise
        if values.shape != observed.shape:
            raise ValueError(f"expected noise of shape {tuple(observed.shape)}, got {tuple(noise.shape)}; pass noise=")
        known = torch.where(observed, values, torch.ones_like(values))
        is_good = (known > 0) & torch.isfinite(known)
        if not bool(is_good.all()):
            raise ValueError(
                f"expected positive, finite noise variances of what is observed, got {float(known[~is_good][0]):g}; "
                "correct them"
            )
        total = known.double()
        if self.likelihood.second_noise_covar is not None:
            total = total + self.likelihood.second_noise_covar.noise.double()
        weights = torch.where(observed, 1.0 / total, 0.0)
        log_noise = torch.where(observed, total.log(), 0.0)
        return Rows(targets, weights, log_noise, num_groups=self.num_outputs)

    def sums(self, statistics: GramStatistics, coefficients: Tensor) -> OutputSums:
        residual = _residual(coefficients)
        units = [self._unit(t, residual) for t in range(self.num_outputs)]
        pairs = [self._group(statistics, t, unit, residual) for t, unit in enumerate(units)]
        quadratic = torch.stack([q for _, q in pairs]).sum()
        return OutputSums([group for group, _ in pairs], quadratic, statistics.log_noise.sum())

    def parameters(self) -> dict[str, Tensor]:
        return {f"likelihood.{name}": value for name, value in self.likelihood.named_parameters()}


def output_observations(
    likelihood: Likelihood, num_outputs: int, patterns: list[tuple[bool, ...]]
) -> OutputObservations:
    """The observations of a likelihood of several outputs.

    :param likelihood: the GPyTorch likelihood.
    :param num_outputs: T.
    :param patterns: a list that keeps the patterns of missing outputs, where their noises are correlated.
    :raises ValueError: for a likelihood that has no closed form in weight space, or of another number of outputs.
    """
    tasks = getattr(likelihood, "num_tasks", num_outputs)
    if tasks != num_outputs:
        raise ValueError(
            f"expected a likelihood of {num_outputs} outputs as the kernel has, got one of {tasks}; correct it"
        )
    _check_no_batch(likelihood)
    if isinstance(likelihood, MultitaskFixedNoiseGaussianLikelihood):
        return FixedOutputNoise(likelihood, num_outputs)
    if isinstance(likelihood, MultitaskGaussianLikelihood):
        is_full = likelihood.has_task_noise and likelihood.rank > 0
        if is_full:
            return CorrelatedNoise(likelihood, num_outputs, patterns)
        return IndependentNoise(likelihood, num_outputs)
    if num_outputs == 1 and isinstance(likelihood, FixedNoiseGaussianLikelihood):
        return FixedOutputNoise(likelihood, num_outputs)
    if type(likelihood) is GaussianLikelihood and likelihood.noise.numel() == 1:
        return IndependentNoise(likelihood, num_outputs)
    raise ValueError(
        "expected a MultitaskGaussianLikelihood, MultitaskFixedNoiseGaussianLikelihood or GaussianLikelihood for a "
        f"kernel of several outputs, got {type(likelihood).__name__}; use one of these"
    )


def _check_no_batch(likelihood: Likelihood) -> None:
    """Raise a ValueError for a batch of likelihoods."""
    own_dims = {"noise": 1, "noises": 1, "factor": 2}
    for name, parameter in likelihood.named_parameters():
        batch = parameter.shape[: parameter.dim() - own_dims.get(name.rpartition("_")[2], parameter.dim())]
        if batch:
            raise ValueError(
                f"expected a likelihood without batch dimensions, got {tuple(batch)}; make a model for each element"
            )


def _residual(coefficients: Tensor) -> Tensor:
    """Coefficients (T + k, T) of the residuals Y - basis @ coefficients in the columns [Y, basis]."""
    identity = torch.eye(coefficients.shape[-1], dtype=coefficients.dtype, device=coefficients.device)
    return torch.cat([identity, -coefficients])


def _padded(statistics: GramStatistics, size: int) -> GramStatistics:
    """The statistics with groups without rows at their end."""
    missing = size - len(statistics.count)
    if not missing:
        return statistics
    return GramStatistics.concatenate([statistics, *[statistics.empty_group()] * missing])

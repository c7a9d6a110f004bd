"""The noise of a likelihood plus what a Fourier grid cuts off: the one place that says what training makes of both."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from ..._support import checks
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .base import NoiseModel, ObservedTargets
from .class_labels import ClassLabels
from .correlated import selection_of

Pattern = tuple[bool, ...]
_MOST_PATTERNS = 4
"""Rows with more patterns of missing outputs than so many times the pairs of outputs are summed by these."""

_MATRICES = 6
"""Matrices (T, T) of every row that are held at a time."""


def raised(
    noise: NoiseModel, residual: Callable[[], Tensor], parameters: Callable[[], dict[str, Tensor]]
) -> NoiseModel:
    """A noise model plus a residual covariance of every row, the same for all rows, which weights do not divide.

    :param residual: gives the covariance, (T, T), or (..., 1, 1) for classes, in float64.
    :param parameters: those that the residual and the likelihood have, by name.
    """
    if isinstance(noise, ClassLabels):
        return noise.raised(residual, parameters)
    return RaisedNoise(noise, residual, parameters)


class RaisedNoise(NoiseModel):
    r"""Noise :math:`S_i / w_i + R` of rows i with weights w: that of a likelihood, and a residual covariance R.

    Rows without weights whose likelihood has one covariance S have :math:`S + R`, which their sums do not contain. All
    others have a precision :math:`P_i = (S_i / w_i + R)^{-1}` each, which sums contain, by a group for every pair of
    outputs with the weights of a square:

    .. math:: \sum_i P_i \otimes \phi_i \phi_i^\top = \sum_{t \le u} E_{tu} \otimes \sum_i p_{itu}\, \phi_i \phi_i^\top,
        \qquad p_{itt} = P_{itt}, \qquad p_{itu} = P_{itt} + P_{iuu} + 2 P_{itu} \ge 0

    ``patterns`` says of every group which outputs it is of, and last whether its sums contain the noise.
    """

    def __init__(
        self, noise: NoiseModel, residual: Callable[[], Tensor], parameters: Callable[[], dict[str, Tensor]]
    ) -> None:
        super().__init__(noise.targets)
        self.num_systems, self.is_of_parts = noise.num_systems, noise.is_of_parts
        self.measured, self._residual, self._parameters = noise, residual, parameters

    # Rows

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        return self.measured.observations(x, y, noise, basis, is_all)

    def rows_of(self, observations: ObservedTargets) -> Rows:
        rows = self.measured.weigh(observations)
        is_common = self.measured.has_one_covariance and observations.weights is None
        return self._by_covariance(rows) if is_common else self._by_row(rows)

    def weigh(self, observations: ObservedTargets) -> Rows:
        return self.rows_of(observations)

    def _by_covariance(self, rows: Rows) -> Rows:
        """Rows by which of their outputs are observed."""
        observed = self._observed(rows)
        if observed is None:
            (name,) = self._named([(True,) * self.num_outputs + (False,)])
            is_alone = len(self.patterns) == 1
            groups = None if is_alone else torch.full((len(rows.targets),), name, device=rows.targets.device)
        else:
            patterns, numbers = observed.unique(dim=0, return_inverse=True)
            if len(patterns) > _MOST_PATTERNS * len(self._numbers):
                return self._by_row(rows)
            names = self._named([(*pattern, False) for pattern in patterns.tolist()])
            groups = torch.tensor(names, device=numbers.device)[numbers]
        return Rows(rows.targets, groups=groups, num_groups=len(self.patterns))

    def _observed(self, rows: Rows) -> Tensor | None:
        """Which outputs of rows of the likelihood are observed, (N, T); None for all."""
        if rows.weights is not None:
            is_there = rows.weights.detach() != 0
            return is_there.reshape(len(is_there), -1).expand(-1, self.num_outputs)
        if rows.groups is None or all(map(all, self.measured.patterns)):
            return None
        return torch.tensor(self.measured.patterns, device=rows.groups.device)[rows.groups]

    def _by_row(self, rows: Rows) -> Rows:
        """Rows that contain their noise."""
        what = f"the precisions of {len(rows.targets)} rows of {self.num_outputs} outputs on a Fourier grid"
        checks.fits_in_memory(
            _MATRICES * 8.0 * len(rows.targets) * self.num_outputs**2, what, "give smaller batches, or use landmarks"
        )
        precision, log_det = self._precisions_of(rows)
        names = self._named(self._pairs)
        variances = precision.diagonal(dim1=-2, dim2=-1)
        columns = [
            variances[:, t] if t == u else (variances[:, t] + variances[:, u] + 2.0 * precision[:, t, u]).clamp_min(0.0)
            for t, u in self._numbers
        ]
        is_there = variances.detach() != 0
        is_first = is_there & (is_there.cumsum(-1) == 1)  # the logarithm of a row goes to its first output
        logs = [log_det * is_first[:, t] if t == u else torch.zeros_like(log_det) for t, u in self._numbers]
        zero, size = torch.zeros_like(log_det), len(self.patterns)
        places = {name: place for place, name in enumerate(names)}
        by_group = [[part[places[g]] if g in places else zero for g in range(size)] for part in (columns, logs)]
        weights, log_noise = (torch.stack(part, dim=-1) for part in by_group)
        return Rows(rows.targets, weights, log_noise, num_groups=size)

    def _precisions_of(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """The precisions (N, T, T) of what is observed, zero elsewhere, and log determinants of its covariances."""
        measured = self.measured.row_precisions(rows)
        missing = (measured.diagonal(dim1=-2, dim2=-1) == 0).to(measured.dtype)
        present = (1.0 - missing).unsqueeze(-1) * (1.0 - missing).unsqueeze(-2)
        whole = measured + torch.diag_embed(missing)
        if self.num_outputs == 1:
            total = 1.0 / whole + present * self._residual()
            return present / total, total.squeeze(-1).log().squeeze(-1)
        total = torch.linalg.inv(whole) + present * self._residual()
        factor = torch.linalg.cholesky(total)
        log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return present * torch.cholesky_inverse(factor), log_det

    @property
    def _numbers(self) -> list[tuple[int, int]]:
        """The pairs of outputs."""
        return list(itertools.combinations_with_replacement(range(self.num_outputs), 2))

    @property
    def _pairs(self) -> list[Pattern]:
        """The patterns of the groups of pairs of outputs."""
        return [(*(k in pair for k in range(self.num_outputs)), True) for pair in self._numbers]

    def _named(self, patterns: list[Pattern]) -> list[int]:
        """The numbers of the groups of patterns; new ones come at the end."""
        self.patterns = (*self.patterns, *[pattern for pattern in patterns if pattern not in self.patterns])
        return [self.patterns.index(pattern) for pattern in patterns]

    # What follows from the groups

    @property
    def _groups(self) -> tuple[Pattern, ...]:
        """The patterns, at first that of complete rows without weights."""
        if self.patterns:
            return self.patterns
        return ((True,) * self.num_outputs + (False,),) if self.measured.has_one_covariance else tuple(self._pairs)

    def covariance(self) -> Tensor:
        return self.measured.covariance() + self._residual()

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        groups = self._groups[:num_groups]
        covariance = None if all(is_contained for *_, is_contained in groups) else self.covariance()
        return [self._precision(group, covariance) for group in groups]

    def _precision(self, group: Pattern, covariance: Tensor | None) -> Tensor | None:
        *pattern, is_contained = group
        if is_contained or covariance is None:
            return self._share(tuple(pattern))
        if not any(pattern):
            return None
        selection = selection_of(tuple(pattern), covariance.device)
        return selection.mT @ torch.linalg.inv(selection @ covariance @ selection.mT) @ selection

    def _share(self, pattern: tuple[bool, ...]) -> Tensor:
        """The matrix E of the group of a pair of outputs, or of one output with itself."""
        first, second = ([t for t, is_in in enumerate(pattern) if is_in] * 2)[:2]
        matrix = torch.zeros(self.num_outputs, self.num_outputs, dtype=torch.float64, device=self._residual().device)
        if first != second:
            matrix[first, second] = matrix[second, first] = 0.5
            return matrix
        matrix[first], matrix[:, first] = -0.5, -0.5
        matrix[first, first] = 1.0
        return matrix

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        total, covariance = statistics.log_noise.sum(), None
        for count, (*pattern, is_contained) in zip(statistics.count, self._groups, strict=False):
            if not is_contained and float(count) and any(pattern):
                covariance = self.covariance() if covariance is None else covariance
                selection = selection_of(tuple(pattern), covariance.device)
                total = total + count * torch.logdet(selection @ covariance @ selection.mT)
        return total

    def observed(self, num_groups: int, device: torch.device) -> Tensor | None:
        """Of groups of pairs all columns count, which cancel where a row lacks one."""
        groups = self._groups[:num_groups]
        return torch.tensor([[is_in or group[-1] for is_in in group[:-1]] for group in groups], device=device)

    def smallest(self, rows: Rows) -> float:
        if rows.weights is not None:
            return 1.0 / float(rows.weights.detach().max())
        return float(torch.linalg.eigvalsh(self.covariance().detach()).min())

    def parameters(self) -> dict[str, Tensor]:
        """Those that sums contain: none where all rows have one covariance."""
        return self._parameters() if any(group[-1] for group in self._groups) else {}

    def num_values(self, statistics: SufficientStatistics) -> float:
        total = 0.0
        for count, (*pattern, is_contained) in zip(statistics.count.tolist(), self._groups, strict=False):
            total += count * (sum(pattern) == 1 if is_contained else sum(pattern))
        return total

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (len(self._groups),)

    def check_groups(self, statistics: SufficientStatistics) -> None:
        super().check_groups(statistics)
        contained = [
            float(value) != 0.0 and not pattern[-1]
            for pattern, value in zip(self._groups, statistics.log_noise, strict=False)
        ]
        if any(contained):
            raise ValueError(
                "expected statistics of rows without weights, got some that contain the noise of every row, which the "
                "model has not seen; load the state of the model that has seen them, or merge the models"
            )
        self.patterns = self._groups

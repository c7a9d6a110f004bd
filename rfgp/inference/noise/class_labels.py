"""Class labels as targets: every class is a regression with noise of two kinds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import torch
from gpytorch.likelihoods import DirichletClassificationLikelihood, Likelihood
from torch import Tensor

from ..._support import checks
from ...likelihoods.dirichlet import dirichlet_targets
from ..posterior.factor import OutputFactor
from ..posterior.many_classes import ClassSums, ManyClasses
from ..posterior.normal_equations import Equations, FewClasses, Group, NormalEquations, WeightedSums
from ..sums.class_statistics import ClassStatistics
from ..sums.rows import Rows
from ..sums.statistics import GramStatistics
from ..sums.sufficient_statistics import SufficientStatistics
from .base import NoiseModel, ObservedTargets, Targets, registered, residual_columns

MANY_CLASSES = 32
"""From how many classes on the rows of a class are held in place of its Gram matrix, while they are few."""


@registered(DirichletClassificationLikelihood)
class ClassLabels(NoiseModel):
    r"""Integer labels: every class is a regression, and all of them share one pass over the data.

    :math:`\Phi^H S_c^{-1} \Phi = (G - G_c) / s_0 + G_c / s_1` with the Gram matrices :math:`G_c` of each class and
        their
    sum G (errata, identity 1).
    """

    is_batched: ClassVar[bool] = True

    def __init__(
        self,
        targets: Targets,
        likelihood: Any,
        residual: Callable[[], Tensor] | None = None,
        parameters: Callable[[], dict[str, Tensor]] | None = None,
    ) -> None:
        super().__init__(targets)
        self.likelihood = likelihood
        self.num_systems = likelihood.num_classes
        self._residual, self._parameters = residual, parameters

    def raised(self, residual: Callable[[], Tensor], parameters: Callable[[], dict[str, Tensor]]) -> ClassLabels:
        """The noise plus a residual variance r of every row, which weights do not divide.

        Rows without weights have :math:`s_0 + r` and :math:`s_1 + r`. With weights the sums contain the noise, and
        there are two groups for every class: its members, and all other rows.
        """
        return ClassLabels(self.targets, self.likelihood, residual, parameters)

    @property
    def statistics_kind(self) -> type[SufficientStatistics]:
        return ClassStatistics if self.num_systems >= MANY_CLASSES else GramStatistics

    @classmethod
    def of_likelihood(cls, likelihood: Likelihood, targets: Targets) -> Self | None:
        is_known = isinstance(likelihood, DirichletClassificationLikelihood) and not targets.has_columns
        return cls(targets, likelihood) if is_known else None

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        if noise is not None:
            raise ValueError("expected no noise for class labels, got some; the likelihood computes it from the labels")
        labels = checks.labels(y, x, self.num_systems)
        return ObservedTargets(torch.cat([basis.new_ones(len(basis), 1), basis], dim=-1), labels=labels)

    def rows_of(self, observations: ObservedTargets) -> Rows:
        return Rows(observations.columns, groups=observations.labels, num_groups=self.num_systems)

    def weigh(self, observations: ObservedTargets) -> Rows:
        weights = observations.weights
        if weights is None or self._residual is None:
            return super().weigh(observations)
        rows = self.rows_of(observations)
        is_in = torch.nn.functional.one_hot(rows.group_numbers, self.num_systems).bool()
        level = self._level(weights.device)
        inside, outside = (torch.stack(part) - level for part in zip(*self._variances(weights.device), strict=True))
        variances = torch.where(is_in, inside, outside) / weights.unsqueeze(-1) + level
        masks = torch.cat([is_in, ~is_in], dim=-1)
        self.patterns = self._contained
        precisions, log_noise = (values.repeat(1, 2) * masks for values in (variances.reciprocal(), variances.log()))
        return Rows(rows.targets, precisions, log_noise, num_groups=2 * self.num_systems)

    @property
    def _contained(self) -> tuple[tuple[bool, ...], ...]:
        """The names of the groups whose sums contain the noise: members of classes, and all others."""
        return tuple(tuple(row) for row in torch.eye(2 * self.num_systems, dtype=torch.bool).tolist())

    def _contains_noise(self, num_groups: int) -> bool:
        return num_groups == 2 * self.num_systems

    def parameters(self) -> dict[str, Tensor]:
        return self._parameters() if self.patterns and self._parameters is not None else {}

    def num_values(self, statistics: SufficientStatistics) -> float:
        return float(statistics.count[: self.num_systems].sum())

    def check_groups(self, statistics: SufficientStatistics) -> None:
        super().check_groups(statistics)
        self.patterns = self._contained if self._contains_noise(len(statistics.count)) else ()

    def aligned(
        self, first: SufficientStatistics, second: SufficientStatistics
    ) -> tuple[SufficientStatistics, SufficientStatistics]:
        if len(first.count) != len(second.count):
            raise ValueError(
                "expected weights beside all rows or none of class labels on a Fourier grid, got some; pass weights of "
                "one"
            )
        return first, second

    def equations(
        self, statistics: SufficientStatistics, factor: OutputFactor, coefficients: Tensor, tracks: bool = False
    ) -> Equations:
        root = factor.covariance_root
        if self._contains_noise(len(statistics.count)):
            return FewClasses(functools.partial(self._by_row, statistics, factor, coefficients), self.num_systems)
        if tracks or self.statistics_kind is not ClassStatistics or root is None:
            one_by_one = functools.partial(self._one_by_one, statistics, factor, coefficients)
            return FewClasses(one_by_one, self.num_systems)
        held, pooled = ClassStatistics.of(statistics), statistics.pooled()
        sums = self._class_sums(statistics, pooled, coefficients)
        return ManyClasses(held, pooled.gram[0], sums, root.flatten().expand(self.num_systems))

    def _one_by_one(
        self, statistics: SufficientStatistics, factor: OutputFactor, coefficients: Tensor
    ) -> Iterator[NormalEquations]:
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        pooled = statistics.pooled()
        for c, (noise_inside, noise_outside) in enumerate(self._variances(coefficients.device)):
            mean = coefficients if coefficients.dim() == 2 else coefficients[c]
            inside, outside = (residual_columns(mean, target) for target in (values.inside, values.outside))
            of_class = statistics.of_group(c)
            every, others = pooled.targets.of_combination(outside), of_class.targets.of_combination(outside)
            members = of_class.targets.of_combination(inside)
            cross, quadratic = (
                (a[0] - b[0]) / noise_outside + m[0] / noise_inside
                for a, b, m in zip(every, others, members, strict=True)
            )
            groups = [
                Group((1.0 / noise_outside).reshape(1, 1), pooled.gram[0]),
                Group((1.0 / noise_inside - 1.0 / noise_outside).reshape(1, 1), of_class.gram[0]),
            ]
            rows_inside = statistics.count[c]
            log_noise = rows_inside * noise_inside.log() + (statistics.num_rows - rows_inside) * noise_outside.log()
            log_noise = log_noise + statistics.log_noise.sum()
            sums = WeightedSums(groups, cross.unsqueeze(-1), quadratic.squeeze(), log_noise)
            yield NormalEquations(sums, factor[c])

    def _by_row(
        self, statistics: SufficientStatistics, factor: OutputFactor, coefficients: Tensor
    ) -> Iterator[NormalEquations]:
        """The equations of every class, from sums that contain the noise."""
        values, one = dirichlet_targets(self.likelihood.alpha_epsilon), coefficients.new_ones(1, 1)
        for c in range(self.num_systems):
            mean = coefficients if coefficients.dim() == 2 else coefficients[c]
            parts = [(c, residual_columns(mean, values.inside))]
            parts += [(self.num_systems + c, residual_columns(mean, values.outside))]
            groups = [statistics.of_group(group) for group, _ in parts]
            found = [group.targets.of_combination(columns) for group, (_, columns) in zip(groups, parts, strict=True)]
            cross, quadratic = (first[0] + second[0] for first, second in zip(*found, strict=True))
            log_noise = sum(group.log_noise.sum() for group in groups)
            grams = [Group(one, group.gram[0]) for group in groups]
            sums = WeightedSums(grams, cross.unsqueeze(-1), quadratic.squeeze(), torch.as_tensor(log_noise))
            yield NormalEquations(sums, factor[c])

    def _class_sums(
        self, statistics: SufficientStatistics, pooled: SufficientStatistics, coefficients: Tensor
    ) -> ClassSums:
        """The weighted sums of all classes at once; the arguments are those of ``equations``, and all rows as one."""
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        pairs = zip(*self._variances(coefficients.device), strict=True)
        inside, outside = (torch.stack(variances) for variances in pairs)
        columns, others = (residual_columns(coefficients, target) for target in (values.inside, values.outside))
        every, left_out, of_class = (
            [part.squeeze(-1) for part in sums.targets.of_combination(residual)]
            for sums, residual in ((pooled, others), (statistics, others), (statistics, columns))
        )
        cross, quadratic = (
            (a - b) / outside.unsqueeze(-1) + c / inside.unsqueeze(-1)
            for a, b, c in zip(every, left_out, of_class, strict=True)
        )
        log_noise = statistics.count * inside.log() + (statistics.num_rows - statistics.count) * outside.log()
        log_noise = log_noise + statistics.log_noise.sum()
        return ClassSums(1.0 / outside, 1.0 / inside, cross, quadratic.squeeze(-1), log_noise)

    def row_targets(self, rows: Rows) -> Tensor:
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        is_in = self._membership(rows).double()
        return (values.inside * is_in + values.outside * (1.0 - is_in)).unsqueeze(-1)

    def row_precisions(self, rows: Rows) -> Tensor:
        weights = rows.all_weights()
        if self._contains_noise(rows.num_groups):
            return (weights[:, : self.num_systems] + weights[:, self.num_systems :]).mT[..., None, None]
        pairs = zip(*self._variances(rows.targets.device), strict=True)
        inside, outside = (torch.stack(variances).unsqueeze(-1) for variances in pairs)
        weights = weights.sum(-1)
        return (weights / torch.where(self._membership(rows), inside, outside))[..., None, None]

    def _membership(self, rows: Rows) -> Tensor:
        """Whether a row is in a class, (C, N)."""
        return rows.all_weights()[:, : self.num_systems].mT > 0

    def _variances(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """The noise variances of every class, for its members and for other rows."""
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        extra = self.likelihood.second_noise_covar
        added = torch.zeros((), dtype=torch.float64, device=device) if extra is None else extra.noise.double()
        for learned in (added.expand(self.num_systems, 1).squeeze(-1) + self._level(device)).unbind(0):
            yield values.inside_noise + learned, values.outside_noise + learned

    def _level(self, device: torch.device) -> Tensor:
        """The residual variance of every class, (C,)."""
        if self._residual is None:
            return torch.zeros(self.num_systems, dtype=torch.float64, device=device)
        return self._residual().reshape(-1).expand(self.num_systems)

    def variances_of_classes(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The noise variances (C,) of the members of classes, and of other rows."""
        inside, outside = zip(*self._variances(device), strict=True)
        return torch.stack(inside).double(), torch.stack(outside).double()

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        raise ValueError("expected a regression per class, got one for all of them; iterate over the systems")

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        raise ValueError("expected a regression per class, got one for all of them; iterate over the systems")

    def smallest(self, rows: Rows) -> float:
        """The noise variance inside a class, without what is learned."""
        values = dirichlet_targets(self.likelihood.alpha_epsilon)
        if self._contains_noise(rows.num_groups):
            return 1.0 / rows.largest_weight
        return min(values.inside_noise, values.outside_noise) / rows.largest_weight

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (self.num_systems, 2 * self.num_systems) if self._residual is not None else (self.num_systems,)

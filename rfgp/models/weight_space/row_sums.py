"""Sums over rows, of features or in blocks of near rows: what a model is conditioned on."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from ..._support import checks
from ...approximation.input_scales import input_scales
from ...inference import GramStatistics, NoiseModel
from ...inference.local import LocalRows
from ...inference.local.system_regression import needs_cells
from ...inference.noise.base import ObservedTargets
from ...inference.sums.residual_pass import TrainingRows
from ...inference.sums.rows import Rows
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...linalg.row_search import row_numbers
from ..impropriety import SomeRows

if TYPE_CHECKING:
    from .model import WeightSpaceGP

Patterns = tuple[tuple[bool, ...], ...]


class RowSums(abc.ABC):
    """Sums over rows at the present parameters of a model, for every draw of its weights; methods return new ones."""

    draws: tuple[SufficientStatistics, ...]
    """The statistics of every draw of the weights."""
    patterns: Patterns
    """Which outputs are observed in every group of rows, where groups differ in that."""
    some_rows: SomeRows | None
    """Rows of complex targets on which residuals are looked at."""
    training_rows: TrainingRows | None
    """The rows, where gradients run back to them."""
    local: LocalRows | None
    """The rows in their blocks, where the model has blocks."""
    num_rows: int
    """The number of rows, also of those without a target; 0 where it is not known."""
    input_bounds: Tensor | None
    """Powers of two between which the inputs lie, (2, d), on the CPU; None where they are not known."""

    @abc.abstractmethod
    def merge(self, other: Self, model: WeightSpaceGP) -> Self:
        """The sums over the rows of both."""

    @abc.abstractmethod
    def without(self, other: Self, model: WeightSpaceGP, is_centered: bool = True) -> Self:
        """The sums over these rows but for those of others, by default centered anew at the targets that are left."""

    @abc.abstractmethod
    def check_left_of(self, whole: Self, model: WeightSpaceGP) -> None:
        """Raise a ValueError where these cannot be the rest of other sums, as far as sums show."""

    @abc.abstractmethod
    def scaled(self, factor: float, model: WeightSpaceGP) -> Self:
        """The sums over the same rows with their weights times a factor."""

    @abc.abstractmethod
    def difference(self, other: Self, model: WeightSpaceGP) -> float:
        """The largest difference of sums, relative to the largest of their kind, over all draws."""

    def slide(self, added: Self, factor: float, model: WeightSpaceGP) -> Self:
        """The sums with more rows, after the weights of these were multiplied by a factor."""
        return (self if factor == 1.0 else self.scaled(factor, model)).merge(added, model)

    def forget_rows(self, x: Tensor, y: Tensor) -> Self:
        """The same sums without a trace of rows that have left them."""
        return self

    def named(self, patterns: Patterns) -> Self:
        """The same sums, whose groups get these patterns where they have none, as those of files have."""
        return self

    def of_first_draw(self) -> Self:
        """The sums for the first draw of the weights."""
        return self

    def summed(self, model: WeightSpaceGP) -> Self:
        """The sums over these rows, which for blocks may not have been made."""
        return self

    def with_further(self, draws: list[SufficientStatistics]) -> Self:
        """The sums with those of further draws of the weights."""
        return self

    def without_graph(self) -> Self:
        """The same sums without rows that belong to the graph of gradients."""
        return self

    @abc.abstractmethod
    def detached(self) -> Self:
        """The same sums in memory of their own, without the graph of gradients."""

    @abc.abstractmethod
    def saved(self, with_rows: bool) -> RowSums:
        """What a file holds, perhaps with the rows of blocks and the features that hold small classes."""

    @abc.abstractmethod
    def to(self, device: torch.device) -> Self:
        """The same sums on a device, to which tensors are moved in place."""


@dataclasses.dataclass(frozen=True)
class FeatureSums(RowSums):
    """The statistics of every draw of the weights; ``num_rows`` counts those without a target too."""

    draws: tuple[SufficientStatistics, ...]
    patterns: Patterns = ()
    some_rows: SomeRows | None = None
    training_rows: TrainingRows | None = None
    num_rows: int = 0
    input_bounds: Tensor | None = None
    is_imputed: bool = False
    """Whether missing targets were filled with posterior means."""
    local = None

    def merge(self, other: Self, model: WeightSpaceGP) -> Self:
        return self.merged(other, model.noise)

    def merged(self, other: Self, noise: NoiseModel) -> Self:
        """:meth:`merge` for a noise model, which knows how groups are merged."""
        patterns = united(self.patterns, other.patterns)
        pairs = zip(self.grouped(patterns), other.grouped(patterns), strict=True)
        some = other.some_rows
        if self.some_rows is not None and some is not None:
            some = self.some_rows.and_some_of(*some)
        return type(self)(
            tuple(noise.merged(*pair) for pair in pairs),
            patterns,
            some,
            num_rows=self.num_rows + other.num_rows,
            input_bounds=joined_bounds(self.input_bounds, other.input_bounds),
            is_imputed=self.is_imputed or other.is_imputed,
        )

    def without(self, other: Self, model: WeightSpaceGP, is_centered: bool = True) -> Self:
        patterns, noise = united(self.patterns, other.patterns), model.noise
        pairs = zip(self.grouped(patterns), other.grouped(patterns), strict=True)
        noise.patterns = patterns
        draws = tuple(noise.without(*pair, is_centered) for pair in pairs)
        num_rows = self.num_rows - other.num_rows
        left = type(self)(draws, patterns, self.some_rows, num_rows=num_rows, input_bounds=self.input_bounds)
        counts = zip(patterns, draws[0].count.tolist(), strict=False)
        kept = tuple(pattern for pattern, count in counts if count)
        return dataclasses.replace(left, draws=tuple(left.grouped(kept)), patterns=kept) if kept else left

    def check_left_of(self, whole: Self, model: WeightSpaceGP) -> None:
        check_left(self.draws[0].num_rows)
        model.noise.patterns = whole.patterns
        groups = self.grouped(whole.patterns) if whole.patterns else self.draws
        pairs = (model.noise.aligned(*pair) for pair in zip(groups, whole.draws, strict=True))
        if not all(
            _observed(left, model.noise).is_part_of(_observed(all_rows.shifted(left.shift), model.noise))
            for left, all_rows in pairs
        ):
            raise ValueError(
                "expected rows of the model to take away, got others, without which the sums of squares would not be "
                "positive; pass what was added, with the same noise, and the weight that forgetting has left it"
            )

    def scaled(self, factor: float, model: WeightSpaceGP) -> Self:
        return dataclasses.replace(self, draws=tuple(d.scaled(factor) for d in self.draws), training_rows=None)

    def difference(self, other: Self, model: WeightSpaceGP) -> float:
        patterns, largest = united(other.patterns, self.patterns), 0.0
        model.noise.patterns = patterns
        for pair in zip(self.grouped(patterns), other.grouped(patterns), strict=True):
            first, second = model.noise.aligned(*pair)
            parts = (
                GramStatistics.of(_observed(sums.shifted(first.shift), model.noise)).sums() for sums in (first, second)
            )
            values = zip(*(part.values() for part in parts), strict=True)
            largest = max(largest, *(relative_difference(*value) for value in values))
        return largest

    def named(self, patterns: Patterns) -> Self:
        return self if self.patterns else dataclasses.replace(self, patterns=patterns)

    def forget_rows(self, x: Tensor, y: Tensor) -> Self:
        return self if self.some_rows is None else dataclasses.replace(self, some_rows=self.some_rows.without(x, y))

    def of_first_draw(self) -> Self:
        return self if len(self.draws) == 1 else dataclasses.replace(self, draws=self.draws[:1])

    def with_further(self, draws: list[SufficientStatistics]) -> Self:
        """The sums with those of further draws of the weights."""
        return dataclasses.replace(self, draws=(self.draws[0], *draws))

    def with_some_rows(self, some_rows: SomeRows | None) -> Self:
        """The same sums, with other rows on which residuals are looked at."""
        return dataclasses.replace(self, some_rows=some_rows)

    def without_graph(self) -> Self:
        return self if self.training_rows is None else dataclasses.replace(self, training_rows=None)

    def saved(self, with_rows: bool) -> RowSums:
        draws = tuple(d if with_rows or not d.num_rows_held else GramStatistics.of(d) for d in self.draws)
        return dataclasses.replace(self, draws=draws, some_rows=None, training_rows=None)

    def detached(self) -> Self:
        draws = tuple(GramStatistics.from_state_dict(draw.state_dict()) for draw in self.draws)
        return dataclasses.replace(self, draws=draws, training_rows=None)

    def to(self, device: torch.device) -> Self:
        for draw in self.draws:
            draw.to(device)
        return dataclasses.replace(self, training_rows=None)

    def grouped(self, patterns: Patterns) -> list[SufficientStatistics]:
        """The statistics with a group for each of these patterns, some perhaps without rows."""
        if patterns == self.patterns:
            return list(self.draws)
        if not self.patterns:
            raise ValueError(
                "expected weights beside all rows or none of class labels on a Fourier grid, got some; pass weights of "
                "one"
            )
        places = [self.patterns.index(pattern) if pattern in self.patterns else None for pattern in patterns]
        return [
            GramStatistics.concatenate([sums.empty_group() if i is None else sums.of_group(i) for i in places])
            for sums in self.draws
        ]


def check_left(count: float) -> None:
    """Raise a ValueError where no row is left."""
    if count <= 0:
        raise ValueError("expected at least one row to be left, got the last ones to take away; make a new model")


def checked_finite(
    statistics: SufficientStatistics, x: Tensor, kernel: torch.nn.Module | None = None
) -> SufficientStatistics:
    """The statistics of the features of a kernel, or a ValueError where some are not finite."""
    if not statistics.is_finite:
        raise checks.overflow(x, kernel)
    return statistics


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors, relative to the largest value of the second."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-300))


def input_bounds(x: Tensor) -> Tensor:
    """Bounds (2, d) of inputs (N, d), rounded to signed powers of two, in float64 on the CPU."""
    low, high = torch.stack([x.detach().amin(0), x.detach().amax(0)]).double().cpu()
    values = torch.stack([-low, high])
    power = values.sign() * torch.exp2(torch.frexp(values).exponent.double() - 1.0)
    above = torch.where(power < values, 2.0 * power, power)
    return torch.stack([-above[0], above[1]])


def joined_bounds(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The bounds over the rows of both; None where those of one are not known."""
    if first is None or second is None or first.shape != second.shape:
        return None
    return torch.stack([torch.minimum(first[0], second[0]), torch.maximum(first[1], second[1])])


def united(first: Patterns, second: Patterns) -> Patterns:
    """The patterns of both, each once."""
    return (*first, *(pattern for pattern in second if pattern not in first))


def _observed(sums: SufficientStatistics, noise: NoiseModel) -> SufficientStatistics:
    return sums.of_observed(noise.observed(len(sums.count), sums.count.device))


_RELATIVE_WEIGHT = 1e-9
"""Noise variances of rows that are looked for may differ by so much, relatively: weights are products of factors."""


@dataclasses.dataclass(frozen=True)
class BlockSums(RowSums):
    """Sums over whitened rows in blocks; where rows change, only the blocks that they are in are computed again."""

    local: LocalRows
    product_dtype: torch.dtype
    draws: tuple[SufficientStatistics, ...] = ()
    patterns, some_rows, training_rows, input_bounds = (), None, None, None

    @classmethod
    def of(
        cls, model: WeightSpaceGP, x: Tensor, rows: Rows, product_dtype: torch.dtype, before: LocalRows | None = None
    ) -> Self:
        """Rows in blocks of at most ``model.block_size``, without sums.

        :param before: rows whose blocks are kept where inputs are the same and gradients run.
        """
        has_cells = needs_cells(model.covar_module, model.noise, rows)
        return cls(local_rows(model, x, rows, before, has_cells), product_dtype)

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.local.x)

    def summed(self, model: WeightSpaceGP, shift: Tensor | None = None) -> Self:
        """The sums over these rows; ``shift`` (K,), by default their mean, is subtracted from the columns."""
        systems = model.systems(self.local.has_cells)
        shift = systems.center(self.local.columns) if shift is None else shift
        statistics = self.local.statistics(systems, self.product_dtype, shift)
        return self._checked(statistics, self.local.detached())

    def resummed(self, model: WeightSpaceGP) -> Self:
        """The sums over these rows, computed anew in float64."""
        rows = dataclasses.replace(self, product_dtype=model.product_dtype or torch.float64)
        return rows.summed(model)

    def merge(self, other: Self, model: WeightSpaceGP) -> Self:
        if self.local.has_cells != other.local.has_cells:
            both = self.with_cells(model), other.with_cells(model)
            return both[0].summed(model).merge(both[1], model)
        added = other.local.x, other.local.columns, other.local.variances, other.local.powers
        (statistics,) = self.draws
        return self._checked(
            *self.local.updated(model.systems(self.local.has_cells), statistics, other.product_dtype, added)
        )

    def without(self, other: Self, model: WeightSpaceGP, is_centered: bool = True) -> Self:
        if self.local.has_cells != other.local.has_cells:
            return self.with_cells(model).summed(model).without(other.with_cells(model), model, is_centered)
        (statistics,) = self.draws
        numbers = self.numbers_of(other)
        check_left(len(self.local.x) - len(numbers))
        left, local = self.local.reduced(model.systems(self.local.has_cells), statistics, other.product_dtype, numbers)
        return self._checked(left.recentered(), local)

    def with_cells(self, model: WeightSpaceGP) -> Self:
        """The same rows with every observed cell of several outputs as a row, without sums; see :class:`CellSystem`."""
        if self.local.has_cells:
            return self
        rows = model.noise.weigh(ObservedTargets(self.local.columns, weights=1.0 / self.local.variances))
        local = local_rows(model, self.local.x, rows, None, True)
        local.powers = self.local.powers.repeat_interleave(model.noise.num_outputs)
        return dataclasses.replace(self, local=local, draws=())

    def check_left_of(self, whole: Self, model: WeightSpaceGP) -> None:
        """Nothing: rows that are taken away are looked for among those that are kept."""

    def scaled(self, factor: float, model: WeightSpaceGP) -> Self:
        rows = dataclasses.replace(self, local=self.local.forgotten(factor))
        return rows.resummed(model) if self.draws else rows

    def difference(self, other: Self, model: WeightSpaceGP) -> float:
        return FeatureSums(self.draws).difference(FeatureSums(other.draws), model)

    def detached(self) -> Self:
        draws = FeatureSums(self.draws).detached().draws
        return dataclasses.replace(self, draws=draws, local=self.local.detached())

    def saved(self, with_rows: bool) -> RowSums:
        return self if with_rows else FeatureSums(self.draws).saved(with_rows)

    def to(self, device: torch.device) -> Self:
        return dataclasses.replace(self, draws=FeatureSums(self.draws).to(device).draws, local=self.local.to(device))

    def numbers_of(self, other: BlockSums) -> Tensor:
        """The numbers (n,) of other rows among these; a ValueError where some have no match."""
        mine, theirs = self.local, other.local
        numbers = row_numbers((mine.x, mine.columns), (theirs.x.to(mine.x), theirs.columns))
        check_found(numbers)
        variances = mine.variances[numbers.to(mine.x.device)]
        is_other = (variances - theirs.variances).abs() > _RELATIVE_WEIGHT * variances
        check_found(torch.where(is_other.cpu(), -1, numbers))
        return numbers

    def with_sums(self, statistics: SufficientStatistics) -> Self:
        """These rows with the sums over them."""
        return self._checked(statistics, self.local)

    def _checked(self, statistics: SufficientStatistics, local: LocalRows) -> Self:
        return dataclasses.replace(self, draws=(checked_finite(statistics, local.x),), local=local.detached())


def local_rows(model: WeightSpaceGP, x: Tensor, rows: Rows, before: LocalRows | None, has_cells: bool) -> LocalRows:
    """Checked rows of a model in their blocks."""
    systems = model.systems(has_cells)
    scales = systems.input_scales(input_scales(model.covar_module.exact_kernel, x))
    inputs, columns, variances = systems.rows(x, rows)
    size = len(x) if model.block_size is None else model.block_size
    return LocalRows.of(inputs, columns, variances, scales, size, before, has_cells)


def check_found(numbers: Tensor) -> None:
    """Raise a ValueError where rows were not found, whose number is -1."""
    missing = (numbers < 0).nonzero().squeeze(-1).tolist()
    if missing:
        names = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(
            f"expected rows that the model has, with the same targets and noise, got others at {names}; pass what was "
            "added"
        )

"""Sums over rows from which a posterior follows: what all kinds of them have in common."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from ..._support import checks, tensor_file
from ..._support.ranks import Ranks
from .checks import check_alike, check_groups, check_part, check_tensors, check_weights
from .rows import Part, Rows


class TargetSums(NamedTuple):
    """Weighted sums of features and K targets, less a shift s, and of a column of ones, in G groups, in float64.

    :param cross: products of features and columns, (G, D, K + 1).
    :param gram: products of columns, (G, K + 1, K + 1).
    :param num_rows: the numbers of rows, (G,).
    :param log_noise: the sums of log noise variances, (G,).
    :param shift: s, (K,).
    """

    cross: Tensor
    gram: Tensor
    num_rows: Tensor
    log_noise: Tensor
    shift: Tensor

    @classmethod
    def zeros(cls, num_features: int, num_groups: int, feature_dtype: torch.dtype, shift: Tensor) -> TargetSums:
        """Sums without rows."""
        columns, device = len(shift) + 1, shift.device
        cross_dtype = torch.promote_types(feature_dtype, shift.dtype)
        cross = torch.zeros(num_groups, num_features, columns, dtype=cross_dtype, device=device)
        num_rows = torch.zeros(num_groups, dtype=torch.float64, device=device)
        return TargetSums(cross, shift.new_zeros(num_groups, columns, columns), num_rows, num_rows.clone(), shift)

    def of_combination(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Cross products (G, D, C) and Gram matrices (G, C, C) of combinations (K, C) or (G, K, C) of the targets."""
        columns = coefficients.to(self.shift.dtype)
        with_ones = torch.cat([columns, self.shift.unsqueeze(0) @ columns], dim=-2)
        return self.cross @ with_ones.to(self.cross.dtype), with_ones.mH @ self.gram @ with_ones

    def squares(self, coefficients: Tensor) -> Tensor:
        """The squares (G, C) of combinations (K, C) of the targets: the diagonals of their Gram matrices."""
        columns = coefficients.to(self.shift.dtype)
        with_ones = torch.cat([columns, self.shift.unsqueeze(0) @ columns], dim=-2)
        return (with_ones.conj() * (self.gram @ with_ones)).sum(-2)

    def take(self, groups: slice) -> TargetSums:
        """The sums of some groups."""
        return self.map(lambda sums: sums[groups])

    def of_targets(self) -> tuple[Tensor, Tensor]:
        """Cross products (G, D, K) and Gram matrices (G, K, K) of the targets themselves."""
        return self.of_combination(torch.eye(len(self.shift), dtype=self.shift.dtype, device=self.shift.device))

    @property
    def variances(self) -> Tensor:
        """The weighted variances of the targets, (G, K); zero for targets that are all alike."""
        square = self.gram.diagonal(dim1=-2, dim2=-1).real[:, :-1]
        total, weight = self.gram[:, -1, :-1].abs().square(), self.gram[:, -1:, -1].real.clamp_min(1e-300)
        spread = square - total / weight
        return torch.where(spread > 1e-12 * square, spread, 0.0) / weight

    def mean(self, observed: Tensor | None = None) -> Tensor:
        """The weighted mean of the targets over all groups, (K,), from the observed ones, (G, T); default: all."""
        weights = self.gram[:, -1:, -1].real.expand(-1, len(self.shift)).clone()
        totals = self.gram[:, -1, :-1].detach()
        if observed is not None:
            weights[:, : observed.shape[-1]] *= observed
            totals = totals * (weights > 0)
        return self.shift + totals.sum(0) / weights.detach().sum(0).clamp_min(1e-300)

    def shifted(self, shift: Tensor) -> TargetSums:
        """The same sums with another shift."""
        change = torch.eye(len(shift) + 1, dtype=self.shift.dtype, device=self.shift.device)
        change[-1, :-1] = self.shift - shift
        cross = self.cross @ change.to(self.cross.dtype)
        return self._replace(cross=cross, gram=change.mH @ self.gram @ change, shift=shift)

    def of_observed(self, observed: Tensor) -> TargetSums:
        """The sums with zeros for targets that are not observed, by a mask (G, T)."""
        mask = torch.nn.functional.pad(observed, (0, len(self.shift) + 1 - observed.shape[-1]), value=True)
        gram = self.gram * mask.unsqueeze(-1) * mask.unsqueeze(-2)
        return self._replace(cross=self.cross * mask.unsqueeze(-2), gram=gram)

    def combined(self, other: TargetSums, operation: Callable[[Tensor, Tensor], Tensor]) -> TargetSums:
        """Sums and differences with those of the same shift."""
        return TargetSums._make([*map(operation, self[:4], other[:4]), self.shift])

    def map(self, change: Callable[[Tensor], Tensor]) -> TargetSums:
        """The same with all sums changed, and the shift as it is."""
        return TargetSums._make([*map(change, self[:4]), self.shift])


ROUNDING = 1e-5
"""How far below zero a difference of sums may lie, relative to the sum: products may be in float32."""
_COUNTING = 1e-9
"""Sums of weights, relative to those before, that count as none."""


def left_of(before: TargetSums, removed: TargetSums) -> tuple[TargetSums, Tensor]:
    """The difference of sums with one shift, and a mask (G,) of empty groups; a ValueError if it is not one of rows."""
    left = before.combined(removed, Tensor.sub)
    is_empty = left.num_rows.abs() <= _COUNTING * before.num_rows
    left = left.map(lambda sums: without_groups(sums, is_empty))
    if bool((left.num_rows < 0).any()):
        raise ValueError(
            "expected statistics of a subset of the rows to subtract, got more rows than there are; subtract rows that "
            "were added"
        )
    check_squares(*(sums.gram.detach().diagonal(dim1=-2, dim2=-1).real for sums in (before, left)))
    return left, is_empty


def without_groups(sums: Tensor, is_empty: Tensor) -> Tensor:
    """Sums (G, ...) with zeros in the groups without rows, (G,)."""
    return sums.masked_fill(is_empty.reshape(-1, *[1] * (sums.dim() - 1)), 0.0) if bool(is_empty.any()) else sums


def check_squares(before: Tensor, after: Tensor) -> None:
    """Raise a ValueError where sums of squares after a subtraction are not those of some of the rows."""
    if not bool((after.detach() >= -ROUNDING * before.detach()).all()):
        raise not_a_subset()


def not_a_subset() -> ValueError:
    """What to raise where statistics that are subtracted have rows which were never added."""
    return ValueError(
        "expected statistics of a subset of the rows to subtract, got others, which leave negative sums of squares; "
        "subtract what was added, with the same features and weights"
    )


_TARGET_SUMS = ("cross", "target_gram", "count", "log_noise")


class SufficientStatistics(abc.ABC):
    """Weighted sums over rows by group: those with targets, and those over features, by name.

    A kind of them names its sums over features, and says how rows are added. How sums are merged, subtracted, scaled,
    moved, saved and added up over processes follows from the names.
    """

    additive: ClassVar[tuple[str, ...]]
    """The names of the sums over the features of the rows of every group, (G, ...)."""
    shared: ClassVar[tuple[str, ...]] = ()
    """The names of what all groups have in common."""
    differentiable_sums: ClassVar[tuple[str, ...]]
    """The names of the sums that depend on parameters."""
    targets: TargetSums
    _own: dict[str, Tensor]

    def __init__(
        self,
        num_features: int,
        num_targets: int,
        num_groups: int = 1,
        is_complex: bool = False,
        has_complex_targets: bool = False,
        device: torch.device | None = None,
        shift: Tensor | None = None,
    ) -> None:
        num_features = checks.positive_integer("num_features", num_features)
        num_targets = checks.positive_integer("num_targets", num_targets)
        num_groups = checks.positive_integer("num_groups", num_groups)
        checks.flag("is_complex", is_complex)
        checks.flag("has_complex_targets", has_complex_targets)
        target_dtype = torch.complex128 if has_complex_targets else torch.float64
        zeros = torch.zeros(num_targets, dtype=target_dtype, device=device)
        none = self.empty(num_features, num_groups, is_complex, zeros if shift is None else shift.to(zeros))
        self.targets = none.targets
        self._hold(none._features())

    @classmethod
    def empty(cls, num_features: int, num_groups: int, is_complex: bool, shift: Tensor) -> Self:
        """Statistics without rows, from a shift (K,) in double precision; nothing is checked."""
        dtype = torch.complex128 if is_complex else torch.float64
        none = torch.zeros(0, num_features, num_features, dtype=dtype, device=shift.device)
        return cls.made(TargetSums.zeros(num_features, num_groups, dtype, shift), cls._no_features(none, num_groups))

    @classmethod
    def made(cls, targets: TargetSums, features: dict[str, Tensor]) -> Self:
        """Statistics that hold these sums; nothing is checked."""
        result = object.__new__(cls)
        result.targets = targets
        result._hold(features)
        return result

    # What a kind of sums defines

    @staticmethod
    @abc.abstractmethod
    def _no_features(none: Tensor, num_groups: int) -> dict[str, Tensor]:
        """The sums over features without rows, from no Gram matrices, (0, D, D)."""

    @classmethod
    @abc.abstractmethod
    def _check_state(cls, state: dict[str, Tensor]) -> None:
        """Raise a ValueError where shapes or dtypes of a state do not fit each other."""

    @property
    @abc.abstractmethod
    def gram(self) -> Tensor:
        """The Gram matrices, (G, D, D)."""

    @staticmethod
    @abc.abstractmethod
    def _squares(features: dict[str, Tensor]) -> Tensor:
        """Those of the sums over features that are sums of squares, (G, ...)."""

    @abc.abstractmethod
    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        """:meth:`update` without its checks, for rows that a model has checked."""

    @abc.abstractmethod
    def graph(self, product_dtype: torch.dtype) -> Callable[..., Sequence[Tensor]]:
        """Takes features, rows and where these are held, and returns :meth:`differentiable` of them alone.

        The values of the sums do not matter, only their graph. It does not refer to these statistics.
        """

    @abc.abstractmethod
    def is_part_of(self, whole: SufficientStatistics) -> bool:
        """Whether these can be sums of squares, as what is left of others is, to the rounding of the whole."""

    @abc.abstractmethod
    def chunks(self, rows: Rows, itemsize: int) -> list[Part]:
        """Chunks of rows that are added at once, for features of so many bytes per number."""

    @classmethod
    @abc.abstractmethod
    def check_memory(cls, width: int, num_groups: int, num_rows: int, itemsize: int) -> None:
        """Raise a ValueError where statistics and factors of so many features do not fit in memory."""

    @classmethod
    def of(cls, other: SufficientStatistics) -> Self:
        """Other statistics as those of this kind."""
        if not isinstance(other, cls):
            raise ValueError(f"expected {cls.__name__}, got {type(other).__name__}; combine like with like")
        return other

    def expect(self, groups: Tensor) -> Self:
        """Prepare for rows of these groups, (N,), and return the statistics."""
        return self

    def row_positions(self, groups: Tensor | None = None) -> Any:
        """Where rows of these groups will be held, or those that are held now were; None where rows are not held."""
        return None

    # What follows

    def _hold(self, features: dict[str, Tensor]) -> None:
        self._own = {name: features[name] for name in (*self.additive, *self.shared)}

    def _features(self) -> dict[str, Tensor]:
        return self._own

    def _changed(self, change: Callable[..., Tensor], *others: Self) -> dict[str, Tensor]:
        """The sums over features of these and other statistics, changed name by name."""
        mine, theirs = self._features(), [other._features() for other in others]
        changed = {name: change(mine[name], *(sums[name] for sums in theirs)) for name in self.additive}
        return mine | changed

    def _merged(self, other: Self) -> dict[str, Tensor]:
        return self._changed(torch.add, other)

    def _subtracted(self, other: Self, is_empty: Tensor) -> dict[str, Tensor]:
        left = self._changed(lambda a, b: without_groups(a - b, is_empty), other)
        check_squares(self._squares(self._features()), self._squares(left))
        return left

    def _scaled(self, factor: float) -> dict[str, Tensor]:
        return self._changed(lambda sums: factor * sums)

    def _reduced(self, ranks: Ranks) -> dict[str, Tensor]:
        sums = self._changed(torch.Tensor.contiguous)
        ranks.sum_([sums[name] for name in self.additive])
        return sums

    def _by_group(self, change: Callable[[Tensor], Tensor]) -> Self:
        return self.made(self.targets.map(change), self._changed(change))

    def of_group(self, group: int) -> SufficientStatistics:
        """The statistics of one group alone, which share memory with these."""
        return self._by_group(lambda sums: sums[group : group + 1])

    def pooled(self) -> SufficientStatistics:
        """The statistics of all groups as one."""
        return self._by_group(lambda sums: sums.sum(0, keepdim=True))

    def empty_group(self) -> SufficientStatistics:
        """Statistics of one group without rows, that can be concatenated with these."""
        return self._by_group(lambda sums: torch.zeros_like(sums[:1]))

    @property
    def num_features(self) -> int:
        """The number of columns D of the features."""
        return self.targets.cross.shape[1]

    @property
    def has_complex_features(self) -> bool:
        """Whether the features are complex."""
        return self._own[self.additive[0]].is_complex()

    @property
    def trace(self) -> float:
        """The sum of the traces of all Gram matrices."""
        return float(self._squares(self._own).detach().sum())

    @property
    def is_finite(self) -> bool:
        """Whether all sums are finite, and with them all rows."""
        parts = self._squares(self._own).detach(), self.targets.cross.detach(), self.targets.gram.detach()
        return bool(torch.stack([torch.isfinite(part).all() for part in parts]).all())

    @property
    def count(self) -> Tensor:
        """The number of rows of every group, (G,)."""
        return self.targets.num_rows

    @property
    def log_noise(self) -> Tensor:
        """The sum of the log noise variances of every group, (G,)."""
        return self.targets.log_noise

    @property
    def shift(self) -> Tensor:
        """What is subtracted from the targets, (K,)."""
        return self.targets.shift

    @property
    def num_rows(self) -> float:
        """The number of rows in all groups."""
        return float(self.targets.num_rows.sum())

    @property
    def num_rows_held(self) -> int:
        """How many rows are held by their features."""
        return 0

    @property
    def cross(self) -> Tensor:
        """The cross products of features and targets, (G, D, K)."""
        return self.targets.of_targets()[0]

    @property
    def target_gram(self) -> Tensor:
        """The Gram matrices of the targets, (G, K, K)."""
        return self.targets.of_targets()[1]

    def shifted(self, shift: Tensor) -> Self:
        """The same statistics with another shift, (K,), a new object."""
        return self if torch.equal(shift, self.shift) else self._with_targets(self.targets.shifted(shift))

    def recentered(self, observed: Tensor | None = None) -> Self:
        """The same statistics with the mean of the targets that are observed, (G, T), as their shift."""
        return self.shifted(self.targets.mean(observed))

    def of_observed(self, observed: Tensor | None) -> Self:
        """The statistics without the sums over targets that are not observed, (G, T); None for all."""
        return self if observed is None else self._with_targets(self.targets.of_observed(observed))

    def _with_targets(self, targets: TargetSums, features: dict[str, Tensor] | None = None) -> Self:
        return self.made(targets, self._features() if features is None else features)

    def update(
        self,
        features: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        log_noise: Tensor | None = None,
        groups: Tensor | None = None,
        product_dtype: torch.dtype = torch.float64,
    ) -> Self:
        """Add rows, and return the statistics. Where an argument carries gradients the sums carry them too.

        :param features: (N, D), real or complex.
        :param targets: (N, K), real or complex.
        :param weights: the precisions of the rows, (N,); default: ones.
        :param log_noise: the log noise variances of the rows, (N,); default: zeros.
        :param groups: the number of the group of each row, (N,); default: 0.
        :param product_dtype: the dtype of the products inside a chunk of rows; sums are in float64.
        :raises ValueError: for rows that do not fit, or are not finite; the statistics stay as they were.
        """
        checks.product_dtype(product_dtype)
        like = self.targets.cross
        check_part("features", features, (None, self.num_features), like, self.has_complex_features)
        check_part("targets", targets, (len(features), len(self.shift)), like, self.shift.is_complex())
        check_weights(features, weights, log_noise)
        check_groups(features, groups, len(self.count))
        return self.add(features, Rows(targets, weights, log_noise, groups, len(self.count)), product_dtype)

    def merge(self, other: SufficientStatistics) -> Self:
        """The statistics of both sets of rows together, a new object."""
        first, second = self._comparable(other)
        return first._with_targets(first.targets.combined(second.targets, torch.add), first._merged(second))

    def subtract(self, other: SufficientStatistics) -> Self:
        """A new object with the statistics of these rows without some of them, ``other``.

        :raises ValueError: where the shapes differ, or the sums that would be left are not those of rows.
        """
        first, second = self._comparable(other)
        left, is_empty = left_of(first.targets, second.targets)
        return first._with_targets(left, first._subtracted(second, is_empty))

    def _comparable(self, other: SufficientStatistics) -> tuple[Self, Self]:
        """These and other statistics, of one kind and with one shift."""
        checks.instance("other", other, SufficientStatistics, "a GramStatistics", "fill it with update(...)")
        second = self.of(other)
        check_alike(self._own[self.additive[0]][:0], second._own[self.additive[0]][:0], self.targets, second.targets)
        shift = self.shift if self.num_rows else second.shift
        return self.shifted(shift), second.shifted(shift)

    def scaled(self, factor: float) -> Self:
        """The statistics of the same rows with their weights times a positive factor, also in the count."""
        return self._with_targets(self.targets.map(lambda sums: factor * sums), self._scaled(factor))

    def all_reduce(self, ranks: Ranks | None = None) -> Self:
        """Sum the statistics over all processes, in place; all of them end with the same bits.

        :param ranks: default: those of the default group of ``torch.distributed``.
        """
        every = Ranks() if ranks is None else ranks
        with torch.no_grad():
            rows = self.count.sum()
            shift = self.shift * rows
            every.sum_([shift, rows])
            features = self._reduced(every)
            self.targets = self.shifted(shift / rows.clamp_min(1.0)).targets.map(torch.Tensor.contiguous)
            every.sum_(list(self.targets[:4]))
            self._hold(features)
        return self

    def to(self, device: torch.device) -> Self:
        """Move the sums to a device, in place; their dtype stays."""
        self.targets = TargetSums(*(value.to(device) for value in self.targets))
        self._hold({name: value.to(device) for name, value in self._features().items()})
        return self

    def sums(self) -> dict[str, Tensor]:
        """The sums by name, with their gradients; those of targets are of their shifted columns and of one of ones."""
        return self._features() | dict(zip(_TARGET_SUMS, self.targets[:4], strict=True))

    @classmethod
    def from_sums(cls, sums: dict[str, Tensor], shift: Tensor) -> Self:
        """Statistics that hold the tensors which :meth:`sums` gives, and the shift (K,)."""
        return cls.made(TargetSums._make([*[sums[name] for name in _TARGET_SUMS], shift]), sums)

    def differentiable(self) -> tuple[Tensor, ...]:
        """The sums that depend on parameters."""
        sums = self.sums()
        return tuple([sums[name] for name in self.differentiable_sums])

    def with_differentiable(self, sums: Sequence[Tensor]) -> Self:
        """The same statistics with others for the sums that :meth:`differentiable` gives."""
        return self.from_sums(self.sums() | dict(zip(self.differentiable_sums, sums, strict=True)), self.shift)

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the sums by name and of the shift, detached."""
        return {name: value.detach().clone() for name, value in {**self.sums(), "shift": self.shift}.items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> SufficientStatistics:
        """Statistics from :meth:`state_dict`, of the kind whose sums they are; a ValueError where these do not fit."""
        kinds = {frozenset(kind._names()): kind for kind in SufficientStatistics.__subclasses__()}
        kind = kinds.get(frozenset(state)) if isinstance(state, dict) else None
        if kind is None:
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"expected the sums {', '.join(cls._names())}, got {got}; pass what state_dict() gives")
        check_tensors(state)
        kind._check_state(state)
        copies = {name: value.clone() for name, value in state.items()}
        return kind.from_sums(copies, copies.pop("shift"))

    @classmethod
    def _names(cls) -> list[str]:
        return [*cls.additive, *cls.shared, *_TARGET_SUMS, "shift"]

    def __reduce__(self) -> tuple[Any, ...]:
        """What copies and pickles hold: the sums without their autograd graph."""
        return type(self).from_sums, ({name: v.detach() for name, v in self.sums().items()}, self.shift.detach())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a file, under a temporary name first, with a checksum."""
        tensor_file.write(path, self.state_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SufficientStatistics:
        """Read what :meth:`save` wrote, to the CPU; a ValueError for another file, or one that has changed since."""
        return cls.from_state_dict(tensor_file.read(path))

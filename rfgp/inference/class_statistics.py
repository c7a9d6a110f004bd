"""Sufficient statistics of many classes: the rows of a class in place of its Gram matrix, while they are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from .. import _checks, linalg
from ..distributed.ranks import Ranks
from .rows import Rows
from .statistics import COUNTING, GramStatistics, check_left, not_a_subset

_SUMS = ("gram", "dense", "rows", "row_groups", "cross", "target_gram", "count", "log_noise")
_DIFFERENTIABLE = ("gram", "rows", "cross", "target_gram")
_PENDING_ROWS = 8192


class ClassStatistics(GramStatistics):
    r"""The sums of :class:`GramStatistics` over many groups, most of which have fewer rows than features.

    .. math:: G_c = U_c^H U_c

    A group is held by its features :math:`U_c = (\sqrt{w_i} \phi_i^\top)_{i \in c}` up to D/2 rows, and by its Gram
    matrix beyond: no more than :math:`\min(N, C D)\, D` numbers for C groups, and all of them exact. They are added,
    subtracted, saved and reduced as other statistics are. Held rows keep the dtype of the features.

    The arguments are those of :class:`GramStatistics`.

    >>> classes = torch.tensor([0, 1, 2, 0])
    >>> statistics = ClassStatistics(4, 1, num_groups=3).update(torch.eye(4), torch.ones(4, 1), groups=classes)
    >>> statistics.rows.shape, statistics.gram.shape
    (torch.Size([4, 4]), torch.Size([3, 4, 4]))
    """

    _starts_with_grams: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dense = torch.zeros(0, dtype=torch.long, device=self._gram.device)
        self._held: list[tuple[Tensor, Tensor]] = []
        self._num_pending = 0

    @property
    def gram(self) -> Tensor:
        """The Gram matrices of all groups, (G, D, D): C D^2 numbers, which nothing here needs.

        :raises ValueError: where they do not fit in memory.
        """
        groups, width = len(self.count), self.num_features
        what = f"Gram matrices of {groups} x {width} x {width} numbers"
        _checks.fits_in_memory(float(groups * width**2 * self._gram.element_size()), what, "use the statistics as held")
        return torch.stack([self._gram_of(group) for group in range(groups)])

    @property
    def rows(self) -> Tensor:
        """The features of the groups that are held by rows, (M, D), those of one group after those of another."""
        return self._sorted()[0]

    @property
    def row_groups(self) -> Tensor:
        """The group of every row that is held, (M,), not decreasing."""
        return self._sorted()[1]

    @property
    def dense(self) -> Tensor:
        """The groups that have a Gram matrix, (P,)."""
        self._sorted()
        return self._dense

    @property
    def held_counts(self) -> Tensor:
        """How many rows of every group are held, (G,)."""
        return torch.bincount(self.row_groups, minlength=len(self.count))

    @property
    def dense_grams(self) -> Tensor:
        """The Gram matrices of the groups in ``dense``, (P, D, D)."""
        self._sorted()
        if not self._is_mirrored:
            for gram in self._gram:
                linalg.mirror_(gram)
            self._is_mirrored = True
        return self._gram

    @property
    def pooled_gram(self) -> Tensor:
        """The sum of the Gram matrices, (D, D)."""
        rows, total = self.rows, self.dense_grams.sum(0)
        for part in linalg.row_chunks(len(rows), self.num_features):
            exact = rows[part].to(total.dtype)
            total = total + exact.mH @ exact
        return total

    @property
    def trace(self) -> float:
        return super().trace + sum(float(rows.detach().abs().double().square().sum()) for rows, _ in self._held)

    @property
    def is_finite(self) -> bool:
        return super().is_finite and all(bool(torch.isfinite(rows.detach()).all()) for rows, _ in self._held)

    def _gram_of(self, group: int) -> Tensor:
        """The Gram matrix of one group, (D, D)."""
        is_own = self.dense == group
        if bool(is_own.any()):
            return self.dense_grams[is_own].squeeze(0)
        return _gram(self._rows_of(group), self._gram.dtype)

    def with_grams(self) -> GramStatistics:
        return GramStatistics.from_sums(self._other_sums(self.gram), self.shift)

    def of_group(self, group: int) -> GramStatistics:
        own = {name: value[group : group + 1] for name, value in self._other_sums(self._gram).items() if name != "gram"}
        return GramStatistics.from_sums({"gram": self._gram_of(group).unsqueeze(0), **own}, self.shift)

    def pooled(self) -> GramStatistics:
        sums = self._other_sums(self._gram)
        own = {name: value.sum(0, keepdim=True) for name, value in sums.items() if name != "gram"}
        return GramStatistics.from_sums({"gram": self.pooled_gram.unsqueeze(0), **own}, self.shift)

    def empty_group(self) -> GramStatistics:
        own = {name: torch.zeros_like(value[:1]) for name, value in self._other_sums(self._gram).items()}
        own["gram"] = self._gram.new_zeros(1, self.num_features, self.num_features)
        return GramStatistics.from_sums(own, self.shift)

    def _other_sums(self, gram: Tensor) -> dict[str, Tensor]:
        known = {"cross": self._cross, "target_gram": self._target_gram}
        return {"gram": gram, **known, "count": self.count, "log_noise": self.log_noise}

    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        groups = rows.groups
        if groups is None:
            groups = torch.zeros(len(features), dtype=torch.long, device=features.device)
        groups = groups.long()
        tensors = (features, rows.targets, rows.weights, *self.sums().values())
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            return self._take(self.merge(self._of_held(features, rows, groups)))
        columns = rows.lifted(self.shift)
        place = self.places()
        is_held = place[groups] < 0
        for group in groups[~is_held].unique().tolist():
            members = groups == group
            own = None if rows.weights is None else rows.weights[members]
            at = int(place[group])
            linalg.add_gram_(
                self._gram[at], self._cross[group], features[members], columns[members], own, product_dtype
            )
            self._is_mirrored = False
        self._add_held(features, rows, groups, columns, is_held)
        return self

    def _add_held(self, features: Tensor, rows: Rows, groups: Tensor, columns: Tensor, is_held: Tensor) -> None:
        """Add rows to the groups that are held by rows, and what is no Gram matrix of all."""
        every = bool(is_held.all())
        chosen = slice(None) if every else is_held
        own, weights = groups[chosen], None if rows.weights is None else rows.weights[chosen]
        part = features[chosen] if weights is None else features[chosen] * weights.sqrt().unsqueeze(-1)
        if len(own):
            self._held.append((part.clone() if every and weights is None else part, own))
            self._num_pending += len(own)
        self._cross.add_(_cross(features[chosen], columns[chosen], weights, own, self._cross))
        self._target_gram.add_(_target_gram(columns, rows.weights, groups, self._target_gram))
        self.count.add_(torch.bincount(groups, minlength=len(self.count)))
        if rows.log_noise is not None:
            self.log_noise.index_add_(0, groups, rows.log_noise.double())
        if self._num_pending > max(_PENDING_ROWS, sum(len(held) for held, _ in self._held) // 2):
            self._condense()

    def _of_held(self, features: Tensor, rows: Rows, groups: Tensor) -> ClassStatistics:
        """The statistics of some rows, with gradients."""
        columns, weights = rows.lifted(self.shift), rows.weights
        noise = torch.zeros_like(self.log_noise)
        held = features if weights is None else features * weights.sqrt().unsqueeze(-1)
        sums = {
            "gram": self._gram[:0],
            "dense": self._dense[:0],
            "rows": held,
            "row_groups": groups,
            "cross": _cross(features, columns, weights, groups, self._cross),
            "target_gram": _target_gram(columns, weights, groups, self._target_gram),
            "count": torch.bincount(groups, minlength=len(self.count)).double(),
            "log_noise": noise if rows.log_noise is None else noise.index_add(0, groups, rows.log_noise.double()),
        }
        return self.from_sums(sums, self.shift)

    def expect(self, groups: Tensor) -> Self:
        """Make Gram matrices for the groups that will have so many rows, and return the statistics.

        :param groups: the groups of rows that will be added, (N,).
        """
        counts = self.held_counts + torch.bincount(groups.long(), minlength=len(self.count))
        self._make_dense(((counts > self.limit) & (self.places() < 0)).nonzero().squeeze(-1))
        return self

    @property
    def limit(self) -> int:
        """How many rows of a group are held at most, D/2."""
        return self.num_features // 2

    def is_dense(self) -> Tensor:
        """Whether a group has its Gram matrix, (G,)."""
        self._sorted()
        return self.places() >= 0

    def places(self) -> Tensor:
        """Where the Gram matrix of every group is in ``dense_grams``, (G,); -1 for those that are held by rows."""
        place = torch.full((len(self.count),), -1, dtype=torch.long, device=self.count.device)
        place[self._dense] = torch.arange(len(self._dense), device=place.device)
        return place

    def _sorted(self) -> tuple[Tensor, Tensor]:
        if self._num_pending:
            self._condense()
        if self._held:
            return self._held[0]
        return self._gram.new_zeros(0, self.num_features), self._dense.new_zeros(0)

    def _condense(self) -> None:
        """Sort the rows by their groups, and make Gram matrices of those that are too many."""
        self._num_pending = 0
        if not self._held:
            return
        rows, groups = (torch.cat(parts) for parts in zip(*self._held, strict=True))
        if not bool((groups.diff() >= 0).all()):
            order = groups.argsort(stable=True)
            rows, groups = rows[order], groups[order]
        self._held = [(rows, groups)]
        self._make_dense((torch.bincount(groups, minlength=len(self.count)) > self.limit).nonzero().squeeze(-1))

    def _make_dense(self, groups: Tensor) -> None:
        """Replace the rows of some groups by their Gram matrices."""
        if not len(groups):
            return
        rows, names = self._sorted()
        grams = [_gram(self._rows_of(group), self._gram.dtype) for group in groups.tolist()]
        self._gram = torch.cat([self.dense_grams, torch.stack(grams)])
        self._dense = torch.cat([self._dense, groups])
        is_left = self.places()[names] < 0
        self._held = [(rows[is_left], names[is_left])]

    def merge(self, other: GramStatistics) -> ClassStatistics:
        added, shift = self._fitting(other)
        first, second = self.shifted(shift), added.shifted(shift)
        sums = _plus(first, second, torch.add)
        groups = torch.cat([first.dense, second.dense]).unique()
        sums["gram"] = _grams_of(first, groups) + _grams_of(second, groups)
        sums["dense"] = groups
        parts = [(part.rows, part.row_groups) for part in (first, second) if len(part.row_groups)]
        is_left = [~torch.isin(names, groups) for _, names in parts]
        kept = [(rows[left], names[left]) for (rows, names), left in zip(parts, is_left, strict=True)]
        if kept:
            sums["rows"], sums["row_groups"] = (torch.cat(tensors) for tensors in zip(*kept, strict=True))
        return self.from_sums(sums, shift)

    def subtract(self, other: GramStatistics) -> ClassStatistics:
        removed, shift = self._fitting(other)
        first, second = self.shifted(shift), removed.shifted(shift)
        sums = _plus(first, second, torch.sub)
        groups = torch.cat([first.dense, second.dense]).unique()
        before = _grams_of(first, groups)
        sums["gram"], sums["dense"] = before - _grams_of(second, groups), groups
        is_empty = sums["count"].abs() <= COUNTING * first.count
        for name in ("cross", "target_gram", "count", "log_noise"):
            sums[name] = sums[name].masked_fill(is_empty.reshape(-1, *[1] * (sums[name].dim() - 1)), 0.0)
        sums["gram"] = sums["gram"].masked_fill(is_empty[groups].reshape(-1, 1, 1), 0.0)
        check_left(sums["count"], [(before, sums["gram"]), (first._target_gram, sums["target_gram"])])
        rows, names = first.rows, first.row_groups
        is_left = ~torch.isin(names, groups)
        is_held = ~torch.isin(second.row_groups, groups)
        for row, group in zip(second.rows[is_held].detach(), second.row_groups[is_held], strict=True):
            is_left[_nearest(rows.detach(), row, is_left & (names == group))] = False
        sums["rows"], sums["row_groups"] = rows[is_left], names[is_left]
        return self.from_sums(sums, shift)

    def scaled(self, factor: float) -> ClassStatistics:
        known = self.sums()
        scaled = {name: factor * known[name] for name in ("gram", "cross", "target_gram", "count", "log_noise")}
        return self.from_sums({**known, **scaled, "rows": factor**0.5 * known["rows"]}, self.shift)

    def is_part_of(self, whole: GramStatistics) -> bool:
        if not bool((self.count >= 0).all()):
            return False
        return all(self.of_group(group).is_part_of(whole.of_group(group)) for group in self.dense.tolist())

    def _rows_of(self, group: int) -> Tensor:
        """The rows that are held of one group, (n, D)."""
        rows, names = self._sorted()
        start, stop = torch.searchsorted(names, torch.tensor([group, group + 1], device=names.device)).tolist()
        return rows[start:stop]

    def _fitting(self, other: GramStatistics) -> tuple[ClassStatistics, Tensor]:
        """Other statistics as those of classes, or a ValueError where they do not fit; and the shift of both."""
        _checks.instance("other", other, GramStatistics, "a GramStatistics", "fill it with update(...)")
        added = other if isinstance(other, ClassStatistics) else _of_grams(other)
        for name in ("gram", "cross", "target_gram", "count"):
            known, new = self.sums()[name], added.sums()[name]
            first = 1 if name == "gram" else 0
            if known.shape[first:] != new.shape[first:] or known.dtype != new.dtype or known.device != new.device:
                raise ValueError(
                    f"expected statistics of the same model, with {name} {tuple(known.shape)} {known.dtype} on "
                    f"{known.device}, got {tuple(new.shape)} {new.dtype} on {new.device}; combine like with like"
                )
        return added, self.shift if self.num_rows else added.shift

    def all_reduce(self, ranks: Ranks | None = None) -> Self:
        every = Ranks() if ranks is None else ranks
        with torch.no_grad():
            total = self.count.sum()
            shift = self.shift * total
            counts = self.held_counts
            will_be_dense = self.is_dense().to(self.count)
            every.sum_([shift, total, counts, will_be_dense])
            shift = shift / total.clamp_min(1.0)
            groups = ((counts > self.limit) | (will_be_dense > 0)).nonzero().squeeze(-1)
            known = self.shifted(shift)
            sums = known.sums()
            is_left = ~torch.isin(sums["row_groups"], groups)
            sums["gram"], sums["dense"] = _grams_of(known, groups).clone(), groups
            sums["rows"] = every.rows(sums["rows"][is_left])
            sums["row_groups"] = every.rows(sums["row_groups"][is_left])
            summed = ("gram", "cross", "target_gram", "count", "log_noise")
            sums |= {name: sums[name].contiguous() for name in summed}
            every.sum_([sums[name] for name in summed])
            return self._take(self.from_sums(sums, shift))

    def _take(self, other: ClassStatistics) -> Self:
        self.__dict__.update(other.__dict__)
        return self

    def to(self, device: torch.device) -> Self:
        moved = {name: value.to(device) for name, value in self.sums().items()}
        return self._take(self.from_sums(moved, self.shift.to(device)))

    def sums(self) -> dict[str, Tensor]:
        rows, groups = self._sorted()
        known = self._other_sums(self.dense_grams)
        return {"gram": known.pop("gram"), "dense": self._dense, "rows": rows, "row_groups": groups, **known}

    def _upper(self) -> dict[str, Tensor]:
        return self.sums()

    def differentiable(self) -> tuple[Tensor, ...]:
        known = self.sums()
        return tuple(known[name] for name in _DIFFERENTIABLE)

    def with_differentiable(self, sums: Sequence[Tensor]) -> ClassStatistics:
        return self.from_sums({**self.sums(), **dict(zip(_DIFFERENTIABLE, sums, strict=True))}, self.shift)

    @classmethod
    def from_sums(cls, sums: dict[str, Tensor], shift: Tensor) -> Self:
        result = object.__new__(cls)
        result._is_mirrored, result.shift, result._dense = True, shift, sums["dense"]
        result._gram, result._cross, result._target_gram = sums["gram"], sums["cross"], sums["target_gram"]
        result.count, result.log_noise = sums["count"], sums["log_noise"]
        result._held, result._num_pending = [(sums["rows"], sums["row_groups"])], 0
        result._condense()
        return result

    @classmethod
    def describes(cls, state: Any) -> bool:
        return isinstance(state, dict) and "row_groups" in state

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> ClassStatistics:
        names = [*_SUMS, "shift"]
        if not isinstance(state, dict) or sorted(state) != sorted(names):
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"expected the sums {', '.join(names)}, got {got}; pass what state_dict() gives")
        groups = GramStatistics.from_state_dict(
            {name: state[name] for name in state if name not in ("gram", "dense", "rows", "row_groups")}
            | {"gram": state["gram"].new_zeros(1, 1, 1).expand(len(state["count"]), *state["gram"].shape[1:])}
        )
        size, width = len(groups.count), groups.num_features
        held, dense, names_of_rows = state["rows"], state["dense"], state["row_groups"]
        numbers = torch.cat([dense.reshape(-1), names_of_rows.reshape(-1)])
        is_whole = (
            held.dim() == 2
            and held.shape == (len(names_of_rows), width)
            and held.is_complex() == state["gram"].is_complex()
            and (held.is_floating_point() or held.is_complex())
            and state["gram"].shape == (len(dense), width, width)
            and numbers.dtype == torch.long
            and bool(((numbers >= 0) & (numbers < size)).all())
            and len(dense.unique()) == len(dense)
        )
        if not is_whole:
            raise ValueError(
                f"expected rows (M, {width}) and Gram matrices (P, {width}, {width}) with the numbers of their groups "
                f"below {size}, got {tuple(held.shape)} and {tuple(state['gram'].shape)}; pass what state_dict() gives"
            )
        copies = {name: value.clone() for name, value in state.items()}
        return cls.from_sums(copies, copies.pop("shift"))

    def __getstate__(self) -> dict[str, Any]:
        self._sorted()
        held = [(rows.detach(), groups) for rows, groups in self._held]
        return {**super().__getstate__(), "_held": held}


def _gram(rows: Tensor, dtype: torch.dtype) -> Tensor:
    exact = rows.to(dtype)
    return exact.mH @ exact


def _cross(features: Tensor, columns: Tensor, weights: Tensor | None, groups: Tensor, like: Tensor) -> Tensor:
    """The cross products (G, D, K) of features (n, D) and columns (n, K), by group."""
    weighted = columns if weights is None else columns * weights.to(columns.real.dtype).unsqueeze(-1)
    left = features.conj().to(like.dtype)
    parts = [
        like.new_zeros(like.shape[:2]).index_add(0, groups, left * column.to(like.dtype).unsqueeze(-1))
        for column in weighted.unbind(-1)
    ]
    return torch.stack(parts, dim=-1)


def _target_gram(columns: Tensor, weights: Tensor | None, groups: Tensor, like: Tensor) -> Tensor:
    """The Gram matrices (G, K, K) of columns (n, K), by group."""
    weighted = columns if weights is None else columns * weights.to(columns.real.dtype).unsqueeze(-1)
    products = weighted.conj().unsqueeze(-1) * columns.unsqueeze(-2)
    return torch.zeros_like(like).index_add(0, groups, products.to(like.dtype))


def _of_grams(statistics: GramStatistics) -> ClassStatistics:
    """Statistics with a Gram matrix of every group as those of classes; groups without rows need none."""
    sums = statistics.sums()
    groups = (sums["count"] > 0).nonzero().squeeze(-1)
    rows = sums["gram"].new_zeros(0, statistics.num_features)
    held = {"dense": groups, "rows": rows, "row_groups": groups.new_zeros(0)}
    return ClassStatistics.from_sums({**sums, **held, "gram": sums["gram"][groups]}, statistics.shift)


def _plus(
    first: ClassStatistics, second: ClassStatistics, operation: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, Tensor]:
    """All sums of the first, of which those that are no features are combined with those of the second."""
    known, new = first.sums(), second.sums()
    combined = {name: operation(known[name], new[name]) for name in ("cross", "target_gram", "count", "log_noise")}
    return {**known, **combined}


def _grams_of(statistics: ClassStatistics, groups: Tensor) -> Tensor:
    """The Gram matrices of some groups, (P, D, D)."""
    width, dtype = statistics.num_features, statistics.dense_grams.dtype
    if torch.equal(groups, statistics.dense):
        return statistics.dense_grams
    grams = [statistics._gram_of(group) for group in groups.tolist()]
    return torch.stack(grams) if grams else torch.zeros(0, width, width, dtype=dtype, device=groups.device)


def _nearest(rows: Tensor, row: Tensor, is_own: Tensor) -> int:
    """The number of the row that equals another but for rounding.

    :param rows: rows (n, D).
    :param row: the other, (D,).
    :param is_own: which of the rows are looked at, (n,).
    :raises ValueError: where there is none.
    """
    numbers = is_own.nonzero().squeeze(-1)
    distances = torch.linalg.vector_norm(rows[numbers] - row, dim=-1)
    allowed = torch.finfo(distances.dtype).eps ** 0.5 * torch.linalg.vector_norm(row)
    if not len(numbers) or bool(distances.min() > allowed):
        raise not_a_subset()
    return int(numbers[distances.argmin()])

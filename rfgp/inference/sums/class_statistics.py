"""Sufficient statistics of many classes: the rows of a class in place of its Gram matrix, while they are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ... import linalg
from ..._support import checks
from ..._support.ranks import Ranks
from .checks import check_held_rows
from .rows import Part, Rows, has_gradients
from .statistics import GramStatistics, chunks_of_groups, of_grams
from .sufficient_statistics import SufficientStatistics, TargetSums, check_squares, not_a_subset, without_groups

_PENDING_ROWS = 8192


class HeldRows:
    """Rows of features (M, D) with the numbers of their groups (M,), sorted by group on demand."""

    def __init__(self, rows: Tensor, groups: Tensor) -> None:
        self._parts, self._is_sorted, self._num_new = [(rows, groups)], False, 0

    def add(self, rows: Tensor, groups: Tensor) -> None:
        """Add rows."""
        self._parts = [*(part for part in self._parts if len(part[1])), (rows, groups)]
        self._is_sorted, self._num_new = False, self._num_new + len(groups)

    @property
    def has_new(self) -> bool:
        """Whether rows came since they were sorted."""
        return self._num_new > 0

    @property
    def has_many_new(self) -> bool:
        """Whether so many rows came since they were sorted that it is time to look at them."""
        return self._num_new > max(_PENDING_ROWS, sum(len(groups) for _, groups in self._parts) // 2)

    def sorted(self) -> tuple[Tensor, Tensor]:
        """All rows, those of one group after those of another, and their groups."""
        if not self._is_sorted:
            rows, groups = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
            if not bool((groups.diff() >= 0).all()):
                order = groups.argsort(stable=True)
                rows, groups = rows[order], groups[order]
            self._parts, self._is_sorted, self._num_new = [(rows, groups)], True, 0
        return self._parts[0]

    @property
    def square(self) -> float:
        """The sum of the squared moduli."""
        return sum(float(rows.detach().abs().double().square().sum()) for rows, _ in self._parts)

    @property
    def is_finite(self) -> bool:
        """Whether all rows are finite."""
        return all(bool(torch.isfinite(rows.detach()).all()) for rows, _ in self._parts)

    def counts(self, num_groups: int) -> Tensor:
        """How many rows of every group are held, (G,)."""
        return torch.bincount(self.sorted()[1], minlength=num_groups)

    def of_group(self, group: int) -> Tensor:
        """The rows of one group, (n, D)."""
        rows, groups = self.sorted()
        start, stop = torch.searchsorted(groups, torch.tensor([group, group + 1], device=groups.device)).tolist()
        return rows[start:stop]

    def of_others(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of all groups but some, and their groups."""
        rows, names = self.sorted()
        if not len(groups):
            return rows, names
        is_left = ~torch.isin(names, groups)
        return rows[is_left], names[is_left]

    def without(self, removed: HeldRows) -> HeldRows:
        """These rows without others, each of which equals one of them but for rounding."""
        rows, names = self.sorted()
        is_left = torch.ones_like(names, dtype=torch.bool)
        for row, group in zip(*removed.sorted(), strict=True):
            is_left[_nearest(rows.detach(), row.detach(), is_left & (names == group))] = False
        return HeldRows(rows[is_left], names[is_left])


def _nearest(rows: Tensor, row: Tensor, is_candidate: Tensor) -> int:
    """The number of the candidate among rows (n, D) that equals a row (D,) but for rounding; a ValueError for none."""
    numbers = is_candidate.nonzero().squeeze(-1)
    distances = torch.linalg.vector_norm(rows[numbers] - row, dim=-1)
    allowed = torch.finfo(distances.dtype).eps ** 0.5 * torch.linalg.vector_norm(row)
    if not len(numbers) or bool(distances.min() > allowed):
        raise not_a_subset()
    return int(numbers[distances.argmin()])


class ClassStatistics(SufficientStatistics):
    r"""The exact sums of :class:`GramStatistics` over many groups, most of which have fewer rows than features.

    .. math:: G_c = U_c^H U_c

    Groups of up to D/2 rows are held by their features :math:`U_c = (\sqrt{w_i} \phi_i^\top)_{i \in c}`, in the dtype
    of
    these, others by their Gram matrix. The arguments are those of :class:`GramStatistics`.

    >>> classes = torch.tensor([0, 1, 2, 0])
    >>> statistics = ClassStatistics(4, 1, num_groups=3).update(torch.eye(4), torch.ones(4, 1), groups=classes)
    >>> statistics.rows.shape, statistics.gram.shape
    (torch.Size([4, 4]), torch.Size([3, 4, 4]))
    """

    additive: ClassVar[tuple[str, ...]] = ("gram", "dense", "rows", "row_groups")
    differentiable_sums: ClassVar[tuple[str, ...]] = ("gram", "rows", "cross", "target_gram")

    @staticmethod
    def _no_features(none: Tensor, num_groups: int) -> dict[str, Tensor]:
        numbers = torch.zeros(0, dtype=torch.long, device=none.device)
        return {"gram": none, "dense": numbers, "rows": none.new_zeros(0, none.shape[-1]), "row_groups": numbers}

    def _hold(self, features: dict[str, Tensor]) -> None:
        self._own, self._dense, self._is_mirrored = {"gram": features["gram"]}, features["dense"], True
        self._held = HeldRows(features["rows"], features["row_groups"])
        self._condense()

    def _features(self) -> dict[str, Tensor]:
        rows, groups = self._sorted()
        return {"gram": self.dense_grams, "dense": self._dense, "rows": rows, "row_groups": groups}

    @staticmethod
    def _squares(features: dict[str, Tensor]) -> Tensor:
        return features["gram"].diagonal(dim1=-2, dim2=-1).real

    def _merged(self, other: Self) -> dict[str, Tensor]:
        groups = torch.cat([self.dense, other.dense]).unique()
        held = [part._held.of_others(groups) for part in (self, other) if len(part.row_groups)]
        rows, names = map(torch.cat, zip(*held, strict=True)) if held else self._held.of_others(groups)
        gram = self.grams_of(groups) + other.grams_of(groups)
        return {"gram": gram, "dense": groups, "rows": rows, "row_groups": names}

    def _subtracted(self, other: Self, is_empty: Tensor) -> dict[str, Tensor]:
        groups = torch.cat([self.dense, other.dense]).unique()
        before = self.grams_of(groups)
        gram = without_groups(before - other.grams_of(groups), is_empty[groups])
        check_squares(*(grams.diagonal(dim1=-2, dim2=-1).real for grams in (before, gram)))
        held, removed = (HeldRows(*part._held.of_others(groups)) for part in (self, other))
        rows, names = held.without(removed).sorted()
        return {"gram": gram, "dense": groups, "rows": rows, "row_groups": names}

    def _scaled(self, factor: float) -> dict[str, Tensor]:
        sums = self._features()
        return sums | {"gram": factor * sums["gram"], "rows": factor**0.5 * sums["rows"]}

    def _reduced(self, ranks: Ranks) -> dict[str, Tensor]:
        counts, is_dense = self.held_counts, self.is_dense().to(self.count)
        ranks.sum_([counts, is_dense])
        groups = ((counts > self.limit) | (is_dense > 0)).nonzero().squeeze(-1)
        gram = self.grams_of(groups).clone()
        ranks.sum_([gram])
        rows, names = map(ranks.rows, self._held.of_others(groups))
        return {"gram": gram, "dense": groups, "rows": rows, "row_groups": names}

    @classmethod
    def of(cls, other: SufficientStatistics) -> ClassStatistics:
        """Other statistics as those of classes."""
        if isinstance(other, ClassStatistics):
            return other
        groups = (other.count > 0).nonzero().squeeze(-1)
        none = cls._no_features(other.gram[:0], len(other.count))
        return cls.made(other.targets, none | {"gram": other.gram[groups], "dense": groups})

    @classmethod
    def _check_state(cls, state: dict[str, Tensor]) -> None:
        check_held_rows(state)

    @property
    def gram(self) -> Tensor:
        """The Gram matrices of all groups, (G, D, D), or a ValueError where they do not fit in memory."""
        groups, width = len(self.count), self.num_features
        what = f"Gram matrices of {groups} x {width} x {width} numbers"
        checks.fits_in_memory(float(groups * width**2 * self._gram.element_size()), what, "use the statistics as held")
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
    def dense_grams(self) -> Tensor:
        """The Gram matrices of the groups in ``dense``, (P, D, D)."""
        self._sorted()
        if not self._is_mirrored:
            for gram in self._gram:
                linalg.mirror_(gram)
            self._is_mirrored = True
        return self._gram

    def grams_of(self, groups: Tensor) -> Tensor:
        """The Gram matrices of some groups, (P, D, D)."""
        if torch.equal(groups, self.dense):
            return self.dense_grams
        grams = [self._gram_of(group) for group in groups.tolist()]
        return torch.stack(grams) if grams else self._gram[:0]

    def _gram_of(self, group: int) -> Tensor:
        """The Gram matrix of one group, (D, D)."""
        is_dense = self.dense == group
        if bool(is_dense.any()):
            return self.dense_grams[is_dense].squeeze(0)
        return _gram(self._held.of_group(group), self._gram.dtype)

    @property
    def pooled_gram(self) -> Tensor:
        """The sum of the Gram matrices, (D, D)."""
        rows, total = self.rows, self.dense_grams.sum(0)
        for part in linalg.row_chunks(len(rows), self.num_features):
            total = total + _gram(rows[part], total.dtype)
        return total

    @property
    def _gram(self) -> Tensor:
        return self._own["gram"]

    @property
    def trace(self) -> float:
        return super().trace + self._held.square

    @property
    def is_finite(self) -> bool:
        return super().is_finite and self._held.is_finite

    def of_group(self, group: int) -> GramStatistics:
        part = slice(group, group + 1)
        return of_grams(self._gram_of(group).unsqueeze(0), self.targets.map(lambda sums: sums[part]))

    def pooled(self) -> GramStatistics:
        return of_grams(self.pooled_gram.unsqueeze(0), self.targets.map(lambda sums: sums.sum(0, keepdim=True)))

    def empty_group(self) -> GramStatistics:
        none = self._gram.new_zeros(1, self.num_features, self.num_features)
        return of_grams(none, self.targets.map(lambda sums: torch.zeros_like(sums[:1])))

    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        groups = rows.group_numbers.long()
        tensors = (features, rows.targets, rows.weights, *self.sums().values())
        if has_gradients(tensors):
            added = self.merge(self._of_held(features, rows, groups))
            self.targets = added.targets
            self._hold(added._features())
            return self
        columns, places = rows.with_ones(self.shift), self.places()
        is_held = places[groups] < 0
        for group in groups[~is_held].unique().tolist():
            members = groups == group
            weights = None if rows.weights is None else rows.weights[members]
            gram, cross = self._gram[int(places[group])], self.targets.cross[group]
            linalg.add_gram_(gram, cross, features[members], columns[members], weights, product_dtype)
            self._is_mirrored = False
        self._add_held(features, rows, groups, columns, is_held)
        return self

    def _add_held(self, features: Tensor, rows: Rows, groups: Tensor, columns: Tensor, is_held: Tensor) -> None:
        """Add rows to the groups that are held by rows, and what is no Gram matrix of all."""
        is_all = bool(is_held.all())
        chosen = slice(None) if is_all else is_held
        names, weights = groups[chosen], None if rows.weights is None else rows.weights[chosen]
        part = features[chosen] if weights is None else features[chosen] * weights.sqrt().unsqueeze(-1)
        if len(names):
            self._held.add(part.clone() if is_all and weights is None else part, names)
        cross, target_gram, count, log_noise, _ = self.targets
        cross.add_(_cross(features[chosen], columns[chosen], weights, names, cross))
        target_gram.add_(_target_gram(columns, rows.weights, groups, target_gram))
        count.add_(torch.bincount(groups, minlength=len(count)))
        if rows.log_noise is not None:
            log_noise.index_add_(0, groups, rows.log_noise.double())
        if self._held.has_many_new:
            self._condense()

    def _of_held(self, features: Tensor, rows: Rows, groups: Tensor) -> ClassStatistics:
        """The statistics of some rows, with gradients."""
        columns, weights = rows.with_ones(self.shift), rows.weights
        cross, target_gram, count, log_noise, shift = self.targets
        noise = torch.zeros_like(log_noise)
        targets = TargetSums(
            _cross(features, columns, weights, groups, cross),
            _target_gram(columns, weights, groups, target_gram),
            torch.bincount(groups, minlength=len(count)).double(),
            noise if rows.log_noise is None else noise.index_add(0, groups, rows.log_noise.double()),
            shift,
        )
        held = features if weights is None else features * weights.sqrt().unsqueeze(-1)
        none = self._no_features(self._gram[:0], len(count))
        return self.made(targets, none | {"rows": held, "row_groups": groups})

    @property
    def limit(self) -> int:
        """How many rows of a group are held at most, D/2."""
        return self.num_features // 2

    @property
    def num_rows_held(self) -> int:
        return len(self.rows)

    @property
    def held_counts(self) -> Tensor:
        """How many rows of every group are held, (G,)."""
        return torch.bincount(self.row_groups, minlength=len(self.count))

    def is_dense(self) -> Tensor:
        """Whether a group has its Gram matrix, (G,)."""
        self._sorted()
        return self.places() >= 0

    def places(self) -> Tensor:
        """Where the Gram matrix of every group is in ``dense_grams``, (G,); -1 for those that are held by rows."""
        places = torch.full((len(self.count),), -1, dtype=torch.long, device=self.count.device)
        places[self._dense] = torch.arange(len(self._dense), device=places.device)
        return places

    def expect(self, groups: Tensor) -> Self:
        """Make Gram matrices for the groups that will have many rows, given those of rows to come, (N,)."""
        counts = self.held_counts + torch.bincount(groups.long(), minlength=len(self.count))
        self._make_dense(((counts > self.limit) & (self.places() < 0)).nonzero().squeeze(-1))
        return self

    def _sorted(self) -> tuple[Tensor, Tensor]:
        if self._held.has_new:
            self._condense()
        return self._held.sorted()

    def _condense(self) -> None:
        """Make Gram matrices of the groups with too many rows."""
        counts = self._held.counts(len(self.targets.num_rows))
        self._make_dense((counts > self.limit).nonzero().squeeze(-1))

    def _make_dense(self, groups: Tensor) -> None:
        """Replace the rows of some groups by their Gram matrices."""
        if not len(groups):
            return
        grams = [_gram(self._held.of_group(group), self._gram.dtype) for group in groups.tolist()]
        held = self._held.of_others(groups)
        self._held = HeldRows(*held)
        self._own = {"gram": torch.cat([self.dense_grams, torch.stack(grams)])}
        self._dense = torch.cat([self._dense, groups])

    def is_part_of(self, whole: SufficientStatistics) -> bool:
        if not bool((self.count >= 0).all()):
            return False
        return all(self.of_group(group).is_part_of(whole.of_group(group)) for group in self.dense.tolist())

    def chunks(self, rows: Rows, itemsize: int) -> list[Part]:
        is_dense, groups = self.is_dense(), rows.group_numbers
        held = (~is_dense[groups]).nonzero().squeeze(-1)
        width = self.num_features
        parts: list[Part] = [held[part] for part in linalg.row_chunks(len(held), width, itemsize)]
        return parts + chunks_of_groups(groups, is_dense.nonzero().squeeze(-1).tolist(), width, itemsize)

    def graph(self, product_dtype: torch.dtype) -> Callable[..., Sequence[Tensor]]:
        return ClassGraph(self, product_dtype)

    def row_positions(self, groups: Tensor | None = None) -> Any:
        if groups is None:
            return HeldPositions(self.held_counts)
        return HeldPositions(torch.bincount(groups, minlength=len(self.count)) * ~self.is_dense())

    @classmethod
    def check_memory(cls, width: int, num_groups: int, num_rows: int, itemsize: int) -> None:
        count = min(num_groups * width, num_rows) + width
        what = f"rows and factors of {count} x {width} numbers"
        checks.fits_in_memory(2.0 * count * width * itemsize, what, "use fewer features")


class HeldPositions:
    """Where the rows of every group, ``counts`` (G,), are among those that are held."""

    def __init__(self, counts: Tensor) -> None:
        self._next = counts.cumsum(0) - counts

    def next(self, groups: Tensor) -> Tensor:
        """The positions of the next rows of these groups, (n,); those of groups with a Gram matrix mean nothing."""
        order, counts = groups.argsort(stable=True), torch.bincount(groups, minlength=len(self._next))
        start = self._next - (counts.cumsum(0) - counts)
        positions = torch.empty_like(groups)
        positions[order] = start[groups[order]] + torch.arange(len(groups), device=groups.device)
        self._next = self._next + counts
        return positions


class ClassGraph:
    """The sums over rows that are all of one group with a Gram matrix, or all held, with their graph."""

    def __init__(self, total: ClassStatistics, product_dtype: torch.dtype) -> None:
        self.shift, self.places, self.product_dtype = total.shift, total.places(), product_dtype
        self.held, self.num_grams = total.rows.detach(), len(total.dense)

    def __call__(self, features: Tensor, rows: Rows, positions: Tensor | None) -> tuple[Tensor, ...]:
        columns, groups, size = rows.with_ones(self.shift), rows.group_numbers.long(), len(self.places)
        place = self.places[groups[:1]]
        if positions is None or int(place) >= 0:
            products = linalg.products_by_group(
                features, columns, rows.weights, product_dtype=self.product_dtype, has_values=False
            )
            of_columns = (_Placed.apply(part, groups[:1], size) for part in products[1:])
            return _Placed.apply(products.gram, place, self.num_grams), self.held[:0], *of_columns
        held = features if rows.weights is None else features * rows.weights.sqrt().unsqueeze(-1)
        self._check_order(held.detach(), positions)
        weighted = columns if rows.weights is None else columns * rows.weights.double().unsqueeze(-1)
        cross, squares = (
            _Placed.apply(left.conj().unsqueeze(-1) * weighted.unsqueeze(-2), groups, size)
            for left in (features.to(linalg.accurate_dtype(features.dtype)), columns)
        )
        return features.new_zeros(()), _Placed.apply(held, positions, len(self.held)), cross, squares

    def _check_order(self, rows: Tensor, positions: Tensor) -> None:
        """Raise a ValueError where rows are not at the places where they were when they were summed."""
        held = self.held[positions]
        if float((held - rows).abs().max()) > 1e-3 * float(held.abs().max()):
            raise ValueError(
                "expected the batches of the fit once more in the same order for the gradient of many classes, got "
                "others; use a loader that does not shuffle, and one process"
            )


class _Placed(torch.autograd.Function):
    """Values (n, ...) added to zeros (size, ...) at places (n,): only the graph is right, and takes no memory."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(places)
        return values.new_zeros(()).expand(size, *values.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradients[places], None, None


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

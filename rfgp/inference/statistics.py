"""Sufficient statistics of a feature model: sums over rows that can be added, subtracted, saved and all-reduced."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from .. import _checks, linalg
from ..distributed.ranks import Ranks
from . import tensor_file
from .row_checks import check_groups, check_part, check_weights
from .rows import Rows

_FIELDS = ("_gram", "_cross", "_target_gram", "count", "log_noise")
ROUNDING = 1e-5
"""How far below zero a difference of sums may lie, relative to the sum: products may be in float32."""
COUNTING = 1e-9
"""Sums of weights, relative to those before, that count as none."""


class GramStatistics:
    r"""Weighted sums over rows, one set per group (class, task or fold), in float64.

    .. math:: G_g = \sum_{i \in g} w_i \overline{\phi_i} \phi_i^\top, \quad
        H_g = \sum_{i \in g} w_i \overline{\phi_i} t_i^\top, \quad T_g = \sum_{i \in g} w_i \overline{t_i} t_i^\top

    with the count and the sum of log noise variances of the rows of each group. The posterior, the evidence and their
    gradients need nothing else from the data.

    A shift s is subtracted from the targets before they are summed, and a column of ones is summed beside them, so that
    the sums of :math:`t - s` and of t follow from one another: targets far from zero lose no digits.

    :param num_features: the number of columns D of the features.
    :param num_targets: the number of columns K of the targets.
    :param num_groups: the number of groups.
    :param is_complex: whether the features are complex.
    :param has_complex_targets: whether the targets are complex.
    :param device: where the sums live.
    :param shift: s, (K,), a point near the targets; default: zeros.

    >>> statistics = GramStatistics(2, 1).update(torch.eye(2), torch.ones(2, 1))
    >>> statistics.gram
    tensor([[[1., 0.],
             [0., 1.]]], dtype=torch.float64)
    """

    _starts_with_grams: ClassVar[bool] = True

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
        num_features = _checks.positive_integer("num_features", num_features)
        num_targets = _checks.positive_integer("num_targets", num_targets)
        num_groups = _checks.positive_integer("num_groups", num_groups)
        _checks.flag("is_complex", is_complex)
        _checks.flag("has_complex_targets", has_complex_targets)
        feature_dtype = torch.complex128 if is_complex else torch.float64
        target_dtype = torch.complex128 if has_complex_targets else torch.float64
        cross_dtype = torch.promote_types(feature_dtype, target_dtype)
        num_grams = num_groups if self._starts_with_grams else 0
        self._gram = torch.zeros(num_grams, num_features, num_features, dtype=feature_dtype, device=device)
        columns = num_targets + 1
        self._cross = torch.zeros(num_groups, num_features, columns, dtype=cross_dtype, device=device)
        self._target_gram = torch.zeros(num_groups, columns, columns, dtype=target_dtype, device=device)
        self.count = torch.zeros(num_groups, dtype=torch.float64, device=device)
        self.log_noise = torch.zeros(num_groups, dtype=torch.float64, device=device)
        zeros = torch.zeros(num_targets, dtype=target_dtype, device=device)
        self.shift = zeros if shift is None else shift.to(zeros)
        self._is_mirrored = True

    @property
    def gram(self) -> Tensor:
        """The Gram matrices, (G, D, D)."""
        self._mirror()
        return self._gram

    def _mirror(self) -> None:
        """Complete the lower triangles of the Gram matrices."""
        if not self._is_mirrored:
            for gram in self._gram:
                linalg.mirror_(gram)
            self._is_mirrored = True

    @property
    def cross(self) -> Tensor:
        """The cross products of features and targets, (G, D, K)."""
        return self.of_combination(self._identity)[0]

    @property
    def target_gram(self) -> Tensor:
        """The Gram matrices of the targets, (G, K, K)."""
        return self.of_combination(self._identity)[1]

    @property
    def _identity(self) -> Tensor:
        return torch.eye(len(self.shift), dtype=self.shift.dtype, device=self.shift.device)

    def of_combination(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """The cross products and Gram matrices of combinations of the targets, without the digits lost to an offset.

        :param coefficients: (K, C), of the dtype of the targets, or real; (G, K, C) for those of every group.
        :returns: (G, D, C) and (G, C, C).
        """
        columns = coefficients.to(self.shift.dtype)
        lifted = torch.cat([columns, self.shift.unsqueeze(0) @ columns], dim=-2)
        return self._cross @ lifted.to(self._cross.dtype), lifted.mH @ self._target_gram @ lifted

    @property
    def target_variances(self) -> Tensor:
        """The weighted variances of the targets in every group, (G, K); zero for targets that are all alike."""
        square = self._target_gram.diagonal(dim1=-2, dim2=-1).real[:, :-1]
        total, weight = (
            self._target_gram[:, -1, :-1].abs().square(),
            self._target_gram[:, -1:, -1].real.clamp_min(1e-300),
        )
        spread = square - total / weight
        return torch.where(spread > 1e-12 * square, spread, 0.0) / weight

    def of_group(self, group: int) -> GramStatistics:
        """The statistics of one group alone, which share memory with these."""
        return self.from_sums({name: value[group : group + 1] for name, value in self.sums().items()}, self.shift)

    def pooled(self) -> GramStatistics:
        """The statistics of all groups as one."""
        return self.from_sums({name: value.sum(0, keepdim=True) for name, value in self.sums().items()}, self.shift)

    def shifted(self, shift: Tensor) -> Self:
        """The same statistics with another shift, a new object.

        :param shift: (K,).
        """
        if torch.equal(shift, self.shift):
            return self
        change = torch.eye(len(shift) + 1, dtype=self.shift.dtype, device=self.shift.device)
        change[-1, :-1] = self.shift - shift
        sums = self._upper()
        sums["cross"] = sums["cross"] @ change.to(sums["cross"].dtype)
        sums["target_gram"] = change.mH @ sums["target_gram"] @ change
        result = self.from_sums(sums, shift)
        result._is_mirrored = self._is_mirrored
        return result

    @property
    def num_features(self) -> int:
        """The number of columns D of the features."""
        return self._gram.shape[-1]

    @property
    def has_complex_features(self) -> bool:
        """Whether the features are complex."""
        return self._gram.is_complex()

    @property
    def num_rows(self) -> float:
        """The number of rows in all groups."""
        return float(self.count.sum())

    @property
    def trace(self) -> float:
        """The sum of the traces of all Gram matrices."""
        return float(self._gram.detach().diagonal(dim1=-2, dim2=-1).real.sum())

    @property
    def is_finite(self) -> bool:
        """Whether all sums are finite, and with them all rows."""
        diagonal = self._gram.detach().diagonal(dim1=-2, dim2=-1)
        parts = diagonal, self._cross.detach(), self._target_gram.detach()
        return bool(torch.stack([torch.isfinite(part).all() for part in parts]).all())

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
        :param weights: (N,), the precisions of the rows; default: ones.
        :param log_noise: (N,), the log noise variances of the rows; default: zeros.
        :param groups: (N,), integers that name the group of each row; default: group 0.
        :param product_dtype: the dtype of the products inside a chunk of rows; sums are in float64.
        :raises ValueError: for rows that do not fit, or are not finite; the statistics stay as they were.
        """
        _checks.product_dtype(product_dtype)
        check_part("features", features, (None, self.num_features), self._gram, self._gram.is_complex())
        check_part("targets", targets, (len(features), len(self.shift)), self._gram, self.shift.is_complex())
        check_weights(features, weights, log_noise)
        check_groups(features, groups, len(self.count))
        return self.add(features, Rows(targets, weights, log_noise, groups, len(self.count)), product_dtype)

    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        """:meth:`update` without its checks, for rows that a model has checked.

        :param features: (N, D).
        :param rows: what the rows add beside their features.
        :param product_dtype: the dtype of products.
        """
        inputs = (features, rows.targets, rows.weights, self._gram)
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
            added = self.merge(self.of_rows(features, rows, product_dtype, self.shift))
            for name, value in zip(_FIELDS, added.sums().values(), strict=True):
                setattr(self, name, value)
            return self
        for group, members, own in rows.by_group():
            columns = own.lifted(self.shift)
            arguments = features[members], columns, own.weights, product_dtype
            linalg.add_gram_(self._gram[group], self._cross[group], *arguments)
            self._target_gram[group] += _gram_of_targets(columns, own.weights)
            self.count[group] += len(columns)
            self.log_noise[group] += 0.0 if own.log_noise is None else own.log_noise.double().sum()
            self._is_mirrored = False
        return self

    @classmethod
    def of_rows(
        cls, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64, shift: Tensor | None = None
    ) -> GramStatistics:
        """Statistics of some rows, with gradients.

        :param features: (N, D).
        :param rows: what the rows add beside their features.
        :param product_dtype: the dtype of products.
        :param shift: what is subtracted from the targets, (K,); default: zeros.
        """
        exact = linalg.accurate_dtype(rows.targets.dtype)
        known = rows.targets.new_zeros(rows.targets.shape[-1], dtype=exact) if shift is None else shift.to(exact)
        found = {group: cls._of_group(features[m], own, product_dtype, known) for group, m, own in rows.by_group()}
        if rows.num_groups == 1 and found:
            return found[0]
        none = slice(0)
        empty = cls._of_group(features[none], Rows(rows.targets[none]), product_dtype, known)
        return cls.concatenate([found.get(group, empty) for group in range(rows.num_groups)])

    @classmethod
    def _of_group(cls, features: Tensor, rows: Rows, product_dtype: torch.dtype, shift: Tensor) -> GramStatistics:
        """Statistics of rows that are one group."""
        columns = rows.lifted(shift)
        gram, cross = linalg.gram(features, columns, rows.weights, product_dtype)
        count = torch.full((1,), len(columns), dtype=torch.float64, device=features.device)
        noise = torch.zeros_like(count) if rows.log_noise is None else rows.log_noise.double().sum().reshape(1)
        sums = gram.unsqueeze(0), cross.unsqueeze(0), _gram_of_targets(columns, rows.weights).unsqueeze(0), count, noise
        return cls.from_sums(dict(zip((name.strip("_") for name in _FIELDS), sums, strict=True)), shift)

    @classmethod
    def concatenate(cls, parts: Sequence[GramStatistics]) -> GramStatistics:
        """The groups of several statistics, one after the other.

        :param parts: statistics of the same model; the result has the shift of the first.
        """
        if not isinstance(parts, Sequence) or not len(parts):
            raise ValueError(f"expected a list of GramStatistics, got {parts!r}; such as [first, second]")
        for part in parts:
            _checks.instance("every part", part, GramStatistics, "a GramStatistics", "fill it with update(...)")
        shift = parts[0].shift
        every = [part.with_grams().shifted(shift).sums() for part in parts]
        return cls.from_sums({name: torch.cat([sums[name] for sums in every]) for name in every[0]}, shift)

    def with_grams(self) -> GramStatistics:
        """The same statistics with the Gram matrix of every group."""
        return self

    def empty_group(self) -> GramStatistics:
        """Statistics of one group without rows, that can be concatenated with these."""
        return self.from_sums({name: torch.zeros_like(value[:1]) for name, value in self.sums().items()}, self.shift)

    def merge(self, other: GramStatistics) -> GramStatistics:
        """The statistics of both sets of rows together, a new object."""
        return self._combine(other, torch.add)

    def subtract(self, other: GramStatistics) -> GramStatistics:
        """The statistics of these rows without those of ``other``, a new object.

        :param other: the statistics of a subset of the rows.
        :raises ValueError: where the shapes differ, ``other`` has more rows in a group, or the sums of squares that
            would be left are negative, so that ``other`` has rows which were never here.
        """
        result = self._combine(other, torch.sub)
        is_empty = result.count.abs() <= COUNTING * self.count
        for name in _FIELDS if bool(is_empty.any()) else ():
            value = getattr(result, name)
            setattr(result, name, value.masked_fill(is_empty.reshape(-1, *[1] * (value.dim() - 1)), 0.0))
        check_left(result.count, [(self._gram, result._gram), (self._target_gram, result._target_gram)])
        return result

    def _combine(self, other: GramStatistics, operation: Callable[[Tensor, Tensor], Tensor]) -> GramStatistics:
        _checks.instance("other", other, GramStatistics, "a GramStatistics", "fill it with update(...)")
        other = other.with_grams()
        if self._gram.requires_grad or other._gram.requires_grad:
            for part in (self, other):
                part._mirror()
        added = other._upper()
        for name, known in self._upper().items():
            new = added[name]
            if known.shape != new.shape or known.dtype != new.dtype or known.device != new.device:
                raise ValueError(
                    f"expected statistics of the same model, with {name} {tuple(known.shape)} {known.dtype} on "
                    f"{known.device}, got {tuple(new.shape)} {new.dtype} on {new.device}; combine like with like"
                )
        shift = self.shift if self.num_rows else other.shift
        first, second = self.shifted(shift), other.shifted(shift)
        added = second._upper()
        result = self.from_sums({name: operation(known, added[name]) for name, known in first._upper().items()}, shift)
        result._is_mirrored = first._is_mirrored and second._is_mirrored
        return result

    def is_part_of(self, whole: GramStatistics) -> bool:
        """Whether these can be sums of squares, as what is left of others is, to the rounding of the whole.

        Features and targets together have a matrix of products that is positive semidefinite, group by group.

        :param whole: the statistics that these are left of.
        """
        if not bool((self.count >= 0).all()):
            return False
        scale = whole._products().diagonal(dim1=-2, dim2=-1).real.clamp_min(1e-300).rsqrt()
        matrix = self._products() * scale.unsqueeze(-1) * scale.unsqueeze(-2)
        matrix.diagonal(dim1=-2, dim2=-1).add_(ROUNDING)
        return not bool(torch.linalg.cholesky_ex(matrix).info.any())

    def _products(self) -> Tensor:
        """The matrices of products of features and columns of the targets, (G, D + K + 1, D + K + 1)."""
        gram, cross, targets = (value.detach().to(self._cross.dtype) for value in list(self.sums().values())[:3])
        return torch.cat([torch.cat([gram, cross], dim=-1), torch.cat([cross.mH, targets], dim=-1)], dim=-2)

    def scaled(self, factor: float) -> GramStatistics:
        """The statistics of the same rows with their weights times a factor, also in the count, a new object.

        :param factor: the factor, positive.
        """
        result = self.from_sums({name: factor * value for name, value in self._upper().items()}, self.shift)
        result._is_mirrored = self._is_mirrored
        return result

    def recentered(self, observed: Tensor | None = None) -> GramStatistics:
        """The same statistics with the weighted mean of the targets as their shift, a new object.

        :param observed: which of the first targets are observed in every group, (G, T); the sums over others are zero
            then. Default: all.
        """
        weights = self._target_gram[:, -1:, -1].real.expand(-1, len(self.shift)).clone()
        totals = self._target_gram[:, -1, :-1].detach()
        if observed is not None:
            weights[:, : observed.shape[-1]] *= observed
            totals = totals * (weights > 0)
        mean = totals.sum(0) / weights.detach().sum(0).clamp_min(1e-300)
        return self.shifted(self.shift + mean)

    def of_observed(self, observed: Tensor | None) -> GramStatistics:
        """The statistics without the sums over targets that are not observed, which nothing depends on.

        :param observed: which of the first targets are observed in every group, (G, T); None for all.
        """
        if observed is None:
            return self
        mask = torch.nn.functional.pad(observed, (0, len(self.shift) + 1 - observed.shape[-1]), value=True)
        sums = self.sums()
        sums["cross"] = sums["cross"] * mask.unsqueeze(-2)
        sums["target_gram"] = sums["target_gram"] * mask.unsqueeze(-1) * mask.unsqueeze(-2)
        return self.from_sums(sums, self.shift)

    def _upper(self) -> dict[str, Tensor]:
        """The sums by name; of Gram matrices perhaps the upper block triangles alone."""
        return {name.strip("_"): getattr(self, name) for name in _FIELDS}

    def all_reduce(self, ranks: Ranks | None = None) -> Self:
        """Sum the statistics over all processes of a ``torch.distributed`` group, in place.

        All processes take the mean of their shifts first, weighted by their rows, and end with the same bits.

        :param ranks: the processes; default: those of the default group.
        :raises ValueError: where there is no process group.
        """
        known = Ranks() if ranks is None else ranks
        with torch.no_grad():
            rows = self.count.sum()
            shift = self.shift * rows
            known.sum_([shift, rows])
            sums = [value.contiguous() for value in self.shifted(shift / rows.clamp_min(1.0)).sums().values()]
            known.sum_(sums)
            for name, value in zip(_FIELDS, sums, strict=True):
                setattr(self, name, value)
            self.shift = shift / rows.clamp_min(1.0)
        return self

    def to(self, device: torch.device) -> Self:
        """Move the sums to a device, in place; their dtype stays."""
        for name in (*_FIELDS, "shift"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def sums(self) -> dict[str, Tensor]:
        """The sums by name, with their gradients; those of targets are of their shifted columns and of one of ones."""
        return {name.strip("_"): self.gram if name == "_gram" else getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_sums(cls, sums: dict[str, Tensor], shift: Tensor) -> Self:
        """Statistics that hold the tensors which :meth:`sums` gives.

        :param sums: the sums by name.
        :param shift: what was subtracted from the targets, (K,).
        """
        result = object.__new__(cls)
        result._is_mirrored, result.shift = True, shift
        for name in _FIELDS:
            setattr(result, name, sums[name.strip("_")])
        return result

    def differentiable(self) -> tuple[Tensor, ...]:
        """The sums that depend on parameters: all of :meth:`sums` but the count."""
        return tuple(value for name, value in self.sums().items() if name != "count")

    @classmethod
    def of_differentiable(cls, sums: Sequence[Tensor], shift: Tensor, count: Tensor | None = None) -> GramStatistics:
        """Statistics that hold what :meth:`differentiable` gives.

        :param sums: the sums.
        :param shift: what was subtracted from the targets, (K,).
        :param count: the number of rows of each group; default: zeros.
        """
        gram, cross, target_gram, log_noise = sums
        known = torch.zeros_like(log_noise) if count is None else count
        named = {"gram": gram, "cross": cross, "target_gram": target_gram, "count": known, "log_noise": log_noise}
        return cls.from_sums(named, shift)

    def with_differentiable(self, sums: Sequence[Tensor]) -> GramStatistics:
        """The same statistics with others for the sums that :meth:`differentiable` gives."""
        return self.of_differentiable(sums, self.shift, self.count)

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the sums by name and of the shift, detached."""
        return {name: value.detach().clone() for name, value in {**self.sums(), "shift": self.shift}.items()}

    @classmethod
    def describes(cls, state: Any) -> bool:
        """Whether a state dict is one of such statistics."""
        return isinstance(state, dict)

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> GramStatistics:
        """Statistics from :meth:`state_dict`.

        :param state: the sums by name.
        :raises ValueError: where a sum is missing, unknown, or of a shape or dtype that does not fit the others.
        """
        for kind in cls.__subclasses__():
            if kind.describes(state):
                return kind.from_state_dict(state)
        names = [*(name.strip("_") for name in _FIELDS), "shift"]
        if not isinstance(state, dict) or sorted(state) != sorted(names):
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"expected the sums {', '.join(names)}, got {got}; pass what state_dict() gives")
        strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
        if strange:
            raise ValueError(f"expected tensors, got others for {', '.join(strange)}; pass what state_dict() gives")
        gram, target_gram = state["gram"], state["target_gram"]
        sizes = {"gram": "gdd", "cross": "gdk", "target_gram": "gkk", "count": "g", "log_noise": "g", "shift": "t"}
        length = dict(zip("gdk", (*gram.shape[:2], *target_gram.shape[-1:]), strict=False))
        length["t"] = length.get("k", 1) - 1
        real = torch.float64, torch.complex128
        for name, letters in sizes.items():
            shape, wanted = tuple(state[name].shape), tuple(length.get(letter) for letter in letters)
            if shape != wanted or state[name].dtype not in (real[:1] if letters == "g" else real):
                raise ValueError(
                    f"expected {name} of shape {wanted} in double precision beside the other sums, got {shape} "
                    f"{state[name].dtype}; pass what state_dict() gives"
                )
        copies = {name: value.clone() for name, value in state.items()}
        return cls.from_sums(copies, copies.pop("shift"))

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: the sums without their autograd graph."""
        return {name: v.detach() if isinstance(v, Tensor) else v for name, v in self.__dict__.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a file, under a temporary name first, with a checksum.

        :param path: the file to write.
        """
        tensor_file.write(path, self.state_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GramStatistics:
        """Read what :meth:`save` wrote, to the CPU whatever device it was on; :meth:`to` moves it.

        :param path: the file to read.
        :raises ValueError: for a file that :meth:`save` has not written, or that has changed since.
        """
        return cls.from_state_dict(tensor_file.read(path))


def check_left(count: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Raise a ValueError where what is left after a subtraction is not that of some of the rows.

    :param count: the numbers of rows that are left, (G,).
    :param pairs: Gram matrices before and after.
    """
    if bool((count < 0).any()):
        raise ValueError(
            "expected statistics of a subset of the rows to subtract, got more rows than there are; subtract rows that "
            "were added"
        )
    for pair in pairs:
        before, after = (sums.detach().diagonal(dim1=-2, dim2=-1).real for sums in pair)
        if not bool((after >= -ROUNDING * before).all()):
            raise not_a_subset()


def not_a_subset() -> ValueError:
    """What to raise where statistics that are subtracted have rows which were never added."""
    return ValueError(
        "expected statistics of a subset of the rows to subtract, got others, which leave negative sums of squares; "
        "subtract what was added, with the same features and weights"
    )


def _gram_of_targets(targets: Tensor, weights: Tensor | None) -> Tensor:
    exact = targets.to(linalg.accurate_dtype(targets.dtype))
    return (exact if weights is None else exact * weights.double().unsqueeze(-1)).mH @ exact

"""Sufficient statistics of a feature model, with a Gram matrix for every group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ... import linalg
from ..._support import checks
from ...linalg import row_chunks
from .checks import check_grams
from .rows import Part, Rows, has_gradients
from .sufficient_statistics import ROUNDING, SufficientStatistics, TargetSums

_DIGITS = 1e-5
"""Columns of targets that vary less than that, beside what was subtracted of them, may be rounding of constants."""


class GramStatistics(SufficientStatistics):
    r"""Weighted sums over rows, one set per group (class, task or fold), in float64.

    .. math:: G_g = \sum_{i \in g} w_i \overline{\phi_i} \phi_i^\top, \quad
        H_g = \sum_{i \in g} w_i \overline{\phi_i} t_i^\top, \quad T_g = \sum_{i \in g} w_i \overline{t_i} t_i^\top

    with the count and the sum of log noise variances of the rows of each group. Posterior, evidence and gradients
    follow
    from these.

    :param num_features: the number of columns D of the features.
    :param num_targets: the number of columns K of the targets.
    :param num_groups: the number of groups.
    :param device: where the sums live.
    :param shift: a point near the targets, (K,), subtracted from them to keep digits; default: zeros.

    >>> statistics = GramStatistics(2, 1).update(torch.eye(2), torch.ones(2, 1))
    >>> statistics.gram
    tensor([[[1., 0.],
             [0., 1.]]], dtype=torch.float64)
    """

    additive: ClassVar[tuple[str, ...]] = ("gram",)
    differentiable_sums: ClassVar[tuple[str, ...]] = ("gram", "cross", "target_gram", "log_noise")

    @staticmethod
    def _no_features(none: Tensor, num_groups: int) -> dict[str, Tensor]:
        return {"gram": none.new_zeros(num_groups, *none.shape[1:])}

    def _hold(self, features: dict[str, Tensor]) -> None:
        super()._hold(features)
        self._is_mirrored = True

    @staticmethod
    def _squares(features: dict[str, Tensor]) -> Tensor:
        return features["gram"].diagonal(dim1=-2, dim2=-1).real

    def _features(self) -> dict[str, Tensor]:
        return {"gram": self.gram}

    @classmethod
    def of(cls, other: SufficientStatistics) -> GramStatistics:
        """Other statistics with a Gram matrix for every group."""
        return other if isinstance(other, GramStatistics) else of_grams(other.gram, other.targets)

    @classmethod
    def _check_state(cls, state: dict[str, Tensor]) -> None:
        check_grams(state)

    @property
    def gram(self) -> Tensor:
        """The Gram matrices, (G, D, D)."""
        if not self._is_mirrored:
            for gram in self._own["gram"]:
                linalg.mirror_(gram)
            self._is_mirrored = True
        return self._own["gram"]

    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        inputs = (features, rows.targets, rows.weights, self._own["gram"])
        if has_gradients(inputs):
            added = self.merge(self.of_rows(features, rows, product_dtype, self.shift))
            self.targets = added.targets
            self._hold(added._features())
            return self
        cross, target_gram, count, log_noise, shift = self.targets
        for group, members, part in rows.by_group():
            columns = part.with_ones(shift)
            gram = self._own["gram"][group]
            linalg.add_gram_(gram, cross[group], features[members], columns, part.weights, product_dtype)
            target_gram[group] += linalg.column_gram(columns, part.weights)
            self._is_mirrored = False
        count.add_(rows.counts)
        log_noise.add_(rows.log_noises)
        return self

    @classmethod
    def of_rows(
        cls, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64, shift: Tensor | None = None
    ) -> GramStatistics:
        """Statistics of some rows with features (N, D), with gradients; the shift (K,) is zero by default."""
        checks.product_dtype(product_dtype)
        dtype = linalg.accurate_dtype(rows.targets.dtype)
        near = rows.targets.new_zeros(rows.targets.shape[-1], dtype=dtype) if shift is None else shift.to(dtype)
        gram, *sums = _sums_of_rows(near, product_dtype, features, rows)
        cross, target_gram, log_noise = sums
        return of_grams(gram, TargetSums(cross, target_gram, rows.counts, log_noise, near))

    def graph(self, product_dtype: torch.dtype) -> Callable[..., Sequence[Tensor]]:
        return functools.partial(_sums_of_rows, self.shift, product_dtype, has_values=False)

    @classmethod
    def concatenate(cls, parts: Sequence[SufficientStatistics]) -> Any:
        """The groups of several statistics of one model, one after the other, with the shift of the first."""
        if not isinstance(parts, Sequence) or not len(parts):
            raise ValueError(f"expected a list of GramStatistics, got {parts!r}; such as [first, second]")
        for part in parts:
            checks.instance("every part", part, SufficientStatistics, "a GramStatistics", "fill it with update(...)")
        shift, kind = parts[0].shift, type(parts[0])
        if not kind.shared or any(type(part) is not kind for part in parts):
            kind = cls
        every = [kind.of(part).shifted(shift).sums() for part in parts]
        shared = {name: every[0][name] for name in kind.shared}
        sums = {name: torch.cat([of_part[name] for of_part in every]) for name in every[0] if name not in shared}
        return kind.from_sums(sums | shared, shift)

    def is_part_of(self, whole: SufficientStatistics) -> bool:
        """Whether these can be sums of squares to the rounding of the whole: positive semidefinite, group by group."""
        if not bool((self.count >= 0).all()):
            return False
        squares = _products(whole).diagonal(dim1=-2, dim2=-1).real
        lost = (_DIGITS * whole.shift.abs()).square() * squares[..., -1:]  # of columns that are constants
        least = torch.nn.functional.pad(lost, (self.num_features, 1))
        scale = torch.maximum(squares, least).clamp_min(1e-300).rsqrt()
        matrix = _products(self) * scale.unsqueeze(-1) * scale.unsqueeze(-2)
        matrix.diagonal(dim1=-2, dim2=-1).add_(ROUNDING)
        return not bool(torch.linalg.cholesky_ex(matrix).info.any())

    def chunks(self, rows: Rows, itemsize: int) -> list[Part]:
        if rows.groups is None:
            return [*row_chunks(len(rows.targets), self.num_features, itemsize)]
        return chunks_of_groups(rows.groups, range(rows.num_groups), self.num_features, itemsize)

    @classmethod
    def check_memory(cls, width: int, num_groups: int, num_rows: int, itemsize: int) -> None:
        what = f"statistics and factors of {num_groups} x {width} x {width} numbers"
        checks.fits_in_memory(2.0 * num_groups * width**2 * itemsize, what, "use fewer features")

    @classmethod
    def of_differentiable(cls, sums: Sequence[Tensor], shift: Tensor, count: Tensor | None = None) -> GramStatistics:
        """Statistics that hold what :meth:`differentiable` gives, with a shift (K,) and the counts of rows."""
        named = dict(zip(cls.differentiable_sums, sums, strict=True))
        return cls.from_sums(
            {**named, "count": torch.zeros_like(named["log_noise"]) if count is None else count}, shift
        )


def of_grams(gram: Tensor, targets: TargetSums) -> GramStatistics:
    """Statistics with these Gram matrices, (G, D, D), and sums with targets."""
    return GramStatistics.made(targets, {"gram": gram})


def with_amplitudes(statistics: SufficientStatistics, amplitudes: Tensor) -> GramStatistics:
    """The statistics of features that are multiplied by amplitudes (D,), differentiable in these."""
    scale = amplitudes.double().unsqueeze(-1)
    return of_grams(
        scale * statistics.gram * scale.mT, statistics.targets._replace(cross=scale * statistics.targets.cross)
    )


def chunks_of_groups(groups: Tensor, names: Sequence[int], width: int, itemsize: int) -> list[Part]:
    """Chunks of rows, each of one of some groups."""
    blocks = [(groups == group).nonzero().squeeze(-1) for group in names]
    return [members[part] for members in blocks for part in row_chunks(len(members), width, itemsize)]


def _products(statistics: SufficientStatistics) -> Tensor:
    """The matrices of products of features and columns of the targets, (G, D + K + 1, D + K + 1)."""
    cross, targets = (sums.detach().to(statistics.targets.cross.dtype) for sums in statistics.targets[:2])
    gram = statistics.gram.detach().to(cross.dtype)
    return torch.cat([torch.cat([gram, cross], dim=-1), torch.cat([cross.mH, targets], dim=-1)], dim=-2)


def _sums_of_rows(
    shift: Tensor,
    product_dtype: torch.dtype,
    features: Tensor,
    rows: Rows,
    positions: Tensor | None = None,
    has_values: bool = True,
) -> tuple[Tensor, ...]:
    """The differentiable sums over rows with features (N, D)."""
    columns, (_, weights, _, groups, num_groups, _) = rows.with_ones(shift), rows
    products = linalg.products_by_group(features, columns, weights, groups, num_groups, product_dtype, has_values)
    return *products, rows.log_noises

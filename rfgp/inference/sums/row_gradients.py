"""The gradients of statistics in the rows that they sum, in closed form: no Gram product is made again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...linalg import GramGradients
from ...linalg.complex_numbers import real_part
from .rows import Part, Rows

Pairs = list[tuple[Tensor | None, Tensor | None]]
"""Tensors that are made of a chunk of rows, and the gradient of each."""
RowGradients = Callable[[Tensor, Rows, Tensor | None], Pairs]
"""Takes features, rows, and where these are held, if they are."""


class GramRowGradients:
    """Takes a chunk of rows, and returns its features, columns, weights and log noises with the gradient of each."""

    def __init__(self, shift: Tensor, product_dtype: torch.dtype, gradients: Sequence[Tensor]) -> None:
        self.shift, self.product_dtype = shift, product_dtype
        self.gram, self.cross, self.target_gram, self.log_noise = gradients
        self._of_group = functools.lru_cache(1)(self._gram_gradients)

    def _gram_gradients(self, group: int) -> GramGradients:
        parts = self.gram[group], self.cross[group], self.target_gram[group]
        return GramGradients(*parts, self.product_dtype)

    def __call__(self, features: Tensor, rows: Rows, positions: Tensor | None) -> Pairs:
        wanted = [tensor is not None and tensor.requires_grad for tensor in (features, *rows[:2])]
        pairs: Pairs = []
        of_features = None
        for group, members, part in rows.by_group():
            columns = part.with_ones(self.shift)
            by_features, by_columns, by_weights = self._of_group(group).of_rows(
                features[members], columns, part.weights, wanted
            )
            pairs += [(columns, by_columns), (part.weights, by_weights)]
            if part.log_noise is not None:
                pairs.append((part.log_noise, self.log_noise[group].to(part.log_noise).expand(len(columns))))
            of_features = _added_at(members, by_features, of_features, features)
        return [(features, of_features), *pairs]


class ClassRowGradients:
    """The same for many classes: where the Gram matrix of each is, (G,), or -1, and the rows that are held, (M, D)."""

    def __init__(
        self, shift: Tensor, product_dtype: torch.dtype, places: Tensor, held: Tensor, gradients: Sequence[Tensor]
    ) -> None:
        self.shift, self.places, self.held, self.product_dtype = shift, places, held, product_dtype
        self.gram, self.rows, self.cross, self.target_gram = gradients
        self._of_group = functools.lru_cache(1)(self._gram_gradients)

    def _gram_gradients(self, group: int) -> GramGradients:
        parts = self.gram[int(self.places[group])], self.cross[group], self.target_gram[group]
        return GramGradients(*parts, self.product_dtype)

    def __call__(self, features: Tensor, rows: Rows, positions: Tensor | None) -> Pairs:
        columns, groups = rows.with_ones(self.shift), rows.group_numbers
        if positions is None or int(self.places[groups[0]]) >= 0:
            wanted = [features.requires_grad, columns.requires_grad, False]
            by_features, by_columns, _ = self._of_group(int(groups[0])).of_rows(features, columns, None, wanted)
            return [(features, by_features), (columns, by_columns)]
        self._check_order(features.detach(), positions)
        by_group = self.cross[groups]
        back = torch.einsum("nk,ndk->nd", columns.to(by_group.dtype), by_group.conj())
        back = back if features.is_complex() else real_part(back)
        pairs: Pairs = [(features, back.to(features.dtype) + self.rows[positions].to(features.dtype))]
        if columns.requires_grad:
            ahead = torch.einsum("nd,ndk->nk", features.to(by_group.dtype), by_group)
            squares = (self.target_gram + self.target_gram.mH)[groups]
            of_columns = torch.einsum("nk,nkl->nl", columns, squares)
            pairs.append((columns, (ahead if columns.is_complex() else real_part(ahead)) + of_columns))
        return pairs

    def _check_order(self, features: Tensor, positions: Tensor) -> None:
        """Raise a ValueError where rows are not at the places where they were when they were summed."""
        held = self.held[positions]
        if float((held - features).abs().max()) > 1e-3 * float(held.abs().max()):
            raise ValueError(
                "expected the batches of the fit once more in the same order for the gradient of many classes, got "
                "others; use a loader that does not shuffle, and one process"
            )


class HeldPositions:
    """Where the rows of every group, ``counts`` (G,), are among those that statistics of classes hold."""

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


def _added_at(members: Part, added: Tensor | None, total: Tensor | None, features: Tensor) -> Tensor | None:
    """The gradients in features, with those of some of the rows added."""
    if added is None or (total is None and len(added) == len(features)):
        return added
    result = torch.zeros_like(features) if total is None else total
    result[members] += added
    return result

"""Rows that come and go: sums are merged, subtracted and scaled."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..._support import checks
from ...approximation.width_warning import quiet
from ...data.batches import Batch, batches, joined
from ...data.row_noise import noise_parts
from ...inference.sums.grid_statistics import check_not_wide
from ...linalg import spaced_rows
from ...linalg.row_search import row_numbers
from .checks import check_alike
from .conditioned import sums_with_rows
from .imputation import imputed, needs_imputation
from .row_summation import blocks_of, sums_of, sums_without
from .row_sums import BlockSums, RowSums, check_found, relative_difference

if TYPE_CHECKING:
    from .model import WeightSpaceGP


class RefitError(NamedTuple):
    """How far a model is from one that is conditioned anew on its rows.

    :param statistics: the largest difference of Gram matrices and cross products, relative to their largest entry.
    :param mean: that of posterior means at some of the rows.
    :param variance: that of posterior variances.

    >>> RefitError(statistics=1e-15, mean=2e-13, variance=5e-14).largest
    2e-13
    """

    statistics: float
    mean: float
    variance: float

    @property
    def largest(self) -> float:
        """The largest of the three."""
        return max(self)


@torch.no_grad()
def slide(model: WeightSpaceGP, added: Batch, removed: Batch | None, factor: float) -> RowSums:
    """See :meth:`WeightSpaceGP.slide`."""
    is_new = model.conditioned is None
    before = None if is_new else sums_with_rows(model)
    with model.nothing_lost_on_error():
        if model.block_size is None and needs_imputation(model, *added[:2]):
            added = (added[0], imputed(model, *added, before), added[2])
        new = sums_of(model, [added])
        sums = new.summed(model) if before is None else before.slide(new, factor, model)
        data = [*model.training_data, added] if is_new or model.training_data else []
        if removed is not None:
            sums = sums_without(model, sums, removed, added, is_centered=False)
            data = rows_without(data, removed)
        model.take(sums, data if factor == 1.0 else [], is_same=not is_new)
    return new


@torch.no_grad()
def downdate(model: WeightSpaceGP, removed: Batch, weight: float) -> None:
    """See :meth:`WeightSpaceGP.downdate`."""
    before = sums_with_rows(model)
    with model.nothing_lost_on_error():
        gone = sums_of(model, [removed])
        left = before.without(gone if weight == 1.0 else gone.scaled(weight, model), model)
        left.check_left_of(before, model)
        model.take(left.forget_rows(*removed[:2]), rows_without(model.training_data, removed))


@torch.no_grad()
def forget(model: WeightSpaceGP, factor: float) -> None:
    """See :meth:`WeightSpaceGP.forget`."""
    if checks.positive("factor", factor) > 1.0:
        raise ValueError(f"expected a factor of at most 1, got {factor:g}; weights of rows fade")
    with quiet():
        model.take(sums_with_rows(model).scaled(factor, model), [])


@torch.no_grad()
def merge(model: WeightSpaceGP, others: Sequence[WeightSpaceGP]) -> None:
    """See :meth:`WeightSpaceGP.merge`."""
    sums, parts = sums_with_rows(model), [model.training_data]
    device = sums.draws[0].count.device
    for other in others:
        check_alike(model, other)
    with model.nothing_lost_on_error():
        for other in others:
            sums = sums.merge(sums_with_rows(other).detached().to(device), model)
            parts.append(other.training_data)
        model.take(sums, [batch for part in parts for batch in part] if all(parts) else [])


@torch.no_grad()
def refit_error(model: WeightSpaceGP, x: Tensor | Iterable[Any], y: Tensor | None, noise: Tensor | None) -> RefitError:
    """See :meth:`WeightSpaceGP.refit_error`."""
    sums = sums_with_rows(model)
    check_not_wide(model.covar_module, model.noise, "refit_error")
    refit = copy.deepcopy(model)
    with quiet():
        if not isinstance(sums, BlockSums):
            points = x if isinstance(x, Tensor) else next(iter(x))[0]
            refit.condition(x, y, noise)
        else:
            rows = blocks_of(model, batches(x, y, noise))
            points = rows.local.x
            sums.numbers_of(rows)
            if len(points) != len(sums.local.x):
                raise ValueError(
                    f"expected the {len(sums.local.x)} rows of the model, got {len(points)}; pass all of them"
                )
            refit.take(sums.resummed(model), [])
    points = spaced_rows(points)
    ours, theirs = model.posterior(points), refit.posterior(points)
    return RefitError(
        sums.difference(refit.sums, refit),
        relative_difference(ours.mean, theirs.mean),
        relative_difference(ours.variance, theirs.variance),
    )


def rows_without(data: list[Batch], removed: Batch) -> list[Batch]:
    """Batches of rows that are kept, but for some of the rows."""
    if not data:
        return []
    whole = joined(data)
    numbers = row_numbers(_columns(whole), _columns(removed))
    check_found(numbers)
    is_left = torch.ones(len(whole[0]), dtype=torch.bool)
    is_left[numbers] = False
    kept: list[Batch] = []
    for (x, y, noise), rows in zip(data, is_left.split([len(batch[0]) for batch in data]), strict=True):
        if bool(rows.any()):
            kept.append((x[rows.to(x.device)], y[rows.to(y.device)], None if noise is None else noise[rows]))
    return kept


def _columns(batch: Batch) -> list[Tensor | None]:
    """What identifies rows."""
    x, y, noise = batch
    return [x, y, *noise_parts(noise)]

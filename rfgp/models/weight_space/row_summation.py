"""How a weight-space model sums rows at its present parameters: checks, the dtype of products, batch after batch."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

import torch
from torch import Tensor

from ..._support import checks
from ...approximation.reference_tensor import reference_tensor
from ...data.batches import Batch, joined
from ...data.row_noise import RowNoise, noise_parts
from ...inference.local import LocalRows
from ...inference.noise.base import ObservedTargets
from ...inference.posterior.regression import check_size
from ...inference.sums.accumulation import accumulate
from ...inference.sums.mean_basis import basis
from ...inference.sums.residual_pass import TrainingRows
from ...inference.sums.rows import Rows
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...linalg import product_dtype, spaced_rows
from ..impropriety import SomeRows
from .row_sums import BlockSums, FeatureSums, RowSums, checked_finite, input_bounds, joined_bounds

if TYPE_CHECKING:
    from .model import WeightSpaceGP

_LOST = 1e-3
"""The rounding of values, relative to their spread, from which on the warning is given."""
_WARNED: WeakSet[torch.nn.Module] = WeakSet()


def warn_of_rounding(kernel: torch.nn.Module, x: Tensor, y: Tensor) -> None:
    """Warn, once for a kernel, where inputs (N, d) or targets (N, ...) in float32 lose digits of their spread."""
    if kernel in _WARNED:
        return
    for name, values in (("inputs", x.detach()), ("targets", y.detach())):
        if values.dtype != torch.float32 or not len(values):
            continue
        columns = values.reshape(len(values), -1)
        is_missing = torch.isnan(columns)
        low = columns.masked_fill(is_missing, math.inf).amin(0)
        high = columns.masked_fill(is_missing, -math.inf).amax(0)
        largest, spread = torch.maximum(low.abs(), high.abs()), high - low
        lost = torch.finfo(values.dtype).eps * largest / spread
        worst = int(torch.where((spread > 0) & torch.isfinite(lost), lost, 0.0).argmax())
        if spread[worst] > 0 and lost[worst] > _LOST:
            _WARNED.add(kernel)
            warnings.warn(
                f"{name} in float32 with values up to {float(largest[worst]):.1g} and a spread of "
                f"{float(spread[worst]):.1g} in column {worst} are rounded to {float(lost[worst]):.1g} of that spread: "
                "subtract a constant before they become float32, or take rows and model in float64",
                stacklevel=2,
            )
            return


@dataclasses.dataclass
class CheckedRows:
    """Rows that a model has checked, from which their sums at any parameters follow.

    :param is_all: whether there are no others in the sums, which may keep these for digits at tiny noise.
    :param local: the blocks in which they were summed last, for a model with blocks.
    """

    x: Tensor
    y: Tensor
    noise: RowNoise
    observations: ObservedTargets
    is_all: bool = False
    local: LocalRows | None = None

    @functools.cached_property
    def bounds(self) -> Tensor:
        """Bounds of the inputs."""
        return input_bounds(self.x)

    def take(self, rows: Tensor) -> CheckedRows:
        """Some of the rows."""
        noise = None if self.noise is None else self.noise[rows]
        return CheckedRows(self.x[rows], self.y[rows], noise, self.observations.take(rows), self.is_all)


def check_rows(model: WeightSpaceGP, x: Tensor, y: Tensor, noise: RowNoise, is_all: bool = False) -> CheckedRows:
    """Rows of which a model can make sums; a ValueError for others.

    :param is_all: whether the likelihood may know their noise.
    """
    checks.finite(checks.inputs(x).detach())
    checks.summed_dtype(x)
    if x.dim() != 2:
        raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
    kernel = model.covar_module
    checks.same_kind(x, reference_tensor(kernel, x), "x", "the kernel")
    if kernel.has_output_factor:
        with torch.no_grad():
            kernel.scalar_features(x[:1])
    variances, weights = noise_parts(noise)
    observations = model.noise.observations(x, y, variances, basis(model.mean_module, x), is_all)
    warn_of_rounding(kernel, x, y)
    return CheckedRows(x, y, noise, observations._replace(weights=weights), is_all)


def weighed_rows(model: WeightSpaceGP, rows: CheckedRows) -> Rows:
    """Checked rows as the noise model sees them at the present parameters."""
    weighed: Rows = model.noise.weigh(rows.observations)
    if model.covar_module.has_output_factor:
        check_size(model.features.output_factor(), weighed.num_groups)
    return weighed


def checked_rows(model: WeightSpaceGP, x: Tensor, y: Tensor, noise: RowNoise, is_all: bool = False) -> Rows:
    """:func:`check_rows`, as the noise model sees them."""
    return weighed_rows(model, check_rows(model, x, y, noise, is_all))


def dtype_of_products(model: WeightSpaceGP, x: Tensor, rows: Rows) -> torch.dtype:
    """The dtype of Gram products: float32 only for float32 features and noise that is not small."""
    if model.product_dtype is not None:
        return model.product_dtype
    if x.dtype != torch.float32:
        return torch.float64
    return product_dtype(x.dtype, model.noise.smallest(rows), lambda: _largest_variance(model, x))


@torch.no_grad()
def _largest_variance(model: WeightSpaceGP, x: Tensor) -> float:
    """The largest prior variance at some of the inputs: evenly spaced ones, and the one farthest from zero."""
    farthest = x.square().sum(-1).argmax(0, keepdim=True)
    features = model.features.scalar_features(torch.cat([spaced_rows(x), x.index_select(0, farthest)]))
    return model.regression().factor().largest_square(features)


def summed_rows(model: WeightSpaceGP, x: Tensor, rows: Rows) -> tuple[Rows, torch.dtype]:
    """Rows with room for the residual variance of the features, and the dtype of products."""
    residual = None if model.residual == "none" else model.summed_residual
    if residual is not None and model.covar_module.residual_variance(x[:1].detach()) is None:
        raise ValueError(
            "expected features that leave variance over for residual, such as landmarks or a truncated series, got "
            'others, which estimate the whole kernel; use residual="none"'
        )
    with_residual = rows if residual is None else residual.prepared(rows, model.noise.variances(rows))
    return with_residual, dtype_of_products(model, x, rows)


def added(model: WeightSpaceGP, total: SufficientStatistics | None, x: Tensor, rows: Rows) -> SufficientStatistics:
    """The statistics of one draw of the weights with more rows."""
    with_residual, dtype = summed_rows(model, x, rows)
    residual = None if model.residual == "none" else model.summed_residual
    grid = model.summed_grid if model.has_grid else None
    total = accumulate(model.features, model.noise, x, with_residual, dtype, total, residual, grid)
    return checked_finite(total, x, model.covar_module)


def feature_sums(model: WeightSpaceGP, rows: CheckedRows, before: FeatureSums | None = None) -> FeatureSums:
    """The sums over checked rows, on top of those before, which change."""
    sums = FeatureSums(()) if before is None else before
    totals: Sequence[SufficientStatistics | None] = sums.draws or (None,) * model.num_draws
    keeps_rows = rows.is_all and torch.is_grad_enabled() and not model.contains_noise and not model.sums_hold
    weighed = weighed_rows(model, rows)
    draws = [added(model, totals[0], rows.x, weighed)]
    if model.num_draws > 1:
        pairs = zip(model.further_draws.begin(model), totals[1:], strict=True)
        draws += [added(draw, total, rows.x, weighed) for draw, total in pairs]
    return FeatureSums(
        tuple(draws),
        model.patterns,
        _some_rows(model, sums.some_rows, rows.x, rows.y),
        TrainingRows.of(rows.x, weighed, model.noise.num_outputs) if keeps_rows else None,
        sums.num_rows + len(rows.x),
        rows.bounds if sums.num_rows == 0 else joined_bounds(sums.input_bounds, rows.bounds),
    )


def running_sums(
    model: WeightSpaceGP, batches: Iterable[Batch], before: FeatureSums | None = None
) -> Iterator[FeatureSums]:
    """The sums after every batch, on top of those before, which change."""
    sums = before
    for batch in batches:
        sums = feature_sums(model, check_rows(model, *batch), sums)
        yield sums


def block_rows(model: WeightSpaceGP, rows: CheckedRows) -> BlockSums:
    """Checked rows in blocks, without sums; inputs keep their blocks during training."""
    weighed = weighed_rows(model, rows)
    return BlockSums.of(model, rows.x, weighed, dtype_of_products(model, rows.x, weighed), rows.local)


def blocks_of(model: WeightSpaceGP, batches: Iterable[Batch], is_all: bool = False) -> BlockSums:
    """Batches of rows in blocks, without sums."""
    rows = check_rows(model, *joined(list(batches)), is_all)
    rows.local = None if model.conditioned is None else model.conditioned.sums.local
    return block_rows(model, rows)


def sums_of(model: WeightSpaceGP, batches: Iterable[Batch]) -> RowSums:
    """The sums over batches of rows; rows for blocks are not summed yet."""
    return last(running_sums(model, batches)) if model.block_size is None else blocks_of(model, batches)


def sums_without(
    model: WeightSpaceGP, sums: RowSums, removed: Batch, beside: Batch, is_centered: bool = True
) -> RowSums:
    """Sums without those over some rows; others that stay have some targets. Centered sums are centered anew."""
    if not bool(torch.isnan(removed[1]).all()):
        left = sums.without(sums_of(model, [removed]), model, is_centered)
    else:
        left = sums.without(sums_of(model, [joined([removed, beside])]), model, is_centered=False)
        left = left.merge(sums_of(model, [beside]), model)
    return left.forget_rows(*removed[:2])


def last(sums: Iterable[FeatureSums]) -> FeatureSums:
    """The last of running sums, or a ValueError where there are none."""
    found = collections.deque(sums, maxlen=1)
    if not found:
        raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
    return found[0]


def _some_rows(model: WeightSpaceGP, before: SomeRows | None, x: Tensor, y: Tensor) -> SomeRows | None:
    """Rows of complex targets on which the residuals will be looked at."""
    if getattr(model.likelihood, "has_pseudo_noise", True) or model.likelihood.noise.numel() > 1:
        return None
    return SomeRows.of(x, y) if before is None else before.and_some_of(x, y)

"""How a weight-space model sums rows at its present parameters: checks, the dtype of products, batch after batch."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from ...approximation.reference_tensor import reference_tensor
from ...data.batches import Batch, joined
from ...data.row_noise import RowNoise, WeightedNoise, noise_parts
from ...inference.posterior.regression import check_size
from ...inference.sums.accumulation import accumulate
from ...inference.sums.mean_basis import basis
from ...inference.sums.residual_pass import TrainingRows
from ...inference.sums.rows import Rows
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...linalg import product_dtype, spaced_rows
from ..impropriety import SomeRows
from .block_sums import BlockSums
from .rounding import warn_of_rounding
from .row_sums import FeatureSums, RowSums, checked_finite, input_bounds, joined_bounds


def checked_rows(
    model: Any, x: Tensor, y: Tensor, noise: RowNoise, is_all: bool = False, is_measured: bool = False
) -> Rows:
    """Checked rows as the noise model sees them, or if ``is_measured`` with the noise of the likelihood alone.

    :param is_all: whether the likelihood may know their noise.
    """
    checks.finite(checks.inputs(x).detach())
    checks.summed_dtype(x)
    if x.dim() != 2:
        raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
    kernel = model.covar_module
    checks.same_kind(x, reference_tensor(kernel, x), "x", "the kernel")
    has_outputs = kernel.has_output_factor
    if has_outputs:
        with torch.no_grad():
            kernel.scalar_features(x[:1])
    variances, weights = noise_parts(noise) if isinstance(noise, WeightedNoise) else (noise, None)
    noise_model = model.measured_noise if is_measured else model.noise
    parts = x, y, variances, basis(model.mean_module, x), is_all
    rows: Rows = noise_model.rows(*parts) if weights is None else noise_model.weighted_rows(*parts, weights)
    warn_of_rounding(kernel, x, y)
    if has_outputs:
        check_size(model.features.output_factor(), rows.num_groups)
    return rows


def dtype_of_products(model: Any, x: Tensor, rows: Rows) -> torch.dtype:
    """The dtype of Gram products: float32 only for float32 features and noise that is not small."""
    if model.product_dtype is not None:
        return model.product_dtype
    if x.dtype != torch.float32:
        return torch.float64
    return product_dtype(x.dtype, model.noise.smallest(rows), lambda: _largest_variance(model, x))


@torch.no_grad()
def _largest_variance(model: Any, x: Tensor) -> float:
    """The largest prior variance at some of the inputs: evenly spaced ones, and the one farthest from zero."""
    farthest = x.square().sum(-1).argmax(0, keepdim=True)
    features = model.features.scalar_features(torch.cat([spaced_rows(x), x.index_select(0, farthest)]))
    return model.regression().factor().largest_square(features)


def prepared_rows(
    model: Any, x: Tensor, y: Tensor, noise: RowNoise, is_all: bool = False
) -> tuple[Rows, Rows, torch.dtype]:
    """Checked rows, the same with room for the variance that the features lack, and the dtype of products."""
    rows = checked_rows(model, x, y, noise, is_all)
    residual = None if model.residual == "none" else model.summed_residual
    if residual is not None and model.covar_module.residual_variance(x[:1].detach()) is None:
        raise ValueError(
            "expected features that leave variance over for residual, such as landmarks or a truncated series, got "
            'others, which estimate the whole kernel; use residual="none"'
        )
    with_residual = rows if residual is None else residual.prepared(rows, model.noise.variances(rows))
    return rows, with_residual, dtype_of_products(model, x, rows)


def added(
    model: Any, total: SufficientStatistics | None, batch: Batch, is_all: bool = False
) -> tuple[SufficientStatistics, Rows]:
    """The statistics of one draw of the weights with the rows of a batch, and what these added."""
    x = batch[0]
    rows, with_residual, dtype = prepared_rows(model, *batch, is_all)
    features, noise = model.features, model.noise
    residual = None if model.residual == "none" else model.summed_residual
    grid = model.summed_grid if model.has_grid else None
    total = accumulate(features, noise, x, with_residual, dtype, total, residual, grid)
    return checked_finite(total, x, model.covar_module), rows


def running_sums(
    model: Any, batches: Iterable[Batch], before: FeatureSums | None = None, is_all: bool = False
) -> Iterator[FeatureSums]:
    """The sums after every batch, on top of those before, which change; ``is_all``: one batch of all rows."""
    models: list[Any] = [model]
    sums = FeatureSums((None,) * model.num_draws) if before is None else before
    keeps_rows = is_all and torch.is_grad_enabled() and not model.contains_noise and not model.sums_hold
    for batch in batches:
        x, y, _ = batch
        first, rows = added(model, sums.draws[0], batch, is_all)
        if len(models) < model.num_draws:
            models += model.further_draws.begin(model)
        further = zip(models[1:], sums.draws[1:], strict=True)
        bounds = input_bounds(x)
        sums = FeatureSums(
            (first, *(added(draw, total, batch, is_all)[0] for draw, total in further)),
            model.patterns,
            _some_rows(model, sums.some_rows, x, y),
            TrainingRows.of(x, rows, model.noise.num_outputs) if keeps_rows else None,
            sums.num_rows + len(x),
            bounds if sums.num_rows == 0 else joined_bounds(sums.input_bounds, bounds),
        )
        yield sums


def sums_of(model: Any, batches: Iterable[Batch], is_all: bool = False) -> RowSums:
    """The sums over batches of rows; rows for blocks are not summed yet."""
    if model.block_size is not None:
        x, y, noise = joined(list(batches))
        rows = checked_rows(model, x, y, noise, is_all)
        return BlockSums.of(model, x, rows, dtype_of_products(model, x, rows))
    return last(running_sums(model, batches, is_all=is_all))


def sums_without(model: Any, sums: Any, removed: Batch, beside: Batch, is_centered: bool = True) -> Any:
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


def _some_rows(model: Any, before: SomeRows | None, x: Tensor, y: Tensor) -> SomeRows | None:
    """Rows of complex targets on which the residuals will be looked at."""
    if getattr(model.likelihood, "has_pseudo_noise", True) or model.likelihood.noise.numel() > 1:
        return None
    return SomeRows.of(x, y) if before is None else before.and_some_of(x, y)

"""Rows and groups of rows that are left out of a weight-space model, without refits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ..._support import checks
from ...inference import LeaveGroupOut, LeaveOneOut
from ...inference.leave_out import leave_out as inference
from ...inference.leave_out.left_out_rows import LeftOutRows, check_summed, other_rows
from ...inference.local.left_out import left_out_of
from ...inference.posterior.covariance import ResidualCovariance
from ...inference.sums.grid_statistics import check_not_wide
from ...inference.sums.rows import Rows
from ..folds import folds
from .conditioned import sums_with_rows
from .row_summation import check_rows, dtype_of_products, weighed_rows
from .row_sums import BlockSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...inference.leave_out.leave_out import FunctionsWithoutRows
    from .model import WeightSpaceGP


class LeaveOutFunctions:
    """The means of models without each group, from the errors of groups and the group number of every row, (N,)."""

    def __init__(self, draw: LeftOutRows, errors: Tensor, numbers: Tensor) -> None:
        self._draw, self.errors, self.numbers = draw, errors, numbers

    def __call__(self, x: Tensor) -> Tensor:
        """The means (G, n, T) at inputs (n, d)."""
        errors = self.errors.double().nan_to_num(0.0).reshape(len(self.errors), -1)
        means: Tensor = self._draw.means_without(x, errors, self.numbers, int(self.numbers.max()) + 1)
        return means


@torch.no_grad()
def leave_one_out(model: WeightSpaceGP, x: Tensor, y: Tensor, noise: Tensor | None) -> LeaveOneOut:
    """See :meth:`WeightSpaceGP.leave_one_out`."""
    rows, draws, residual = _left_out(model, x, y, noise)
    return inference.leave_one_out(x, rows, model.measured_noise, draws, residual)


@torch.no_grad()
def leave_group_out(
    model: WeightSpaceGP, x: Tensor, y: Tensor, groups: Tensor | int, noise: Tensor | None, seed: int
) -> LeaveGroupOut:
    """See :meth:`WeightSpaceGP.leave_group_out`."""
    labels = group_labels(groups, checks.inputs(x), seed)
    rows, draws, residual = _left_out(model, x, y, noise)
    return inference.leave_group_out(x, rows, model.measured_noise, draws, residual, labels)


@torch.no_grad()
def functions(
    model: WeightSpaceGP, x: Tensor, y: Tensor, groups: Tensor | int | None, noise: Tensor | None, seed: int
) -> LeaveOutFunctions:
    """See :meth:`WeightSpaceGP.leave_out_functions`."""
    _check_functions(model)
    checks.inputs(x)
    checks.seed(seed)
    labels = torch.arange(len(x), device=x.device) if groups is None else group_labels(groups, x, seed)
    rows, draws, residual = _left_out(model, x, y, noise)
    parts = x, rows, model.measured_noise, draws, residual
    left_out: Any = inference.leave_one_out(*parts) if groups is None else inference.leave_group_out(*parts, labels)
    draw = cast(LeftOutRows, draws[0])
    return LeaveOutFunctions(draw, y - left_out.mean.reshape(y.shape), labels.unique(return_inverse=True)[1])


def _left_out(
    model: WeightSpaceGP, x: Tensor, y: Tensor, noise: Tensor | None
) -> tuple[Rows, Sequence[FunctionsWithoutRows], ResidualCovariance | None]:
    """The rows, the functions without some of them for every draw of the weights, and what these lack."""
    sums = sums_with_rows(model)
    check_not_wide(model.covar_module, model.noise, "predictions without some rows")
    with model.nothing_lost_on_error():
        checked = check_rows(model, x, y, noise, is_all=True)
        rows = weighed_rows(model, checked)
        dtype = dtype_of_products(model, x, rows)
        regression = model.regression()
        if isinstance(sums, BlockSums):
            others = BlockSums.of(model, x, rows, dtype, sums.local)
            numbers = sums.numbers_of(others.with_cells(model) if sums.local.has_cells else others).to(x.device)
            if len(numbers.unique()) != len(sums.local.x):
                raise other_rows()
            functions = left_out_of(regression, x, rows, numbers, sums.draws[0], model.weight_posterior(), dtype)
            return rows, [functions], None
        check_summed(sums.draws[0], rows)
        residual = model.summed_residual
        models = model, *model.further_draws.of(model)
        draws = [
            LeftOutRows(draw.regression(), model.noise, x, rows, residual, draw.weight_posterior(), dtype)
            for draw in models
        ]
        measured = model.measured_noise.weigh(checked.observations)
        return measured, list(draws), _mean_residual([draw.features.residual_covariance(x) for draw in models])


def _mean_residual(parts: list[ResidualCovariance | None]) -> ResidualCovariance | None:
    """What the features of several draws of the weights lack, which differs in the variances alone."""
    known = [part for part in parts if part is not None]
    return known[0]._replace(variances=torch.stack([part.variances for part in known]).mean(0)) if known else None


def _check_functions(model: WeightSpaceGP) -> None:
    """Raise a ValueError where a model has no functions without single rows or groups."""
    if model.noise.is_batched:
        raise ValueError(
            "expected a model of real targets, got one of class labels; take probabilities of rows that were not "
            "fitted to rfgp.diagnostics.conformal.ClassConditionalSets"
        )
    is_complex = model.noise.is_complex or model.noise.is_of_parts
    obstacles = {
        "complex targets": is_complex,
        "complex features": model.features.is_complex and not is_complex,
        f"block_size={model.block_size}": model.block_size is not None,
        f"num_draws={model.num_draws}": model.num_draws > 1,
    }
    got = " and ".join(name for name, is_there in obstacles.items() if is_there)
    if got:
        advice = (
            "make one for the real and one for the imaginary part"
            if is_complex
            else "use rfgp.diagnostics.conformal.split_conformal with rows that were not fitted"
        )
        raise ValueError(
            "expected a model of real targets, with real features, without blocks and with one draw of the weights, "
            f"got one with {got}; {advice}"
        )


def group_labels(groups: Tensor | int, x: Tensor, seed: int = 0) -> Tensor:
    """The label (N,) of the group of every row, checked, from labels or a number of random folds."""
    checks.seed(seed)
    if isinstance(groups, int):
        return folds(len(x), groups, seed).to(x.device)
    labels = checks.integers(groups, "groups", "labels of groups")
    if labels.shape != (len(x),):
        raise ValueError(
            f"expected a label of its group for each of {len(x)} rows, got {tuple(labels.shape)}; "
            "pass as many, in one dimension"
        )
    if len(labels.unique()) < 2:
        raise ValueError("expected at least two groups, got one, without which no row is left; label the rows")
    return labels.to(x.device)

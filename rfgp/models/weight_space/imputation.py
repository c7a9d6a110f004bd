"""Missing targets of very many outputs, filled so that the posterior mean is that given the observed ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._support import checks
from ...inference import OutputFactor
from ...linalg import row_chunks
from ...linalg.conjugate_gradients import ConjugateGradients
from .row_summation import check_rows, feature_sums, weighed_rows
from .row_sums import RowSums

if TYPE_CHECKING:
    from .model import WeightSpaceGP

_MOST_WEIGHTS = 8192
"""Up to so many weights of all outputs together missing targets are left out of dense normal equations."""
_TOLERANCE, _MOST_STEPS = 1e-9, 100


def needs_imputation(model: WeightSpaceGP, x: Any, y: Any) -> bool:
    """Whether missing targets would take a matrix of too many weights."""
    is_tensor = isinstance(x, Tensor) and isinstance(y, Tensor) and y.dim() == 2 and y.is_floating_point()
    if not is_tensor or not model.covar_module.has_output_factor:
        return False
    if not bool(torch.isnan(checks.tensor(y, "y")).any()):
        return False
    with torch.no_grad():
        model.covar_module.scalar_features(x[:1])
    factor = model.features.output_factor()
    if not isinstance(factor, OutputFactor) or factor.covariance_root is None:
        return False
    return factor.num_columns > _MOST_WEIGHTS


@torch.no_grad()
def imputed(model: WeightSpaceGP, x: Tensor, y: Tensor, noise: Tensor | None, before: RowSums | None = None) -> Tensor:
    r"""Targets (N, T) whose missing ones are such that the posterior mean is that given the observed ones alone.

    .. math:: \big[\Sigma^{-1} (y - E[f \mid y])\big]_{\mathrm{mis}} = 0

    These are linear equations in the missing targets with the matrix :math:`[(K + \Sigma)^{-1}]_{\mathrm{mis}}`, which
    conjugate gradients solve; each step reads all rows, and solves with the same factors.

    :param before: sums over earlier rows, which are given too.
    """
    missing = torch.isnan(y)
    if before is None and bool(missing.all(0).any()):
        raise ValueError("expected at least one observed target of every output, got NaN only; leave it out")
    start, scale = torch.where(missing, y.nanmean(0).nan_to_num(0.0), y), float(y[~missing].std(correction=0)) or 1.0
    checked = check_rows(model, x, start, noise, is_all=True)
    rows = weighed_rows(model, checked)
    zero = torch.zeros(y.shape[-1], y.shape[-1], dtype=torch.float64, device=y.device)
    of_groups = [zero if precision is None else precision for precision in model.noise.precisions(rows.num_groups)]
    weigh, precisions = _precision(of_groups, rows.all_weights())
    variances = 1.0 / precisions[missing].unsqueeze(-1)

    def filled(values: Tensor) -> Tensor:
        """The targets with other values (n,) added to the missing ones."""
        return start.masked_scatter(missing, start[missing] + values.to(start))

    sums = feature_sums(model, checked)
    total: RowSums = sums if before is None else before.merge(sums, model)
    regression = model.regression()
    factor, posterior = regression.factor(), regression.posterior(total.draws[0])

    chunks = row_chunks(len(x), max(factor.num_scalar, factor.num_outputs))

    def response(change: Tensor) -> Tensor:
        """The change of the posterior mean (N, T) with that of targets."""
        weighted = weigh(change)
        products = (model.features.scalar_features(x[rows]).double().mT @ weighted[rows] for rows in chunks)
        weights = posterior.solve(factor.adjoint(functools.reduce(torch.add, products).unsqueeze(-1)))
        parts = [factor.functions(model.features.scalar_features(x[rows]), weights).squeeze(-1) for rows in chunks]
        return torch.cat(parts)

    def product(values: Tensor) -> Tensor:
        change = torch.zeros_like(start, dtype=torch.float64).masked_scatter(missing, values)
        return weigh(change - response(change))[missing].unsqueeze(-1)

    first = weigh((start - regression.function(posterior.mean, x)).double())[missing]
    solver = ConjugateGradients(product, lambda values: variances * values, -first.unsqueeze(-1))
    tolerance = scale * max(_TOLERANCE, torch.finfo(y.dtype).eps)
    while len(solver.steps) < _MOST_STEPS and float((variances * solver.residual).abs().max()) > tolerance:
        solver.step()
    return filled(solver.solution.squeeze(-1))


def _precision(precisions: Sequence[Tensor], weights: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """What multiplies errors (N, T) by the precisions of the noise of their rows, and the diagonals of these, (N, T).

    :param precisions: those of every group, (T, T).
    :param weights: of every row in every group, (N, G).
    """
    diagonals = weights @ torch.stack([precision.diagonal() for precision in precisions])
    if all(torch.equal(precision, precision.diagonal().diag()) for precision in precisions):
        return diagonals.mul, diagonals
    pairs = list(zip(weights.mT.unsqueeze(-1), precisions, strict=True))
    return lambda errors: torch.stack([weight * (errors @ precision) for weight, precision in pairs]).sum(0), diagonals

"""The targets that a likelihood takes, and the columns that are regressed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..._support import checks


class Targets(NamedTuple):
    """The required form of targets.

    :param has_columns: whether there is a column per output, with NaN for missing values; else targets are (N,).
    :param has_tasks: whether the likelihood has tasks, possibly a single one.
    """

    num_outputs: int = 1
    has_columns: bool = False
    has_tasks: bool = False
    is_complex: bool = False

    def columns(self, x: Tensor, y: Tensor, basis: Tensor) -> Observations:
        """Columns [y, basis] (N, T + k), and where y is observed, (N, T)."""
        if self.has_columns:
            return self._several(x, y, basis)
        if self.is_complex and isinstance(y, Tensor) and y.is_complex():
            values, observed = complete(y)
            columns = torch.cat([checks.targets(values, x).unsqueeze(-1), basis.to(y.dtype)], dim=-1)
            return Observations(columns, None if observed is None else observed.unsqueeze(-1))
        checks.targets(y, x)
        if y.is_complex() != self.is_complex:
            wanted, likelihood = (
                ("complex", "GaussianLikelihood") if self.is_complex else ("real", "ComplexGaussianLikelihood")
            )
            raise ValueError(f"expected {wanted} targets, got {y.dtype}; use {likelihood}")
        return Observations(torch.cat([y.unsqueeze(-1), basis.to(y.dtype)], dim=-1))

    def by_output(self, values: Tensor) -> Tensor:
        """Values (N,) of a single output as (N, 1); others as they are."""
        return values.unsqueeze(-1) if values.dim() == 1 and self.num_outputs == 1 else values

    def _several(self, x: Tensor, y: Tensor, basis: Tensor) -> Observations:
        checks.tensor(y, "y")
        values = self.by_output(y)
        if not y.is_floating_point() or values.shape != (len(x), self.num_outputs):
            wanted = f"({len(x)}, {self.num_outputs})"
            raise ValueError(
                f"expected floating-point targets of shape {wanted}, got {y.dtype} {tuple(y.shape)}; give a column per "
                "output, with NaN for those that are missing"
            )
        checks.same_kind(values, x, "y", "x")
        observed = ~torch.isnan(values)
        if bool(torch.isinf(values).any()):
            raise ValueError("expected finite targets, or NaN for missing ones, got infinite ones; correct them")
        if bool(observed.all()):
            return Observations(torch.cat([values, basis], dim=-1))
        if not bool(observed.any()):
            raise ValueError("expected at least one observed target, got NaN only; leave these rows out")
        filled = torch.where(observed, values, values.nanmean(0).nan_to_num(0.0))
        return Observations(torch.cat([filled, basis], dim=-1), observed)


class Observations(NamedTuple):
    """Checked targets, and what is known of their noise: all of rows that does not follow from parameters.

    :param columns: the columns that are regressed, targets and the basis of the mean, (..., N, K).
    :param observed: which outputs are observed, (..., N, T); None for all.
    :param variances: known noise variances, (..., N, T) or (N,), in float64.
    :param labels: the classes of the rows, (N,).
    :param weights: what divides the noise of the rows, (N,).
    """

    columns: Tensor
    observed: Tensor | None = None
    variances: Tensor | None = None
    labels: Tensor | None = None
    weights: Tensor | None = None

    def take(self, rows: Tensor) -> Observations:
        """Those of some rows."""
        return Observations(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


def complete(y: Tensor) -> tuple[Tensor, Tensor | None]:
    """Complex targets (N,), with the mean in place of NaN, and a mask of the observed ones (None for all)."""
    observed = ~torch.isnan(y)
    if bool(observed.all()):
        return y, None
    if not bool(observed.any()):
        raise ValueError("expected at least one observed target, got NaN only; leave these rows out")
    return torch.where(observed, y, y[observed].mean()), observed


def noise_of_observed(noise: Tensor, observed: Tensor | None) -> Tensor:
    """Noise variances (N,) with ones where targets are missing, whose noise does not matter."""
    if observed is None or not isinstance(noise, Tensor) or noise.shape != observed.shape:
        return noise
    return torch.where(observed, noise, torch.ones_like(noise))

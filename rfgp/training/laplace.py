"""Laplace's evidence of a model and its data, as training needs it."""

from __future__ import annotations

import math
from typing import Any

import scipy
import torch
from torch import Tensor
from torch.distributions import constraints

from ..inference.latent.latent_terms import OneFunction, TaskFunctions
from ..models import LaplaceGP
from ..models.laplace.rows import LaplaceRows
from .objectives import Objective


class LaplaceObjective(Objective):
    """Laplace's evidence of a :class:`rfgp.models.LaplaceGP` at the mode, searched from that of the last evaluation."""

    def __init__(self, model: LaplaceGP, x: Any, y: Any, exposure: Any = None) -> None:
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            got = ", ".join(type(value).__name__ for value in (x, y))
            raise ValueError(f"expected tensors x and y for a LaplaceGP, got {got}; call fit(model, x, y)")
        self.model, self.x, self.y = model, x, y
        self.rows = LaplaceRows(model, x, y, exposure)
        self._mode: Tensor | None = None
        with torch.no_grad():
            model.covar_module.scalar_features(x[:1])

    def begin_at(self, rows: Tensor, mode: Tensor | None) -> None:
        """Let the search with blocks begin at the mode (n, 1) of some rows, where the others say nothing."""
        is_one = self.model.latent.num_functions == 1
        if is_one and self.model.block_size is not None and mode is not None:
            self._mode = mode.new_zeros(len(self.x), 1)
            self._mode[rows] = mode

    @property
    def outputs(self) -> Tensor:
        """The targets on the scale of the latent functions, as far as that is known before the fit, (N, T)."""
        latent = self.model.latent
        ((_, targets, exposure),) = self.rows
        if isinstance(latent, OneFunction):
            return latent_targets(latent, targets, exposure.squeeze(-1)).unsqueeze(-1)
        if not isinstance(latent, TaskFunctions):
            variance = getattr(self.model.likelihood, "start_variance", 1.0)
            return variance**0.5 * _standard(len(self.y)).unsqueeze(-1)
        columns = targets.clone()
        for column, own in zip(columns.unbind(-1), exposure.expand(columns.shape).unbind(-1), strict=True):
            is_there = ~torch.isnan(column)
            if bool(is_there.any()):
                column[is_there] = latent_targets(latent.cell, column[is_there], own[is_there])
        return columns

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        if rows is not None:
            return self.model.find_mode(self.rows.take(rows))
        value = self.model.find_mode(self.rows, self._mode)
        self._mode = self.model.mode
        return value


@torch.no_grad()
def latent_targets(likelihood: OneFunction, y: Tensor, exposure: Tensor) -> Tensor:
    r"""Targets (N,) on the scale of the latent function: y where it may be any real number, else one linearized step.

    .. math:: z_i = c + g_i(c) \Big/ \frac1N \sum_j W_j(c), \qquad c = \arg\max_c \sum_i \log p(y_i \mid c, e_i)
    """
    support = likelihood.likelihood(torch.zeros_like(y)).support
    if support is constraints.real:
        return y

    def loss(constant: float) -> float:
        value = -float(likelihood.terms((exposure.log() + constant).unsqueeze(-1), y).log_density.mean())
        return value if math.isfinite(value) else math.inf

    try:
        constant = float(scipy.optimize.minimize_scalar(loss).x)
    except (RuntimeError, ValueError):
        return _standard(len(y)).to(y)
    terms = likelihood.terms((exposure.log() + constant).unsqueeze(-1), y)
    targets = constant + terms.slope.squeeze(-1) / terms.curvature.mean().clamp_min(0.0)
    is_usable = bool(torch.isfinite(targets).all()) and bool(targets.std(correction=0) > 0)
    return targets if is_usable and abs(constant) < 1e6 * float(y.abs().max() + 1.0) else _standard(len(y)).to(y)


def _standard(count: int) -> Tensor:
    """Numbers with mean zero and variance one, (N,), or zeros where there is one alone."""
    values = torch.arange(count, dtype=torch.float64) % 2.0
    return (values - values.mean()) / values.std(correction=0).clamp_min(1e-12)

"""Laplace's evidence of classes, or of other likelihoods of several functions, on few rows, by few landmarks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..approximation.entry import approximate
from ..models import LaplaceGP
from ..models.laplace.class_probabilities import log_predictive
from ..models.laplace.rows import LaplaceRows
from .few_rows import FewRows
from .moments import DataMoments

_LANDMARKS = 96
_LOWEST = math.log(1e-12)


class ClassSubset(FewRows):
    """Laplace's evidence of a model of several functions on some rows (n,), searched from the last mode."""

    def __init__(self, model: LaplaceGP, x: Tensor, y: Tensor, rows: Tensor, moments: DataMoments) -> None:
        self.model, self.moments = model, moments
        self.is_part, self.x, self.inputs, self.y = len(rows) < len(x), x[rows], x[rows], y[rows]
        kernel: Any = model.covar_module
        if kernel.has_residual_covariance and kernel.num_scalar_features > _LANDMARKS < len(rows):
            kernel = approximate(kernel.exact_kernel, _LANDMARKS, method="landmarks", train_inputs=self.x, seed=0)
        self.narrow = LaplaceGP(kernel, model.likelihood, model.mean_module, hessian=model.hessian)
        self.checked = LaplaceRows(self.narrow, self.x, self.y)

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        if rows is not None:
            return self.narrow.find_mode(self.checked.take(rows))
        value = self.narrow.find_mode(self.checked, self.mode)
        self.mode = self.narrow.mode
        return value

    @torch.no_grad()
    def loss(self, x: Tensor, y: Tensor) -> float:
        """The mean negative log probability of other targets, given these rows; infinite where there is none."""
        self.evidence()
        loss = -float(log_predictive(self.narrow, x, y).clamp_min(_LOWEST).mean())
        return loss if math.isfinite(loss) else math.inf

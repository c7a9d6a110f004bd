"""The log density of rows, or groups of rows, given all others, as the objective of training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._support import checks
from ..approximation.width_warning import quiet
from ..inference.sums.mean_basis import mean_values
from ..linalg.prediction_errors import normal_log_density
from ..models import WeightSpaceGP
from ..models.weight_space.leave_out import group_labels
from ..models.weight_space.row_summation import checked_rows
from .objectives import ExactObjective, Objective, WeightSpaceObjective, cholesky_forced
from .pseudo_likelihood import LeaveOneOutPseudoLikelihood
from .session import Stage, Training
from .strategies import Strategy, Task

_QUANTITY = "log density of what is left out"
_COVARIANCES = 6
"""Covariances of every group that are held at a time, those that gradients need included."""


@dataclass(frozen=True, eq=False)
class LeaveOut(Strategy):
    """The sum of the log densities of rows, or of groups of rows, each given all others.

    It judges predictions, and holds up better where the model is wrong. For one output with Gaussian or fixed noise,
    and tensors; the summary has its value in place of the evidence.

    :param groups: the label of the group of every row, (N,), or the number of random folds; default: every row alone.
    :param initialize: whether starting values come from the data.

    >>> LeaveOut(groups=5).groups
    5
    """

    groups: Tensor | int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups is not None and not isinstance(self.groups, Tensor):
            checks.positive_integer("groups", self.groups)

    def objective(self, task: Task) -> Objective:
        model, x, y = task.model, task.x, task.y
        if isinstance(model, WeightSpaceGP):
            return LeaveOutObjective(model, x, y, task.noise, self.groups)
        if self.groups is not None:
            raise ValueError("expected an ExactGP to leave out single rows, got groups; use a WeightSpaceGP")
        return ExactLeaveOneOutObjective(model, x, y)

    def stages(self, training: Training) -> Iterable[Stage]:
        yield Stage(training.objective)


class LeaveOutObjective(WeightSpaceObjective):
    r"""The sum of the log densities of groups (labels (N,), or random folds; default: rows), each given all others.

    .. math:: \sum_g \log N\big(y_g \mid y_g - Q_g^{-1} \alpha_g,\, Q_g^{-1} + R_g\big), \qquad
        Q_g = S_g^{-1} - S_g^{-1} \Phi_g B^{-1} \Phi_g^\top S_g^{-1}, \qquad \alpha = S^{-1} (y - m - \Phi w)
    """

    quantity = _QUANTITY

    def __init__(self, model: WeightSpaceGP, x: Any, y: Any, noise: Any, groups: Tensor | int | None = None) -> None:
        noise_model = None if model.covar_module.has_output_factor else model.noise
        is_one = (
            noise_model is not None
            and noise_model.num_systems * noise_model.num_outputs == 1
            and not noise_model.is_complex
        )
        is_plain = model.block_size is None and model.num_draws == 1 and model.residual == "none"
        if not (is_one and is_plain and not model.covar_module.is_complex):
            raise ValueError(
                "expected one output with Gaussian or fixed noise, real features, one draw of the weights, no blocks "
                'and residual="none" for a leave-out objective, got another model; use strategy="evidence"'
            )
        super().__init__(model, x, y, noise)
        self.groups = None if groups is None else group_labels(groups, x)
        if self.groups is not None:
            counts = self.groups.unique(return_counts=True)[1].double()
            what = f"covariances of {len(counts):,} groups of up to {int(counts.max()):,} rows"
            checks.fits_in_memory(_COVARIANCES * 8.0 * float(counts.square().sum()), what, "leave out smaller groups")

    @property
    def can_take_rows(self) -> bool:
        return self.groups is None

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        x, y, noise = self.data(rows)
        with quiet():
            model = self.model.condition(x, y, noise)
        regression, kernel = model.regression(), model.covar_module
        posterior = regression.posterior(model.statistics, tracks=True)
        factor, scalar = regression.factor(), kernel.scalar_features(x)
        variances = model.noise.variances(checked_rows(model, x, y, noise, is_all=True))
        fitted = factor.functions(scalar, posterior.mean).flatten(-3)
        weights = (y.double() - mean_values(model.mean_module, x).double().squeeze(-1) - fitted) / variances
        lack = None if model.raises_noise else kernel.residual_variance(x)  # which is noise of the rows already
        residual = torch.zeros_like(variances) if lack is None else lack.double()
        if self.groups is None:
            precision = (1.0 - posterior.function_variance(scalar, factor) / variances) / variances
            return normal_log_density(weights / precision, 1.0 / precision + residual).sum()
        root = posterior.function_root(scalar, factor) / variances.unsqueeze(-1)
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        for group in self.groups.unique():
            is_in = self.groups == group
            inner = torch.diag(1.0 / variances[is_in]) - root[is_in] @ root[is_in].mT
            covariance = torch.linalg.inv(inner)
            whole = torch.linalg.cholesky(covariance + torch.diag(residual[is_in]))
            white = torch.linalg.solve_triangular(whole, (covariance @ weights[is_in]).unsqueeze(-1), upper=False)
            densities = normal_log_density(white.squeeze(-1), torch.ones_like(weights[is_in]))
            total = total + densities.sum() - whole.diagonal().log().sum()
        return total

    def finish(self) -> Tensor:
        return self.evidence()


class ExactLeaveOneOutObjective(ExactObjective):
    """The same of single rows, for a GPyTorch model of one output."""

    quantity = _QUANTITY

    def _evidence(self, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        if self.is_masked or self.is_many:
            raise ValueError(
                "expected one output without missing targets for a leave-out objective, got another model; use "
                'strategy="evidence"'
            )
        with cholesky_forced():
            objective = LeaveOneOutPseudoLikelihood(self.model.likelihood, self.model)
            return objective.log_densities(self.model(*inputs), targets, *inputs).sum()

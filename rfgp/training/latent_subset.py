"""Parameters of a model by Laplace's approximation from few rows, with the exact kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_dense
from torch import Tensor

from ..inference.latent.laplace import LatentFunctions, functions_of_cells, observed_cells
from ..inference.latent.latent_terms import SeveralFunctions
from ..inference.latent.local_laplace import LaplaceAtMode, LocalLaplace, log_evidence
from . import timing
from .ascent import NoValueError
from .class_subset import ClassSubset
from .few_rows import FewRows
from .laplace import LaplaceObjective
from .moments import DataMoments
from .session import Training
from .starts import random_rows
from .strategies import Maximization

if TYPE_CHECKING:
    from ..approximation.feature_kernel import FeatureKernel


_FEW, _MORE, _HELD_OUT = 500, 1000, 1000
_EVALUATIONS = 20, 12
_TRIAL_EVALUATIONS = 6


class _WithoutFeatures:
    """An exact kernel as one that no features approximate."""

    num_scalar_features, is_complex = 0, False

    def __init__(self, kernel: Any) -> None:
        self.exact_kernel, self.parameters = kernel.exact_kernel, kernel.parameters
        self.total_outputscale = torch.ones((), dtype=torch.float64)

    def scalar_features(self, x: Tensor) -> Tensor:
        """No features of inputs (..., n, d), (..., n, 0)."""
        return x.new_zeros(*x.shape[:-1], 0)


class LatentSubset(FewRows):
    """Laplace's evidence of the exact kernel on some rows (n,), or their cells, searched from the last mode."""

    def __init__(self, model: Any, x: Tensor, y: Tensor, rows: Tensor, moments: DataMoments) -> None:
        self.model, self.moments = model, moments
        cells = functions_of_cells(LatentFunctions(model.covar_module, model.mean_module, model.latent))
        self.kernel = _WithoutFeatures(cells.kernel)
        self.functions = LatentFunctions(cast("FeatureKernel", self.kernel), cells.mean, cells.likelihood)
        self.is_part, self.inputs = len(rows) < len(x), x[rows]
        self.x, self.y = self._cells(self.inputs, y[rows])
        self.latent: Tensor | None = None

    def _cells(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Checked rows, or the observed cells of tables."""
        return observed_cells(x, self.model.latent.targets(y, x))

    def _at_mode(self, rows: Tensor | None = None) -> LaplaceAtMode:
        x, y = (self.x, self.y) if rows is None else (self.x[rows], self.y[rows])
        problem = LocalLaplace(self.functions, x, y, [torch.arange(len(x), device=x.device)])
        start = None if rows is not None or self.latent is None else problem.start_at(self.latent)
        at = LaplaceAtMode(problem, problem.mode(start))
        if rows is None:
            self.latent, self.mode = at.latent, at.weights
        return at

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        return log_evidence(self._at_mode(rows))

    @torch.no_grad()
    def loss(self, x: Tensor, y: Tensor) -> float:
        """The mean negative log density of other targets, given these rows; infinite where there is none."""
        at, kernel = self._at_mode(), self.kernel.exact_kernel
        x, targets = self._cells(x, y)
        cross = to_dense(kernel(self.x, x)).double()
        mean = self.functions.mean_at(x).squeeze(-1) + (cross.mT @ at.weights).squeeze(-1)
        variance = kernel(x, diag=True).double() - at.posterior.sites[0].reduction(cross.unsqueeze(0)).flatten()
        latent = MultivariateNormal(mean, torch.diag(variance.clamp_min(1e-12)))
        loss = -float(self.model.likelihood.log_marginal(targets, latent).mean())
        return loss if math.isfinite(loss) else math.inf


@dataclass(frozen=True, kw_only=True)
class FromFewRows(Maximization):
    """Laplace's evidence of the exact kernel on 500 random rows with lengthscales of known ratios, then 1,000 with all.

    For T tasks so many cells, whether observed or not.
    For classes the kernel is that of 96 landmarks.
    The parameters with which these rows predict others best are kept, and the model is fitted to all rows.

    :param initialize: whether starting values come from the data.
    """

    def learn(self, training: Training) -> float:
        objective = training.objective
        if not isinstance(objective, LaplaceObjective):
            raise ValueError(f"expected a LaplaceGP for few rows, got {type(objective.model).__name__}; use another")
        count, x, y = objective.num_rows, objective.x, objective.y
        latent = training.model.latent
        is_several = isinstance(latent, SeveralFunctions)
        cells = 1 if is_several else latent.num_functions
        few, more, held_out = (size // cells for size in (_FEW, _MORE, _HELD_OUT))
        every = random_rows(count, more + held_out).to(x.device)
        deadline = training.deadline.earlier(training.fit_seconds)
        best, lowest, chosen = None, math.inf, None
        for size, limit, is_tied in zip((few, more), _EVALUATIONS, (True, False), strict=True):
            limit = min(limit, training.limit - training.used)
            if limit < 1 or (chosen is not None and not deadline.allows()):
                break
            make = ClassSubset if is_several else LatentSubset
            subset = make(training.model, x, y, every[:size], objective.moments)
            trials = min(_TRIAL_EVALUATIONS, limit // 4) if is_tied else 0
            rows = f"{len(subset.inputs)} rows"
            training.ascend("subset", rows, subset, limit, deadline, trials, seconds=0.0, is_tied=is_tied)
            training.initialize = False
            loss = self._held_out_loss(training, subset, x[every[more:]], y[every[more:]])
            if chosen is None or loss <= lowest:
                lowest, chosen = loss, subset
                best = [p.detach().clone() for p in training.model.parameters()]
        if best is not None and chosen is not None:
            with torch.no_grad():
                for parameter, value in zip(training.model.parameters(), best, strict=True):
                    parameter.copy_(value)
            objective.begin_at(every[: len(chosen.inputs)], chosen.mode)
        training.source = "a random subset"
        return training.finish()

    def _held_out_loss(self, training: Training, subset: FewRows, x: Tensor, y: Tensor) -> float:
        """What rows that none was learned from lose; without such rows every subset is as good as the last."""
        if not len(x):
            return 0.0
        began = timing.clock()
        try:
            loss = subset.loss(x, y)
        except (ValueError, NoValueError):
            loss = math.inf
        training.add_stage("subset", f"{len(x)} held-out rows", began, loss, unit="nats lost per row")
        return loss

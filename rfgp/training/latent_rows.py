"""Rows of a model by Laplace's approximation, with its exact kernel, or by few landmarks for several functions."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_dense
from torch import Tensor

from ..approximation.entry import approximate
from ..inference.latent.laplace import LatentFunctions, functions_of_cells, observed_cells
from ..inference.latent.latent_terms import SeveralFunctions
from ..inference.latent.local_laplace import LaplaceAtMode, LocalLaplace, log_evidence
from ..models import LaplaceGP
from ..models.laplace.class_probabilities import log_predictive
from ..models.laplace.rows import LaplaceRows
from .composite_likelihood import Observations
from .laplace import LaplaceObjective

if TYPE_CHECKING:
    from ..approximation.feature_kernel import FeatureKernel

_LANDMARKS = 96
_LOWEST = math.log(1e-12)


class LatentRows(Observations):
    """Rows, or cells of tasks, of one latent function: Laplace's evidence of groups, searched from the last mode.

    Targets of one group, given its other rows, have their densities one by one, without gradients.
    """

    trial_size: ClassVar[int] = 250
    mode: Tensor | None = None
    """The weights of the last mode, (n, 1)."""

    def __init__(self, objective: LaplaceObjective) -> None:
        super().__init__(objective, objective.model.covar_module.exact_kernel)
        self.checked, self.y = objective.rows, objective.y
        self._known: tuple[Tensor, Any] | None = None

    def log_densities(self, groups: Tensor, targets: int) -> Tensor:
        """Their sum, (1,)."""
        given = groups.shape[1] - targets
        if given and (len(groups) > 1 or torch.is_grad_enabled()):
            raise ValueError(
                f"expected all rows of a group as targets for a LaplaceGP, got {targets} of {groups.shape[1]}; leave "
                "targets out"
            )
        if not given:
            return self._evidence(groups).reshape(1)
        return self._predicted(groups[:, :given], groups[0, given:]).reshape(1)

    @functools.cached_property
    def _functions(self) -> LatentFunctions:
        model = self.model
        cells = functions_of_cells(LatentFunctions(model.covar_module, model.mean_module, model.latent))
        exact = cast("FeatureKernel", _WithoutFeatures(cells.kernel))
        return LatentFunctions(exact, cells.mean, cells.likelihood)

    def _cells(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """Rows (B, n), or the observed cells of tables, and how many each group has."""
        ((x, targets, exposure),) = self.checked.take(rows.flatten())
        is_there = torch.ones_like(targets, dtype=torch.bool) if targets.dim() == 1 else ~targets.isnan()
        return *observed_cells(x, targets, exposure), is_there.reshape(len(rows), -1).sum(-1).tolist()

    def _at_mode(self, groups: Tensor) -> LaplaceAtMode:
        x, y, exposure, sizes = self._cells(groups)
        parts = list(torch.arange(len(x), device=x.device).split(sizes))
        problem = LocalLaplace(self._functions, x, y, exposure, parts)
        start = None
        if self._known is not None and torch.equal(self._known[0], groups):
            start = problem.start_at(self._known[1])
        at = LaplaceAtMode(problem, problem.mode(start))
        self._known, self.mode = (groups, at.latent), at.weights
        return at

    def _evidence(self, groups: Tensor) -> Tensor:
        return log_evidence(self._at_mode(groups))

    @torch.no_grad()
    def _predicted(self, given: Tensor, rows: Tensor) -> Tensor:
        """The log densities of other rows, given these, summed."""
        at = self._at_mode(given)
        kernel = at.problem.functions.kernel.exact_kernel
        x, targets, exposure, _ = self._cells(rows.unsqueeze(0))
        cross = to_dense(kernel(at.problem.x, x)).double()
        mean = at.problem.functions.mean_at(x).squeeze(-1) + exposure.log() + (cross.mT @ at.weights).squeeze(-1)
        variance = kernel(x, diag=True).double() - at.posterior.sites[0].reduction(cross.unsqueeze(0)).flatten()
        latent = MultivariateNormal(mean, torch.diag(variance.clamp_min(1e-12)))
        density: Tensor = self.model.likelihood.log_marginal(targets, latent)
        return density.mean() * len(rows)


class ClassRows(LatentRows):
    """Rows of several latent functions, such as classes, of one group: with the kernel of 96 of its rows."""

    def _narrow(self, rows: Tensor) -> tuple[LaplaceGP, LaplaceRows]:
        """The model of these rows, the same for the same rows."""
        if self._known is None or not torch.equal(self._known[0], rows):
            model, x = self.model, self.x[rows]
            kernel: Any = model.covar_module
            if kernel.has_residual_covariance and kernel.num_scalar_features > _LANDMARKS < len(rows):
                kernel = approximate(kernel.exact_kernel, _LANDMARKS, method="landmarks", train_inputs=x, seed=0)
            narrow = LaplaceGP(kernel, model.likelihood, model.mean_module, hessian=model.hessian)
            self._known, self.mode = (rows, (narrow, LaplaceRows(narrow, x, self.y[rows]))), None
        return self._known[1]

    def _evidence(self, groups: Tensor) -> Tensor:
        if len(groups) > 1:
            raise ValueError(
                f"expected one group of rows for several latent functions of a LaplaceGP, got {len(groups)}; take a "
                "subset"
            )
        narrow, checked = self._narrow(groups[0])
        value: Tensor = narrow.find_mode(checked, self.mode)
        self.mode = narrow.mode
        return value

    @torch.no_grad()
    def _predicted(self, given: Tensor, rows: Tensor) -> Tensor:
        self._evidence(given)
        narrow, _ = self._narrow(given[0])
        return log_predictive(narrow, self.x[rows], self.y[rows]).clamp_min(_LOWEST).sum()


class _WithoutFeatures:
    """An exact kernel as one that no features approximate."""

    num_scalar_features, is_complex = 0, False

    def __init__(self, kernel: Any) -> None:
        self.exact_kernel, self.parameters = kernel.exact_kernel, kernel.parameters
        self.total_outputscale = torch.ones((), dtype=torch.float64)

    def scalar_features(self, x: Tensor) -> Tensor:
        """No features of inputs (..., n, d), (..., n, 0)."""
        return x.new_zeros(*x.shape[:-1], 0)


def latent_rows(objective: LaplaceObjective) -> LatentRows:
    """The rows of a model by Laplace's approximation."""
    return (ClassRows if isinstance(objective.model.latent, SeveralFunctions) else LatentRows)(objective)

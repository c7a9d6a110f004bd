"""Several outputs as independent ones with one kernel: rotated where all cells are known, else each by itself."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from gpytorch.kernels import MultitaskKernel
from torch import Tensor

from ..inference.sums.mean_basis import mean_values
from ..linalg.last_rows import StationaryRows
from ..linalg.prediction_errors import prediction_errors, student_log_density
from ..models import WeightSpaceGP
from .composite_likelihood import Observations
from .correlated_cells import MOST_CELLS, CellCovariances, CorrelatedCells
from .missing_cells import pairwise_covariance, positive_definite
from .near_rows import NearRows
from .objectives import WeightSpaceObjective
from .output_covariances import write_covariance, write_noise
from .output_variances import OutputVariances, masked_variances, profiled_variances
from .parts import Parts
from .starts import random_rows
from .stationary import covariance, stationary_parts
from .timing import NEVER, Deadline

MOST_LEADING = 8
"""So many outputs teach the kernel; the variances of others follow from it."""
_NEIGHBORS = 32
"""Neighbors of each row that teaches the variances at the end."""
_ROTATED_ROWS, _MASKED_ROWS, _CELL_ROWS, _FEWEST_ROWS = 2000, 300, 2000, 64
"""Rows that teach variances and covariances at the end, and the fewest of the variances where time is short."""
_FACTOR_ROWS = 10_000
"""Rows that teach the factors: as many as can be, so that rare spikes are seen."""
_ROTATED_NOISE, _MASKED_NOISE = 0.05, 0.1
"""Where noises start, for outputs of unit variance."""


class IndependentOutputs(Observations):
    r"""Outputs u of covariances :math:`s_t K + n_t I`, each predicted from known cells of its own, under Student's t.

    :param residual: the outputs without their means, (N, T), with NaN for missing cells.
    :param variances: s and n.
    :param log_scale: the logarithm of their units, (T,).
    """

    search_share: ClassVar[float] = 0.8

    def __init__(
        self,
        objective: WeightSpaceObjective,
        kernel: MultitaskKernel,
        residual: Tensor,
        variances: OutputVariances,
        log_scale: Tensor,
    ) -> None:
        super().__init__(objective, kernel.data_covar_module)
        self.tasks, self.residual = kernel.task_covar_module, residual
        self.variances, self.log_scale = variances, log_scale
        self.num_factors = residual.shape[-1]

    @property
    def parts(self) -> Parts:
        return {"covar_module.": self.kernel, "outputs.": self.variances}

    def log_densities(self, groups: Tensor, targets: int) -> Tensor:
        residual = self.residual[groups].mT
        matrix = self.variances.covariance(covariance(self.kernel, self.x[groups]))
        log_scale = self.log_scale.unsqueeze(-1)
        is_known = ~residual.isnan()
        inside = is_known.unsqueeze(-1) & is_known.unsqueeze(-2)
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        errors = prediction_errors(torch.where(inside, matrix, identity), residual.nan_to_num(), targets)
        return ((student_log_density(*errors) - log_scale) * is_known[..., -targets:]).sum((-2, -1))

    def stationary_rows(self, rows: Tensor) -> StationaryRows | None:
        parts = stationary_parts(self.kernel, self.x[rows])
        if parts is None:
            return None
        residual, variances = self.residual[rows], self.variances
        noise = torch.where(residual.isnan(), math.inf, variances.noise)
        scale, columns = variances.scale * parts.scale, (residual.nan_to_num(), noise)
        return StationaryRows(parts.points, *columns, scale, parts.alpha, parts.profile, True, self.log_scale)

    def profile(self, groups: Tensor) -> None:
        self.variances.set(*profiled_variances(covariance(self.kernel, self.x[groups]), self.residual[groups]))


@torch.no_grad()
def covariances_of(model: WeightSpaceGP, kernel: MultitaskKernel) -> tuple[Tensor, Tensor]:
    """The covariances (T, T) of the outputs and of their noise, in float64."""
    return kernel.task_covar_module.covar_matrix.to_dense().double(), model.measured_noise.covariance().double()


class RotatedOutputs(IndependentOutputs):
    r"""Several outputs with :math:`\Gamma = W \mathrm{diag}(s) W^\top` and noise :math:`W \mathrm{diag}(n) W^\top`.

    W has the autocorrelation factors of the targets, or those of the model. The largest factors teach the kernel. No
    cells are missing.

    :param initialize: whether W, s and n come from the data.
    """

    def __init__(self, objective: WeightSpaceObjective, kernel: MultitaskKernel, initialize: bool) -> None:
        model, x = objective.model, objective.x
        residual = objective.y.double() - mean_values(model.mean_module, x).detach().double()
        if initialize:
            rows = random_rows(len(x), _FACTOR_ROWS).to(x.device)
            self.factors = autocorrelation_factors(residual, NearRows(x).groups(kernel.data_covar_module, rows, 1))
            noise = torch.full_like(self.factors[0], _ROTATED_NOISE)
        else:
            function, rest = covariances_of(model, kernel)
            self.factors, noise = joint_factors(function + rest, rest)
        self.rotated = torch.linalg.solve(self.factors, residual.mT).mT
        sizes = (self.factors / self.factors.norm(dim=-1, keepdim=True)).norm(dim=0)
        self.leading = sizes.argsort(descending=True)[:MOST_LEADING]
        noise = noise[self.leading]
        is_all = len(noise) == len(sizes)
        log_volume = torch.linalg.slogdet(self.factors).logabsdet if is_all else noise.new_zeros(())
        log_scale = (log_volume / len(noise)).expand(len(noise))
        variances = OutputVariances(1.0 - noise, noise)
        super().__init__(objective, kernel, self.rotated[:, self.leading], variances, log_scale)

    @torch.no_grad()
    def write(self, deadline: Deadline = NEVER) -> None:
        """Give the model the covariances of outputs and of noise, all of them learned again from normal densities."""
        rows = random_rows(len(self.x), _ROTATED_ROWS).to(self.x.device)
        groups = NearRows(self.x).groups(self.kernel, rows, _NEIGHBORS)

        def variances(count: int) -> tuple[Tensor, Tensor]:
            some = groups[:count]
            return profiled_variances(covariance(self.kernel, self.x[some]), self.rotated[some])

        scale, noise = variances(deadline.affordable(variances, len(groups), _FEWEST_ROWS))
        write_covariance(self.tasks, self.factors * scale @ self.factors.mT, self.factors * scale.sqrt())
        write_noise(self.model.likelihood, self.factors * noise @ self.factors.mT)


class MaskedOutputs(IndependentOutputs):
    """Several outputs of which cells are missing, each by itself; their covariance is learned at the end.

    The outputs of which most cells are known teach the kernel. The noise of outputs counts as independent.

    :param initialize: whether variances come from the data, not from the model.
    """

    search_share: ClassVar[float] = 0.6

    def __init__(self, objective: WeightSpaceObjective, kernel: MultitaskKernel, initialize: bool) -> None:
        model, x = objective.model, objective.x
        residual = objective.y.double() - mean_values(model.mean_module, x).detach().double()
        squares = residual.square().nanmean(0).nan_to_num()
        self.units = torch.where(squares > 0, squares, 1.0).sqrt()
        scale, noise = torch.ones_like(self.units), torch.full_like(self.units, _MASKED_NOISE)
        if not initialize:
            scale, noise = (part.diagonal() / self.units.square() for part in covariances_of(model, kernel))
        self.every, self.start = residual / self.units, OutputVariances(scale, noise)
        self.leading = (~residual.isnan()).sum(0).argsort(descending=True, stable=True)[:MOST_LEADING].sort().values
        variances = OutputVariances(scale[self.leading], noise[self.leading])
        super().__init__(objective, kernel, self.every[:, self.leading], variances, self.units[self.leading].log())

    def profile(self, groups: Tensor) -> None:
        matrix, residual = covariance(self.kernel, self.x[groups]), self.residual[groups]
        self.variances.set(*masked_variances(matrix, residual, self.variances))

    @torch.no_grad()
    def write(self, deadline: Deadline = NEVER) -> None:
        """Give the model the covariances of outputs and of noise, whose variances are learned from normal densities."""
        scale, noise = self._known_variances(deadline.affordable(self._known_variances, _MASKED_ROWS, _FEWEST_ROWS))
        function = pairwise_covariance(self.every)
        function.diagonal().mul_(scale / (scale + noise))
        root = (scale / function.diagonal()).sqrt()
        function = positive_definite(function * root.unsqueeze(-1) * root)
        learned, num_neighbors = CellCovariances(function, noise), MOST_CELLS // len(self.units) - 1
        if num_neighbors > 0:
            rows = random_rows(len(self.x), _CELL_ROWS).to(self.x.device)
            groups = NearRows(self.x).groups(self.kernel, rows, num_neighbors)
            CorrelatedCells(self.objective, self.kernel, self.every, learned).learn(groups, deadline)
        write_covariance(self.tasks, learned.function * self.units.unsqueeze(-1) * self.units)
        write_noise(self.model.likelihood, torch.diag(learned.noise * self.units.square()))

    def _known_variances(self, count: int) -> tuple[Tensor, Tensor]:
        """Scale and noise of each output, from as many of its known cells given the known ones near them."""
        scale, noise = self.start.scale.detach().clone(), self.start.noise.detach().clone()
        for output, column in enumerate(self.every.unbind(-1)):
            known = (~column.isnan()).nonzero().squeeze(-1)
            if len(known) < 2:
                continue
            rows, size = random_rows(len(known), count).to(known.device), min(_NEIGHBORS, len(known) - 1)
            groups = known[NearRows(self.x[known]).groups(self.kernel, rows, size)]
            matrix = covariance(self.kernel, self.x[groups])
            scale[output], noise[output] = profiled_variances(matrix, column[groups].unsqueeze(-1))
        return scale, noise


def joint_factors(total: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    r"""W and :math:`\lambda` (T,) with :math:`C = W W^\top` and :math:`E = W \mathrm{diag}(\lambda) W^\top`.

    :param total: C, (T, T), positive definite.
    :param part: E, (T, T).
    """
    root = torch.linalg.cholesky(total)
    white = torch.linalg.solve_triangular(root, torch.linalg.solve_triangular(root, part, upper=False).mT, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (white + white.mT))
    return root @ vectors, values


def autocorrelation_factors(residual: Tensor, groups: Tensor) -> Tensor:
    r"""The factors W (T, T) of outputs that are as smooth, and as rough, as possible.

    C is the covariance of the outputs, and E half that of the differences of near rows: what is noise in one output
    alone, such as spikes, becomes a factor of its own.

    :param residual: outputs without their means, (N, T).
    :param groups: rows and others near them, (n, 2).

    Source: P. Switzer and A. A. Green, Min/max autocorrelation factors for multivariate spatial imagery, 1984.
    """
    scale = residual.square().mean(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    unit = residual / scale
    differences = unit[groups[:, 0]] - unit[groups[:, 1]]
    factors, _ = joint_factors(pairwise_covariance(unit), 0.5 * pairwise_covariance(differences))
    return scale.unsqueeze(-1) * factors

"""The mode of latent functions at rows in blocks of near ones, and predictions from it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from ..._support import checks
from ...approximation.input_scales import input_scales
from ...inference import GaussianPosterior, WeightPosterior, noise_model
from ...inference.latent.class_prediction import ClassConditioning, ClassCovariance, ClassPrediction
from ...inference.latent.laplace import LatentFunctions, cells_of, functions_of_cells, observed_cells
from ...inference.latent.latent_terms import SeveralFunctions
from ...inference.latent.local_laplace import LaplaceAtMode, LocalLaplace, log_evidence
from ...inference.local import LocalRegression, LocalRows
from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ..record import Record
from .mode import check_shapes
from .rows import LaplaceRows

if TYPE_CHECKING:
    from .model import LaplaceGP

_ROWS = "rows."
_SMALLEST_PRECISION = 1e-15
"""Precisions of rows count as zero below this part of the largest."""


@dataclasses.dataclass(frozen=True)
class LocalMode:
    r"""The mode :math:`\alpha = K^{-1} (f - m)` (N, Q) of Q functions at rows, and Laplace's approximation there.

    For tasks the rows are the observed cells of one function.

    :param rows: with columns (N, 1 + 2 Q + P): targets, f - m, slope (N, Q), and curvature (N, P) of the log densities,
        which are the probabilities of classes for a softmax. Their ``variances`` are the exposures, (N,).
    :param mean: the mean of the weights, (Q D, 1).
    :param gram: the precision of the weights less the identity, (Q D, Q D).
    :param log_evidence: Laplace's evidence, ().
    """

    weights: Tensor
    rows: LocalRows
    mean: Tensor
    gram: Tensor
    log_evidence: Tensor
    record: Record

    @classmethod
    def search(
        cls, functions: LatentFunctions, rows: LocalRows, start: Tensor | None, record: Record
    ) -> tuple[Self, Tensor, int]:
        """The mode given rows of targets and exposures, with Laplace's evidence, and the number of passes."""
        cells = functions_of_cells(functions)
        problem = LocalLaplace(cells, rows.x, rows.columns[:, 0], rows.variances, rows.partition.blocks)
        at = LaplaceAtMode(problem, problem.mode(start))
        evidence = log_evidence(at) if torch.is_grad_enabled() else at.value
        columns = [rows.columns[:, :1], at.latent, at.terms.slope, at.terms.curvature]
        kept = LocalRows(rows.x, torch.cat(columns, dim=-1), rows.variances, rows.scales, rows.partition).detached()
        mode = cls(at.weights, kept, at.cross.flatten(0, 1), at.posterior.gram, at.value, record)
        return mode, evidence, problem.num_passes

    @property
    def num_rows_kept(self) -> int:
        """The number of rows."""
        return len(self.rows.x)

    def extended(self, x: Tensor, y: Tensor, exposure: Tensor) -> tuple[LocalRows, Tensor]:
        """The rows with more of them, and where the search for their mode begins."""
        x, y, exposure = observed_cells(x, y, exposure)
        columns = torch.nn.functional.pad(y.unsqueeze(-1), (0, self.rows.columns.shape[-1] - 1))
        rows, _ = self.rows.extended(x, columns, exposure)
        return rows, torch.nn.functional.pad(self.weights, (0, 0, 0, len(y)))

    def posterior(self, functions: LatentFunctions) -> WeightPosterior:
        """The posterior of the weights."""
        return WeightPosterior(self.gram, self.gram @ self.mean + self.mean)

    def evidence(self, functions: LatentFunctions) -> Tensor:
        """The log evidence."""
        return self.log_evidence

    @functools.cached_property
    def _sites(self) -> tuple[LocalRows, LocalRows]:
        """The rows as Gaussian ones, with variances of any sign, and with infinite ones in place of negative ones."""
        latent, slope, curvature = self.rows.columns[:, 1:].unbind(-1)
        smallest = _SMALLEST_PRECISION * curvature.abs().max().clamp_min(torch.finfo(torch.float64).tiny ** 0.5)
        signed = torch.where(curvature.abs() < smallest, smallest, curvature)
        every = []
        for precision in (signed, signed.clamp_min(smallest)):
            targets = (latent + slope / precision).unsqueeze(-1)
            every.append(LocalRows(self.rows.x, targets, 1.0 / precision, self.rows.scales, self.rows.partition))
        return every[0], every[1]

    def distribution(
        self, functions: LatentFunctions, x: Tensor, posterior: GaussianPosterior, num_neighbors: int | None
    ) -> MultivariateNormal:
        """The latent functions at inputs, given the rows of their blocks, or the nearest ones."""
        if isinstance(functions.likelihood, SeveralFunctions):
            return self._of_several(functions, x, num_neighbors)
        sites, cells = self._sites[num_neighbors is not None], functions_of_cells(functions)
        has_tasks = cells is not functions
        points = cells_of(x, functions.likelihood.num_functions) if has_tasks else x
        noise = noise_model(GaussianLikelihood())
        regression = LocalRegression(cells.kernel, ZeroMean(), noise, sites, num_neighbors)
        found: Any = regression.distribution(points, posterior)
        mean = found.mean + cells.mean_at(points).squeeze(-1).to(x.dtype)
        if has_tasks:
            return MultitaskMultivariateNormal(mean.reshape(len(x), -1), found.lazy_covariance_matrix)
        return MultivariateNormal(mean, found.lazy_covariance_matrix)

    def _of_several(self, functions: LatentFunctions, x: Tensor, num_neighbors: int | None) -> MultivariateNormal:
        with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
            count = functions.likelihood.num_functions
            conditioning = ClassConditioning(functions.kernel, self.rows, num_neighbors, count)
            prediction = ClassPrediction(conditioning, x.clone(), self.posterior(functions))
            mean, variance = prediction.moments()
            values = mean.reshape(len(x), -1) + functions.mean_at(x)
            covariance = ClassCovariance(variance.to(x.dtype), prediction.covariance, prediction)
            return MultitaskMultivariateNormal(checks.no_overflow(values, x).to(x.dtype), covariance)

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        weights, mean, gram, evidence = (
            tensor.to(device) for tensor in (self.weights, self.mean, self.gram, self.log_evidence)
        )
        return type(self)(weights, self.rows.to(device), mean, gram, evidence, self.record.to(device))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name, without the record."""
        state = {name: getattr(self, name) for name in ("weights", "mean", "gram", "log_evidence")}
        return state | {_ROWS + name: value for name, value in self.rows.state_dict().items()}

    @classmethod
    def restored(cls, state: Mapping[str, Tensor], record: Record) -> Self:
        """The mode of a state; a KeyError where something is missing."""
        rows = {name.removeprefix(_ROWS): value for name, value in state.items() if name.startswith(_ROWS)}
        weights, mean, gram, evidence = (state[name] for name in ("weights", "mean", "gram", "log_evidence"))
        return cls(weights, LocalRows.from_state_dict(rows), mean, gram, evidence, record)

    def check(self, functions: LatentFunctions) -> None:
        """Raise a ValueError where it is no mode of these functions."""
        cells, count = functions_of_cells(functions), len(self.rows.x)
        columns = cells.likelihood.num_functions
        width = columns * cells.num_features
        found = [tuple(part.shape) for part in (self.weights, self.rows.columns, self.mean, self.gram)]
        kept = 1 + 2 * columns + cells.likelihood.num_in_blocks
        check_shapes(found, [(count, columns), (count, kept), (width, 1), (width, width)])


def rows_in_blocks(model: LaplaceGP, data: LaplaceRows, before: LocalMode | None) -> LocalRows:
    """The rows of a fit in blocks of at most ``model.block_size``; inputs keep their blocks during training."""
    x, y, exposure = observed_cells(*map(torch.cat, zip(*data, strict=True)))
    scales = _scales(model, x)
    known = None if before is None else before.rows
    size = len(x) if model.block_size is None else model.block_size
    return LocalRows.of(x, y.unsqueeze(-1), exposure, scales, size, known)


def _scales(model: LaplaceGP, x: Tensor) -> Tensor:
    """What inputs are multiplied by before distances are measured; cells of all tasks at an input are equally near."""
    parts = model.covar_module.separated() if model.covar_module.has_output_factor else None
    if parts is None:
        return input_scales(model.covar_module.exact_kernel, x)
    num_tasks = len(parts[1])
    scales = input_scales(parts[0].exact_kernel, x[:, :-num_tasks])
    return torch.cat([scales, scales.new_zeros(num_tasks, *scales.shape[1:])])

"""Models of one stream on the same Fourier grid, whose sums hold for the parameters of all: solved at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..._support import checks
from ...approximation.reference_tensor import reference_tensor
from ...inference.posterior.covariance import WeightSpaceCovariance, plus_residual
from ...inference.posterior.factor import OutputFactor
from ...inference.posterior.posterior import GaussianPosterior
from ...inference.sums.grid_statistics import is_wide
from ...inference.sums.mean_basis import basis, coefficients
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...likelihoods import MultivariateNormal
from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ..profiled_evidence import FreeLevels, ProfiledEvidence
from ..record import Record
from ..weight_space.model import WeightSpaceGP


class GridMembers:
    """K models of one output with the same grid and sums; amplitudes, noise and mean are those of their parameters."""

    def __init__(self, models: Sequence[WeightSpaceGP]) -> None:
        self.models = list(models)
        kernels = [model.covar_module for model in models]
        self.grid, self.mean = kernels[0].frequency_grid.clone(), models[0].mean_module
        self._parameters = {f"{k}.{name}": p for k, model in enumerate(models) for name, p in model.named_parameters()}
        with torch.no_grad():
            self.roots = self._output_roots()
            places = torch.cat([self.grid.middle, self.grid.far]).to(reference_tensor(kernels[0]))
            self.unit_amplitudes = torch.stack([kernel.summed_amplitudes for kernel in kernels])
            missing = torch.stack([kernel.residual_variance(places).double() for kernel in kernels])
        self.unit_missing = missing / self.roots.square()  # in the box and outside, (K, 2)
        self._take_levels()

    @torch.no_grad()
    def _take_levels(self) -> None:
        """Take noise variances, output scales and means of the models."""
        self._record, self.roots = Record(self._parameters), self._output_roots()
        self.amplitudes, self.missing = self.unit_amplitudes * self.roots, self.unit_missing * self.roots.square()
        self.measured = torch.stack([model.likelihood.noise.double().reshape(()) for model in self.models])
        self.noise = self.measured + self.missing[:, 0]
        means = [coefficients(model.mean_module, 1, self.roots.device) for model in self.models]
        self.mean_weights = torch.cat(means, -1).mT

    def _output_roots(self) -> Tensor:
        return torch.stack([model.covar_module.output_factor().double().reshape(1) for model in self.models])

    @classmethod
    def of(cls, models: Sequence[WeightSpaceGP]) -> Self | None:
        """The members; None for several or complex outputs, noise of rows, and sums that do not hold for all."""
        model = models[0]
        is_plain = isinstance(model.likelihood, GaussianLikelihood) and not model.noise.is_complex
        has_one_grid = model.covar_module.frequency_grid is not None and not model.covar_module.has_output_factor
        is_dense = not is_wide(model.covar_module, model.noise)
        return cls(models) if model.sums_hold and is_plain and has_one_grid and is_dense else None

    @property
    def is_current(self) -> bool:
        """Whether the models still have the parameters of which these members were made."""
        return self._record.is_of(self._parameters)

    @torch.no_grad()
    def learn(self, statistics: SufficientStatistics) -> None:
        """Maximize the evidence of every model over its noise variance, output scale and mean."""
        amplitudes = self.unit_amplitudes.unsqueeze(-1)
        values, vectors = torch.linalg.eigh(amplitudes * statistics.gram[0] * amplitudes.mT)
        crosses, squares = statistics.targets.of_targets()
        projected = vectors.mT @ (amplitudes * crosses[0])
        for k, model in enumerate(self.models):
            if free := FreeLevels.of(model):
                sums = values[k].clamp_min(0.0), projected[k], squares[0]
                profiled = ProfiledEvidence(*sums, statistics.num_rows, float(self.unit_missing[k, 0]))
                free.place(model, profiled.best(free))
        self._take_levels()

    @torch.no_grad()
    def solved(self, statistics: SufficientStatistics) -> SolvedMembers:
        """The posteriors and evidences of all members."""
        return SolvedMembers(self, statistics)


class SolvedMembers:
    r"""Posteriors and evidences of members with the features :math:`\psi(x) A_k`, in the weights of plain waves.

    .. math:: B_k = I + A_k G A_k / s_k, \qquad v_k = A_k B_k^{-1} A_k \Psi^\top (y - m_k) / s_k
    """

    def __init__(self, members: GridMembers, statistics: SufficientStatistics) -> None:
        self.members = members
        amplitudes, noise = members.amplitudes, members.noise
        residuals = torch.nn.functional.pad(-members.mean_weights, (1, 0), value=1.0).mT
        crosses, squares = statistics.targets.of_combination(residuals)
        cross = amplitudes * crosses[0].mT / noise.unsqueeze(-1)
        gram = amplitudes.unsqueeze(-1) * statistics.gram[0] * amplitudes.unsqueeze(-2) / noise[:, None, None]
        gram.diagonal(dim1=-2, dim2=-1).add_(1.0)
        self.factors = factor_of(gram)
        half = torch.linalg.solve_triangular(self.factors, cross.unsqueeze(-1), upper=False)
        quadratic = squares[0].diagonal() / noise - half.square().sum((-2, -1))
        log_det = log_determinant_of(self.factors) + statistics.count[0] * noise.log() + statistics.log_noise.sum()
        self.log_evidences = -0.5 * (quadratic + log_det + statistics.num_rows * math.log(2.0 * math.pi))
        weights = torch.linalg.solve_triangular(self.factors.mT, half, upper=True).squeeze(-1) * amplitudes
        self.weights = torch.cat([weights, members.mean_weights], dim=-1)

    @property
    def shares(self) -> Tensor:
        """The weights of the members in their mixture, (K,)."""
        return self.log_evidences.softmax(0)

    def distribution(self, x: Tensor, negligible: float, has_noise: bool) -> MultivariateNormal:
        """The moments of the mixture at inputs (..., N, d), perhaps with noise; negligible members are left out."""
        checks.finite(checks.inputs(x).detach())
        members, chosen = self.members, self.shares > negligible
        shares = self.shares[chosen] / self.shares[chosen].sum()
        weights, grid = self.weights[chosen], members.grid
        posterior = MixedWeights(
            shares, weights, members.amplitudes[chosen].unsqueeze(-1) * _inverse(self.factors[chosen]).mT
        )
        features = functools.partial(_features, grid, members.mean)
        mean = (features(x) @ posterior.mean).squeeze(-1).to(x.dtype)
        unit = OutputFactor.kronecker(torch.ones(1, 1, dtype=torch.float64, device=weights.device), weights.shape[-1])
        is_inside = grid.is_inside(grid.phases(x)).all(-1)
        inside, outside = (shares @ members.missing[chosen]).unbind()
        residual = torch.where(is_inside, inside, outside)
        if has_noise:
            residual = residual + shares @ members.measured[chosen]
        covariance = plus_residual(WeightSpaceCovariance(x.clone(), posterior, unit, features), residual)
        return MultivariateNormal(mean, covariance)


class MixedWeights(GaussianPosterior):
    """The mean and covariance of a mixture of normal weights.

    :param shares: (K,), which sum to one.
    :param means: (K, D + k).
    :param roots: those of the covariances of the first D weights, (K, D, D).
    """

    def __init__(self, shares: Tensor, means: Tensor, roots: Tensor) -> None:
        self.mean = (shares @ means).unsqueeze(-1)
        roots = shares.sqrt()[:, None, None] * roots
        within = torch.nn.functional.pad(roots.movedim(0, 1).flatten(1), (0, 0, 0, means.shape[-1] - roots.shape[-2]))
        self.root = torch.cat([within, (means.mT - self.mean) * shares.sqrt()], dim=-1)

    def solve(self, rhs: Tensor) -> Tensor:
        return self.root @ (self.root.mT @ rhs)

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        return scalar.double() @ self.root

    def deviations(self, num_samples: int) -> Tensor:
        return self.root @ torch.randn(self.root.shape[-1], num_samples).to(self.root)


def _features(grid: Any, mean: Any, x: Tensor) -> Tensor:
    """The plain waves of a grid in its box, and the basis of a mean function, (..., N, D + k), in float64."""
    phases = grid.phases(x)
    waves = grid.features(phases) * grid.is_inside(phases).all(-1, keepdim=True)
    columns = basis(mean, x.flatten(0, -2)).unflatten(0, x.shape[:-1])
    return torch.cat([waves, columns.double()], dim=-1)


def _inverse(factors: Tensor) -> Tensor:
    """The inverses of lower triangular matrices, (..., D, D)."""
    identity = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    return torch.linalg.solve_triangular(factors, identity.expand_as(factors), upper=False)

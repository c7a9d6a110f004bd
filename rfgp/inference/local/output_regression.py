"""Regression of the outputs of a separable kernel in blocks of near rows."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..._support import checks
from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ..posterior.posterior import WeightPosterior
from ..sums.mean_basis import mean_values
from ..sums.residual_pass import TrainingRows
from ..sums.sufficient_statistics import SufficientStatistics
from .output_systems import OutputSystems
from .system_prediction import SystemConditioning
from .system_regression import Covariance, SystemCovariance, SystemRegression


class OutputRegression(SystemRegression):
    """Outputs that are mixed of the functions of :class:`OutputSystems`."""

    systems: OutputSystems

    @property
    def mixing(self) -> Tensor:
        return self.systems.mixing

    def log_marginal_likelihood(self, statistics: SufficientStatistics, data: TrainingRows | None = None) -> Tensor:
        evidence = super().log_marginal_likelihood(statistics)
        if torch.is_grad_enabled():
            rotations = self.systems.rotations()
            if rotations.requires_grad:
                evidence = evidence + (self._rotation_slopes(statistics) * rotations).triu(1).sum()
        return evidence

    @torch.no_grad()
    def _rotation_slopes(self, statistics: SufficientStatistics) -> Tensor:
        r"""The derivatives of the evidence in the signal between rotated outputs, (S, S).

        .. math:: \alpha_t^\top K \alpha_u, \qquad \alpha_t = (\gamma_t K + V)^{-1} z_t, \qquad
            K \alpha_u = (z_u - V \alpha_u) / \gamma_u

        with the covariance K of features and residual, and the variances V of rows whose noise is one.
        """
        detached = type(statistics).from_state_dict(statistics.state_dict())
        posterior = self.equations(detached).posterior()
        conditioned = [self.system(number).solved(posterior.mean[number]) for number in range(len(posterior.mean))]
        scales = self.systems.scales
        alpha = torch.stack(conditioned) / scales.sqrt().unsqueeze(-1)
        targets = self.systems.targets(self.local.columns) * scales.sqrt().unsqueeze(-1)
        known = (targets - self.local.variances * alpha) / scales.unsqueeze(-1)
        return alpha @ known.mT

    def point_moments(
        self, x: Tensor, posterior: WeightPosterior, has_variance: bool, conditioning: SystemConditioning
    ) -> tuple[Tensor, Tensor]:
        functions, variance = conditioning.moments(x, posterior, has_variance)
        return functions.mT @ self.mixing.mT + mean_values(self.mean, x), variance.mT @ self.mixing.square().mT

    def _distribution(
        self, x: Tensor, functions: Tensor, variance: Tensor, covariance: Covariance
    ) -> MultivariateNormal:
        mixing = self.mixing
        mean = checks.no_overflow(functions.mT @ mixing.mT + mean_values(self.mean, x), x)

        def joint() -> Tensor:
            outer = [column.unsqueeze(-1) * column for column in mixing.mT]
            return functools.reduce(torch.add, (torch.kron(covariance(s), part) for s, part in enumerate(outer)))

        of_outputs = (variance.mT @ mixing.square().mT).flatten()
        return MultitaskMultivariateNormal(mean.to(x.dtype), SystemCovariance(of_outputs.to(x.dtype), joint))

"""The noise of complex targets as that of two real outputs, their real and their imaginary parts."""

from __future__ import annotations

from typing import Any, Self

import torch
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from ..._support import checks
from ...likelihoods.complex_gaussian import ComplexGaussianLikelihood, ComplexNoise, FixedNoiseComplexGaussianLikelihood
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .base import NoiseModel, ObservedTargets, Targets, complete, noise_of_observed, registered, weights_of


@registered(ComplexGaussianLikelihood, FixedNoiseComplexGaussianLikelihood)
class ComplexParts(NoiseModel):
    r"""Noise with a covariance of real and imaginary part, for improper noise and for kernels of two outputs.

    .. math:: \mathrm{Cov} \begin{pmatrix} \mathrm{Re}\, \epsilon_n \\ \mathrm{Im}\, \epsilon_n \end{pmatrix} =
        \frac{s_n}{2} \begin{pmatrix} 1 + \mathrm{Re}\, \rho & \mathrm{Im}\, \rho \\
        \mathrm{Im}\, \rho & 1 - \mathrm{Re}\, \rho \end{pmatrix}

    for the circularity :math:`\rho`. Rows are one group with weights :math:`1 / s_n`, zero for missing targets.
    """

    is_of_parts = True

    def __init__(self, likelihood: Any) -> None:
        super().__init__(Targets(num_outputs=2, has_columns=True))
        self.likelihood = likelihood
        self.is_fixed = isinstance(likelihood, FixedNoiseComplexGaussianLikelihood)

    @classmethod
    def of_likelihood(cls, likelihood: Likelihood, targets: Targets) -> Self | None:
        if not isinstance(likelihood, ComplexNoise) or not (targets.has_columns or likelihood.has_pseudo_noise):
            return None
        if targets.has_columns and targets.num_outputs != 2:
            raise ValueError(
                "expected a scalar kernel for complex targets, or one of two outputs, the real and the imaginary part, "
                f"got one of {targets.num_outputs}; use a MultitaskKernel of two tasks"
            )
        with_noise: Any = likelihood
        if not isinstance(likelihood, FixedNoiseComplexGaussianLikelihood) and with_noise.noise.numel() != 1:
            raise ValueError(
                f"expected a likelihood with one noise variance, got a batch of shape {tuple(with_noise.noise.shape)}; "
                "fit one model per element"
            )
        return cls(likelihood)

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        if not checks.tensor(y, "y").is_complex():
            raise ValueError(f"expected complex targets, got {y.dtype}; use torch.complex(real, imaginary)")
        values, observed = complete(y)
        parts = torch.view_as_real(checks.targets(values, x).resolve_conj())
        columns = torch.cat([parts, basis.to(parts.dtype)], dim=-1)
        return ObservedTargets(columns, observed, self._variances(x, y, noise, observed, is_all))

    def rows_of(self, observations: ObservedTargets) -> Rows:
        columns, observed, variances, *_ = observations
        if variances is None:
            return Rows(columns, None if observed is None else observed.to(columns.dtype).unsqueeze(-1))
        learned = self.likelihood.second_noise_covar
        variances = variances if learned is None else variances + learned.noise.double()
        weights, log_noise = weights_of(variances, observed)
        return Rows(columns, weights.unsqueeze(-1), log_noise.unsqueeze(-1))

    def _variances(
        self, x: Tensor, y: Tensor, noise: Tensor | None, observed: Tensor | None, is_all: bool
    ) -> Tensor | None:
        """The known noise variances of the rows, (N,), in float64."""
        if not self.is_fixed:
            if noise is not None:
                raise ValueError(
                    "expected no noise for a likelihood that learns it, got some; use "
                    "FixedNoiseComplexGaussianLikelihood"
                )
            return None
        fixed: Tensor = self.likelihood.noise_covar.noise.to(x) if noise is None else noise
        if noise is None and (not is_all or fixed.shape != y.shape):
            raise ValueError(
                f"expected the noise of {len(y)} rows, got a likelihood that knows {fixed.shape[-1]}; pass noise="
            )
        return checks.noise(noise_of_observed(fixed, observed), x).double()

    def _covariance(self) -> Tensor:
        """The covariance (2, 2) of the parts of noise of weight one, in float64."""
        circularity = self.likelihood.circularity.reshape(()).to(torch.complex128)
        real, imaginary = circularity.real, circularity.imag
        top, bottom = torch.stack([1.0 + real, imaginary]), torch.stack([imaginary, 1.0 - real])
        half = 0.5 * torch.stack([top, bottom])
        return half if self.is_fixed else half * self.likelihood.noise.double().reshape(())

    @property
    def has_one_covariance(self) -> bool:
        return not self.is_fixed

    def covariance(self) -> Tensor:
        return super().covariance() if self.is_fixed else self._covariance()

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        return [torch.linalg.inv(self._covariance())]

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        return statistics.count.sum() * torch.logdet(self._covariance()) + 2.0 * statistics.log_noise.sum()

    def smallest(self, rows: Rows) -> float:
        return float(torch.linalg.eigvalsh(self._covariance().detach()).min()) / rows.largest_weight

    def parameters(self) -> dict[str, Tensor]:
        extra = self.likelihood.second_noise_covar if self.is_fixed else None
        if extra is None:
            return {}
        return {f"likelihood.second_noise_covar.{name}": value for name, value in extra.named_parameters()}

    def num_values(self, statistics: SufficientStatistics) -> float:
        return 2.0 * statistics.num_rows

"""A known noise variance for every row and output, plus a learned one where the likelihood has it."""

from __future__ import annotations

from typing import Any, Self

import torch
from gpytorch.likelihoods import DirichletClassificationLikelihood, FixedNoiseGaussianLikelihood, Likelihood
from torch import Tensor

from ..._support import checks
from ...likelihoods import FixedNoiseComplexGaussianLikelihood, MultitaskFixedNoiseGaussianLikelihood
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .base import NoiseModel, ObservedTargets, Targets, noise_of_observed, registered, unit_matrices, weights_of


@registered(FixedNoiseGaussianLikelihood, MultitaskFixedNoiseGaussianLikelihood)
class KnownNoise(NoiseModel):
    """Noise with a variance of its own for every observation, which the statistics contain: a group per output."""

    def __init__(self, targets: Targets, likelihood: Any = None) -> None:
        super().__init__(targets)
        self.likelihood = likelihood

    @classmethod
    def of_likelihood(cls, likelihood: Likelihood, targets: Targets) -> Self | None:
        is_several = isinstance(likelihood, MultitaskFixedNoiseGaussianLikelihood) and targets.has_columns
        is_fixed = isinstance(likelihood, FixedNoiseGaussianLikelihood)
        is_single = (
            is_fixed and targets.num_outputs == 1 and not isinstance(likelihood, DirichletClassificationLikelihood)
        )
        if isinstance(likelihood, FixedNoiseComplexGaussianLikelihood):
            is_single = not targets.has_columns and not likelihood.has_pseudo_noise
            targets = targets._replace(is_complex=True)
        return cls(targets, likelihood) if is_several or is_single else None

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        columns, observed, *_ = self.targets.columns(x, y, basis)
        variances = self._checked(self._noise(y, noise, is_all).to(x) if noise is None else noise, x, observed)
        return ObservedTargets(columns, observed, variances)

    def rows_of(self, observations: ObservedTargets) -> Rows:
        columns, observed, variances, *_ = observations
        if variances is None:
            raise ValueError("expected known noise variances of the rows, got none; pass noise=")
        learned = getattr(self.likelihood, "second_noise_covar", None)
        variances = variances if learned is None else variances + learned.noise.double()
        weights, log_noise = weights_of(variances, observed)
        return Rows(columns, weights, log_noise, num_groups=self.num_outputs)

    def _noise(self, y: Tensor, noise: Tensor | None, is_all: bool) -> Tensor:
        """The noise that the likelihood knows of the training rows."""
        fixed: Tensor = self.likelihood.noise_covar.noise
        if self.targets.has_columns:
            if not is_all:
                raise ValueError(f"expected the noise of {len(y)} rows beside each batch, got none; pass noise=")
        elif not is_all or fixed.shape != y.shape:
            raise ValueError(
                f"expected the noise of {len(y)} rows, got a likelihood that knows {fixed.shape[-1]}; pass noise="
            )
        return fixed

    def _checked(self, noise: Tensor, x: Tensor, observed: Tensor | None) -> Tensor:
        """The noise variances of every output, (N, T), in float64; ones where it is missing."""
        if not self.targets.has_columns:
            present = noise_of_observed(noise, None if observed is None else observed.squeeze(-1))
            return checks.noise(present, x).double().unsqueeze(-1)
        if not isinstance(noise, Tensor) or not noise.is_floating_point():
            got = noise.dtype if isinstance(noise, Tensor) else type(noise).__name__
            raise ValueError(f"expected a floating-point tensor for noise, got {got}; pass a variance per observation")
        checks.same_kind(noise, x, "noise", "x")
        values, shape = self.targets.by_output(noise), (len(x), self.num_outputs)
        if values.shape != shape:
            raise ValueError(f"expected noise of shape {shape}, got {tuple(noise.shape)}; pass noise=")
        present = values if observed is None else torch.where(observed, values, torch.ones_like(values))
        is_good = (present > 0) & torch.isfinite(present)
        if not bool(is_good.all()):
            raise ValueError(
                "expected positive, finite noise variances of what is observed, got "
                f"{float(present[~is_good][0]):g}; correct them"
            )
        return present.double()

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        return [*unit_matrices(self.num_outputs, torch.as_tensor(self.likelihood.noise_covar.noise).device)]

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        return statistics.log_noise.sum()

    def smallest(self, rows: Rows) -> float:
        return float("inf") if rows.weights is None else 1.0 / float(rows.weights.detach().max())

    def parameters(self) -> dict[str, Tensor]:
        return {f"likelihood.{name}": value for name, value in self.likelihood.named_parameters()}

    @property
    def numbers_of_groups(self) -> tuple[int, ...]:
        return (self.num_outputs,)

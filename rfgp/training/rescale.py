"""Noise variance, output scale and mean of a fitted model, learned again from its statistics."""

from __future__ import annotations

from typing import ClassVar

from gpytorch.kernels import Kernel
from torch import Tensor

from ..models import WeightSpaceGP
from ..models.spectral_evidence import SpectralEvidence, spectral_evidence
from .moments import DataMoments
from .objectives import Objective


class SpectralObjective(Objective):
    """The evidence of a fitted model as a function of what its statistics do not contain."""

    centers_inputs: ClassVar[bool] = False
    can_take_rows = False

    def __init__(self, evidence: SpectralEvidence, x: Tensor, moments: DataMoments) -> None:
        self.model, self.x, self.moments = evidence.model, x, moments
        self.spectral_evidence = evidence

    @property
    def num_rows(self) -> int:
        return int(self.spectral_evidence.statistics.num_rows)

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        return self.spectral_evidence.value()

    def finish(self) -> Tensor:
        return self.model.log_marginal_likelihood()

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor] | None:
        return None


def spectral_objective(model: WeightSpaceGP, x: Tensor, moments: DataMoments) -> SpectralObjective | None:
    """The objective of a fitted model, or None where its evidence has another form, or nothing is left to learn."""
    evidence = spectral_evidence(model)
    return None if evidence is None else SpectralObjective(evidence, x, moments)

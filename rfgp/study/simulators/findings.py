"""What an uncertainty study has found, as values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...diagnostics.sensitivity import MainEffects, Propagation, ShapleyEffects, SobolIndices
from .check import Check
from .failures import Failures
from .kinks import Kink
from .limits import Limits
from .runs import Runs


@dataclass(frozen=True)
class Findings:
    """What runs of a simulator tell about it; :class:`UncertaintyStudy` says what the fields are."""

    runs: Runs
    check: Check
    shares: SobolIndices | ShapleyEffects
    effects: MainEffects | None
    propagation: Propagation
    failed: Tensor
    failures: Failures
    lost: Tensor
    limits: Limits
    kinks: list[list[Kink]]
    exceedance: dict[str, tuple[float, float, float, float]]
    next_inputs: Tensor
    model_std: Tensor

    @property
    def sobol(self) -> SobolIndices:
        """The ``shares`` of independent inputs; a ValueError for others."""
        if not isinstance(self.shares, SobolIndices):
            raise ValueError("expected independent inputs for Sobol' indices, got a copula; read study.shapley")
        return self.shares

    @property
    def shapley(self) -> ShapleyEffects:
        """The ``shares`` of inputs that depend on each other; a ValueError for others."""
        if not isinstance(self.shares, ShapleyEffects):
            raise ValueError(
                "expected inputs that depend on each other for Shapley effects, got independent ones; read study.sobol"
            )
        return self.shares

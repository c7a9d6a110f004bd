"""What an uncertainty study has found, as values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...diagnostics.sensitivity import MainEffects, Propagation, SobolIndices
from .check import Check
from .runs import Runs


@dataclass(frozen=True)
class Findings:
    """What runs of a simulator tell about it; :class:`UncertaintyStudy` says what the fields are."""

    runs: Runs
    check: Check
    sobol: SobolIndices
    effects: MainEffects
    propagation: Propagation
    exceedance: dict[str, tuple[float, float, float, float]]
    next_inputs: Tensor
    model_std: Tensor

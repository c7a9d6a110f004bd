"""What an uncertainty study has found, as values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...diagnostics.sensitivity import MainEffects, Propagation, SobolIndices
from .check import Check
from .failures import Failures
from .limits import Limits
from .runs import Runs


@dataclass(frozen=True)
class Findings:
    """What runs of a simulator tell about it; :class:`UncertaintyStudy` says what the fields are."""

    runs: Runs
    check: Check
    sobol: SobolIndices
    effects: MainEffects
    propagation: Propagation
    failed: Tensor
    failures: Failures
    lost: Tensor
    limits: Limits
    exceedance: dict[str, tuple[float, float, float, float]]
    next_inputs: Tensor
    model_std: Tensor

"""Gaussian processes in weight space: one model, its sums over rows, and what is computed from them."""

from .changes import RefitError
from .model import WeightSpaceGP

__all__ = ["RefitError", "WeightSpaceGP"]

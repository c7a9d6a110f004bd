"""Models that work in weight space."""

from .weight_space import WeightSpaceGP

__all__ = ["WeightSpaceGP"]

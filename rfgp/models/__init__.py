"""Models that work in weight space."""

from .localized import LocalizedMaclaurinGP
from .weight_space import WeightSpaceGP

__all__ = ["LocalizedMaclaurinGP", "WeightSpaceGP"]

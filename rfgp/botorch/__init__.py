"""Models and samples for BoTorch. Importing them needs BoTorch."""

from .model import WeightSpaceModel

__all__ = ["WeightSpaceModel"]

"""Models and samples for BoTorch. Importing them needs BoTorch."""

from .model import ModelSamples, WeightSpaceModel

__all__ = ["ModelSamples", "WeightSpaceModel"]

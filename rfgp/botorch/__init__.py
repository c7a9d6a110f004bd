"""Models and samples for BoTorch: importing this registers the features of kernels with its pathwise sampling."""

from .model import ModelSamples, WeightSpaceModel
from .pathwise import PathwiseFeatureMap

__all__ = ["ModelSamples", "PathwiseFeatureMap", "WeightSpaceModel"]

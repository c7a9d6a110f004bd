"""Models and samples for BoTorch: importing this registers the features of kernels with its pathwise sampling."""

from .model import WeightSpaceModel
from .pathwise import PathwiseFeatureMap

__all__ = ["PathwiseFeatureMap", "WeightSpaceModel"]

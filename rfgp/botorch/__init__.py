"""Kernels with features in BoTorch: importing this registers their features with its pathwise sampling."""

from .pathwise import PathwiseFeatureMap

__all__ = ["PathwiseFeatureMap"]

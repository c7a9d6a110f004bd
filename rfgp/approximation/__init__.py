"""Exact kernels become kernels with features: families, selection, hooks for GPyTorch. It knows no rows of data."""

from . import families as families
from .entry import approximate
from .family import Family, approximates, family
from .feature_kernel import FeatureKernel, with_features
from .hilbert_schmidt import hilbert_schmidt_variance
from .hooks.normal_density import use_features
from .hooks.variational import watch_models
from .landmark_kernel import LandmarkKernel
from .method import METHODS

__all__ = [
    "METHODS",
    "Family",
    "FeatureKernel",
    "LandmarkKernel",
    "approximate",
    "approximates",
    "family",
    "hilbert_schmidt_variance",
    "with_features",
]

use_features()
watch_models()

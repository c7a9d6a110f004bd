"""Exact kernels become kernels with features: families, selection, hooks for GPyTorch. It knows no rows of data."""

from . import families as families
from .approximated import with_features
from .entry import approximate
from .family import Family, approximates, family
from .feature_kernel import FeatureKernel
from .hilbert_schmidt import hilbert_schmidt_variance
from .hooks.normal_density import use_features
from .hooks.variational import watch_models
from .landmark_kernel import LandmarkKernel
from .method import METHODS
from .random_feature_kernel import RandomFeatureKernel

__all__ = [
    "METHODS",
    "Family",
    "FeatureKernel",
    "LandmarkKernel",
    "RandomFeatureKernel",
    "approximate",
    "approximates",
    "family",
    "hilbert_schmidt_variance",
    "with_features",
]

use_features()
watch_models()

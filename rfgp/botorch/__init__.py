"""Models and samples for BoTorch: importing this registers the features of kernels with its pathwise sampling."""

import importlib.util

if importlib.util.find_spec("botorch") is None:
    raise ImportError(
        "expected BoTorch for rfgp.botorch, got none; install the extra botorch, from a checkout by "
        "pip install '.[botorch]'"
    )

from .model import WeightSpaceModel
from .pathwise import FunctionPath, PathwiseFeatureMap
from .samples import ModelSamples

__all__ = ["FunctionPath", "ModelSamples", "PathwiseFeatureMap", "WeightSpaceModel"]

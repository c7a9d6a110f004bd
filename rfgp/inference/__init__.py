"""Inference in weight space: noise models, additive statistics, normal equations, posteriors and covariances."""

from .accumulation import ScalarFeatures, accumulate
from .covariance import CovariancePlusResidual, WeightSpaceCovariance, plus_residual
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .mixture import mixture
from .noise import NoiseModel, noise_model
from .posterior import WeightPosterior
from .regression import Regression
from .residual_pass import TrainingRows
from .rows import Rows
from .square_root import SquareRootPosterior
from .statistics import GramStatistics
from .sums import Group, WeightedSums
from .system import WeightSystem

__all__ = [
    "CovariancePlusResidual",
    "GramStatistics",
    "Group",
    "KroneckerPosterior",
    "NoiseModel",
    "OutputFactor",
    "Regression",
    "Rows",
    "ScalarFeatures",
    "SquareRootPosterior",
    "TrainingRows",
    "WeightPosterior",
    "WeightSpaceCovariance",
    "WeightSystem",
    "WeightedSums",
    "accumulate",
    "mixture",
    "noise_model",
    "plus_residual",
]

"""Inference in weight space: noise models, additive statistics, normal equations, posteriors and covariances."""

from .accumulation import ScalarFeatures, accumulate
from .covariance import CovariancePlusResidual, WeightSpaceCovariance, plus_residual
from .expected_log_likelihood import ExpectedLogLikelihood, expected_log_likelihood
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .mixture import mixture
from .noise import NoiseModel, noise_model
from .posterior import WeightPosterior
from .regression import Regression
from .residual_pass import TrainingRows
from .rows import Rows
from .statistics import GramStatistics
from .sums import Group, WeightedSums
from .system import WeightSystem
from .variational import GaussianWeights, WeightDistribution

__all__ = [
    "CovariancePlusResidual",
    "ExpectedLogLikelihood",
    "GaussianWeights",
    "GramStatistics",
    "Group",
    "KroneckerPosterior",
    "NoiseModel",
    "OutputFactor",
    "Regression",
    "Rows",
    "ScalarFeatures",
    "TrainingRows",
    "WeightDistribution",
    "WeightPosterior",
    "WeightSpaceCovariance",
    "WeightSystem",
    "WeightedSums",
    "accumulate",
    "expected_log_likelihood",
    "mixture",
    "noise_model",
    "plus_residual",
]

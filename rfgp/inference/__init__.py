"""Inference in weight space: noise models, additive statistics, normal equations, posteriors and covariances."""

from .accumulation import ScalarFeatures, accumulate
from .complex_regression import ComplexRegression, PlaneFeatures
from .covariance import CholeskyRoot, CovariancePlusResidual, RootCovariance, WeightSpaceCovariance, plus_residual
from .draws import FunctionDraws, MixtureDraws, WeightPrior, drawn_weights
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .leave_one_out import LeaveOneOut
from .mixture import mixture
from .noise import NoiseModel, noise_model
from .posterior import WeightPosterior
from .regression import Regression
from .residual_pass import TrainingRows
from .rows import Rows
from .statistics import GramStatistics
from .sums import Group, WeightedSums
from .system import WeightSystem

__all__ = [
    "CholeskyRoot",
    "ComplexRegression",
    "CovariancePlusResidual",
    "FunctionDraws",
    "GramStatistics",
    "Group",
    "KroneckerPosterior",
    "LeaveOneOut",
    "MixtureDraws",
    "NoiseModel",
    "OutputFactor",
    "PlaneFeatures",
    "Regression",
    "RootCovariance",
    "Rows",
    "ScalarFeatures",
    "TrainingRows",
    "WeightPosterior",
    "WeightPrior",
    "WeightSpaceCovariance",
    "WeightSystem",
    "WeightedSums",
    "accumulate",
    "drawn_weights",
    "mixture",
    "noise_model",
    "plus_residual",
]

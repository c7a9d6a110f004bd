"""Inference in weight space: noise models, additive statistics, normal equations, posteriors and covariances."""

from .accumulation import ScalarFeatures, accumulate
from .class_posterior import ClassPosterior
from .class_statistics import ClassStatistics
from .complex_regression import ComplexRegression, PlaneFeatures
from .covariance import CholeskyRoot, CovariancePlusResidual, RootCovariance, WeightSpaceCovariance, plus_residual
from .draws import FunctionDraws, MixtureDraws, WeightPrior, drawn_weights
from .expected_log_likelihood import ExpectedLogLikelihood, expected_log_likelihood
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .leave_out import LeaveGroupOut, LeaveOneOut
from .mixture import mixture
from .noise import NoiseModel, noise_model
from .point_predictor import PointMixture, PointMoments, PointPredictor, has_point_predictor
from .point_variance import PointVariance
from .posterior import GaussianPosterior, WeightPosterior
from .regression import Regression
from .residual_pass import TrainingRows
from .rows import Rows
from .square_root import SquareRootPosterior
from .statistics import GramStatistics
from .sums import Group, WeightedSums
from .system import WeightSystem
from .variational import GaussianWeights, WeightDistribution

__all__ = [
    "CholeskyRoot",
    "ClassPosterior",
    "ClassStatistics",
    "ComplexRegression",
    "CovariancePlusResidual",
    "ExpectedLogLikelihood",
    "FunctionDraws",
    "GaussianPosterior",
    "GaussianWeights",
    "GramStatistics",
    "Group",
    "KroneckerPosterior",
    "LeaveGroupOut",
    "LeaveOneOut",
    "MixtureDraws",
    "NoiseModel",
    "OutputFactor",
    "PlaneFeatures",
    "PointMixture",
    "PointMoments",
    "PointPredictor",
    "PointVariance",
    "Regression",
    "RootCovariance",
    "Rows",
    "ScalarFeatures",
    "SquareRootPosterior",
    "TrainingRows",
    "WeightDistribution",
    "WeightPosterior",
    "WeightPrior",
    "WeightSpaceCovariance",
    "WeightSystem",
    "WeightedSums",
    "accumulate",
    "drawn_weights",
    "expected_log_likelihood",
    "has_point_predictor",
    "mixture",
    "noise_model",
    "plus_residual",
]

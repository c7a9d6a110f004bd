"""Inference in weight space: noise models, additive statistics, normal equations, posteriors and covariances."""

from .class_posterior import ClassPosterior
from .class_statistics import ClassStatistics
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .leave_out import LeaveGroupOut, LeaveOneOut
from .noise import NoiseModel, noise_model
from .point_predictor import PointMixture, PointMoments, PointPredictor
from .posterior import GaussianPosterior, WeightPosterior
from .statistics import GramStatistics

__all__ = [
    "ClassPosterior",
    "ClassStatistics",
    "GaussianPosterior",
    "GramStatistics",
    "KroneckerPosterior",
    "LeaveGroupOut",
    "LeaveOneOut",
    "NoiseModel",
    "OutputFactor",
    "PointMixture",
    "PointMoments",
    "PointPredictor",
    "WeightPosterior",
    "noise_model",
]

"""From rows to posteriors: noise, sums, normal equations, predictions. It asks for features, and imports no kernel."""

from .leave_out.leave_out import LeaveGroupOut, LeaveOneOut
from .noise import NoiseModel, noise_model
from .posterior.factor import OutputFactor
from .posterior.kronecker import KroneckerPosterior
from .posterior.many_classes import ClassPosterior
from .posterior.point_predictor import PointMixture, PointMoments, PointPredictor
from .posterior.posterior import GaussianPosterior, WeightPosterior
from .sums.class_statistics import ClassStatistics
from .sums.statistics import GramStatistics

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

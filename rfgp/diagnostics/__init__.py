"""How far from exact, and how good: divergences, kernel errors, scores, calibration.

What is here reads models, kernels and predictions; no model, and nothing that trains one, imports it.
"""

from ..selection.coverage import coverage_at_least, kl_reading
from ..selection.lost_posterior import warn_of_lost_posterior
from .classes import brier_score, classification_mnll, error_rate, expected_calibration_error, reliability_curve
from .comparison import ExactComparison, compare_to_exact
from .exact import exact_posterior
from .kernel_error import relative_frobenius_error
from .kl import kl_divergence, kl_to_exact
from .measurement import Measurement
from .recalibration import Temperature, VarianceScale, recalibrate_temperature, recalibrate_variance
from .scores import (
    CalibrationCurve,
    calibration_curve,
    coverage,
    crps,
    energy_score,
    interval_score,
    normal_interval,
    pit,
    regression_mnll,
    rmse,
    sharpness,
)

__all__ = [
    "CalibrationCurve",
    "ExactComparison",
    "Measurement",
    "Temperature",
    "VarianceScale",
    "brier_score",
    "calibration_curve",
    "classification_mnll",
    "compare_to_exact",
    "coverage",
    "coverage_at_least",
    "crps",
    "energy_score",
    "error_rate",
    "exact_posterior",
    "expected_calibration_error",
    "interval_score",
    "kl_divergence",
    "kl_reading",
    "kl_to_exact",
    "normal_interval",
    "pit",
    "recalibrate_temperature",
    "recalibrate_variance",
    "regression_mnll",
    "relative_frobenius_error",
    "reliability_curve",
    "rmse",
    "sharpness",
    "warn_of_lost_posterior",
]

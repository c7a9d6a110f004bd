"""Scores, divergences, bounds, certificates, conformal sets and sensitivity of models. None is trained here."""

from typing import TYPE_CHECKING

from .._support import lazy
from ..approximation.selection.coverage import coverage_at_least, kl_reading
from ..approximation.selection.lost_posterior import warn_of_lost_posterior
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

if TYPE_CHECKING:
    from . import bounds, certificates, conformal, sensitivity, two_sample

__all__ = [
    "CalibrationCurve",
    "ExactComparison",
    "Measurement",
    "Temperature",
    "VarianceScale",
    "bounds",
    "brier_score",
    "calibration_curve",
    "certificates",
    "classification_mnll",
    "compare_to_exact",
    "conformal",
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
    "sensitivity",
    "sharpness",
    "two_sample",
    "warn_of_lost_posterior",
]

__getattr__ = lazy.attach(
    __name__,
    {
        "bounds": "bounds",
        "certificates": "certificates",
        "conformal": "conformal",
        "sensitivity": "sensitivity",
        "two_sample": "two_sample",
    },
)

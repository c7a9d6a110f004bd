"""The study: random features against the exact Gaussian process, in agreement, accuracy and time."""

from .comparison import NUM_FEATURES, environment, run
from .measurements import MEASURES, Run, Summary
from .names import FOURIER_METHODS, METHODS, default_methods, exact_kernel
from .result import FILES, StudyResult
from .scaling import scale_inputs

__all__ = [
    "FILES",
    "FOURIER_METHODS",
    "MEASURES",
    "METHODS",
    "NUM_FEATURES",
    "Run",
    "StudyResult",
    "Summary",
    "default_methods",
    "environment",
    "exact_kernel",
    "run",
    "scale_inputs",
]

"""The study: random features against the exact Gaussian process, in agreement, accuracy and time."""

from .candidate import Candidate
from .comparison import NUM_FEATURES, environment, run
from .differences import Comparison, compare
from .directory import FILES
from .estimate import Estimate
from .measurements import MEASURES, Run, Summary
from .names import CANDIDATES, FIELD_KERNELS, FOURIER_METHODS, METHODS, default_methods, exact_kernel
from .result import StudyResult, load
from .scaling import scale_inputs
from .verdict import Facts, Model, Verdict, verdict

__all__ = [
    "CANDIDATES",
    "FIELD_KERNELS",
    "FILES",
    "FOURIER_METHODS",
    "MEASURES",
    "METHODS",
    "NUM_FEATURES",
    "Candidate",
    "Comparison",
    "Estimate",
    "Facts",
    "Model",
    "Run",
    "StudyResult",
    "Summary",
    "Verdict",
    "compare",
    "default_methods",
    "environment",
    "exact_kernel",
    "load",
    "run",
    "scale_inputs",
    "verdict",
]

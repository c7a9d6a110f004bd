"""Studies of data: tables, data sets, features against the exact process, figures, commands. No model lives here."""

from typing import TYPE_CHECKING

from .._support import lazy

if TYPE_CHECKING:
    from . import datasets, plots, tables
    from .comparison import run
    from .differences import Comparison, compare
    from .names import CANDIDATES, FIELD_KERNELS, FOURIER_METHODS, METHODS, default_methods, exact_kernel
    from .result import StudyResult, load
    from .runs import KernelScore, Run, Summary
    from .simulators import UncertaintyStudy, uncertainty
    from .verdict import Verdict

__all__ = [
    "CANDIDATES",
    "FIELD_KERNELS",
    "FOURIER_METHODS",
    "METHODS",
    "Comparison",
    "KernelScore",
    "Run",
    "StudyResult",
    "Summary",
    "UncertaintyStudy",
    "Verdict",
    "compare",
    "datasets",
    "default_methods",
    "exact_kernel",
    "load",
    "plots",
    "run",
    "tables",
    "uncertainty",
]

_HOMES = {
    "comparison": ("run",),
    "datasets": ("datasets",),
    "differences": ("Comparison", "compare"),
    "names": ("CANDIDATES", "FIELD_KERNELS", "FOURIER_METHODS", "METHODS", "default_methods", "exact_kernel"),
    "plots": ("plots",),
    "result": ("StudyResult", "load"),
    "runs": ("KernelScore", "Run", "Summary"),
    "simulators": ("UncertaintyStudy", "uncertainty"),
    "tables": ("tables",),
    "verdict": ("Verdict",),
}

__getattr__ = lazy.attach(__name__, {name: home for home, names in _HOMES.items() for name in names})

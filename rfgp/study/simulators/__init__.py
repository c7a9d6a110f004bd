"""Uncertainty studies of simulators: emulators, their check, sensitivity, propagation, and what to run next."""

from .check import Check
from .runs import Runs
from .study import UncertaintyStudy, uncertainty

__all__ = ["Check", "Runs", "UncertaintyStudy", "uncertainty"]

"""Figures: arrays in, matplotlib Axes out. Matplotlib is imported where a figure is drawn, and nowhere else."""

from .base import COLORS, EXACT, LINES, MARKERS, check_installed, figure, legend
from .comparison import Curve, comparison
from .fields import scalar_field, vector_field
from .intervals import coverage_by_level, predictions

__all__ = [
    "COLORS",
    "EXACT",
    "LINES",
    "MARKERS",
    "Curve",
    "check_installed",
    "comparison",
    "coverage_by_level",
    "figure",
    "legend",
    "predictions",
    "scalar_field",
    "vector_field",
]

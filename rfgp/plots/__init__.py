"""Figures: arrays in, matplotlib Axes out. Matplotlib is imported where a figure is drawn, and nowhere else."""

from .base import COLORS, EXACT, LINES, MARKERS, check_installed, figure, legend
from .comparison import Curve, comparison
from .convergence import convergence
from .fields import scalar_field, vector_field

__all__ = [
    "COLORS",
    "EXACT",
    "LINES",
    "MARKERS",
    "Curve",
    "check_installed",
    "comparison",
    "convergence",
    "figure",
    "legend",
    "scalar_field",
    "vector_field",
]

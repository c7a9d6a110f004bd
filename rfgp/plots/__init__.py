"""Figures: arrays in, matplotlib Axes out. Matplotlib is imported where a figure is drawn, and nowhere else."""

from .base import COLORS, EXACT, LINES, MARKERS, check_installed, figure, legend
from .comparison import Curve, comparison
from .estimates import estimates
from .fields import scalar_field, vector_field
from .sensitivity import main_effects, sobol_bars

__all__ = [
    "COLORS",
    "EXACT",
    "LINES",
    "MARKERS",
    "Curve",
    "check_installed",
    "comparison",
    "estimates",
    "figure",
    "legend",
    "main_effects",
    "scalar_field",
    "sobol_bars",
    "vector_field",
]

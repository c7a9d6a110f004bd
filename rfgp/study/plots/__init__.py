"""Figures: arrays in, matplotlib Axes out; matplotlib is imported where a figure is drawn."""

from .base import COLORS, EXACT, LINES, MARKERS, figure, legend, literal
from .calibration import calibration, pit_histogram
from .comparison import Curve, comparison, convergence, estimates
from .fields import scalar_field, vector_field
from .intervals import coverage_by_level, predictions
from .sensitivity import main_effects, shapley_bars, sobol_bars

__all__ = [
    "COLORS",
    "EXACT",
    "LINES",
    "MARKERS",
    "Curve",
    "calibration",
    "comparison",
    "convergence",
    "coverage_by_level",
    "estimates",
    "figure",
    "legend",
    "literal",
    "main_effects",
    "pit_histogram",
    "predictions",
    "scalar_field",
    "shapley_bars",
    "sobol_bars",
    "vector_field",
]

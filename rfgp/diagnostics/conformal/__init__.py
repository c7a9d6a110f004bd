"""Prediction intervals and sets whose coverage does not depend on whether the model is right."""

from .classes import ClassConditionalSets
from .jackknife import jackknife_plus
from .split import Interval, SplitConformal, split_conformal

__all__ = ["ClassConditionalSets", "Interval", "SplitConformal", "jackknife_plus", "split_conformal"]

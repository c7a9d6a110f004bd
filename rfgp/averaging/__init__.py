"""Exact processes of few rows, averaged over their parameters, and scales of their inputs and targets."""

from .averaged import AveragedGP
from .averaged_classifier import AveragedGPClassifier
from .mixture import Mixture
from .parameter_draws import most_probable, parameter_draws

__all__ = ["AveragedGP", "AveragedGPClassifier", "Mixture", "most_probable", "parameter_draws"]

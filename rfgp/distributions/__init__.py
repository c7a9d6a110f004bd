"""Normal distributions that GPyTorch lacks: complex ones, and real ones with their true variances."""

from .complex_normal import ComplexNormal
from .normal import MultitaskMultivariateNormal, MultivariateNormal, unclamped

__all__ = ["ComplexNormal", "MultitaskMultivariateNormal", "MultivariateNormal", "unclamped"]

"""Likelihoods that GPyTorch lacks, or that do more here."""

from .complex_gaussian import ComplexGaussianLikelihood
from .dirichlet import DirichletClassificationLikelihood

__all__ = ["ComplexGaussianLikelihood", "DirichletClassificationLikelihood"]

"""Likelihoods that GPyTorch lacks, or that do more here."""

from .complex_gaussian import ComplexGaussianLikelihood, FixedNoiseComplexGaussianLikelihood
from .dirichlet import DirichletClassificationLikelihood
from .multitask_fixed_noise import MultitaskFixedNoiseGaussianLikelihood

__all__ = [
    "ComplexGaussianLikelihood",
    "DirichletClassificationLikelihood",
    "FixedNoiseComplexGaussianLikelihood",
    "MultitaskFixedNoiseGaussianLikelihood",
]

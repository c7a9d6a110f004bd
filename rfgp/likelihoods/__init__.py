"""Likelihoods that GPyTorch lacks, or that do more here."""

from .complex_gaussian import ComplexGaussianLikelihood, FixedNoiseComplexGaussianLikelihood
from .dirichlet import DirichletClassificationLikelihood
from .log_variance import LogVarianceLikelihood
from .multitask_fixed_noise import MultitaskFixedNoiseGaussianLikelihood
from .negative_binomial import NegativeBinomialLikelihood
from .poisson import PoissonLikelihood

__all__ = [
    "ComplexGaussianLikelihood",
    "DirichletClassificationLikelihood",
    "FixedNoiseComplexGaussianLikelihood",
    "LogVarianceLikelihood",
    "MultitaskFixedNoiseGaussianLikelihood",
    "NegativeBinomialLikelihood",
    "PoissonLikelihood",
]

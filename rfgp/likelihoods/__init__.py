"""Likelihoods and normal distributions that GPyTorch lacks, or that do more here. They know no kernel."""

from .complex_gaussian import ComplexGaussianLikelihood, FixedNoiseComplexGaussianLikelihood
from .complex_normal import ComplexNormal
from .dirichlet import DirichletClassificationLikelihood
from .heteroscedastic_softmax import HeteroscedasticSoftmaxLikelihood
from .log_variance import LogVarianceLikelihood
from .multitask_fixed_noise import MultitaskFixedNoiseGaussianLikelihood
from .negative_binomial import NegativeBinomialLikelihood
from .normal import MultitaskMultivariateNormal, MultivariateNormal, unclamped
from .poisson import PoissonLikelihood
from .several_functions import SeveralFunctionsLikelihood

__all__ = [
    "ComplexGaussianLikelihood",
    "ComplexNormal",
    "DirichletClassificationLikelihood",
    "FixedNoiseComplexGaussianLikelihood",
    "HeteroscedasticSoftmaxLikelihood",
    "LogVarianceLikelihood",
    "MultitaskFixedNoiseGaussianLikelihood",
    "MultitaskMultivariateNormal",
    "MultivariateNormal",
    "NegativeBinomialLikelihood",
    "PoissonLikelihood",
    "SeveralFunctionsLikelihood",
    "unclamped",
]

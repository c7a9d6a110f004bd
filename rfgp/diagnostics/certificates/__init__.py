"""The exact posterior at any number of rows, with bounds that always hold, and how far features are from it."""

from .comparison import Certificate, certify
from .posterior import Bounds, CertifiedPosterior, certified_posterior
from .stochastic import StochasticEstimate, log_determinant, stochastic_kl

__all__ = [
    "Bounds",
    "Certificate",
    "CertifiedPosterior",
    "StochasticEstimate",
    "certified_posterior",
    "certify",
    "log_determinant",
    "stochastic_kl",
]

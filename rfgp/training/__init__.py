"""Training: the log marginal likelihood of weight-space models and GPyTorch's ExactGP, maximized by L-BFGS."""

from .evidence import FitSummary, fit
from .objectives import cholesky_forced

__all__ = ["FitSummary", "cholesky_forced", "fit"]

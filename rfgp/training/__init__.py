"""Training: parameters from the log marginal likelihood, of all rows or of little data, by L-BFGS."""

from .evidence import fit
from .objectives import cholesky_forced
from .pseudo_likelihood import LeaveOneOutPseudoLikelihood
from .summary import FitStage, FitSummary

__all__ = ["FitStage", "FitSummary", "LeaveOneOutPseudoLikelihood", "cholesky_forced", "fit"]

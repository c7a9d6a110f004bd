"""Training: parameters from the evidence of all rows, from few rows, or from minibatches. It predicts nothing."""

from .auto import Auto
from .comparison import compare, neighbor_score
from .exact_stages import Blocks, Subset
from .fitting import fit
from .minibatches import Minibatches
from .neighbors import Neighbors
from .objectives import cholesky_forced
from .pseudo_likelihood import LeaveOneOutPseudoLikelihood
from .strategies import Evidence, LeaveOut
from .summary import FitStage, FitSummary

__all__ = [
    "Auto",
    "Blocks",
    "Evidence",
    "FitStage",
    "FitSummary",
    "LeaveOneOutPseudoLikelihood",
    "LeaveOut",
    "Minibatches",
    "Neighbors",
    "Subset",
    "cholesky_forced",
    "compare",
    "fit",
    "neighbor_score",
]

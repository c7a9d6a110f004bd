"""Training: parameters from the evidence of all rows, from few rows, or from minibatches. It predicts nothing."""

from .auto import Auto
from .average import Average
from .comparison import compare, neighbor_score
from .composite_likelihood import CompositeLikelihood
from .exact_stages import Blocks, Subset
from .fitting import fit
from .leave_out import LeaveOut
from .minibatches import Minibatches
from .neighbors import Neighbors
from .objectives import cholesky_forced
from .pseudo_likelihood import LeaveOneOutPseudoLikelihood
from .session import Stage, Training
from .strategies import Evidence, Strategy
from .summary import FitStage, FitSummary

__all__ = [
    "Auto",
    "Average",
    "Blocks",
    "CompositeLikelihood",
    "Evidence",
    "FitStage",
    "FitSummary",
    "LeaveOneOutPseudoLikelihood",
    "LeaveOut",
    "Minibatches",
    "Neighbors",
    "Stage",
    "Strategy",
    "Subset",
    "Training",
    "cholesky_forced",
    "compare",
    "fit",
    "neighbor_score",
]

"""Which feature map, and how many features, for this kernel and these inputs: what is lost, and what it costs."""

from .errors import PredictedError, predicted_error
from .posterior import PosteriorLoss, posterior_loss
from .ranking import Candidate, best_method, rank_methods
from .width import suggest_num_features

__all__ = [
    "Candidate",
    "PosteriorLoss",
    "PredictedError",
    "best_method",
    "posterior_loss",
    "predicted_error",
    "rank_methods",
    "suggest_num_features",
]

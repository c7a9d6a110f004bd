"""Which feature map, and how many features, for this kernel and these inputs: predicted errors and costs."""

from .errors import PredictedError, predicted_error
from .ranking import Candidate, best_method, rank_methods
from .width import suggest_num_features

__all__ = ["Candidate", "PredictedError", "best_method", "predicted_error", "rank_methods", "suggest_num_features"]

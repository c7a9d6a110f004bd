"""Maps: means and variances of a model at any number of points, in bounded memory, into arrays and files."""

from .evaluation import Float32Error
from .predict import predict_map
from .summary import MapSummary

__all__ = ["Float32Error", "MapSummary", "predict_map"]

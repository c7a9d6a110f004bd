"""Models that work in weight space."""

from .least_squares import VectorLeastSquares
from .localized import LocalizedMaclaurinGP
from .neighbor_graph import knn_laplacian
from .task_columns import task_columns
from .weight_space import WeightSpaceGP

__all__ = ["LocalizedMaclaurinGP", "VectorLeastSquares", "WeightSpaceGP", "knn_laplacian", "task_columns"]

"""Models that work in weight space."""

from .conjugate_gradients import Convergence
from .laplace import LaplaceGP
from .least_squares import VectorLeastSquares
from .localized import LocalizedMaclaurinGP
from .neighbor_graph import knn_laplacian
from .task_columns import task_columns
from .weight_space import WeightSpaceGP
from .wide import WideWeightSpaceGP

__all__ = [
    "Convergence",
    "LaplaceGP",
    "LocalizedMaclaurinGP",
    "VectorLeastSquares",
    "WeightSpaceGP",
    "WideWeightSpaceGP",
    "knn_laplacian",
    "task_columns",
]

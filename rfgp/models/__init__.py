"""Models that work in weight space."""

from .exact_samples import sample_functions
from .folds import folds
from .function_samples import FunctionSamples
from .heteroscedastic import HeteroscedasticGP
from .laplace import LaplaceGP
from .least_squares import VectorLeastSquares
from .localized import LocalizedMaclaurinGP
from .neighbor_graph import knn_laplacian
from .posterior_points import PosteriorPoints
from .task_columns import task_columns
from .variational import WeightSpaceVariationalGP
from .variational_strategy import WeightSpaceVariationalStrategy
from .weight_equations import Convergence
from .weight_space import RefitError, WeightSpaceGP
from .wide import WideWeightSpaceGP

__all__ = [
    "Convergence",
    "FunctionSamples",
    "HeteroscedasticGP",
    "LaplaceGP",
    "LocalizedMaclaurinGP",
    "PosteriorPoints",
    "RefitError",
    "VectorLeastSquares",
    "WeightSpaceGP",
    "WeightSpaceVariationalGP",
    "WeightSpaceVariationalStrategy",
    "WideWeightSpaceGP",
    "folds",
    "knn_laplacian",
    "sample_functions",
    "task_columns",
]

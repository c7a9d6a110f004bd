"""Gaussian processes in weight space, a folder for each, with maps and streams. They take parameters as they are."""

from typing import TYPE_CHECKING

from .._support import lazy
from .exact_samples import sample_functions
from .folds import folds
from .function_samples import FunctionSamples
from .given_positive import given_positive
from .heteroscedastic.model import HeteroscedasticGP
from .laplace.model import LaplaceGP
from .least_squares.model import VectorLeastSquares
from .least_squares.neighbor_graph import knn_laplacian
from .localized import LocalizedMaclaurinGP
from .parameter_average import NormalMixture, ParameterAverage
from .posterior_points import PosteriorPoints
from .task_columns import task_columns
from .variational.model import WeightSpaceVariationalGP
from .variational.strategy import WeightSpaceVariationalStrategy
from .weight_space import RefitError, WeightSpaceGP

if TYPE_CHECKING:
    from . import maps, streams

__all__ = [
    "FunctionSamples",
    "HeteroscedasticGP",
    "LaplaceGP",
    "LocalizedMaclaurinGP",
    "NormalMixture",
    "ParameterAverage",
    "PosteriorPoints",
    "RefitError",
    "VectorLeastSquares",
    "WeightSpaceGP",
    "WeightSpaceVariationalGP",
    "WeightSpaceVariationalStrategy",
    "folds",
    "given_positive",
    "knn_laplacian",
    "maps",
    "sample_functions",
    "streams",
    "task_columns",
]

__getattr__ = lazy.attach(
    __name__,
    {
        "maps": "maps",
        "streams": "streams",
    },
)

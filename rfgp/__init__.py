"""Random features for Gaussian processes on GPyTorch: approximate in one line, and know how far from exact you are.

>>> import gpytorch, rfgp
>>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=3))
>>> kernel = rfgp.approximate(exact, num_features=256, input_dim=4)
"""

from . import (
    allocation,
    bounds,
    datasets,
    diagnostics,
    distributions,
    features,
    inference,
    kernels,
    likelihoods,
    models,
    operators,
    plots,
    selection,
    streams,
    study,
    training,
)
from .approximation import approximate
from .diagnostics import kl_to_exact
from .models import VectorLeastSquares, WeightSpaceGP
from .selection import rank_methods, suggest_num_features
from .training import fit

__version__ = "0.1.0"

__all__ = [
    "VectorLeastSquares",
    "WeightSpaceGP",
    "allocation",
    "approximate",
    "bounds",
    "datasets",
    "diagnostics",
    "distributions",
    "features",
    "fit",
    "inference",
    "kernels",
    "kl_to_exact",
    "likelihoods",
    "models",
    "operators",
    "plots",
    "rank_methods",
    "selection",
    "streams",
    "study",
    "suggest_num_features",
    "training",
]


def __dir__() -> list[str]:
    """What a user calls; the rest is plumbing."""
    return __all__

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
    linalg,
    models,
    operators,
    plots,
    sampling,
    selection,
    simplex,
    study,
    training,
)
from .approximation import approximate
from .training import fit

__version__ = "0.1.0"

__all__ = [
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
    "likelihoods",
    "linalg",
    "models",
    "operators",
    "plots",
    "sampling",
    "selection",
    "simplex",
    "study",
    "training",
]

"""Random features for Gaussian processes on GPyTorch: approximate in one line, and know how far from exact you are.

>>> import gpytorch, rfgp
>>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=3))
>>> kernel = rfgp.approximate(exact, num_features=256, input_dim=4)

Subpackages are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ._support import lazy
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import (
        approximation,
        data,
        diagnostics,
        features,
        functionals,
        inference,
        kernels,
        likelihoods,
        models,
        passes,
        saving,
        study,
        training,
    )
    from .approximation import approximate
    from .approximation.selection import rank_methods, suggest_num_features
    from .diagnostics import kl_to_exact
    from .models import VectorLeastSquares, WeightSpaceGP
    from .models.maps import predict_map
    from .saving import load, save
    from .training import fit

__all__ = [
    "VectorLeastSquares",
    "WeightSpaceGP",
    "approximate",
    "approximation",
    "data",
    "diagnostics",
    "features",
    "fit",
    "functionals",
    "inference",
    "kernels",
    "kl_to_exact",
    "likelihoods",
    "load",
    "models",
    "passes",
    "predict_map",
    "rank_methods",
    "save",
    "saving",
    "study",
    "suggest_num_features",
    "training",
]

_HOMES = {
    "VectorLeastSquares": "models",
    "WeightSpaceGP": "models",
    "approximate": "approximation",
    "fit": "training",
    "kl_to_exact": "diagnostics",
    "load": "saving",
    "predict_map": "models.maps",
    "rank_methods": "approximation.selection",
    "save": "saving",
    "suggest_num_features": "approximation.selection",
}

__getattr__ = lazy.attach(__name__, {name: _HOMES.get(name, name) for name in (*__all__, "linalg")})


def __dir__() -> list[str]:
    """What a user calls; the rest is plumbing."""
    return __all__

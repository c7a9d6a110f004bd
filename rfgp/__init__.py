"""Random features for Gaussian processes on GPyTorch: approximate in one line, and know how far from exact you are.

>>> import gpytorch, rfgp
>>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=3))
>>> kernel = rfgp.approximate(exact, num_features=256, input_dim=4)

Subpackages are imported when they are first used.
"""

from typing import TYPE_CHECKING

from . import _lazy
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import (
        allocation,
        bounds,
        certificates,
        conformal,
        data,
        datasets,
        diagnostics,
        distributions,
        features,
        inference,
        kernels,
        likelihoods,
        maps,
        models,
        observations,
        operators,
        passes,
        plots,
        saving,
        selection,
        sensitivity,
        streams,
        study,
        tables,
        training,
        two_sample,
    )
    from .approximation import approximate
    from .diagnostics import kl_to_exact
    from .maps import predict_map
    from .models import VectorLeastSquares, WeightSpaceGP
    from .saving import load, save
    from .selection import rank_methods, suggest_num_features
    from .training import fit

__all__ = [
    "VectorLeastSquares",
    "WeightSpaceGP",
    "allocation",
    "approximate",
    "bounds",
    "certificates",
    "conformal",
    "data",
    "datasets",
    "diagnostics",
    "distributions",
    "features",
    "fit",
    "inference",
    "kernels",
    "kl_to_exact",
    "likelihoods",
    "load",
    "maps",
    "models",
    "observations",
    "operators",
    "passes",
    "plots",
    "predict_map",
    "rank_methods",
    "save",
    "saving",
    "selection",
    "sensitivity",
    "streams",
    "study",
    "suggest_num_features",
    "tables",
    "training",
    "two_sample",
]

_HOMES = {
    "VectorLeastSquares": "models",
    "WeightSpaceGP": "models",
    "approximate": "approximation",
    "fit": "training",
    "kl_to_exact": "diagnostics",
    "load": "saving",
    "predict_map": "maps",
    "rank_methods": "selection",
    "save": "saving",
    "suggest_num_features": "selection",
}

__getattr__ = _lazy.attach(__name__, {name: _HOMES.get(name, name) for name in (*__all__, "linalg", "sampling")})


def __dir__() -> list[str]:
    """What a user calls; the rest is plumbing."""
    return __all__

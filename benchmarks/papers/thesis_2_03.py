"""T Fig. 2.3: isotropic kernels that are fitted to polynomial ones on the sphere, and homogeneous ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import nnls

from rfgp.features.spectra import Spherical

from .item import Claim, Options

DIMS, DEGREES, RADII = (2, 128), (3, 20), (2.0, 4.0)


def homogeneous_error(degree: int) -> float:
    """The largest error of the best mixture of Gaussian functions for (x.y)^p, at distances from 0 to 2."""
    distance = np.linspace(0.0, 2.0, 201)
    target = (1.0 - 0.5 * distance**2) ** degree
    mixture = np.exp(-np.outer(distance**2, np.geomspace(1e-3, 1e3, 200)))
    weights, _ = nnls(mixture, target)
    return float(np.abs(mixture @ weights - target).max())


def measure(options: Options) -> dict[str, Any]:
    fits = {f"{d}/{p}/{a:g}": Spherical(p, a, d).fit_error for d in DIMS for p in DEGREES for a in RADII}
    try:
        Spherical(3, math.sqrt(2.0), 2)
        refused = ""
    except ValueError as error:
        refused = str(error)
    return {"fits": fits, "homogeneous": {str(p): homogeneous_error(p) for p in DEGREES}, "refused": refused}


def claims(result: dict[str, Any]) -> list[Claim]:
    fits, bad = result["fits"], result["homogeneous"]
    pairs = [(fits[f"{d}/20/{a:g}"], fits[f"{d}/3/{a:g}"]) for d in DIMS for a in RADII]
    shown = ", ".join(f"{high:.1e} against {low:.1e}" for high, low in pairs)
    return [
        Claim(
            "p = 20 is better approximated than p = 3",
            f"largest errors {shown}",
            all(high < low for high, low in pairs),
        ),
        Claim(
            "homogeneous polynomial kernels cannot be matched",
            f"largest errors {bad['3']:.2f} (p = 3), {bad['20']:.2f} (p = 20); a below 2 is refused",
            min(bad.values()) > 0.4 and bool(result["refused"]),
        ),
    ]


CLAIMS = {"T Fig. 2.3": claims}

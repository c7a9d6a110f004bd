"""Polynomial kernels on the unit sphere as mixtures of the isotropic kernels of single radii."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import scipy


def sphere_mean(dim: int, r: Any) -> np.ndarray:
    r"""The mean of :math:`\exp(\mathrm{i} r u_1)` over the unit sphere, T Eq. 2.5; a series above 128 dimensions."""
    if dim <= 128:
        return scipy.special.hyp0f1(0.5 * dim, -0.25 * np.square(r))
    z, b = np.square(r) / (2.0 * dim), 0.5 * dim
    log = -z - z**2 / (2.0 * (b + 1.0)) - 2.0 * z**3 / (3.0 * (b + 1.0) * (b + 2.0))
    return np.exp(log - z**4 * (5.0 * b + 11.0) / (4.0 * (b + 1.0) ** 2 * (b + 2.0) * (b + 3.0)))


@functools.lru_cache(maxsize=128)
def fit_mixture(degree: int, a: float, dim: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Radii and shares of the mixture, and its largest error; solved once for every (degree, a, dim)."""
    distance = np.linspace(0.0, 2.0, 401)
    wanted = (1.0 - (distance / a) ** 2) ** degree
    scale = math.sqrt(2.0 * degree * dim) / a
    radii = np.concatenate([[0.0], np.linspace(0.05, 4.0, 160) * scale])
    design = sphere_mean(dim, distance[:, None] * radii)
    emphasis = 1e3 * math.sqrt(len(distance))
    rows = np.vstack([design, np.full((1, len(radii)), emphasis)])
    shares, _ = scipy.optimize.nnls(rows, np.append(wanted, emphasis))
    keep = shares > 0.0
    radii, shares = radii[keep], shares[keep] / shares.sum()
    error = float(np.abs(design[:, keep] @ shares - wanted).max())
    return radii, shares, error

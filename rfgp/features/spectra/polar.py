"""Uniform variables as directions and radii."""

from __future__ import annotations

import numpy as np
import scipy
import torch
from torch import Tensor


def polar(uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Uniform directions (D, d), and independent upper tail probabilities (D,) of radii, from uniforms (D, d).

    They are the direction and the chi distribution of the vector of normal quantiles.
    """
    normal = torch.special.ndtri(uniforms)
    square = normal.square().sum(-1)
    half = torch.full_like(square, 0.5 * uniforms.shape[-1])
    return normal / square.sqrt()[:, None], torch.special.gammaincc(half, 0.5 * square)


def chi_radius(degrees: float, tail: Tensor) -> Tensor:
    """The radius that a chi variable exceeds with probabilities ``tail``."""
    return torch.as_tensor(np.sqrt(2.0 * scipy.special.gammainccinv(0.5 * degrees, tail.numpy())), device="cpu")


def chi_ratio_radius(degrees: float, mixing_degrees: float, tail: Tensor) -> Tensor:
    """The radius that the ratio of two chi variables exceeds with probabilities ``tail``."""
    share = scipy.special.betaincinv(0.5 * mixing_degrees, 0.5 * degrees, tail.numpy())
    return torch.as_tensor(np.sqrt((1.0 - share) / share), device="cpu")

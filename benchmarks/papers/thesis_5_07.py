"""T Fig. 5.7: the Gaussian kernel and its Maclaurin series of degree 3, away from the origin."""

from __future__ import annotations

import math
from typing import Any

import torch

from rfgp.features import Maclaurin, ProductSketch

from .item import Claim, Options

DEGREE, ANGLES = 3, (0.0, 45.0, 90.0)


def measure(options: Options) -> dict[str, Any]:
    """Both kernels at inputs of equal norm, for several angles between them."""
    maps = {n: ProductSketch(2, 1, degree=n, dtype=torch.float64) for n in range(1, DEGREE + 1)}
    series = Maclaurin(
        maps, [1.0 / math.factorial(n) for n in range(DEGREE + 1)], is_gaussian=True, dtype=torch.float64
    )
    norms = torch.linspace(0.0, 4.0, 81, dtype=torch.float64)
    x = torch.stack([norms, torch.zeros_like(norms)], dim=-1)
    found: dict[str, Any] = {"norms": norms.tolist()}
    for angle in ANGLES:
        turn = torch.tensor([math.cos(math.radians(angle)), math.sin(math.radians(angle))], dtype=torch.float64)
        y = norms[:, None] * turn
        found[f"series/{angle:g}"] = series.target(x, y).diagonal().tolist()
        found[f"exact/{angle:g}"] = torch.exp(-0.5 * (x - y).square().sum(-1)).tolist()
    return found


def claims(result: dict[str, Any]) -> list[Claim]:
    last = [abs(result[f"series/{angle:g}"][-1]) for angle in ANGLES]
    errors = [
        max(abs(a - b) for a, b in zip(result[f"exact/{angle:g}"], result[f"series/{angle:g}"], strict=True))
        for angle in ANGLES
    ]
    shown = ", ".join(f"{error:.2g} at {angle:g}°" for angle, error in zip(ANGLES, errors, strict=True))
    return [
        Claim(
            "the series approaches zero with growing norms at any angle",
            f"at norms of 4: {max(last):.1e} or less",
            max(last) < 1e-3,
        ),
        Claim(
            "its error is the largest for parallel inputs",
            f"largest errors {shown}",
            errors == sorted(errors, reverse=True),
        ),
        Claim("and zero for orthogonal ones", f"{errors[-1]:.1e}", errors[-1] < 1e-12),
    ]


CLAIMS = {"T Fig. 5.7": claims}

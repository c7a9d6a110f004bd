"""T Fig. D.1: the variance of stacked TensorSRHT and its convex surrogate against D, x = y = (1, 1) / sqrt(2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rfgp.features.allocation.pairs import PairTerms

from .item import Claim, Options

WIDTHS = range(1, 17)


def measure(options: Options) -> dict[str, Any]:
    x = torch.full((1, 2), 0.5**0.5, dtype=torch.float64)
    found: dict[str, Any] = {"widths": list(WIDTHS)}
    for degree in (1, 2):
        for form in ("real", "complex"):
            of = PairTerms(x, x, False, "tensor_srht_stacked", 2).statistics(degree, 1.0, form, torch.ones(1, 1))
            unstructured = PairTerms(x, x, False, "rademacher", 1).statistics(degree, 1.0, form, torch.ones(1, 1))
            found[f"{form}/{degree}"] = {
                "variance": [of.true_variance(width, 2) for width in WIDTHS],
                "surrogate": of.surrogate(np.array(WIDTHS), 2).tolist(),
                "unstructured": [unstructured.true_variance(width, 1) for width in WIDTHS],
            }
    return found


def claims(result: dict[str, Any]) -> list[Claim]:
    cells = [cell for key, cell in result.items() if "/" in key]
    equal = max(
        abs(cell["variance"][i] - cell["surrogate"][i])
        for cell in cells
        for i, width in enumerate(result["widths"])
        if width <= 2 or width % 2 == 0
    )
    bends = min(float(np.diff(cell["surrogate"], 2).min()) for cell in cells)
    linear = max(abs(cell["variance"][1]) for key, cell in result.items() if key.endswith("/1"))
    above = max(v - u for cell in cells for v, u in zip(cell["variance"], cell["unstructured"], strict=True))
    return [
        Claim("surrogate and variance agree for D <= d and multiples of d", f"to {equal:.1e}", equal < 1e-12),
        Claim("the surrogate is convex", f"second differences at least {bends:.1e}", bends > -1e-12),
        Claim("the variance is zero for n = 1 and D a multiple of d", f"{linear:.1e}", linear < 1e-12),
        Claim("TensorSRHT is below the Rademacher sketch here", f"by {-above:.1e} or more", above < 1e-12),
    ]


CLAIMS = {"T Fig. D.1": claims}

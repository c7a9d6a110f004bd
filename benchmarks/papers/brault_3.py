"""B Fig. 3: a function of a decomposable kernel by two draws of its features, against their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rfgp.features import RandomFourier

from .item import Claim, Options

POINTS, LENGTHSCALE = 250, 0.1


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    """Relative errors of two draws, and how far they are apart; outputs share half of their covariance."""
    most = 300 if options.quick else 10_000
    widths = sorted({int(w) for w in np.geomspace(1, most, 25)})
    x = torch.linspace(-1.0, 1.0, POINTS, dtype=torch.float64)[:, None]
    generator = torch.Generator().manual_seed(0)
    covariance = 0.5 * torch.eye(2, dtype=torch.float64) + 0.5
    u = torch.randn(POINTS, 2, generator=generator, dtype=torch.float64) @ covariance
    exact = torch.exp(-0.5 * torch.cdist(x, x).square() / LENGTHSCALE**2) @ u
    errors, apart = [], []
    for width in widths:
        found = []
        for seed in (0, 1):
            features = RandomFourier(1, 2 * width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            phi = features(x / LENGTHSCALE)
            found.append(phi @ (phi.mT @ u))
        errors.append([float((f - exact).norm() / exact.norm()) for f in found])
        apart.append(float((found[0] - found[1]).norm() / exact.norm()))
    return {"widths": widths, "errors": errors, "apart": apart}


def claims(result: dict[str, Any]) -> list[Claim]:
    widths, errors, apart = np.array(result["widths"]), np.array(result["errors"]), result["apart"]
    kept = widths >= 10
    slopes = [np.polyfit(np.log(widths[kept]), np.log(column[kept]), 1)[0] for column in errors.T]
    ends = ", ".join(f"{a:.2g} to {b:.2g}" for a, b in zip(errors[0], errors[-1], strict=True))
    return [
        Claim(
            "the more features, the closer the model is to f, for either draw",
            f"relative error {ends} at D = 1 to {widths[-1]:,}; exponents {slopes[0]:.2f}, {slopes[1]:.2f}",
            bool((errors[-1] < 0.5 * errors[0]).all()) and all(-0.8 < s < -0.2 for s in slopes),
        ),
        Claim(
            "draws are very dissimilar when D is small, and agree when it is large",
            f"apart by {apart[0]:.2g} of the norm of f, then {apart[-1]:.2g}",
            apart[0] > 0.5 > apart[-1],
        ),
    ]


CLAIMS = {"B Fig. 3": claims}

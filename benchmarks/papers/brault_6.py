"""B Fig. 6: norm of the variance of one feature against Proposition 33, and against the formula of the errata.

D Var = E[A^2 (1 + cos(2 <w, d>))] / 2 - K(d)^2; Proposition 33 has (K(2 d) + K(0)) E[A] / 2 - K(d)^2 + Var[A] / 2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .item import Claim, Options

DIM = 3
DISTANCES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)


def curl_free(delta: Tensor) -> Tensor:
    """The exact kernel with unit lengthscale."""
    eye = torch.eye(DIM, dtype=torch.float64)
    return (eye - torch.outer(delta, delta)) * torch.exp(-0.5 * delta.square().sum())


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    """Norms along one direction: drawn, of the bound, and of the exact formula where there is a simple one."""
    draws = 20_000 if options.quick else 2_000_000
    direction = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    gamma = torch.tensor([[1.0, 0.5, 0.2], [0.5, 1.0, 0.5], [0.2, 0.5, 1.0]], dtype=torch.float64)
    eye = torch.eye(DIM, dtype=torch.float64)
    w = torch.randn(draws, DIM, generator=generator, dtype=torch.float64)
    found: dict[str, Any] = {"decomposable": [], "curl-free": []}
    for distance in DISTANCES:
        delta = distance * direction
        cosine = torch.cos(w @ delta)
        k, k2 = torch.exp(-0.5 * delta.square().sum()), torch.exp(-2.0 * delta.square().sum())
        drawn = gamma @ gamma * cosine.var()
        bound = (0.5 * (k2 + 1.0) - k.square()) * gamma @ gamma
        found["decomposable"].append([_norm(drawn), _norm(bound)])
        second = (w * (cosine.square() * w.square().sum(-1))[:, None]).mT @ w / draws  # of cos^2 A^2, A = w w^T
        exact = curl_free(delta)
        drawn = second - exact @ exact
        bound = 0.5 * (curl_free(2.0 * delta) + eye) - exact @ exact + 0.5 * (DIM + 1) * eye
        found["curl-free"].append([_norm(drawn), _norm(bound)])
    return {"distances": DISTANCES, "norms": found}


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def claims(result: dict[str, Any]) -> list[Claim]:
    found = []
    for name, norms in result["norms"].items():
        ratios = [drawn / bound if bound > 1e-12 else 1.0 for drawn, bound in norms]
        shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        found.append(
            Claim(
                f"{name}: the variance is below the bound of Proposition 33",
                f"variance / bound {shown} at distances {', '.join(f'{d:g}' for d in result['distances'])}",
                max(ratios) < 1.02,
            )
        )
    return found


CLAIMS = {"B Fig. 6": claims}

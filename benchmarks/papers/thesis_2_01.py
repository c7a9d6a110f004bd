"""T Fig. 2.1: variances of complex and real Fourier features of equal width, against the distance."""

from __future__ import annotations

from typing import Any

import torch

from rfgp.features import RandomFourier

from .item import Claim, Options

WIDTH = 2


def measure(options: Options) -> dict[str, Any]:
    """The variances of the closed forms, and of draws at one distance."""
    distance = torch.linspace(0.0, 4.0, 81, dtype=torch.float64)[:, None]
    origin = torch.zeros(1, 1, dtype=torch.float64)
    found: dict[str, Any] = {"distance": distance[:, 0].tolist()}
    draws = 400 if options.quick else 20_000
    for name, is_complex in (("complex", True), ("real", False)):
        features = RandomFourier(1, WIDTH, is_complex=is_complex, generator=torch.Generator().manual_seed(0)).double()
        found[name] = features.moments(distance, origin).variance[:, 0].tolist()
        wide = RandomFourier(
            1, WIDTH * draws, is_complex=is_complex, generator=torch.Generator().manual_seed(1)
        ).double()
        terms = wide(distance[20:21]) * wide(origin).conj() * WIDTH * draws
        if not is_complex:
            terms = sum(terms[0].chunk(2)) / 2.0  # a cosine and a sine of one frequency
        found[f"{name}, drawn"] = float(terms.var() if is_complex else 2.0 * terms.var()) / WIDTH
    return found


def claims(result: dict[str, Any]) -> list[Claim]:
    ratios = [r / c for r, c in zip(result["real"][1:], result["complex"][1:], strict=True)]
    drawn = [result[f"{name}, drawn"] / result[name][20] for name in ("real", "complex")]
    is_growing = all(sorted(result[name]) == result[name] for name in ("real", "complex"))
    return [
        Claim(
            "the real estimator has a lower variance for all distances",
            f"ratio at most {max(ratios):.4f}",
            max(ratios) <= 1.0,
        ),
        Claim("variances increase with the distance", "they do" if is_growing else "they do not", is_growing),
        Claim(
            "the formulas of Section 2.1",
            f"drawn / formula at distance 1: {drawn[0]:.3f} real, {drawn[1]:.3f} complex",
            all(abs(d - 1.0) < 0.2 for d in drawn),
        ),
    ]


CLAIMS = {"T Fig. 2.1": claims}

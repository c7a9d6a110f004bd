"""T Fig. 3.2: mean absolute error of real and complex Rademacher sketches at x = y = (1, ..., 1) / sqrt(d)."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from rfgp.features import ProductSketch

from .item import Claim, Options


def measure(options: Options) -> dict[str, Any]:
    dim, width, draws = (50, 200, 10) if options.quick else (1000, 5000, 10)
    degrees = (1, 2, 4) if options.quick else (1, 2, 4, 8)
    x = torch.full((1, dim), dim**-0.5)
    cells: dict[str, Any] = {}
    for degree in degrees:
        for name, is_complex in (("real", False), ("complex", True)):
            sketch = ProductSketch(
                dim, width, degree, is_complex=is_complex, generator=torch.Generator().manual_seed(0)
            )
            errors = []
            for seed in range(draws):
                features = sketch.resample(torch.Generator().manual_seed(seed))(x)
                errors.append(float((features @ features.mH).real) - 1.0)
            variance = float(sketch.double().moments(x.double(), x.double()).variance)
            cells[f"{name}/{degree}"] = {"errors": errors, "variance": variance}
    return {"dim": dim, "width": width, "degrees": degrees, "cells": cells}


def claims(result: dict[str, Any]) -> list[Claim]:
    dim, width, cells = result["dim"], result["width"], result["cells"]
    mean = {key: statistics.fmean(map(abs, cell["errors"])) for key, cell in cells.items()}
    printed = {"real": lambda p: (3 - 2 / dim) ** p - 1, "complex": lambda p: (2 - 1 / dim) ** p - 1}
    gaps = [
        abs(cells[f"{name}/{p}"]["variance"] * width / formula(p) - 1.0)
        for name, formula in printed.items()
        for p in result["degrees"]
    ]
    gains = {p: mean[f"real/{p}"] / mean[f"complex/{p}"] for p in result["degrees"]}
    low, high = min(gains), max(gains)
    return [
        Claim(
            "variances (3 - 2/d)^p - 1 and (2 - 1/d)^p - 1",
            f"relative differences at most {max(gaps):.1e}",
            max(gaps) < 1e-5,
        ),
        Claim(
            "complex sketches are more efficient, the more the larger p",
            f"error real / complex: {gains[low]:.2f} at p = {low}, {gains[high]:.2f} at p = {high}",
            gains[high] > gains[low] and gains[high] > 1.0,
        ),
    ]


CLAIMS = {"T Fig. 3.2": claims}

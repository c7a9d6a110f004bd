"""T Fig. 4.10: real and CtR sketches of (x.y + 1)^6 on letter, centered and not."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from .data import unit_rows
from .item import Claim, Options
from .thesis_4_08_09 import exact_kernel, reference_posterior, scores

SKETCHES = ("gaussian", "rademacher", "tensor_srht", "tensor_sketch")


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, small, points, seeds = (150, 60, 40, 1) if options.quick else (18_000, 500, 300, 3)
    cells: dict[str, list[dict[str, float]]] = {}
    for center in (False, True):
        x, y, x_test, y_test = unit_rows("letter", options, center)
        data = x[:rows], y[:rows], x_test[:1000], y_test[:1000]
        exact = exact_kernel(6, data[1])
        reference = reference_posterior(exact, data, small, points)
        for width in (64,) if options.quick else (64, 128):
            for name in SKETCHES:
                for form in ("real", "ctr"):
                    label = "centered" if center else "as it is"
                    cells[f"{label}/{name}/{form}/{width}"] = [
                        scores(exact, f"{name}:{form}", width, seed, data, reference, small, points)
                        for seed in range(seeds)
                    ]
    return {"rows": rows, "cells": cells}


def gain(result: dict[str, Any], label: str, name: str, measure_name: str) -> float:
    """The mean over widths and seeds of a CtR sketch over that of its real analog."""
    means = {
        form: statistics.fmean(
            record[measure_name]
            for key, records in result["cells"].items()
            if key.startswith(f"{label}/{name}/{form}/")
            for record in records
        )
        for form in ("ctr", "real")
    }
    return means["ctr"] / means["real"]


def claims(result: dict[str, Any]) -> list[Claim]:
    products = SKETCHES[:3]
    found = []
    for name in products:
        before, after = (gain(result, label, name, "frobenius") for label in ("as it is", "centered"))
        found.append(
            Claim(
                f"{name}: the advantage of CtR diminishes on centered data",
                f"kernel error, CtR / real: {before:.2f}, centered {after:.2f}",
                after > before,
            )
        )
    worst = max(gain(result, "centered", name, m) for name in products for m in ("frobenius", "kl", "error"))
    sketch = gain(result, "as it is", "tensor_sketch", "frobenius")
    return [
        *found,
        Claim(
            "CtR sketches never perform worse",
            f"largest ratio of kernel error, KL or test error {worst:.2f}",
            worst < 1.05,
        ),
        Claim("CtR does not improve TensorSketch", f"kernel error, CtR / real: {sketch:.2f}", sketch > 0.95),
    ]


CLAIMS = {"T Fig. 4.10": claims}

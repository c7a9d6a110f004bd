"""T Fig. 4.3: KL and test error against time on MNIST, (x.y + 1)^6: real, complex and CtR TensorSRHT."""

from __future__ import annotations

from typing import Any

import torch

from .data import unit_rows
from .item import Claim, Options
from .thesis_4_08_09 import exact_kernel, reference_posterior, scores

FORMS = {"real": 2, "ctr": 2, "complex": 1}
"""Columns as multiples of D: a complex model takes about the time of a real one of twice the width."""


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, small, points = (150, 80, 40) if options.quick else (5000, 1000, 300)
    widths, seeds = ((32,), 1) if options.quick else ((256, 512, 1024), 1)
    x, y, x_test, y_test = unit_rows("mnist", options)
    data = x[:rows], y[:rows], x_test[:2000], y_test[:2000]
    exact = exact_kernel(6, data[1])
    reference = reference_posterior(exact, data, small, points)
    cells = {}
    for width in widths:
        for form, factor in FORMS.items():
            for seed in range(seeds):
                found = scores(exact, f"tensor_srht:{form}", factor * width, seed, data, reference, small, points)
                cells[f"{form}/{width}/{seed}"] = {k: found[k] for k in ("kl", "error", "fit_seconds")}
    return {"rows": rows, "cells": cells}


def claims(result: dict[str, Any]) -> list[Claim]:
    cells = result["cells"]
    widths = list(dict.fromkeys(int(key.split("/")[1]) for key in cells))
    found = []
    for name, label in (("kl", "KL"), ("error", "test error")):
        values = {form: [cells[f"{form}/{width}/0"][name] for width in widths] for form in FORMS}
        wins = sum(values["ctr"][i] <= min(v[i] for v in values.values()) for i in range(len(widths)))
        shown = ", ".join(f"{form} {', '.join(f'{v:.3g}' for v in own)}" for form, own in values.items())
        found.append(
            Claim(
                f"CtR has the lowest {label} in the same time",
                f"{shown} at D = {widths} complex columns, twice as many real ones",
                2 * wins > len(widths),
            )
        )
    ratios = [cells[f"complex/{w}/0"]["fit_seconds"] / cells[f"ctr/{w}/0"]["fit_seconds"] for w in widths]
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return [
        *found,
        Claim(
            "complex D needs roughly the time of CtR 2 D", f"seconds, complex / CtR: {shown}", 0.5 < ratios[-1] < 2.0
        ),
    ]


CLAIMS = {"T Fig. 4.3": claims}

"""T Fig. 3.4: KL to the exact posterior against time, real sketches of 2 D columns beside complex ones of D."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import ScaleKernel

from .data import unit_rows
from .item import Claim, Options
from .thesis_4_08_09 import reference_posterior, scores
from .thesis_5_04 import exact_kernel

SKETCHES = ("rademacher", "tensor_srht_stacked")


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, points = (80, 40) if options.quick else (1000, 300)
    widths, degrees = ((32,), (3,)) if options.quick else ((512, 1024), (3, 7, 10, 20))
    cells = {}
    for center in (False, True):
        x, y, x_test, y_test = unit_rows("fashion_mnist", options, center)
        data = x[:rows], y[:rows], x_test[:points], y_test[:points]
        for degree in degrees:
            exact: ScaleKernel = exact_kernel(degree)
            reference = reference_posterior(exact, data, rows, points)
            for width in widths:
                for name in SKETCHES:
                    for form, columns in (("real", 2 * width), ("complex", width)):
                        found = scores(exact, f"{name}:{form}", columns, 0, data, reference, rows, points)
                        label = "centered" if center else "as it is"
                        cells[f"{label}/{degree}/{name}/{form}/{width}"] = {k: found[k] for k in ("kl", "fit_seconds")}
    return {"rows": rows, "cells": cells}


def claims(result: dict[str, Any]) -> list[Claim]:
    found = []
    for label in ("as it is", "centered"):
        ratios: dict[str, list[float]] = {}
        seconds = []
        for key, cell in result["cells"].items():
            own, degree, name, form, width = key.split("/")
            if own == label and form == "complex":
                real = result["cells"][f"{own}/{degree}/{name}/real/{width}"]
                ratios.setdefault(degree, []).append(cell["kl"] / real["kl"])
                seconds.append(cell["fit_seconds"] / real["fit_seconds"])
        every = [ratio for values in ratios.values() for ratio in values]
        means = ", ".join(f"{sum(v) / len(v):.2f} (p = {p})" for p, v in ratios.items())
        wins = sum(ratio <= 1.05 for ratio in every)
        found.append(
            Claim(
                f"{label}: D complex features have equal or lower KL than 2 D real ones, in all cases",
                f"in {wins} of {len(every)}; mean ratios {means}",
                wins == len(every),
            )
        )
        mean = sum(seconds) / len(seconds)
        found.append(
            Claim(f"{label}: in the same time", f"seconds, complex / real: {mean:.2f} on average", mean < 1.25)
        )
    return found


CLAIMS = {"T Fig. 3.4": claims}

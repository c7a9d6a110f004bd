"""T Fig. 4.1 and 4.2: variance of CtR-TensorSRHT over that of TensorSRHT at equal width 2d, kernel (x.y + 1)^p."""

from __future__ import annotations

from typing import Any

from .data import some, unit_rows, with_constant
from .item import Claim, Options
from .variance_ratios import summary, variances


def measure(options: Options) -> dict[str, Any]:
    count = 60 if options.quick else 1000
    found = {}
    for name in ("digits",) if options.quick else ("letter", "mnist"):
        for center in (False, True):
            x = with_constant(some(unit_rows(name, options, center)[0], count))
            width = 2 * x.shape[-1]
            for degree in (2, 3) if options.quick else (2, 3, 5, 7, 10):
                paired, real = (variances("tensor_srht", form, width, degree, x) for form in ("ctr", "real"))
                kept = real > 0.0
                label = "centered" if center else "as it is"
                found[f"{name}/{label}/{degree}"] = summary(paired[kept] / real[kept])
    return {"rows": count, "cells": found}


def cells_of(result: dict[str, Any], label: str) -> dict[str, dict[str, Any]]:
    """The summaries by data set and degree."""
    found: dict[str, dict[str, Any]] = {}
    for key, cell in result["cells"].items():
        name, own, degree = key.split("/")
        if own == label:
            found.setdefault(name, {})[degree] = cell
    return found


def plain_claims(result: dict[str, Any]) -> list[Claim]:
    claims = []
    for name, cells in cells_of(result, "as it is").items():
        least = min(cell["below 1"] for cell in cells.values())
        largest = max(cell["largest"] for cell in cells.values())
        medians = [cell["median"] for cell in cells.values()]
        shown = f"{100 * least:.1f} % or more, largest {largest:.2f}"
        claims.append(Claim(f"{name}: all ratios below 1", shown, largest < 1.0))
        shown = ", ".join(f"{median:.2f} (p = {p})" for p, median in zip(cells, medians, strict=True))
        claims.append(
            Claim(
                f"{name}: the improvement increases with p",
                f"medians {shown}",
                medians == sorted(medians, reverse=True),
            )
        )
    return claims


def centered_claims(result: dict[str, Any]) -> list[Claim]:
    return [
        Claim(
            f"{name}, centered: around half of the ratios are below 1",
            ", ".join(
                f"{100 * cell['below 1']:.0f} % (p = {p}, median {cell['median']:.2f})" for p, cell in cells.items()
            ),
            all(0.25 <= cell["below 1"] <= 0.75 for cell in cells.values()),
        )
        for name, cells in cells_of(result, "centered").items()
    ]


CLAIMS = {"T Fig. 4.1": plain_claims, "T Fig. 4.2": centered_claims}

"""T Fig. 4.4 and 4.5: variances of CtR-TensorSRHT and TensorSRHT over that of TensorSketch at equal width 2d."""

from __future__ import annotations

from typing import Any

from .data import some, unit_rows, with_constant
from .item import Claim, Options
from .variance_ratios import drawn_variances, summary, variances

PLAN = {"letter": (100, 300), "mnist": (40, 100)}
"""Rows and draws of TensorSketch; T has 1,000 of both."""


def measure(options: Options) -> dict[str, Any]:
    found = {}
    for name, (rows, draws) in ({"digits": (30, 50)} if options.quick else PLAN).items():
        x = with_constant(some(unit_rows(name, options)[0], rows))
        width = 2 * x.shape[-1]
        for degree in (2, 4) if options.quick else (2, 3, 5, 7, 10):
            sketch = drawn_variances("tensor_sketch", width, degree, x, draws)
            for form in ("ctr", "real"):
                own = variances("tensor_srht", form, width, degree, x).float()
                found[f"{name}/{form}/{degree}"] = summary(own / sketch)
    return {"plan": PLAN, "cells": found}


def cells_of(result: dict[str, Any], form: str) -> dict[str, dict[int, Any]]:
    """The summaries by data set and degree."""
    found: dict[str, dict[int, Any]] = {}
    for key, cell in result["cells"].items():
        name, own, degree = key.split("/")
        if own == form:
            found.setdefault(name, {})[int(degree)] = cell
    return found


def shares(cells: dict[int, Any]) -> str:
    return ", ".join(f"{100 * cell['below 1']:.0f} % (p = {p})" for p, cell in cells.items())


def paired_claims(result: dict[str, Any]) -> list[Claim]:
    claims = []
    for name, cells in cells_of(result, "ctr").items():
        low = {p: cell for p, cell in cells.items() if p <= 5}
        high = {p: cell for p, cell in cells.items() if p > 5}
        holds = all(cell["below 1"] > 0.5 for cell in low.values())
        claims.append(Claim(f"{name}: more than half of the ratios below 1 for p <= 5", shares(low), holds))
        if high:
            holds = all(0.3 <= cell["below 1"] <= 0.7 for cell in high.values())
            claims.append(
                Claim(f"{name}: around half for large p, but for some low-dimensional data", shares(high), holds)
            )
    return claims


def real_claims(result: dict[str, Any]) -> list[Claim]:
    claims = []
    paired = cells_of(result, "ctr")
    for name, cells in cells_of(result, "real").items():
        worse = {p: cell["median"] / paired[name][p]["median"] for p, cell in cells.items()}
        shown = ", ".join(f"{value:.1f} (p = {p})" for p, value in worse.items())
        holds = all(value > 1.0 for value in worse.values()) and worse[max(worse)] > 2.0
        claims.append(
            Claim(f"{name}: ratios would be much worse with real TensorSRHT", f"times that of CtR: {shown}", holds)
        )
    return claims


CLAIMS = {"T Fig. 4.4": paired_claims, "T Fig. 4.5": real_claims}

"""T Fig. 4.6: time to construct sketches and error of the kernel, from what feature_construction.py has measured."""

from __future__ import annotations

import json
import math
import statistics
import time
from typing import Any

import torch

from rfgp.features import polynomial_sketch

from ..common import HERE
from .data import some, unit_rows, with_constant
from .item import Claim, Options

MEASURED = HERE / "results" / "feature_construction.json"
METHODS = ("rademacher:real", "tensor_srht:real", "tensor_srht:ctr", "tensor_sketch:real")
DEGREE = 6


def measure(options: Options) -> dict[str, Any]:
    """The seconds and errors by method and width, of the stored run of the benchmark if not quick."""
    return _quick(options) if options.quick else _stored(json.loads(MEASURED.read_text()))


def _stored(measured: dict[str, Any]) -> dict[str, Any]:
    cells = {}
    for width in measured["widths"]:
        for method in METHODS:
            own = measured["cells"][f"{method}/{width}"]
            cells[f"{method}/{width}"] = {"seconds": own["seconds"], "error": statistics.fmean(own["errors"])}
    return {"environment": measured["environment"], "seconds": None, "widths": measured["widths"], "cells": cells}


def _quick(options: Options) -> dict[str, Any]:
    x = with_constant(some(unit_rows("mnist", options)[0], 100))
    exact, widths, cells = (x @ x.mT) ** DEGREE, [256, 1024], {}
    for width in widths:
        for method in METHODS:
            sketch = polynomial_sketch(*method.split(":"), x.shape[-1], width, DEGREE, torch.Generator().manual_seed(0))
            start = time.perf_counter()
            features = sketch(x)
            seconds = time.perf_counter() - start
            error = float(torch.linalg.norm(features @ features.mT - exact) / torch.linalg.norm(exact))
            cells[f"{method}/{width}"] = {"seconds": seconds, "error": error}
    return {"widths": widths, "cells": cells}


def claims(result: dict[str, Any]) -> list[Claim]:
    widths, cells = result["widths"], result["cells"]
    slopes, last = {}, {}
    for method in METHODS:
        seconds = [cells[f"{method}/{width}"]["seconds"] for width in widths]
        slopes[method] = math.log(seconds[-1] / seconds[0]) / math.log(widths[-1] / widths[0])
        last[method] = seconds[-1]
    srht = ("tensor_srht:real", "tensor_srht:ctr")
    others = [method for method in METHODS if method not in srht]
    shown = ", ".join(f"{method} {1e3 * seconds:.3g} ms" for method, seconds in last.items())
    grown = ", ".join(f"{method} {slope:.2f}" for method, slope in slopes.items())
    error = {method: cells[f"{method}/{widths[-1]}"]["error"] for method in METHODS}
    best = min(METHODS, key=lambda method: error[method] * math.sqrt(last[method]))
    return [
        Claim(
            "TensorSRHT and CtR-TensorSRHT have the lowest construction times for large D",
            f"D = {widths[-1]:,}: {shown}",
            max(last[m] for m in srht) < min(last[m] for m in others),
        ),
        Claim(
            "their times have a smaller slope with respect to D",
            f"log seconds / log D: {grown}",
            max(slopes[m] for m in srht) < min(slopes[m] for m in others),
        ),
        Claim(
            "CtR-TensorSRHT gives the best kernel in the shortest time for large D",
            f"smallest error × root of the time: {best}; errors {', '.join(f'{m} {e:.3g}' for m, e in error.items())}",
            best == "tensor_srht:ctr",
        ),
    ]


CLAIMS = {"T Fig. 4.6": claims}

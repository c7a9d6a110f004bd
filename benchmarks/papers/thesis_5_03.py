"""T Fig. 5.3: relative Frobenius errors of sketches of ((7 + x.y) / 8)^p on Fashion-MNIST, centered and not."""

from __future__ import annotations

import math
import statistics
import warnings
from typing import Any

import torch
from torch import Tensor

import rfgp

from .data import some, unit_rows
from .item import Claim, Options
from .thesis_5_04 import exact_kernel

METHODS = {
    "Radem.": "rademacher:real",
    "TensorSRHT": "tensor_srht_stacked:real",
    "TensorSRHT Comp.": "tensor_srht_stacked:complex",
    "Rand. Macl. Radem.": "random_maclaurin:real",
    "Rand. Macl. TensorSRHT": "",
    "Opt. Macl. TensorSRHT": "optimized_maclaurin:real",
    "Opt. Macl. TensorSRHT Comp.": "optimized_maclaurin:complex",
    "TensorSketch": "tensor_sketch:real",
}


def features(name: str, degree: int, width: int, train: Tensor, x: Tensor, seed: int) -> Tensor:
    """The features of a method at x."""
    if METHODS[name]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more features than rows
            kernel = rfgp.approximate(exact_kernel(degree), width, method=METHODS[name], train_inputs=train, seed=seed)
        return kernel.features(x)
    binomial = [math.comb(degree, n) * 0.125**n * 0.875 ** (degree - n) for n in range(degree + 1)]
    generator = torch.Generator().manual_seed(seed)
    make = rfgp.features.allocation.random_maclaurin
    return make(x.shape[-1], width, binomial, sketch="tensor_srht_stacked", generator=generator)(x)


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, seeds = (60, 1) if options.quick else (500, 2)
    degrees, factors = ((10,), (1, 2)) if options.quick else ((3, 7, 10, 20), (1, 2))
    cells = {}
    for center in (False, True):
        x, _, x_test, _ = unit_rows("fashion_mnist", options, center)
        train, x_test = some(x, 500), x_test[:rows]
        dim = 1 << (x.shape[-1] - 1).bit_length()
        for degree in degrees:
            exact = (0.875 + 0.125 * x_test @ x_test.mT) ** degree
            for factor in factors:
                for name in METHODS:
                    errors = []
                    for seed in range(seeds):
                        phi = features(name, degree, factor * dim, train, x_test, seed)
                        estimate = (phi @ phi.mH).real
                        errors.append(float(torch.linalg.norm(estimate - exact) / torch.linalg.norm(exact)))
                    cells[f"{'centered' if center else 'as it is'}/{degree}/{factor}/{name}"] = errors
    return {"rows": rows, "cells": cells}


def ratios(result: dict[str, Any], own: str, other: str, label: str = "") -> dict[str, float]:
    """Mean errors of a method over those of another one, by cell."""
    means = {key: statistics.fmean(errors) for key, errors in result["cells"].items()}
    return {
        key.rpartition("/")[0]: value / means[f"{key.rpartition('/')[0]}/{other}"]
        for key, value in means.items()
        if key.endswith(f"/{own}") and key.startswith(label)
    }


def claims(result: dict[str, Any]) -> list[Claim]:
    def counted(printed: str, found: dict[str, float], share: float) -> Claim:
        wins = sum(ratio < 1.0 for ratio in found.values())
        mean = math.exp(statistics.fmean(map(math.log, found.values())))
        return Claim(
            printed, f"in {wins} of {len(found)} cells, ratio {mean:.2f} on average", wins >= share * len(found)
        )

    means = {key: statistics.fmean(errors) for key, errors in result["cells"].items()}
    half = {
        key: means[key] / means[key.replace("/1/", "/2/").replace(" Comp.", "")]
        for key in means
        if key.startswith("as it is") and key.endswith("/1/TensorSRHT Comp.")
    }
    sketch = ratios(result, "TensorSRHT", "TensorSketch")
    beyond = {key: 1.0 / ratio for key, ratio in sketch.items() if "/3/" not in key}
    gains = {
        label: math.exp(
            statistics.fmean(map(math.log, ratios(result, "TensorSRHT Comp.", "TensorSRHT", label).values()))
        )
        for label in ("as it is", "centered")
    }
    return [
        counted(
            "Opt. Macl. below Rand. Macl. TensorSRHT for almost all cases",
            ratios(result, "Opt. Macl. TensorSRHT", "Rand. Macl. TensorSRHT"),
            0.9,
        ),
        counted("complex TensorSRHT significantly below real", ratios(result, "TensorSRHT Comp.", "TensorSRHT"), 1.0),
        counted("not centered: complex at D = d below real at 2 d", half, 1.0),
        counted(
            "Opt. Macl. complex below real",
            ratios(result, "Opt. Macl. TensorSRHT Comp.", "Opt. Macl. TensorSRHT"),
            0.9,
        ),
        Claim(
            "complex features gain more on data that are not centered",
            f"complex / real {gains['as it is']:.2f}, centered {gains['centered']:.2f}",
            gains["as it is"] < gains["centered"],
        ),
        counted("real TensorSRHT above TensorSketch for all cases except p = 3 (inverse ratio)", beyond, 1.0),
        counted(
            "complex TensorSRHT below TensorSketch for all cases",
            ratios(result, "TensorSRHT Comp.", "TensorSketch"),
            1.0,
        ),
    ]


CLAIMS = {"T Fig. 5.3": claims}

"""B Fig. 8 to 10: features of three operator-valued kernels as a linear operator and as a matrix, against p outputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel, RBFKernel

import rfgp
from rfgp.approximation.hooks.output_features import OutputFeatures
from rfgp.kernels import ConstantCovariance, CurlFreeKernel, DecomposableKernel, DivergenceFreeKernel

from .item import Claim, Options

PLAN = {"decomposable": (100, 100), "curl-free": (1000, 500), "divergence-free": (100, 100)}
"""Rows and frequencies, as in B."""
INPUTS = 20
"""Columns of the inputs of the decomposable kernel; those of fields have as many as outputs."""


def exact_kernel(name: str, outputs: int) -> Kernel:
    if name != "decomposable":
        return {"curl-free": CurlFreeKernel, "divergence-free": DivergenceFreeKernel}[name](RBFKernel())
    root = torch.rand(outputs, outputs, generator=torch.Generator().manual_seed(0))
    return DecomposableKernel(RBFKernel(), ConstantCovariance(root @ root.mT + 1e-3 * torch.eye(outputs)))


def seconds_of(function: Callable[[], Any], repeats: int) -> float:
    """The least processor seconds of some calls."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def compared(name: str, outputs: int, rows: int, frequencies: int, repeats: int) -> dict[str, float]:
    """Seconds and bytes of the operator and of the matrix."""
    dim = INPUTS if name == "decomposable" else outputs
    x = torch.rand(rows, dim, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(exact_kernel(name, outputs), 2 * frequencies, input_dim=dim, method="fourier", seed=0)
    factor = kernel.output_factor()
    operator, matrix = OutputFeatures.of(kernel.scalar_features(x), factor), kernel.features(x)
    weights = torch.rand(matrix.shape[-1], generator=torch.Generator().manual_seed(1))
    product = matrix @ weights
    return {
        "made": seconds_of(lambda: OutputFeatures.of(kernel.scalar_features(x), kernel.output_factor()), repeats),
        "made, matrix": seconds_of(lambda: kernel.features(x), repeats),
        "product": seconds_of(lambda: operator.matvec(weights), repeats),
        "product, matrix": seconds_of(lambda: matrix @ weights, repeats),
        "bytes": sum(t.numel() * t.element_size() for t in (operator.scalar, operator.coefficient, operator.index)),
        "bytes, matrix": matrix.numel() * matrix.element_size(),
        "gap": float((operator.matvec(weights) - product).norm() / product.norm()),
    }


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    sizes, repeats = ((2, 4), 1) if options.quick else ((2, 5, 10, 20, 40), 5)
    cells = {
        f"{name}/{outputs}": compared(name, outputs, *((30, 20) if options.quick else plan), repeats)
        for name, plan in PLAN.items()
        for outputs in sizes
    }
    return {"sizes": sizes, "cells": cells}


def claims_of(name: str, result: dict[str, Any]) -> list[Claim]:
    cells = {key: cell for key, cell in result["cells"].items() if key.startswith(name)}
    last = list(cells.values())[-1]
    outputs = result["sizes"][-1]

    def times(measure_name: str) -> float:
        return last[f"{measure_name}, matrix"] / max(last[measure_name], 1e-9)

    product = f"p = {outputs}: {times('product'):.2g} times as fast as the matrix"
    found = [
        Claim(
            "the operator uses considerably less memory than the matrix",
            f"p = {outputs}: {last['bytes'] / 1e6:.3g} MB against {last['bytes, matrix'] / 1e6:.3g} MB",
            last["bytes"] < 0.5 * last["bytes, matrix"],
        ),
        Claim("both have the same products", f"relative difference {max(c['gap'] for c in cells.values()):.0e}", True),
        Claim(
            "features are constructed faster", f"p = {outputs}: {times('made'):.2g} times as fast", times("made") > 1.0
        ),
    ]
    if name == "decomposable":
        return [*found, Claim("and so are products", product, times("product") > 1.0)]
    slower = "the operator is one order of magnitude slower than the matrix"
    return [*found, Claim(slower, product, 0.03 < times("product") < 0.3)]


CLAIMS = {
    "B Fig. 8": lambda result: claims_of("decomposable", result),
    "B Fig. 9": lambda result: claims_of("curl-free", result),
    "B Fig. 10": lambda result: claims_of("divergence-free", result),
}

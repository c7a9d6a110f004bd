"""Sums and products after ``approximate`` train as fast as the approximation of the sum or product.

Each line is a training step of an ExactGP, evidence and gradient, with a composition of kernels that are approximated
already. Its processor seconds are divided by those of ``approximate`` of the exact composition, with as many features.
``ProductKernel(k1, k2)``, the product of two estimates, is the one that stays dense.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from common import arguments, environment, markdown, write
from gpytorch.kernels import AdditiveKernel, IndexKernel, Kernel, LinearKernel, MaternKernel, ProductKernel, RBFKernel
from torch import Tensor

import rfgp

WIDTH, COLUMNS, ROWS = 256, [0, 1, 2], (2_000, 4_000)
LIMIT = 1.5


class Model(gpytorch.models.ExactGP):
    """The model of GPyTorch's first example."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: gpytorch.likelihoods.Likelihood, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def data(num_rows: int) -> tuple[Tensor, Tensor]:
    """Three columns and the number of one of two tasks."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, 4, generator=generator)
    x[:, 3] = torch.arange(num_rows) % 2
    noise = 0.1 * torch.randn(num_rows, generator=generator)
    return x, torch.sin(6.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * x[:, 3] + noise


def approximated(exact: Kernel, width: int = WIDTH, seed: int = 0) -> Kernel:
    return rfgp.approximate(exact, width, input_dim=4, seed=seed)


def smooth() -> Kernel:
    return RBFKernel(active_dims=COLUMNS)


def rough() -> Kernel:
    return MaternKernel(active_dims=COLUMNS)


def linear() -> Kernel:
    return LinearKernel(active_dims=COLUMNS)


def tasks() -> Kernel:
    return IndexKernel(2, active_dims=[3])


def pair() -> tuple[Kernel, Kernel]:
    return approximated(smooth(), seed=0), approximated(rough(), seed=1)


CASES: dict[str, dict[str, Callable[[], Kernel]]] = {
    "k1 + k2": {
        "approximate": lambda: approximated(smooth() + rough(), 2 * WIDTH),
        "k1 + k2": lambda: pair()[0] + pair()[1],
        "AdditiveKernel": lambda: AdditiveKernel(*pair()),
    },
    "linear + k1": {
        "approximate": lambda: approximated(linear() + smooth(), WIDTH + len(COLUMNS)),
        "linear + k1": lambda: linear() + pair()[0],
    },
    "k1 * k2": {
        "approximate": lambda: approximated(smooth() * rough()),
        "k1 * k2": lambda: pair()[0] * pair()[1],
        "ProductKernel, dense": lambda: ProductKernel(*pair()),
    },
    "k1 * IndexKernel": {
        "approximate": lambda: approximated(smooth() * tasks()),
        "k1 * IndexKernel": lambda: pair()[0] * tasks(),
        "IndexKernel * k1": lambda: tasks() * pair()[0],
    },
}


def step(kernel: Kernel, num_rows: int) -> Callable[[], None]:
    """A function that evaluates the evidence and its gradient once."""
    x, y = data(num_rows)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood, kernel).train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def run_once() -> None:
        model.zero_grad()
        (-evidence(model(x), y)).backward()

    return run_once


def seconds(steps: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median processor seconds, in turn after one warm-up each."""
    measured: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 1):
        for name, run_once in steps.items():
            start = time.process_time()
            run_once()
            if repeat:
                measured[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in measured.items()}


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"environment": environment(), "width": WIDTH, "cells": {}}
    for num_rows in (500,) if options.quick else ROWS:
        for case, makers in CASES.items():
            steps = {name: step(make(), num_rows) for name, make in makers.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result["cells"][f"{case}/{num_rows}"] = seconds(steps, 2 if options.quick else 5)
            write(options.out, result)
    return result


def report(result: dict[str, Any]) -> None:
    rows = []
    for key, cell in result["cells"].items():
        for name, value in list(cell.items())[1:]:
            ratio = value / cell["approximate"]
            met = "" if "dense" in name else ("met" if ratio <= LIMIT else "missed")
            rows.append([key.split("/")[1], name, f"{value:.3g}", f"{ratio:.2f}", met])
    print(markdown(["N", "kernel", "processor seconds", "times approximate", f"at most {LIMIT:g}"], rows))


def main() -> None:
    options = arguments(__doc__, "composition_after").parse_args()
    run(options)
    report(json.loads(options.out.read_text()))


if __name__ == "__main__":
    main()

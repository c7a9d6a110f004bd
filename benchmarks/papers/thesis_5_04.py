"""Spherical random features (SRF) against sketches of polynomial kernels of high degree, as in T 5.4.3.

The kernel is (1 - |x - y|^2 / a^2)^p = ((7 + x.y) / 8)^p for a = 4, on centered and then unit-normalized rows. Claim to
compare with: optimized Maclaurin features with TensorSRHT have smaller relative Frobenius errors than SRF and than
structured orthogonal SRF "for most cases", and so have their complex forms. ``spherical_hadamard`` is "SRF Orth.".
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel
from torch import Tensor

import rfgp
from rfgp.diagnostics import relative_frobenius_error
from rfgp.features import SphericalFourier
from rfgp.study import datasets, plots

from ..common import mean_and_error, run_cells, save_figure
from .item import Claim, Options

A = 4.0
OFFSET = 0.5 * A**2 - 1.0
SPHERICAL = ("spherical", "spherical_orthogonal", "spherical_hadamard")
MACLAURIN = ("optimized_maclaurin:real", "optimized_maclaurin:ctr")
SKETCHES = ("rademacher:real", "rademacher:ctr", "tensor_srht:real", "tensor_srht:ctr", "tensor_sketch")
COMPLEX = ("spherical_hadamard:complex", "optimized_maclaurin:complex")
METHODS = (*SPHERICAL, *MACLAURIN, *SKETCHES, *COMPLEX)
PAIRS = [*product(MACLAURIN, SPHERICAL), COMPLEX[::-1]]
"""Which method is expected to have a smaller error than which other."""


def load(name: str, options: Options) -> tuple[Tensor, Tensor]:
    """Training rows that maps are optimized for, and test rows, centered and then of unit norm."""
    data = datasets.load(name, options.data_dir)
    count = 100 if options.quick else 1000
    mean = data.x_train.mean(0)
    rows = torch.randperm(len(data.x_train), generator=torch.Generator().manual_seed(0))[:count]
    parts = data.x_train[rows], data.x_test[:count]
    train, test = (torch.nn.functional.normalize(part - mean, dim=-1).float() for part in parts)
    return train, test


def exact_kernel(degree: int) -> ScaleKernel:
    kernel = ScaleKernel(PolynomialKernel(power=degree))
    kernel.base_kernel.offset = OFFSET
    kernel.outputscale = (1.0 + OFFSET) ** -degree
    return kernel


def errors(method: str, degree: int, width: int, data: tuple[Tensor, Tensor], num_seeds: int) -> list[float]:
    """Relative Frobenius errors of as many draws of the weights; an optimized map is optimized once."""
    train, test = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more features than rows
        kernel = rfgp.approximate(exact_kernel(degree), width, method=method, train_inputs=train, seed=0)
    generators = [torch.Generator().manual_seed(seed) for seed in range(num_seeds)]
    return [float(relative_frobenius_error(kernel.resample(g), test)) for g in generators]


def fit_errors(dim: int, degree: int) -> dict[str, float]:
    """The largest difference of the isotropic kernel of SRF from the polynomial one, whose largest value is 1."""
    variants = {"dense": "independent", "hadamard": "hadamard"}
    return {name: SphericalFourier(dim, 2, degree, A, kind).fit_error for name, kind in variants.items()}


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    num_seeds, degrees = (2, (10,)) if options.quick else (3, (10, 20))
    factors = (1,) if options.quick else (1, 3, 5)
    data = {name: load(name, options) for name in (("digits",) if options.quick else ("letter", "mnist"))}
    dims = {name: rows[1].shape[-1] for name, rows in data.items()}
    cells = [
        (
            f"{name}/{degree}/{method}/{factor * dims[name]}",
            partial(errors, method, degree, factor * dims[name], data[name], num_seeds),
        )
        for name, degree, factor, method in product(data, degrees, factors, METHODS)
    ]
    return run_cells(
        options,
        cells,
        a=A,
        seeds=num_seeds,
        fit_errors={f"{name}/{degree}": fit_errors(dims[name], degree) for name in data for degree in degrees},
        rows=max(len(rows[1]) for rows in data.values()),
    )


Panels = dict[tuple[str, str], dict[str, dict[int, list[float]]]]


def panels(result: dict[str, Any]) -> Panels:
    """The errors by data set and degree, then by method, then by width."""
    found: Panels = defaultdict(lambda: defaultdict(dict))
    for key, values in result["cells"].items():
        name, degree, method, width = key.split("/")
        found[name, degree][method][int(width)] = values
    return found


def compared(measured: Panels) -> list[tuple[str, str, int, int, float]]:
    """For every pair of methods: in how many of all cells the first is better, and the geometric mean of the ratios."""
    rows = []
    for method, other in PAIRS:
        cells = [(methods[other][w], methods[method][w]) for methods in measured.values() for w in methods[method]]
        ratios = [mean_and_error(others)[0] / mean_and_error(own)[0] for others, own in cells]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        rows.append((method, other, sum(r > 1.0 for r in ratios), len(ratios), mean))
    return rows


def draw(result: dict[str, Any], out: Path) -> None:
    measured = panels(result)
    figure, axes = plots.figure(2, math.ceil(len(measured) / 2), width=4.4, height=3.4)
    for ax, ((name, degree), methods) in zip(axes.flat, measured.items(), strict=False):
        curves = {}
        for method in METHODS:
            widths = sorted(methods[method])
            points = [mean_and_error(methods[method][width]) for width in widths]
            curves[method] = plots.Curve(widths, *zip(*points, strict=True))
        plots.comparison(curves, xlabel="features D", ylabel="relative Frobenius error", log_x=2, ax=ax)
        ax.set_title(f"{name}, degree {degree}", fontsize="medium")
    plots.legend(figure, list(axes.flat), columns=4)
    save_figure(figure, out)


def claims(result: dict[str, Any]) -> list[Claim]:
    """The three orderings of the text, "for most cases"."""
    names = {"spherical": "SRF", "spherical_hadamard": "SRF Orth.", "spherical_hadamard:complex": "SRF Orth. Comp."}
    found = []
    for method, other, wins, total, mean in compared(panels(result)):
        if other in names and method != "optimized_maclaurin:ctr":
            own = "Opt. Macl. TensorSRHT" + (" Comp." if method.endswith("complex") else "")
            ours = f"in {wins} of {total} cells, by a factor of {mean:.2f} on average"
            found.append(Claim(f"{own} below {names[other]} for most cases", ours, 2 * wins > total))
    return found


CLAIMS = {"T Fig. 5.4": claims}

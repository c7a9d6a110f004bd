"""Polynomial sketches: time to construct the features, and error of the kernel, against their width.

1,000 rows of 1,024 columns (the last one constant), degree 6, float32 in and, but for scikit-learn, which computes in
float64 whatever it is given, float32 throughout. "Floors" are times to scale a tensor of the size of the features into
a new one: what writing the result costs. The research code of the thesis is measured where a checkout is given.
"""

from __future__ import annotations

import importlib
import json
import math
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from common import (
    add_data_dir,
    add_grid,
    add_plot,
    arguments,
    environment,
    interleaved,
    mnist,
    save_figure,
    show,
    write,
)
from sklearn.kernel_approximation import PolynomialCountSketch
from torch import Tensor
from tqdm import tqdm

from rfgp.features import polynomial_sketch
from rfgp.features.sketch_registry import SKETCHES
from rfgp.study import plots

DEGREE = 6
NUM_COLUMNS = 1024
SKLEARN, RESEARCH = "scikit-learn ", "dp-rfs "
RESEARCH_OPTIONS: dict[str, dict[str, Any]] = {
    "rademacher:real": {"projection_type": "rademacher"},
    "tensor_srht:real": {"projection_type": "srht", "full_cov": True},
    "tensor_srht:ctr": {
        "projection_type": "srht",
        "full_cov": True,
        "complex_weights": True,
        "complex_real": True,
    },
    "tensor_sketch:real": {"projection_type": "countsketch_scatter"},
}

Features = Callable[[], Any]
Candidate = Callable[[int], Features]
"""From a seed to a function that constructs the features."""


def inputs(data_dir: Path | None, num_rows: int) -> Tensor:
    """Non-negative unit rows padded with zeros, and a column of ones, so that the kernel is (1 + x.y)^6."""
    if data_dir is None:
        draw = torch.rand(2, num_rows, NUM_COLUMNS - 1, generator=torch.Generator().manual_seed(0))
        rows = torch.nn.functional.normalize(draw[0] * (draw[1] < 0.2), dim=-1)
    else:
        rows = mnist(data_dir)[2][:num_rows]
    padded = torch.nn.functional.pad(rows, (0, NUM_COLUMNS - 1 - rows.shape[-1]))
    return torch.cat([padded, torch.ones(num_rows, 1)], dim=-1)


def own(method: str, width: int, x: Tensor) -> Candidate:
    def make(seed: int) -> Features:
        feature_map = polynomial_sketch(
            *method.split(":"), NUM_COLUMNS, width, DEGREE, torch.Generator().manual_seed(seed)
        )
        return lambda: feature_map(x)

    return make


def scikit_learn(width: int, x: Tensor) -> Candidate:
    def make(seed: int) -> Features:
        rows = x.numpy()
        sketch = PolynomialCountSketch(degree=DEGREE, n_components=width, random_state=seed).fit(rows)
        return lambda: sketch.transform(rows)

    return make


def research(sketch_class: Any, width: int, x: Tensor, options: dict[str, Any]) -> Candidate:
    def make(seed: int) -> Features:
        torch.manual_seed(seed)
        sketch = sketch_class(NUM_COLUMNS, width, degree=DEGREE, lengthscale=1.0, **options)
        sketch.resample()
        return lambda: sketch(x)

    return make


def research_code(path: Path) -> Any:
    """The sketch of a checkout of the research code; compiles its Hadamard transform where that is not done yet."""
    sys.path.insert(0, str(path.resolve()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("random_features.polynomial_sketch").PolynomialSketch


def candidates(width: int, x: Tensor, sketch_class: Any | None) -> dict[str, Candidate]:
    result = {name: own(name, width, x) for method in SKETCHES for name in (f"{method}:real", f"{method}:ctr")}
    result[f"{SKLEARN}tensor_sketch:real"] = scikit_learn(width, x)
    if sketch_class is not None:
        for name, options in RESEARCH_OPTIONS.items():
            result[f"{RESEARCH}{name}"] = research(sketch_class, width, x, options)
    return result


def kernel_error(features: Any, exact: Tensor) -> float:
    """Relative Frobenius error of the kernel matrix, diagonal included."""
    rows = torch.as_tensor(features, dtype=torch.float32)
    return float(((rows @ rows.mT).double() - exact).norm() / exact.norm())


def measure(width: int, x: Tensor, sketch_class: Any | None, num_seeds: int, repeats: int) -> dict[str, dict[str, Any]]:
    exact = (x.double() @ x.double().mT) ** DEGREE
    made = candidates(width, x, sketch_class)
    cells: dict[str, dict[str, Any]] = {}
    for name, make in tqdm(made.items(), desc=f"errors, D = {width}"):
        outputs = [np.asarray(make(seed)()) for seed in range(num_seeds)]
        errors = [kernel_error(output, exact) for output in outputs]
        cells[name] = {"dtype": str(outputs[0].dtype), "columns": outputs[0].shape[-1], "errors": errors}
    output = torch.randn(len(x), width)
    functions = {"floor": lambda: output * 2.0} | {name: make(0) for name, make in made.items()}
    cells["floor"] = {}
    for name, seconds in interleaved(functions, repeats).items():
        cells[name]["seconds"] = seconds
    return {f"{name}/{width}": cell for name, cell in cells.items()}


def run(options: Any) -> None:
    num_rows, widths = (50, (128, 256)) if options.quick else (1000, (1024, 4096, 10240))
    num_seeds, repeats = (2, 2) if options.quick else (5, 5)
    sketch_class = None if options.dp_rfs is None else research_code(options.dp_rfs)
    versions = {"scikit-learn": sklearn.__version__}
    if options.dp_rfs is not None:
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, cwd=options.dp_rfs, capture_output=True, text=True, check=False)
        versions["dp-rfs"] = commit.stdout.strip()
    x = inputs(options.data_dir, num_rows)
    result: dict[str, Any] = {
        "environment": environment() | versions,
        "rows": num_rows,
        "columns": NUM_COLUMNS,
        "degree": DEGREE,
        "data": "random" if options.data_dir is None else "mnist",
        "widths": widths,
        "cells": {},
    }
    with torch.no_grad():
        for width in widths:
            result["cells"] |= measure(width, x, sketch_class, num_seeds, repeats)
            write(options.out, result)
    show(result)


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def draw(result: dict[str, Any], out: Path) -> None:
    """Time against width, and error against time: a color per method, dashes for CtR, a marker per implementation."""
    from matplotlib.ticker import LogLocator, NullLocator

    cells, widths = result["cells"], result["widths"]
    names = [key.rpartition("/")[0] for key in cells if key.endswith(f"/{widths[0]}")]
    figure, axes = plots.figure(1, 2, width=4.4, height=4.6)
    for name in names:
        measured = [cells[f"{name}/{width}"] for width in widths if f"{name}/{width}" in cells]
        times = [1e3 * cell["seconds"] for cell in measured]
        if name == "floor":
            style: dict[str, Any] = {"color": plots.EXACT, "linestyle": ":", "linewidth": 1.2}
        else:
            style = _style(name)
            errors = [statistics.mean(cell["errors"]) for cell in measured]
            bars = [standard_error(cell["errors"]) for cell in measured]
            axes[0, 1].errorbar(times, errors, yerr=bars, label=name, capsize=2.0, **style)
        axes[0, 0].plot(widths[: len(times)], times, label=name, **style)
    for ax in axes.flat:
        ax.set(xscale="log", yscale="log")
        add_grid(ax)
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0, 0].set(xlabel="features D", ylabel=f"milliseconds for {result['rows']:,} rows", xticks=widths)
    axes[0, 1].set(xlabel="milliseconds", ylabel="relative Frobenius error")
    plots.legend(figure, list(axes.flat), columns=3)
    save_figure(figure, out)


def _style(name: str) -> dict[str, Any]:
    implementation, _, short = name.rpartition(" ")
    method, _, form = short.partition(":")
    return {
        "color": plots.COLORS[list(SKETCHES).index(method)],
        "marker": {"": "o", SKLEARN.strip(): "s", RESEARCH.strip(): "^"}[implementation],
        "linestyle": "--" if form == "ctr" else "-",
        "linewidth": 1.3,
        "markersize": 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def main() -> None:
    parser = arguments(__doc__, "feature_construction")
    add_data_dir(parser, required=False)
    add_plot(parser)
    parser.add_argument("--dp-rfs", type=Path, help="a checkout of the research code whose extension compiles")
    options = parser.parse_args()
    if options.plot:
        draw(json.loads(options.out.read_text()), options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()

"""method="auto" against every single method that lasts off the data: measured kernel errors where predicted ones chose.

For {letter, protein, kin8nm} x {polynomials of degree 3 and 6, a Gaussian kernel of the median lengthscale, Matern 3/2}
x {D = d (even), 5 d, 1024}: relative Frobenius error on inputs that were not used to choose, mean over seeds. Every
method that is predicted to be within a factor of two of the best is measured. Polynomials (1 + x.y)^p have unit inputs.
"""

from __future__ import annotations

import copy
import itertools
import json
import statistics
import warnings
from functools import partial

import numpy as np
import torch
from common import add_data_dir, add_plot, arguments, run_cells, save_figure
from gpytorch.kernels import MaternKernel, PolynomialKernel, RBFKernel
from sklearn.datasets import load_digits

import rfgp
from rfgp.approximation.selection import best_method, rank_methods
from rfgp.kernels import ExponentialDotProductKernel
from rfgp.study import plots

DATA = ("letter", "protein", "kin8nm")
KERNELS = ("poly 3", "poly 6", "RBF median", "Matern 3/2")
ROWS, TEST_ROWS, SEEDS = 1000, 400, 4


def inputs(name, data_dir):
    """Rows to choose with and rows to measure on; tables are standardized, images and digits only scaled."""
    if name == "digits":
        x = torch.as_tensor(load_digits().data)
    else:
        with np.load(data_dir / f"{name}.npz") as archive:
            x = torch.as_tensor(archive["x_train" if name == "mnist" else "x"]).flatten(1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: ROWS + TEST_ROWS]
    x = x[order].double()
    x = x / x.max() if name in ("digits", "mnist") else (x - x.mean(0)) / x.std(0)
    cut = min(ROWS, len(x) // 2)
    return x[:cut].float(), x[cut:].float()


def exact_kernel(name, x):
    """The kernel, and whether its inputs are normalized."""
    if name.startswith("poly"):
        kernel = PolynomialKernel(power=int(name.split()[1]))
        kernel.offset = 1.0
        return kernel
    if name == "exponential":
        kernel = ExponentialDotProductKernel()
        kernel.lengthscale = 1.0
        return kernel
    kernel = MaternKernel(nu=1.5) if name.startswith("Matern") else RBFKernel()
    kernel.lengthscale = float(torch.pdist(x).median()) / (5.0 if name == "RBF short" else 1.0)
    return kernel


def measured(kernel, width, method, train, test, seeds):
    """Relative Frobenius errors on the test rows, one per seed."""
    with torch.no_grad():
        exact = copy.deepcopy(kernel).double()(test.double()).to_dense()
        errors = []
        for seed in range(seeds):
            approximate = rfgp.approximate(kernel, width, method=method, train_inputs=train, seed=100 + seed)
            features = approximate.features(test).double()
            errors.append(float((features @ features.mT - exact).norm() / exact.norm()))
    return errors


def cell(kernel, width, train, test, seeds):
    """Predictions of all methods, the choice, and the measured errors of those that come near."""
    ranking = rank_methods(kernel, width, train)
    ranking = [c for c in ranking if not c.is_truncated] or ranking  # those that "auto" chooses among
    ranking = sorted(ranking, key=lambda candidate: candidate.error.relative_error)
    chosen = best_method(kernel, width, train)
    near = [c for c in ranking if c.error.relative_error <= 2.0 * ranking[0].error.relative_error or c.method == chosen]
    return {
        "chosen": chosen,
        "predicted": {c.method: (c.error.relative_error, c.error.standard_error) for c in ranking},
        "measured": {c.method: measured(kernel, width, c.method, train, test, seeds) for c in near},
    }


def summary(found):
    """Mean and standard error of the chosen and of the best method, and whether the choice is within the limit."""
    means = {
        method: (statistics.fmean(errors), statistics.stdev(errors) / len(errors) ** 0.5)
        for method, errors in found["measured"].items()
    }
    best = min(means, key=lambda method: means[method][0])
    (error, own), (lowest, other) = means[found["chosen"]], means[best]
    return error, own, best, lowest, other, error <= 1.05 * lowest + 2.0 * (own**2 + other**2) ** 0.5


def claims(result):
    """In how many cells the choice is within 5 % and two standard errors of the best method."""
    met = [summary(found)[-1] for found in result["cells"].values()]
    return {"cells": len(met), "within": sum(met)}


def draw(cells, out):
    """The error of the choice against that of the best method, and predicted against measured errors."""
    figure, axes = plots.figure(1, 2)
    for kernel, color in zip(KERNELS, plots.COLORS, strict=False):
        chosen = [summary(found) for key, found in cells.items() if f"|{kernel}/" in key]
        axes[0, 0].loglog([c[3] for c in chosen], [c[0] for c in chosen], "o", color=color, markersize=4, label=kernel)
        pairs = [
            (found["predicted"][method][0], statistics.fmean(errors))
            for key, found in cells.items()
            if f"|{kernel}/" in key
            for method, errors in found["measured"].items()
        ]
        axes[0, 1].loglog(*zip(*pairs, strict=True), "o", color=color, markersize=3)
    for ax, xlabel, ylabel in zip(
        axes[0], ["error of the best method", "predicted error"], ['error of "auto"', "measured error"], strict=True
    ):
        ax.axline((0.01, 0.01), (1.0, 1.0), color=plots.EXACT, linewidth=0.8)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
    plots.legend(figure, list(axes.flat), columns=4)
    save_figure(figure, out)


def cells_of(options):
    """What is measured: of every kernel and data set, three widths."""
    for kernel_name, name in itertools.product(KERNELS, DATA[:1] if options.quick else DATA):
        train, test = inputs(name, options.data_dir)
        if kernel_name.startswith(("poly", "exp")):
            train, test = (torch.nn.functional.normalize(rows, dim=-1) for rows in (train, test))
        even = train.shape[-1] + train.shape[-1] % 2
        for width in [even] if options.quick else sorted({even, 5 * even, 1024}):
            exact, seeds = exact_kernel(kernel_name, train), 3 if options.quick else SEEDS
            yield f"{name}|{kernel_name}/D={width}", partial(cell, exact, width, train, test, seeds)


def main() -> None:
    parser = arguments(__doc__, "selection")
    add_data_dir(parser)
    add_plot(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = {"rows": ROWS, "test_rows": TEST_ROWS}
    stored = json.loads(options.out.read_text()) if options.plot else None
    result = stored or run_cells(options, cells_of(options), claims, **sizes)
    if options.plot or not options.quick:
        draw(result["cells"], options.out)


if __name__ == "__main__":
    main()

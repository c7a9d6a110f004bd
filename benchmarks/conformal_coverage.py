"""Coverage of split conformal, jackknife+ and CV+ intervals, and of the model's own, where the model is wrong.

Each repetition draws new rows; means come with their standard errors over repetitions, next to what theory says.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import common
import gpytorch
import numpy as np
import torch

import rfgp
from rfgp.diagnostics.conformal import Interval, jackknife_plus, split_conformal

TRAINED, NEW, LEVEL, WIDTH = 100, 50, 0.9, 32
KINDS = ("right model", "heavy tails", "wrong lengthscale", "heteroscedastic")
METHODS = ("model", "split", "split, plain", "jackknife+", "CV+ of 10 folds")


def draw(kind: str, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a curve: with normal noise, with noise of Student's t with 2 degrees, or with one that grows."""
    x = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "heavy tails":
        chi = torch.randn(count, 2, generator=generator, dtype=torch.float64).square().sum(-1)
        noise = noise / (chi / 2.0).sqrt()
    if kind == "heteroscedastic":
        noise = noise * 3.0 * x.squeeze(-1)
    return x, torch.sin(6.0 * x.squeeze(-1)) + 0.3 * noise


def model_for(kind: str) -> rfgp.WeightSpaceGP:
    """A model whose parameters are given, and never found from the rows."""
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    exact.base_kernel.lengthscale = 0.02 if kind == "wrong lengthscale" else 0.3
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01 if kind == "wrong lengthscale" else 0.09
    return rfgp.WeightSpaceGP(rfgp.approximate(exact, WIDTH, input_dim=1, seed=0), likelihood)


def intervals(model: rfgp.WeightSpaceGP, x: torch.Tensor, y: torch.Tensor, new: torch.Tensor) -> dict[str, Interval]:
    """The intervals of every method, from the same number of rows for a model."""
    own, other = slice(0, TRAINED), slice(TRAINED, 2 * TRAINED)
    model.condition(x[own], y[own])
    observed = model.likelihood(model(new))
    half = observed.stddev * float(torch.special.ndtri(torch.tensor(0.5 + LEVEL / 2.0, dtype=torch.float64)))
    return {
        "model": Interval(observed.mean - half, observed.mean + half),
        "split": split_conformal(model, x[other], y[other], LEVEL).interval(new),
        "split, plain": split_conformal(model, x[other], y[other], LEVEL, normalize=False).interval(new),
        "jackknife+": jackknife_plus(model, x[own], y[own], new, LEVEL),
        "CV+ of 10 folds": jackknife_plus(model, x[own], y[own], new, LEVEL, groups=10),
    }


@torch.no_grad()
def measure(kind: str, repetitions: int) -> dict[str, dict[str, float]]:
    """The coverage and the width of every method with standard errors."""
    model, generator = model_for(kind), torch.Generator().manual_seed(0)
    shares: dict[str, list[float]] = {name: [] for name in METHODS}
    widths: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(repetitions):
        x, y = draw(kind, 2 * TRAINED + NEW, generator)
        new = slice(2 * TRAINED, None)
        for name, (lower, upper) in intervals(model, x, y, x[new]).items():
            shares[name].append(float(((lower <= y[new]) & (y[new] <= upper)).double().mean()))
            widths[name].append(float((upper - lower).mean()))
    return {
        name: {
            "coverage": float(np.mean(shares[name])),
            "error": float(np.std(shares[name], ddof=1)) / math.sqrt(repetitions),
            "width": float(np.mean(widths[name])),
        }
        for name in METHODS
    }


def claims(result: dict[str, Any]) -> dict[str, float]:
    """The least and the most coverage over kinds of rows, of conformal intervals and of the model's own."""
    cells = [(name == "model", cell["coverage"]) for kind in result["cells"].values() for name, cell in kind.items()]
    own, conformal = ([share for is_own, share in cells if is_own == wanted] for wanted in (True, False))
    return {
        "least conformal": min(conformal),
        "most conformal": max(conformal),
        "least of the model": min(own),
        "most of the model": max(own),
    }


def plot(result: dict[str, Any], path: Path) -> None:
    """Coverage with three standard errors, a panel per kind of rows."""
    from rfgp.study import plots

    figure, panels = plots.figure(1, len(result["cells"]), width=2.5, height=2.4)
    for ax, (kind, cells) in zip(panels[0], result["cells"].items(), strict=True):
        for place, (name, cell) in enumerate(cells.items()):
            style = {"color": plots.COLORS[place], "marker": plots.MARKERS[place], "linestyle": "none"}
            ax.errorbar([place], [cell["coverage"]], yerr=3.0 * cell["error"], label=name, capsize=3.0, **style)
        ax.axhline(LEVEL, color=plots.EXACT, linestyle="--", linewidth=1.0, label="asked for")
        ax.set(title=kind, xticks=[], ylim=(0.3, 1.0), ylabel="coverage" if ax is panels[0, 0] else "")
    plots.legend(figure, panels[0], columns=6)
    common.save_figure(figure, path)


def main() -> None:
    parser: argparse.ArgumentParser = common.arguments(__doc__ or "", "conformal_coverage")
    common.add_plot(parser)
    parser.add_argument("--repetitions", type=int, default=400)
    options = parser.parse_args()
    if options.plot:
        plot(json.loads(options.out.read_text()), options.out)
        return
    repetitions = 20 if options.quick else options.repetitions
    nominal = math.ceil((TRAINED + 1) * LEVEL) / (TRAINED + 1)
    about = {"level": LEVEL, "coverage_of_split_conformal_by_theory": nominal, "repetitions": repetitions}
    cells = [(kind, partial(measure, kind, repetitions)) for kind in KINDS]
    common.run_cells(options, cells, claims, **about)


if __name__ == "__main__":
    main()

"""Dirichlet classification of MNIST in weight space: its cost, and where GPyTorch's batched model stops.

First, features, statistics and all C factorizations at N = 60,000 and D = 2,048, against one float32 Gram product of
that size and C float64 Cholesky factorizations. Second, one evaluation of evidence and gradient at N = 10,000, against
GPyTorch's ExactGP with a batch of C scaled RFFKernels of the same D. Third, the most rows that each survives with a
limit on its address space.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import gpytorch
import torch
from common import (
    add_data_dir,
    add_grid,
    add_plot,
    alone,
    arguments,
    environment,
    interleaved,
    mnist,
    resumed,
    save_figure,
    show,
    write,
)
from gpytorch.kernels import PolynomialKernel, RFFKernel, ScaleKernel
from gpytorch_models import ExactModel
from torch import Tensor

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.linalg import row_chunks
from rfgp.models import WeightSpaceGP
from rfgp.study import plots

CLASSES = torch.Size([10])
ALPHA = 1e-3

GIB = 2**30
PRODUCTS = {"float32 products": None, "float64 products": torch.float64}


def weight_space(
    width: int,
    degree: int,
    input_dim: int,
    batch: torch.Size = CLASSES,
    product_dtype: torch.dtype | None = None,
) -> WeightSpaceGP:
    """Complex-to-real TensorSRHT features, with a batch of output scales: one per class, or a single one."""
    exact = ScaleKernel(PolynomialKernel(power=degree), batch_shape=batch)
    kernel = rfgp.approximate(exact, width, input_dim=input_dim, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=CLASSES[0], alpha_epsilon=ALPHA)
    return WeightSpaceGP(kernel, likelihood, product_dtype=product_dtype)


class WeightSpaceStep:
    """One evaluation of evidence and gradient by rfgp."""

    def __init__(self, x: Tensor, labels: Tensor, width: int, degree: int) -> None:
        self.x, self.labels = x, labels
        self.model = weight_space(width, degree, x.shape[-1])

    def __call__(self) -> None:
        self.model.zero_grad()
        self.model.condition(self.x, self.labels)
        (-self.model.log_marginal_likelihood() / len(self.x)).backward()


class BatchedStep:
    """One evaluation of evidence and gradient by GPyTorch, whose features have no degree."""

    def __init__(self, x: Tensor, labels: Tensor, width: int, degree: int) -> None:
        likelihood = gpytorch.likelihoods.DirichletClassificationLikelihood(labels, alpha_epsilon=ALPHA)
        self.x, self.targets = x, likelihood.transformed_targets
        features = RFFKernel(num_samples=width // 2, num_dims=x.shape[-1], batch_shape=CLASSES)
        kernel = ScaleKernel(features, batch_shape=CLASSES)
        self.model = ExactModel(x, likelihood.transformed_targets, likelihood, kernel).train()
        self.mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model)

    def __call__(self) -> None:
        self.model.zero_grad()
        (-self.mll(self.model(self.x), self.targets).sum()).backward()


STEPS: dict[str, type[WeightSpaceStep] | type[BatchedStep]] = {"rfgp": WeightSpaceStep, "GPyTorch": BatchedStep}


def measure_fit(x: Tensor, labels: Tensor, width: int, degree: int, repeats: int) -> dict[str, float]:
    """Median seconds of the fit, of its parts and of the reference, in turn.

    "Statistics" is what a fit takes beyond the features alone, "factorizations" what the posterior adds to the fit.
    """
    single = torch.Size()
    models = {name: weight_space(width, degree, x.shape[-1], single, dtype) for name, dtype in PRODUCTS.items()}
    kernel = models["float32 products"].covar_module
    phi = torch.randn(len(x), width)
    matrix = (phi[: 2 * width].mT @ phi[: 2 * width]).double() + torch.eye(width, dtype=torch.float64)

    def features() -> None:
        for rows in row_chunks(len(x), width, x.element_size()):
            kernel.scalar_features(x[rows])

    functions: dict[str, Any] = {
        "reference: Gram product": lambda: phi.mT @ phi,
        "reference: factorizations": lambda: [torch.linalg.cholesky(matrix) for _ in range(CLASSES[0])],
        "features": features,
    }
    for name, model in models.items():
        functions[f"{name}: fit"] = lambda model=model: model.condition(x, labels)
        functions[f"{name}: all"] = lambda model=model: model.condition(x, labels).weight_posterior()
    with torch.no_grad():
        seconds = interleaved(functions, repeats)
    seconds["reference"] = seconds["reference: Gram product"] + seconds["reference: factorizations"]
    for name in PRODUCTS:
        seconds[f"{name}: statistics"] = seconds[f"{name}: fit"] - seconds["features"]
        seconds[f"{name}: factorizations"] = seconds[f"{name}: all"] - seconds[f"{name}: fit"]
    return seconds


def survive(options: argparse.Namespace, name: str, num_rows: int) -> dict[str, Any]:
    """One step in a process of its own, with limits on address space and time."""
    settings = str(options.data_dir), options.memory_limit, options.width, options.degree
    return {"rows": num_rows} | alone(measure_step, name, num_rows, *settings, seconds=options.time_limit)


def measure_step(
    name: str, num_rows: int, data_dir: str, memory_limit: float, width: int, degree: int
) -> dict[str, Any]:
    """The seconds of the second step of this process, and its peak memory."""
    limit = int(memory_limit * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    x, labels, _, _ = mnist(Path(data_dir))
    step = STEPS[name](x[:num_rows].clone(), labels[:num_rows], width, degree)
    del x
    step()
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    return {"status": "ok", "seconds": seconds, "peak_gib": peak}


def run(options: argparse.Namespace) -> None:
    x, labels, _, _ = mnist(options.data_dir)
    num_rows, step_rows, repeats, first = (3000, 1000, 2, 500) if options.quick else (len(x), 10_000, 3, 2500)
    result = resumed(options) | {
        "environment": environment(),
        "rows": num_rows,
        "width": options.width,
        "degree": options.degree,
        "classes": CLASSES[0],
        "alpha_epsilon": ALPHA,
    }
    small, shape = (x[:step_rows], labels[:step_rows]), (options.width, options.degree)

    def step() -> dict[str, Any]:
        steps = {name: one(*small, *shape) for name, one in STEPS.items()}
        return {"rows": step_rows, "seconds": interleaved(steps, 1)}

    parts = {
        "fit": lambda: measure_fit(x[:num_rows], labels[:num_rows], *shape, repeats),
        "fit of few rows": lambda: measure_fit(*small, *shape, repeats),
        "step": step,
    }
    for name, part in parts.items():
        if name not in result:
            result[name] = part()
            write(options.out, result)
    result["limits"] = {"memory_gib": options.memory_limit, "seconds": options.time_limit}
    result["survival"] = {"rfgp": [survive(options, "rfgp", num_rows)], "GPyTorch": []}
    rows = first
    while rows < 2 * num_rows:
        result["survival"]["GPyTorch"].append(survive(options, "GPyTorch", min(rows, num_rows)))
        write(options.out, result)
        if result["survival"]["GPyTorch"][-1]["status"] != "ok":
            break
        rows *= 2
    show(result)


def _parts(fit: dict[str, float], name: str) -> list[float]:
    return [fit["features"], fit[f"{name}: statistics"], fit[f"{name}: factorizations"]]


def draw(result: dict[str, Any], out: Path) -> None:
    """The fit as stacked bars, one step of both as bars, and its seconds against rows, with a cross where one stops."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    fit, reference = result["fit"], result["fit"]["reference"]
    figure, (axes,) = plots.figure(1, 3, width=3.6, height=3.6)
    parts = ("features", "statistics or Gram product", "factorizations")
    bars = {"reference": [0.0, fit["reference: Gram product"], fit["reference: factorizations"]]}
    bars |= {name: _parts(fit, name) for name in PRODUCTS}
    labels = [name.replace(" ", "\n") for name in bars]
    bottom = [0.0] * len(bars)
    for index, part in enumerate(parts):
        heights = [values[index] for values in bars.values()]
        axes[0].bar(labels, heights, 0.6, bottom, label=part, color=plots.COLORS[index])
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes[0].bar_label(axes[0].containers[-1], [f"{total / reference:.2f} x" for total in bottom], padding=2)
    axes[0].set(title=f"fit, N = {result['rows']:,}, C = {result['classes']}", ylabel="seconds")
    axes[0].legend(frameon=False, fontsize="small", loc="upper left")
    colors = dict(zip(STEPS, plots.COLORS, strict=False))
    step = result["step"]
    bar = axes[1].bar(list(step["seconds"]), list(step["seconds"].values()), 0.5, color=list(colors.values()))
    axes[1].bar_label(bar, fmt="%.1f s", padding=2)
    axes[1].set(title=f"evidence and gradient, N = {step['rows']:,}", ylabel="seconds")
    for name, records in result["survival"].items():
        survived = [r for r in records if r["status"] == "ok"]
        x, y = [r["rows"] for r in survived], [r["seconds"] for r in survived]
        axes[2].plot(x, y, color=colors[name], marker="o", label=name)
        if len(survived) < len(records):
            stop = records[-1]
            style = {"color": colors[name], "marker": "x", "markersize": 9, "linestyle": "none"}
            axes[2].plot(
                stop["rows"], y[-1] if y else result["limits"]["seconds"], label=f"{name}: {stop['status']}", **style
            )
    axes[2].set(xscale="log", yscale="log", xlabel="rows N", ylabel="seconds")
    axes[2].set_title(f"evidence and gradient within {result['limits']['memory_gib']:g} GiB")
    axes[2].xaxis.set_major_locator(FixedLocator([r["rows"] for part in result["survival"].values() for r in part]))
    axes[2].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis in (axes[2].xaxis, axes[2].yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes[2].tick_params("x", labelsize="small")
    axes[2].legend(frameon=False, fontsize="small")
    for ax in axes:
        ax.title.set_fontsize("medium")
        ax.margins(y=0.12)
        add_grid(ax, "y")
    save_figure(figure, out)


def main() -> None:
    parser = arguments(__doc__, "dirichlet_fit")
    add_data_dir(parser)
    add_plot(parser)
    parser.add_argument("--memory-limit", type=float, default=8.0, help="GiB of address space of the third part")
    parser.add_argument("--time-limit", type=float, default=180.0, help="seconds for each process of the third part")
    parser.add_argument("--width", type=int, help="the number of features D; 2048 where it is not given")
    parser.add_argument("--degree", type=int, default=6, help="the degree of the polynomial kernel")
    options = parser.parse_args()
    options.width = options.width or (256 if options.quick else 2048)
    if options.plot:
        draw(json.loads(options.out.read_text()), options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()

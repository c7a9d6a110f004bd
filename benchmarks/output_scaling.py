"""What several outputs cost: one scalar Gram matrix, whatever their number.

First, the time of a fit of a curl-free field against N, and against that of a scalar kernel with as many features.
Second, evidence and gradient of a separable kernel of three outputs at N = 50,000, in time and memory. Third, the same
at N = 4,000 against GPyTorch's ``MultitaskKernel(RFFKernel)``, and the most rows that each survives with a limit on its
address space.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_grid, add_plot, arguments, environment, in_process, interleaved, markdown, save_figure, write
from gpytorch.kernels import MultitaskKernel, RBFKernel, RFFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from torch import Tensor

import rfgp
from rfgp.kernels import CurlFreeKernel
from rfgp.models import WeightSpaceGP
from rfgp.study import plots

GIB = 2**30
TASKS = 3


def data(num_rows: int, input_dim: int, num_outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Normal inputs, and smooth targets with noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, input_dim, generator=generator, dtype=torch.float64)
    weights = torch.randn(input_dim, num_outputs, generator=generator, dtype=torch.float64)
    y = torch.sin(x @ weights) + 0.3 * torch.randn(num_rows, num_outputs, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def scalar_model(width: int, input_dim: int) -> WeightSpaceGP:
    """A Gaussian kernel of one output."""
    kernel = rfgp.approximate(RBFKernel(), width, input_dim=input_dim, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood()).double()


def curl_free_model(width: int, input_dim: int) -> WeightSpaceGP:
    """A curl-free field with an output per coordinate."""
    kernel = rfgp.approximate(CurlFreeKernel(RBFKernel()), width, input_dim=input_dim, seed=0)
    return WeightSpaceGP(kernel, MultitaskGaussianLikelihood(input_dim, has_task_noise=False)).double()


class WeightSpaceStep:
    """Evidence and gradient of a separable kernel by rfgp's weight-space model."""

    def __init__(self, x: Tensor, y: Tensor, width: int) -> None:
        exact = MultitaskKernel(RBFKernel(), num_tasks=TASKS, rank=1)
        kernel = rfgp.approximate(exact, width, input_dim=x.shape[-1], seed=0)
        self.x, self.y = x, y
        self.model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(TASKS)).to(x.dtype)

    def __call__(self) -> None:
        self.model.zero_grad()
        self.model.condition(self.x, self.y)
        (-self.model.log_marginal_likelihood() / len(self.x)).backward()


class Multitask(gpytorch.models.ExactGP):
    """GPyTorch's multitask model with any kernel."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: MultitaskGaussianLikelihood, kernel: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=TASKS)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultitaskMultivariateNormal:
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


class ExactStep:
    """Evidence and gradient by GPyTorch's ExactGP, with a kernel that a subclass makes."""

    def __init__(self, x: Tensor, y: Tensor, width: int) -> None:
        self.x, self.y = x, y
        likelihood = MultitaskGaussianLikelihood(TASKS)
        self.model = Multitask(x, y, likelihood, self.kernel(x.shape[-1], width)).to(x.dtype).train()
        self.mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model)

    def kernel(self, input_dim: int, width: int) -> Any:
        """The kernel of the model."""
        raise NotImplementedError

    def __call__(self) -> None:
        self.model.zero_grad()
        (-self.mll(self.model(self.x), self.y)).backward()


class FeatureStep(ExactStep):
    """ExactGP with rfgp's approximated kernel."""

    def kernel(self, input_dim: int, width: int) -> Any:
        exact = MultitaskKernel(RBFKernel(), num_tasks=TASKS, rank=1)
        return rfgp.approximate(exact, width, input_dim=input_dim, seed=0)


class GPyTorchStep(ExactStep):
    """ExactGP with GPyTorch's random features."""

    def kernel(self, input_dim: int, width: int) -> Any:
        return MultitaskKernel(RFFKernel(num_samples=width // 2, num_dims=input_dim), num_tasks=TASKS, rank=1)


STEPS: dict[str, Any] = {"WeightSpaceGP": WeightSpaceStep, "ExactGP, rfgp": FeatureStep, "GPyTorch": GPyTorchStep}


def measure_rows(sizes: list[int], width: int, input_dim: int, repeats: int) -> dict[str, Any]:
    """Median seconds of a fit and of a fit with the posterior, for one and for several outputs, at each size."""
    models = {"1 output": scalar_model(width, input_dim), f"{input_dim} outputs": curl_free_model(width, input_dim)}
    x, y = data(max(sizes), input_dim, input_dim, torch.float64)
    result: dict[str, Any] = {"sizes": sizes, "seconds": {}}
    with torch.no_grad():
        for size in sizes:
            targets = {"1 output": y[:size, 0].contiguous(), f"{input_dim} outputs": y[:size]}
            fits: dict[str, Any] = {}
            for name, model in models.items():
                fit = functools.partial(model.condition, x[:size], targets[name])
                fits[name] = fit
                fits[f"{name}, with posterior"] = lambda fit=fit: fit().weight_posterior()
            for name, seconds in interleaved(fits, repeats).items():
                result["seconds"].setdefault(name, []).append(seconds)
    return result


def child(options: argparse.Namespace, step: str, num_rows: int, dtype: str, limit: float | None) -> dict[str, Any]:
    """Two steps in a process of its own; its second one's seconds, and its peak memory."""
    command = [sys.executable, __file__, "--step", step, "--rows", str(num_rows), "--dtype", dtype]
    command += ["--width", str(options.width)] + ([] if limit is None else ["--memory-limit", str(limit)])
    return {"rows": num_rows} | in_process(command, options.time_limit)


def one_child(options: argparse.Namespace) -> None:
    """What such a process does."""
    if options.memory_limit is not None:
        limit = int(options.memory_limit * GIB)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    x, y = data(options.rows, 6, TASKS, getattr(torch, options.dtype))
    start_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    step = STEPS[options.step](x, y, options.width)
    step()
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    print(json.dumps({"status": "ok", "seconds": seconds, "peak_gib": peak, "start_gib": start_peak}))


def run(options: argparse.Namespace) -> None:
    quick = options.quick
    sizes = [1000, 2000, 4000] if quick else [5000, 10_000, 20_000, 40_000, 70_000, 100_000]
    result: dict[str, Any] = {"environment": environment(), "width": options.width, "tasks": TASKS}
    result["rows"] = measure_rows(sizes, options.width, 10, 3 if quick else 7)
    write(options.out, result)
    result["separable"] = child(options, "WeightSpaceGP", 2000 if quick else 50_000, "float64", None)
    write(options.out, result)
    step_rows = 500 if quick else 4000
    x, y = data(step_rows, 6, TASKS, torch.float32)
    steps = {name: step(x, y, options.width) for name, step in STEPS.items()}
    result["step"] = {"rows": step_rows, "seconds": interleaved(steps, 1 if quick else 3)}
    write(options.out, result)
    del x, y, steps
    result["limits"] = {"memory_gib": options.memory or 8.0, "seconds": options.time_limit}
    result["survival"] = {name: [] for name in STEPS}
    largest = 4000 if quick else 1_024_000
    for name, records in result["survival"].items():
        rows = 500 if quick else 2000 if name == "GPyTorch" else 16_000
        while rows <= largest:
            records.append(child(options, name, rows, "float32", result["limits"]["memory_gib"]))
            write(options.out, result)
            if records[-1]["status"] != "ok":
                break
            rows *= 2


def slope(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds against log rows."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def report(result: dict[str, Any]) -> None:
    """Print the slopes, the price of several outputs, and the comparison."""
    rows = result["rows"]
    lines = [
        [name, *(f"{s:.3f}" for s in seconds), f"{slope(rows['sizes'], seconds):.2f}"]
        for name, seconds in rows["seconds"].items()
    ]
    print(f"Seconds of a fit, {result['width']} features, 10 inputs\n")
    print(markdown(["", *(f"N = {n:,}" for n in rows["sizes"]), "slope"], lines))
    print(f"\nRatio of the part that grows with N, 10 outputs to 1: {growth_ratio(rows):.2f} (target: at most 1.3)")
    separable = result["separable"]
    print(
        f"\nSeparable, T = {result['tasks']}, N = {separable['rows']:,}, float64, evidence and gradient: "
        f"{separable['seconds']:.2f} s (target: 6), peak {separable['peak_gib']:.2f} GiB, of which "
        f"{separable['start_gib']:.2f} before the first step (target: 1.5 GB)"
    )
    if "step" in result:
        seconds = result["step"]["seconds"]
        print(f"\nEvidence and gradient, N = {result['step']['rows']:,}, T = {result['tasks']}, float32\n")
        best = seconds["WeightSpaceGP"]
        print(markdown(["", "seconds", "ratio"], [[n, f"{s:.3f}", f"{s / best:.1f}"] for n, s in seconds.items()]))
    if "survival" in result:
        print(f"\nThe same within {result['limits']['memory_gib']:g} GiB of address space\n")
        lines = [
            [name, f"{r['rows']:,}", r["status"], _number(r, "seconds"), _peak(r)]
            for name, records in result["survival"].items()
            for r in records
        ]
        print(markdown(["", "rows", "status", "seconds", "peak GiB"], lines))


def growth_ratio(rows: dict[str, Any]) -> float:
    """The ratio of the slopes of seconds against rows, by least squares."""
    one, many = (float(np.polyfit(rows["sizes"], rows["seconds"][name], 1)[0]) for name in ("1 output", "10 outputs"))
    return many / one


def _peak(record: dict[str, Any]) -> str:
    """The peak memory where it exceeds what the process had before its first step, or inherited."""
    return _number(record, "peak_gib") if record.get("peak_gib", 0.0) > record.get("start_gib", 0.0) else ""


def _number(record: dict[str, Any], key: str) -> str:
    return f"{record[key]:.2f}" if key in record else ""


def draw(result: dict[str, Any], out: Path) -> None:
    """Seconds of a fit against rows, one step of each model, and its seconds against rows until one stops."""
    figure, (axes,) = plots.figure(1, 3, width=3.8, height=3.6)
    rows = result["rows"]
    for index, name in enumerate(("1 output", "10 outputs")):
        axes[0].plot(rows["sizes"], rows["seconds"][name], marker="o", color=plots.COLORS[index], label=name)
    axes[0].set(xscale="log", yscale="log", xlabel="rows N", ylabel="seconds", title="fit of the statistics")
    axes[0].legend(frameon=False, fontsize="small")
    colors = dict(zip(STEPS, plots.COLORS, strict=False))
    seconds = result["step"]["seconds"]
    labels = [name.replace(", ", ",\n") for name in seconds]
    bars = axes[1].bar(labels, list(seconds.values()), 0.6, color=list(colors.values()))
    axes[1].bar_label(bars, fmt="%.2f s", padding=2)
    axes[1].set(yscale="log", ylabel="seconds", title=f"evidence and gradient, N = {result['step']['rows']:,}")
    for name, records in result["survival"].items():
        survived = [r for r in records if r["status"] == "ok"]
        x, y = [r["rows"] for r in survived], [r["seconds"] for r in survived]
        axes[2].plot(x, y, color=colors[name], marker="o", label=name)
        if x and len(survived) < len(records):
            stop = records[-1]
            style = {"color": colors[name], "marker": "x", "markersize": 9, "linestyle": "none"}
            axes[2].plot(stop["rows"], y[-1], label=f"{name}: {stop['status']}", **style)
    axes[2].set(xscale="log", yscale="log", xlabel="rows N", ylabel="seconds")
    axes[2].set_title(f"the same within {result['limits']['memory_gib']:g} GiB")
    axes[2].legend(frameon=False, fontsize="small", loc="lower right")
    axes[2].set_ylim(bottom=0.01)
    for ax in axes:
        ax.title.set_fontsize("medium")
        ax.margins(y=0.15)
        add_grid(ax, "y")
    save_figure(figure, out)


def main() -> None:
    parser = arguments(__doc__, "output_scaling")
    add_plot(parser)
    parser.add_argument("--width", type=int, default=512, help="the number of scalar features")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of address space of the last part")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each process")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    parser.add_argument("--memory-limit", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        one_child(options)
        return
    if not options.plot:
        run(options)
    result = json.loads(options.out.read_text())
    report(result)
    if options.plot:
        draw(result, options.out)


if __name__ == "__main__":
    main()

"""An additive and a product model in the style of GPyTorch's examples: time of a training step against N.

One step is the evidence of an ExactGP and its gradient, with D = 512 features. The claims: the slope of time against N
up to 50,000 is at most 1.1 in log-log, and at N = 20,000 the additive model is at least 10 times faster than a sum of
GPyTorch's RFFKernels with as many features (and a second RBF kernel in place of the Matern one). That one runs in a
process of its own with limits on time and memory. Times are seconds of one processor by the clock of the process, so
that other work on the machine counts little; wall times stand beside them. Run with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_plot, arguments, environment, markdown, resumed, save_figure, write
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RFFKernel, ScaleKernel
from torch import Tensor
from tqdm import tqdm

import rfgp
from rfgp.study import plots

COMPARED = 20_000
SLOPE, FASTER = 1.1, 10.0
UPPER = 5_000
BASELINE = "GPyTorch, sum of RFFKernel"
GIB = 2**30


def data(num_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, 3, generator=generator)
    noise = 0.1 * torch.randn(num_rows, generator=generator)
    return x, torch.sin(6.0 * x[:, 0]) + torch.cos(4.0 * x[:, 1] * x[:, 2]) + x.sum(-1) + noise


def additive(width: int) -> Kernel:
    exact = ScaleKernel(RBFKernel(active_dims=[0])) + ScaleKernel(MaternKernel(nu=2.5, active_dims=[1, 2]))
    odd = width - 1 + width % 2  # 3 columns are the linear kernel's, and the others come in pairs
    return rfgp.approximate(exact + LinearKernel(), odd, input_dim=3, seed=0)


def product(width: int) -> Kernel:
    exact = ScaleKernel(RBFKernel(active_dims=[0, 1]) * PeriodicKernel(active_dims=[2]))
    return rfgp.approximate(exact, width, input_dim=3, seed=0)


def sum_of_rff(width: int) -> Kernel:
    samples = (width - 3) // 4
    first = ScaleKernel(RFFKernel(num_samples=samples, num_dims=1, active_dims=[0]))
    return first + ScaleKernel(RFFKernel(num_samples=samples, num_dims=2, active_dims=[1, 2])) + LinearKernel()


KERNELS: dict[str, Callable[[int], Kernel]] = {"additive": additive, "product": product, BASELINE: sum_of_rff}


class Model(gpytorch.models.ExactGP):
    """The model of GPyTorch's first example."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: gpytorch.likelihoods.Likelihood, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def step(name: str, width: int, num_rows: int) -> Callable[[], None]:
    """A function that evaluates the evidence and its gradient once."""
    x, y = data(num_rows)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood, KERNELS[name](width)).train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def run_once() -> None:
        model.zero_grad()
        (-evidence(model(x), y)).backward()

    return run_once


def seconds(function: Callable[[], None], repeats: int) -> dict[str, Any]:
    """Medians of processor and wall time, after one warm-up where it is repeated."""
    processor, wall = [], []
    for _ in range(repeats + (repeats > 1)):
        start, clock = time.process_time(), time.perf_counter()
        function()
        processor.append(time.process_time() - start)
        wall.append(time.perf_counter() - clock)
    used = slice(1 if repeats > 1 else 0, None)
    medians = {"seconds": statistics.median(processor[used]), "wall_seconds": statistics.median(wall[used])}
    return medians | {"repeats": repeats, "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB}


def limited(options: argparse.Namespace, num_rows: int) -> dict[str, Any]:
    """Steps of the baseline in a process of its own, with limits on processor time and address space."""
    command = [sys.executable, __file__, "--step", str(num_rows)]
    for name in ("width", "time_limit", "memory_limit"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if done.returncode < 0:
        return {"status": f"ended by signal {-done.returncode}", "at_least": options.time_limit}
    is_memory = any(sign in done.stderr for sign in ("alloc", "MemoryError"))
    return {"status": "out of memory" if is_memory else done.stderr.strip().splitlines()[-1]}


def one_step(options: argparse.Namespace) -> None:
    """What such a process does: print the medians of three steps."""
    resource.setrlimit(resource.RLIMIT_CPU, (options.time_limit, options.time_limit))
    limit = int(options.memory_limit * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps(seconds(step(BASELINE, options.width, options.step), 3)))


def run(options: argparse.Namespace) -> None:
    sizes = (500, 1000) if options.quick else (1_000, 2_000, 5_000, 10_000, COMPARED, 50_000)
    result = resumed(options) | {"environment": environment(), "width": options.width, "load": os.getloadavg()}
    result |= {"time_limit": options.time_limit, "memory_limit_gib": options.memory_limit}
    jobs = [(name, size) for size in sizes for name in KERNELS if name != BASELINE or size <= COMPARED]
    for name, size in tqdm(jobs):
        key = f"{name}/{size}"
        if key in result["cells"]:
            continue
        repeats = 7 if size <= 5_000 else 3
        is_baseline = name == BASELINE
        cell = limited(options, size) if is_baseline else seconds(step(name, options.width, size), repeats)
        result["cells"][key] = cell
        write(options.out, result)


def curve(result: dict[str, Any], name: str, measure: str = "seconds") -> tuple[list[int], list[float]]:
    """Numbers of rows and times of one model, where it finished."""
    cells = {int(key.split("/")[1]): c for key, c in result["cells"].items() if key.startswith(f"{name}/")}
    done = {size: cell[measure] for size, cell in sorted(cells.items()) if measure in cell}
    return list(done), list(done.values())


def slope(sizes: list[int], times: list[float], smallest: int = 0) -> float:
    """The least-squares slope in log-log over sizes of at least ``smallest``."""
    points = [(math.log(n), math.log(t)) for n, t in zip(sizes, times, strict=True) if n >= smallest]
    return float(np.polyfit(*zip(*points, strict=True), 1)[0]) if len(points) > 1 else math.nan


def report(result: dict[str, Any]) -> None:
    """Print all times, then the claims."""
    rows = [
        [*key.split("/"), *(f"{c[m]:.3g}" if m in c else "" for m in ("seconds", "wall_seconds")), c.get("status", "")]
        for key, c in result["cells"].items()
    ]
    print(markdown(["model", "N", "processor seconds", "wall seconds", ""], rows))
    claims = []
    for name in ("additive", "product"):
        sizes, times = curve(result, name)
        overall, upper = slope(sizes, times), slope(sizes, times, UPPER)
        claims.append([f"slope, {name}", f"{overall:.2f}", f"at most {SLOPE}", met(overall <= SLOPE)])
        claims.append([f"slope from N = {UPPER:,}, {name}", f"{upper:.2f}", "", ""])
    additive, baseline = (result["cells"].get(f"{name}/{COMPARED}", {}) for name in ("additive", BASELINE))
    baseline_seconds = baseline.get("seconds", baseline.get("at_least"))
    if "seconds" in additive and baseline_seconds is not None:
        ratio, sign = baseline_seconds / additive["seconds"], "" if "seconds" in baseline else "more than "
        value = f"{sign}{ratio:.1f}"
        claims.append([f"times faster at N = {COMPARED:,}", value, f"at least {FASTER:g}", met(ratio >= FASTER)])
    print()
    print(markdown(["claim", "measured", "target", ""], claims))


def met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def draw(result: dict[str, Any], out: Path) -> None:
    names = {"additive": "additive, rfgp", "product": "product, rfgp", BASELINE: BASELINE}
    curves = {label: plots.Curve(*curve(result, name)) for name, label in names.items()}
    figure, axes = plots.figure(1, 1, width=5.6, height=4.2)
    ax = plots.comparison(curves, xlabel="rows N", ylabel="processor seconds per step", ax=axes[0, 0])
    sizes, times = curve(result, "additive")
    guide = [0.4 * times[-1] * n / sizes[-1] for n in sizes]
    ax.plot(sizes, guide, color=plots.EXACT, linestyle=":", linewidth=1.0, label="proportional to N")
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    plots.legend(figure, [ax], columns=2)
    save_figure(figure, out)


def main() -> None:
    parser = arguments(__doc__, "composition_scaling")
    add_plot(parser)
    parser.add_argument("--width", type=int, default=512, help="number of features")
    parser.add_argument("--time-limit", type=int, default=60, help="processor seconds for GPyTorch's model")
    parser.add_argument("--memory-limit", type=float, default=8.0, help="GiB of address space for it")
    parser.add_argument("--step", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        one_step(options)
        return
    if not options.plot:
        run(options)
    result = json.loads(options.out.read_text())
    report(result)
    if options.plot:
        draw(result, options.out)


if __name__ == "__main__":
    main()

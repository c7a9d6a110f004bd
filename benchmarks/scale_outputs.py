"""What outputs cost by the thousand: separable outputs T and classes C, in processor seconds and memory.

Every cell is a process of its own. It fits a model, predicts means and variances at 1,000 points, and evaluates the
evidence with its gradient; the seconds and the memory are what these add. The slopes are those of log seconds and log
megabytes against the last two sizes.

First T separable outputs: rfgp with independent noise and with noise of rank 5; a dense system of all D T weights, the
naive one; GPyTorch's MultitaskKernel and its batch of T independent Gaussian processes, both exact; and
scikit-learn's exact regressor, which shares one kernel. Second C classes by regression on transformed
labels: rfgp; a Gram matrix and a Cholesky factor for every class; GPyTorch's batch of C exact Gaussian processes; and
scikit-learn's logistic regression on the same features. Exact models have fewer rows.

Cells of the JSON are kept when the script is run again: a run that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpytorch
import torch
from common import add_grid, add_plot, alone, arguments, environment, resumed, save_figure, show, write
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import rfgp
from rfgp.inference.noise import class_labels
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP
from rfgp.study import plots

INPUTS, POINTS, EXACT_ROWS = 4, 1000, 1000
MEGABYTE = 1e6
Steps = dict[str, Callable[[], Any]]


def regression_data(num_rows: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, smooth targets with noise, and points."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, INPUTS, generator=generator, dtype=torch.float64)
    weights = 2.0 * torch.randn(INPUTS, outputs, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, outputs, generator=generator, dtype=torch.float64)
    return x, torch.sin(x @ weights) + 0.1 * noise, torch.rand(POINTS, INPUTS, generator=generator).double()


def class_data(num_rows: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs around a center for each class, labels, and points."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(classes, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (num_rows,), generator=generator)
    y[:classes] = torch.arange(classes)[:num_rows]
    x = centers[y] + 0.3 * torch.rand(num_rows, INPUTS, generator=generator, dtype=torch.float64)
    return x, y, x[:POINTS].clone()


def weight_space(model: WeightSpaceGP, x: Tensor, y: Tensor, points: Tensor) -> Steps:
    """The steps of a model of rfgp."""

    def predict() -> None:
        with torch.no_grad():
            latent = model.posterior(points)
            latent.mean, latent.variance  # noqa: B018

    def fit() -> None:
        with torch.no_grad():
            model.condition(x, y)

    def evidence() -> None:
        model.condition(x, y).log_marginal_likelihood().backward()

    return {"fit": fit, "predict": predict, "evidence": evidence}


def separable(outputs: int, rows: int, width: int, rank: int = 0) -> Steps:
    """rfgp, with noise that is independent or of a rank."""
    x, y, points = regression_data(rows, outputs)
    exact = MultitaskKernel(RBFKernel(), num_tasks=outputs, rank=2)
    kernel = rfgp.approximate(exact, width, input_dim=INPUTS, seed=0)
    return weight_space(WeightSpaceGP(kernel, MultitaskGaussianLikelihood(outputs, rank=rank)).double(), x, y, points)


def correlated(outputs: int, rows: int, width: int) -> Steps:
    """rfgp, with a covariance of the noise of rank 5."""
    return separable(outputs, rows, width, 5)


def dense_outputs(outputs: int, rows: int, width: int) -> Steps:
    """The normal equations of all D T weights as one matrix."""
    x, y, points = regression_data(rows, outputs)
    kernel = rfgp.approximate(RBFKernel(), width, input_dim=INPUTS, seed=0).double()
    root = torch.linalg.cholesky(torch.eye(outputs).double() + 0.1).contiguous()
    known: dict[str, Tensor] = {}

    def fit() -> None:
        with torch.no_grad():
            phi = kernel.scalar_features(x)
            matrix = torch.kron(phi.mT @ phi, root.mT @ root / 0.01)
            matrix.diagonal().add_(1.0)
            known["factor"] = torch.linalg.cholesky(matrix)
            cross = (phi.mT @ y @ root / 0.01).reshape(-1, 1)
            known["mean"] = torch.cholesky_solve(cross, known["factor"])

    def predict() -> None:
        with torch.no_grad():
            phi = kernel.scalar_features(points)
            for part in phi.split(max(1, 1000 // outputs)):
                rows_of_part = torch.kron(part, root)
                rows_of_part @ known["mean"]
                torch.linalg.solve_triangular(known["factor"], rows_of_part.mT, upper=False).square().sum(0)

    return {"fit": fit, "predict": predict}


class ExactModel(gpytorch.models.ExactGP):
    """An exact Gaussian process of GPyTorch, of several outputs or of a batch."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, kernel: Any, mean: Any) -> None:
        super().__init__(x, y, likelihood)
        self.covar_module, self.mean_module = kernel, mean
        is_multitask = isinstance(kernel, MultitaskKernel)
        normal = gpytorch.distributions
        self.kind = normal.MultitaskMultivariateNormal if is_multitask else normal.MultivariateNormal

    def forward(self, x: Tensor) -> Any:
        return self.kind(self.mean_module(x), self.covar_module(x))


def exact_steps(model: ExactModel, x: Tensor, y: Tensor, points: Tensor) -> Steps:
    """The steps of an exact model; its fit is part of its first prediction."""
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def predict() -> None:
        model.eval()
        with torch.no_grad():
            latent = model(points)
            latent.mean, latent.variance  # noqa: B018

    def evidence() -> None:
        model.train()
        mll(model(x), y).sum().backward()

    return {"predict": predict, "evidence": evidence}


def gpytorch_multitask(outputs: int, rows: int, width: int) -> Steps:
    """GPyTorch's exact MultitaskKernel."""
    x, y, points = regression_data(EXACT_ROWS, outputs)
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=outputs)
    kernel = MultitaskKernel(RBFKernel(), num_tasks=outputs, rank=2)
    model = ExactModel(x, y, MultitaskGaussianLikelihood(outputs), kernel, mean).double()
    return exact_steps(model, x, y, points)


def gpytorch_batch(outputs: int, rows: int, width: int) -> Steps:
    """GPyTorch's batch of independent exact Gaussian processes."""
    x, y, points = regression_data(EXACT_ROWS, outputs)
    batch = torch.Size([outputs])
    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=batch)
    kernel, mean = RBFKernel(batch_shape=batch), gpytorch.means.ZeroMean(batch_shape=batch)
    return exact_steps(ExactModel(x, y.mT.contiguous(), likelihood, kernel, mean).double(), x, y.mT, points)


def sklearn_outputs(outputs: int, rows: int, width: int) -> Steps:
    """scikit-learn's exact regressor of many outputs with one kernel."""
    x, y, points = (values.numpy() for values in regression_data(EXACT_ROWS, outputs))
    model = GaussianProcessRegressor(RBF() + WhiteKernel(0.01), optimizer=None)
    return {"fit": lambda: model.fit(x, y), "predict": lambda: model.predict(points, return_std=True)}


def classes(outputs: int, rows: int, width: int) -> Steps:
    """rfgp."""
    x, y, points = class_data(rows, outputs)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), width, input_dim=INPUTS, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=outputs)
    return weight_space(WeightSpaceGP(kernel, likelihood).double(), x, y, points)


def dense_classes(outputs: int, rows: int, width: int) -> Steps:
    """A Gram matrix and a Cholesky factor for every class."""
    class_labels.MANY_CLASSES = outputs + 1
    return classes(outputs, rows, width)


def gpytorch_classes(outputs: int, rows: int, width: int) -> Steps:
    """GPyTorch's batch of exact Gaussian processes on transformed labels."""
    num_rows = max(EXACT_ROWS, outputs)
    x, y, points = class_data(num_rows, outputs)
    likelihood = gpytorch.likelihoods.DirichletClassificationLikelihood(y, dtype=torch.float64)
    batch = torch.Size([outputs])
    kernel, mean = ScaleKernel(RBFKernel(), batch_shape=batch), gpytorch.means.ZeroMean(batch_shape=batch)
    targets = likelihood.transformed_targets
    return exact_steps(ExactModel(x, targets, likelihood, kernel, mean).double(), x, targets, points)


def sklearn_classes(outputs: int, rows: int, width: int) -> Steps:
    """scikit-learn's logistic regression on the same features, at most 20 iterations."""
    x, y, points = class_data(rows, outputs)
    kernel = rfgp.approximate(RBFKernel(), width, input_dim=INPUTS, seed=0).double()
    with torch.no_grad():
        features, new = (kernel.scalar_features(values).numpy() for values in (x, points))
    model = LogisticRegression(max_iter=20)
    return {"fit": lambda: model.fit(features, y.numpy()), "predict": lambda: model.predict_proba(new)}


METHODS: dict[str, dict[str, Callable[[int, int, int], Steps]]] = {
    "outputs": {
        "rfgp": separable,
        "rfgp, noise of rank 5": correlated,
        "naive: D T weights": dense_outputs,
        "GPyTorch, MultitaskKernel": gpytorch_multitask,
        "GPyTorch, batch": gpytorch_batch,
        "scikit-learn": sklearn_outputs,
    },
    "classes": {
        "rfgp": classes,
        "naive: C matrices": dense_classes,
        "GPyTorch, batch": gpytorch_classes,
        "scikit-learn, logistic": sklearn_classes,
    },
}
STEPS = ("fit", "predict", "evidence")
STOPPED = f"exit status {-signal.SIGXCPU}"


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MEGABYTE


def measure(
    kind: str, method: str, size: int, rows: int, width: int, memory: float, time_limit: float
) -> dict[str, Any]:
    """The seconds and the memory of every step, in this process with limits on both."""
    limit, seconds = int(memory * 2**30), math.ceil(time_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    torch.set_num_threads(1)
    steps = METHODS[kind][method](size, rows, width)
    result: dict[str, Any] = {"status": "ok"}
    start = _resident()
    for name, step in steps.items():
        Path("/proc/self/clear_refs").write_text("5")
        before = time.process_time()
        step()
        result[name] = time.process_time() - before
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(float(line.split()[1]) * 1e3 / MEGABYTE for line in lines if line.startswith("VmHWM"))
        result[f"{name}_mb"] = peak * 1.024 - start
    return result


def run(options: argparse.Namespace) -> None:
    sizes = {"outputs": [10, 100, 1000], "classes": [30, 300, 3000]}
    rows, widths = {"outputs": 10_000, "classes": 30_000}, {"outputs": 256, "classes": 512}
    if options.quick:
        sizes, rows = {"outputs": [4, 8], "classes": [32, 64]}, {"outputs": 300, "classes": 600}
        widths = {"outputs": 32, "classes": 32}
    settings = {"sizes": sizes, "rows": rows, "width": widths, "exact_rows": EXACT_ROWS, "memory_gib": options.memory}
    settings["seconds"] = options.time_limit
    result = resumed(options) | {"environment": environment(), **settings}
    for pair in itertools.zip_longest(*METHODS.values()):
        for kind, method in zip(METHODS, pair, strict=True):
            known = result["cells"].setdefault(kind, {}).setdefault(method, []) if method else []
            for size in sizes[kind][len(known) :] if method else []:
                if known and known[-1]["status"] != "ok":
                    break
                limits = options.memory, options.time_limit
                what = kind, method, size, rows[kind], widths[kind]
                found = alone(measure, *what, *limits, seconds=20 * options.time_limit)
                if found["status"] == STOPPED:
                    found["status"] = f"over {options.time_limit:g} s"
                known.append({"size": size, "load": os.getloadavg()[0], **found})
                write(options.out, result)
    show(result)


def draw(result: dict[str, Any], out: Path) -> None:
    """Seconds and memory of all steps against the number of outputs and of classes."""
    figure, axes = plots.figure(2, 2, width=4.6, height=3.4)
    for row, suffix, label in ((0, "", "processor seconds"), (1, "_mb", "MB")):
        for ax, (kind, methods) in zip(axes[row], result["cells"].items(), strict=True):
            for index, (method, records) in enumerate(methods.items()):
                known = [r for r in records if r["status"] == "ok"]
                of_step = [[r[step + suffix] for step in STEPS if step + suffix in r] for r in known]
                values = [max(v) if suffix else sum(v) for v in of_step]
                color = plots.COLORS[index % len(plots.COLORS)]
                ax.plot([r["size"] for r in known], values, marker="o", color=color, label=method)
                if known and len(known) < len(records):
                    ax.plot(known[-1]["size"], values[-1], marker="x", markersize=11, color=color)
            ax.set(xscale="log", yscale="log", xlabel=f"{kind}", ylabel=label)
            add_grid(ax)
            if row == 0:
                ax.legend(frameon=False, fontsize="x-small")
    axes[0][0].set_title("all steps; a cross: the next size stops", fontsize="medium")
    save_figure(figure, out)


def main() -> None:
    parser = arguments(__doc__, "scale_outputs")
    add_plot(parser)
    parser.add_argument("--memory", type=float, default=12.0, help="GiB of address space of a process")
    parser.add_argument("--time-limit", type=float, default=60.0, help="processor seconds for each process")
    options = parser.parse_args()
    if options.plot:
        draw(json.loads(options.out.read_text()), options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()

"""Processor seconds of the steps that every user takes, in two checkouts in turn.

``python benchmarks/steps.py BEFORE AFTER`` starts a process in each checkout and lets them take every step by turns; it
prints the medians and the median ratio. One thread; run it alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STEPS = (
    "fit, 60 rows",
    "posterior, 1 row",
    "evidence, 60 rows",
    "fit, 20,000 rows",
    "evidence and gradient",
    "posterior, 1,000 rows",
    "fit, 3 outputs",
    "evidence and gradient, 3 outputs",
    "posterior, 3 outputs",
    "fit and posterior, classes",
    "fit and posterior, blocks",
    "step of an ExactGP",
)


def make_steps() -> dict[str, Callable[[], object]]:
    """The steps, in the checkout whose package is imported."""
    import gpytorch
    import torch

    import rfgp

    torch.set_default_dtype(torch.float64)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 4, generator=generator)
    y = torch.sin(x).sum(-1) + 0.1 * torch.randn(20_000, generator=generator)
    new = torch.randn(1000, 4, generator=generator)
    likelihoods = gpytorch.likelihoods

    def model(width: int, likelihood: object, **options: object) -> rfgp.WeightSpaceGP:
        exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4))
        settings = {"method": "landmarks", "train_inputs": x} if options else {}
        if isinstance(likelihood, likelihoods.MultitaskGaussianLikelihood):
            exact = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4), 3, rank=1)
        kernel = rfgp.approximate(exact, width, input_dim=4, seed=0, **settings)
        return rfgp.WeightSpaceGP(kernel, likelihood, **options)

    def condition(model: rfgp.WeightSpaceGP, *rows: torch.Tensor) -> rfgp.WeightSpaceGP:
        with torch.no_grad():
            return (model.condition if hasattr(model, "condition") else model.fit)(*rows)

    def gradient(model: rfgp.WeightSpaceGP, *rows: torch.Tensor) -> object:
        value = (model.condition if hasattr(model, "condition") else model.fit)(*rows).log_marginal_likelihood()
        return torch.autograd.grad(value, list(model.parameters()), allow_unused=True)

    small, large = (model(width, likelihoods.GaussianLikelihood()) for width in (64, 512))
    outputs = model(256, likelihoods.MultitaskGaussianLikelihood(3))
    targets = torch.stack([y, y.square(), y.cos()], -1)
    classes = model(256, rfgp.likelihoods.DirichletClassificationLikelihood(num_classes=3))
    labels = (y > -1).long() + (y > 1).long()
    blocks = model(128, likelihoods.GaussianLikelihood(), block_size=64)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x[:2000], y[:2000], likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = model(256, likelihoods.GaussianLikelihood()).covar_module

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    exact = Exact()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(exact.likelihood, exact)

    def exact_step() -> object:
        return torch.autograd.grad(loss(exact(x[:2000]), y[:2000]), list(exact.parameters()))

    for one, rows in ((small, (x[:60], y[:60])), (large, (x, y)), (outputs, (x, targets))):
        condition(one, *rows)

    def moments(model: rfgp.WeightSpaceGP, points: torch.Tensor) -> object:
        with torch.no_grad():
            posterior = model.posterior(points)
            return posterior.mean, posterior.variance

    actions = (
        lambda: condition(small, x[:60], y[:60]),
        lambda: moments(small, new[:1]),
        lambda: small.log_marginal_likelihood(),
        lambda: condition(large, x, y),
        lambda: gradient(large, x[:5000], y[:5000]),
        lambda: moments(large, new),
        lambda: condition(outputs, x, targets),
        lambda: gradient(outputs, x[:5000], targets[:5000]),
        lambda: moments(outputs, new),
        lambda: moments(condition(classes, x, labels), new),
        lambda: moments(condition(blocks, x[:4000], y[:4000]), new),
        exact_step,
    )
    return dict(zip(STEPS, actions, strict=True))


def work() -> None:
    """Take the step of every line of the input so many times as it says, and print the seconds of one."""
    import torch

    torch.set_num_threads(1)
    steps = make_steps()
    print("ready", flush=True)
    for line in sys.stdin:
        count, name = line.rstrip("\n").split(" ", 1)
        begin = time.process_time()
        for _ in range(int(count)):
            steps[name]()
        print((time.process_time() - begin) / int(count), flush=True)


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help="a checkout")
    parser.add_argument("after", nargs="?", type=Path, help="another one")
    parser.add_argument("--rounds", type=int, default=15, help="how often every step is timed; default: 15")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work()
        return
    if arguments.after is None:
        parser.error("two checkouts are needed")
    processes = []
    for folder in (arguments.before, arguments.after):
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--work"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, cwd=folder, env=environment, **pipes))
    for process in processes:
        process.stdout.readline()

    def seconds(process: subprocess.Popen, count: int, name: str) -> float:
        process.stdin.write(f"{count} {name}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    print(f"{'step':34}{'before':>11}{'after':>11}{'ratio':>8}")
    for name in STEPS:
        first = min(seconds(process, 1, name) for process in processes for _ in range(2))
        count = max(1, min(200, int(0.1 / first)))
        pairs = []
        for turn in range(arguments.rounds):
            order = processes if turn % 2 == 0 else processes[::-1]
            times = {id(process): seconds(process, count, name) for process in order}
            pairs.append([times[id(process)] for process in processes])
        before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(after / before for before, after in pairs)
        print(f"{name:34}{1e3 * before:9.3f}ms{1e3 * after:9.3f}ms{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()

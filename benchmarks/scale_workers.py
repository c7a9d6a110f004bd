"""Fits by one and two workers, processes and Dask's: seconds beside a fit in one process, and the same bits.

A pool is warmed up by a fit to few rows first. Every fit has one thread per worker; so has the plain one. Seconds are
those of the clock: they mean something only where the machine does nothing else; the load is written down beside them,
and processor seconds of all processes, and of that with the most, which bounds the speed-up of a machine at rest.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import common
import gpytorch
import psutil
import torch
from distributed import Client, LocalCluster

import rfgp

DIMS, PARTITION = 8, 65_536
CELLS = ((200_000, 512),)
REPEATS = 3


def model(width: int) -> rfgp.WeightSpaceGP:
    """A model whose products are in float32."""
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=DIMS))
    exact.base_kernel.lengthscale = 3.0
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    return rfgp.WeightSpaceGP(rfgp.approximate(exact, width, input_dim=DIMS, seed=0), likelihood)


@contextlib.contextmanager
def executors() -> Iterator[dict[str, Executor | None]]:
    """The ways to call tasks, by name; none for a fit in this process."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        found: dict[str, Executor | None] = {"plain": None}
        for workers in (1, 2):
            found[f"processes, {workers}"] = stack.enter_context(ProcessPoolExecutor(workers, context))
            cluster = stack.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None))
            client = stack.enter_context(Client(cluster, set_as_default=False))
            found[f"Dask, {workers}"] = client.get_executor()
        yield found


def processor_seconds() -> dict[int, float]:
    """The processor seconds of this process and of all that it has started."""
    this = psutil.Process()
    times = {process.pid: process.cpu_times() for process in [this, *this.children(recursive=True)]}
    return {pid: known.user + known.system for pid, known in times.items()}


def measure(found: dict[str, Executor | None], num_rows: int, width: int, repeats: int) -> dict[str, Any]:
    """Median seconds of every way, its ratio to a plain fit, and whether all have the same bits."""
    torch.manual_seed(0)
    x = torch.randn(num_rows, DIMS)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows)
    size = min(PARTITION, num_rows // 8)
    parts = list(zip(x.split(size), y.split(size), strict=True))
    grams: dict[str, torch.Tensor] = {}
    seconds: dict[str, list[float]] = {name: [] for name in found}
    of_all: dict[str, list[float]] = {name: [] for name in found}
    of_one: dict[str, list[float]] = {name: [] for name in found}
    for repeat in range(repeats + 1):
        for name, executor in found.items():
            rows = parts if repeat else [(x[:1000], y[:1000])] * 4
            before, start = processor_seconds(), time.perf_counter()
            with torch.no_grad():
                fitted = (
                    model(width).condition(rows)
                    if executor is None
                    else model(width).condition(rows, executor=executor)
                )
            if repeat:
                seconds[name].append(time.perf_counter() - start)
                used = [value - before.get(pid, 0.0) for pid, value in processor_seconds().items()]
                of_all[name].append(sum(used))
                of_one[name].append(max(used))
                grams[name] = fitted.statistics.gram
    first = grams["processes, 1"]
    kinds = "processes", "Dask"
    best = {name: min(values) for name, values in seconds.items()}
    return {
        "rows": num_rows,
        "width": width,
        "partitions": len(parts),
        "load": os.getloadavg()[0],
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "least seconds": best,
        "speed-up": {name: best["plain"] / value for name, value in best.items()},
        "speed-up by a second worker": {kind: best[f"{kind}, 1"] / best[f"{kind}, 2"] for kind in kinds},
        "processor seconds": {name: statistics.median(values) for name, values in of_all.items()},
        "processor seconds of one process": {name: statistics.median(values) for name, values in of_one.items()},
        "same bits": all(torch.equal(first, gram) for name, gram in grams.items() if name != "plain"),
        "largest relative difference from plain": float((first - grams["plain"]).abs().max() / first.abs().max()),
    }


def main() -> None:
    options = common.arguments(__doc__ or "", "scale_workers").parse_args()
    torch.set_num_threads(1)
    cells, repeats = (((20_000, 64),), 1) if options.quick else (CELLS, REPEATS)
    result: dict[str, Any] = {"environment": common.environment(), "cells": []}
    with executors() as found:
        for num_rows, width in cells:
            cell = measure(found, num_rows, width, repeats)
            assert cell["same bits"]
            result["cells"].append(cell)
            common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()

"""A Parquet file of ten million rows by two workers: parameters from a sample, a fit and predictions of its partitions.

The function is that of ``scale_defaults``, with noise of deviation .3. Parameters are learned from 1,500 random rows
that one pass draws; the workers, two processes and two of Dask's with a thread each, then sum the partitions, and
predict those of another file by the model that was saved. Processor seconds are those of all processes; seconds of the
clock mean something only where the machine does nothing else, and its load is written down beside them. Memory is that
of this process, and of a worker after predictions.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import common
import gpytorch
import psutil
import torch
from distributed import Client, LocalCluster
from scale_defaults import COLUMNS, table
from scale_workers import processor_seconds

import rfgp

ROWS, NEW, WIDTH, SAMPLE, WORKERS, PIECE = 10_000_000, 1_000_000, 512, 1500, 2, 100_000
INPUTS = [f"x{k}" for k in range(COLUMNS)]


@contextlib.contextmanager
def executors() -> Iterator[dict[str, Executor]]:
    """Two workers of each kind."""
    with contextlib.ExitStack() as stack:
        context = multiprocessing.get_context("spawn")
        cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, memory_limit=0)
        client = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
        yield {
            "processes": stack.enter_context(ProcessPoolExecutor(WORKERS, context)),
            "Dask": client.get_executor(),
        }


def write_table(path: Path, count: int, seed: int) -> None:
    """Write rows as single-precision columns, piece by piece, with the function beside the targets."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.float32()) for name in (*INPUTS, "y", "function")])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        for piece, first in enumerate(range(0, count, PIECE)):
            x, function, y = table(min(PIECE, count - first), seed + piece)
            columns = [column.astype("float32") for column in (*x.T, y, function)]
            file.write_table(pyarrow.table(columns, schema=schema))


class Stages:
    """What each stage takes, of the processor in all processes and of the clock."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        before, began = processor_seconds(), time.perf_counter()
        yield
        used = sum(value - before.get(pid, 0.0) for pid, value in processor_seconds().items())
        self.found[name] = {"processor seconds": used, "wall seconds": time.perf_counter() - began}


def source(path: Path, targets: str | tuple[str, ...] = "y") -> rfgp.data.ParquetSource:
    """The rows of a file."""
    return rfgp.data.ParquetSource(str(path), INPUTS, target=targets, dtype=torch.float32)


def model_of(known: Any, width: int) -> rfgp.WeightSpaceGP:
    """A model whose parameters the sample tells."""
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=COLUMNS))
    kernel = rfgp.approximate(exact, width, input_dim=COLUMNS, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    rfgp.fit(model, known.x, known.y, strategy="subset", progress=False)
    return model


def predicted(path: str, part: rfgp.data.ParquetSource) -> dict[str, float]:
    """Sums over a partition: rows, squared errors of the function, and targets in their 95 % intervals; with memory."""
    torch.set_num_threads(1)
    model, total = rfgp.load(path), {"rows": 0.0, "squares": 0.0, "inside": 0.0}
    with torch.no_grad():
        for x, targets in part:
            y, function = targets.unbind(-1)
            observed = model.likelihood(model.posterior(x))
            error = observed.mean - function
            total["rows"] += len(x)
            total["squares"] += float(error.square().sum())
            total["inside"] += float(((y - observed.mean).abs() < 1.96 * observed.stddev).sum())
    return total | {"megabytes": psutil.Process().memory_info().rss / 2**20}


def measure(name: str, executor: Executor, files: tuple[Path, Path], width: int) -> tuple[dict[str, Any], torch.Tensor]:
    """One way from the file to predictions, and its Gram matrix."""
    rows, new = source(files[0]), source(files[1], ("y", "function"))
    stages, saved = Stages(), files[0].with_suffix(".pt")
    with stages.stage("sample"):
        known = rfgp.data.sample(rows, SAMPLE, seed=0)
    with stages.stage("parameters"):
        model = model_of(known, width)
    with stages.stage("fit"), torch.no_grad():
        model.condition(rows, executor=executor)
    rfgp.save(model, saved)
    with stages.stage("predictions"):
        parts = list(executor.map(predicted, *zip(*[(str(saved), part) for part in new.partitions(16)], strict=True)))
    count = sum(part["rows"] for part in parts)
    return {
        "stages": stages.found,
        "load": os.getloadavg()[0],
        "error of the function": (sum(part["squares"] for part in parts) / count) ** 0.5,
        "coverage": sum(part["inside"] for part in parts) / count,
        "megabytes": max(psutil.Process().memory_info().rss / 2**20, *(part["megabytes"] for part in parts)),
    }, model.statistics.gram


def main() -> None:
    options = common.arguments(__doc__ or "", "scale_partitions").parse_args()
    torch.set_num_threads(1)
    count, num_new, width = (50_000, 20_000, 64) if options.quick else (ROWS, NEW, WIDTH)
    result: dict[str, Any] = {
        "environment": common.environment(),
        "rows": count,
        "new rows": num_new,
        "features": width,
        "cells": {},
    }
    grams: dict[str, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as folder, executors() as found:
        files = Path(folder) / "table.parquet", Path(folder) / "new.parquet"
        write_table(files[0], count, seed=0)
        write_table(files[1], num_new, seed=10**6)
        result["megabytes of the file"] = files[0].stat().st_size / 2**20
        for name, executor in found.items():
            result["cells"][name], grams[name] = measure(name, executor, files, width)
            result["same bits"] = all(torch.equal(gram, grams["processes"]) for gram in grams.values())
            common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()

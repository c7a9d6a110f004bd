"""A fit that is killed ten times, some of them while its file is written, and what saving costs.

A fit of a source is killed by SIGKILL at random moments, and every other time as soon as the temporary file of a save
is there; the same command is then started again. The result is compared bit by bit with that of a fit that was never
stopped and has no file. The cost is that of a save at 1,024 features beside the fit of the rows between two saves.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import common
import gpytorch
import torch

import rfgp
from rfgp._support import tensor_file
from rfgp.inference import GramStatistics
from rfgp.passes.checkpoint import Checkpoint

DIMS, EVERY, DEFAULT_EVERY = 8, 5_000, 1_000_000
KILLS = 10


def model_of(width: int) -> Any:
    """A model with random features in single precision."""
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), width, input_dim=DIMS, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    return rfgp.WeightSpaceGP(kernel, likelihood)


def source_of(num_rows: int) -> rfgp.data.ArraySource:
    """Rows that are the same in every process."""
    x = torch.randn(num_rows, DIMS, generator=torch.Generator().manual_seed(0))
    return rfgp.data.ArraySource(x, x.sin().sum(-1), batch_size=2000)


def run(num_rows: int, width: int, result: Path, path: Path | None) -> None:
    """Fit in this process, and save the sums."""
    model, source = model_of(width), source_of(num_rows)
    with torch.no_grad():
        print("began", flush=True)
        model.condition(source, checkpoint=path, checkpoint_every=EVERY)
    model.statistics.save(result)


def killed(num_rows: int, width: int, folder: Path) -> dict[str, Any]:
    """Ten kills and the fit that ends."""
    path, result, alone = folder / "fit.checkpoint", folder / "sums", folder / "alone"
    command = [sys.executable, "-W", "ignore", __file__, "--one", str(num_rows), str(width)]
    with subprocess.Popen([*command, str(alone)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        start = time.perf_counter()
        process.wait()
    length, waits, kills = time.perf_counter() - start, random.Random(0), []
    while len(kills) < KILLS:
        is_at_save = len(kills) % 2 == 1
        process = subprocess.Popen([*command, str(result), str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        if is_at_save:
            while process.poll() is None and not list(folder.glob(".fit.checkpoint.*.tmp")):
                time.sleep(0.0002)
            time.sleep(0.002 * waits.random())
        else:
            time.sleep(0.15 * length * waits.random())
        process.send_signal(signal.SIGKILL)
        status = process.wait()
        if status != -signal.SIGKILL:
            raise SystemExit(f"expected a fit that still runs, got one that ended with {status}; take more rows")
        left = [entry.stat().st_size for entry in folder.glob(".fit.checkpoint.*.tmp")]
        known = json.loads(tensor_file.read(path)["about"])["num_batches"] if path.exists() else 0
        kills.append({"batches in the file": known, "part of a file left": bool(left), "its bytes": left})
        print(kills[-1], flush=True)
    subprocess.run([*command, str(result), str(path)], check=True, stdout=subprocess.DEVNULL)
    first, second = (GramStatistics.load(file).state_dict() for file in (alone, result))
    return {
        "rows": num_rows,
        "features": width,
        "kills": kills,
        "kills with a part of a file": sum(kill["part of a file left"] for kill in kills),
        "equal bits": all(torch.equal(value, second[name]) for name, value in first.items()),
        "files left": sorted(entry.name for entry in folder.iterdir()),
    }


def cost(num_rows: int, width: int, folder: Path) -> dict[str, float]:
    """Seconds of a save, and the share of it in the fit of the rows between two saves of the default."""
    model, source = model_of(width), source_of(num_rows)
    processor, wall, save_once = [], [], Checkpoint._save

    def timed(*arguments: Any) -> None:
        start, began = time.process_time(), time.perf_counter()
        save_once(*arguments)
        processor.append(time.process_time() - start)
        wall.append(time.perf_counter() - began)

    start = time.process_time()
    with torch.no_grad(), mock.patch.object(Checkpoint, "_save", timed):
        model.condition(source, checkpoint=folder / "cost", checkpoint_every=num_rows // 15)
    fit = (time.process_time() - start - sum(processor)) / num_rows * DEFAULT_EVERY
    save = statistics.median(processor)
    return {
        "features": width,
        "bytes": os.path.getsize(folder / "cost"),
        "processor seconds of a save": save,
        "seconds of a save": statistics.median(wall),
        "processor seconds of the rows between": fit,
        "share": save / fit,
    }


def main() -> None:
    parser = common.arguments(__doc__ or "", "scale_checkpoints")
    parser.add_argument("--one", nargs="+", metavar="ARGUMENT", help="a fit: rows, features, result, and the file")
    options = parser.parse_args()
    if options.one:
        num_rows, width, result, *path = options.one
        run(int(num_rows), int(width), Path(result), Path(path[0]) if path else None)
        return
    num_rows, width = (200_000, 256) if options.quick else (600_000, 512)
    result: dict[str, Any] = {"environment": common.environment()}
    with tempfile.TemporaryDirectory() as folder:
        result["cost"] = cost(20_000 if options.quick else 100_000, 1024, Path(folder))
        print(result["cost"], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        result["killed"] = killed(num_rows, width, Path(folder))
    common.write(options.out, result)
    print(json.dumps({name: value for name, value in result["killed"].items() if name != "kills"}))


if __name__ == "__main__":
    main()

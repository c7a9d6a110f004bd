"""Learn parameters and fit a model to the rows of a table that many processes read together.

On one machine, with two processes:

    torchrun --nproc-per-node 2 examples/torchrun_fit.py

On several machines, the same line on each of them, with the address of one:

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr 10.0.0.1 --master-port 29500 \
        examples/torchrun_fit.py --table rows.parquet --inputs a b c --target y

Without a table it makes one, in a folder that all processes of one machine see. Every process reads its part alone: the
sums over its rows are added up, and all processes end with the same model, which the first one saves.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
from pathlib import Path

import gpytorch
import numpy as np
import torch

import rfgp

TIMEOUT = datetime.timedelta(seconds=60)
"""How long a process waits for the others before it raises."""


def made_table(num_rows: int, rank: int) -> rfgp.data.Source:
    """A table of random rows that are mapped from files, written by the first process."""
    folder = Path(tempfile.gettempdir()) / f"rfgp-torchrun-{os.environ.get('TORCHELASTIC_RUN_ID', 'none')}-{num_rows}"
    if rank == 0:
        generator = np.random.default_rng(0)
        x = generator.uniform(-1.0, 1.0, (num_rows, 4))
        folder.mkdir(exist_ok=True)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", np.sin(3.0 * x.sum(1)) + 0.1 * generator.standard_normal(num_rows))
    torch.distributed.barrier()
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    return rfgp.data.ArraySource(x, y, batch_size=4096)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", help="a Parquet file that every process can read; default: a made table")
    parser.add_argument("--inputs", nargs="+", help="the columns of the inputs")
    parser.add_argument("--target", help="the column of the target")
    parser.add_argument("--num-rows", type=int, default=50_000, help="of the made table; default: 50000")
    parser.add_argument("--num-features", type=int, default=256, help="default: 256")
    parser.add_argument("--max-evaluations", type=int, default=30, help="of evidence and gradient; default: 30")
    parser.add_argument("--out", help="where the first process saves the sums of all rows; default: nowhere")
    options = parser.parse_args()

    torch.distributed.init_process_group("gloo", timeout=TIMEOUT)
    rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if options.table:
        table = rfgp.data.ParquetSource(options.table, inputs=options.inputs, target=options.target)
    else:
        table = made_table(options.num_rows, rank)
    shard = rfgp.passes.Shard(table.partitions(count)[rank])

    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    input_dim = next(iter(table))[0].shape[-1]
    kernel = rfgp.approximate(exact, options.num_features, input_dim=input_dim, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = rfgp.WeightSpaceGP(kernel, likelihood, gpytorch.means.ConstantMean().double())

    summary = rfgp.fit(model, shard, max_evaluations=options.max_evaluations, progress=rank == 0)
    if rank == 0:
        print(summary)
        print(f"{model.statistics.num_rows:.0f} rows on {count} processes")
        if options.out:
            model.statistics.save(options.out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

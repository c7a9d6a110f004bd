"""How fast the rows of a table are read: every source of rfgp.data, random samples, and the fit that they are read for.

A table of 10^6 rows with 8 inputs and a target, float64, is written in every format. A pass reads all batches; figures
are medians of five passes in turn, by processor time and by the clock. The floor is a copy of the same numbers in
memory. Beside these stand the memory that a pass over Parquet adds, in a process of its own, for 10^6 and 10^7 rows in
row groups of 10^6, and what a fit with 1,024 features takes per row.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import torch
import zarr
from common import alone, arguments, environment, write

import rfgp
from rfgp.data import ArraySource, ArrowSource, CsvSource, GridSource, ParquetSource, Source, sample

INPUTS = 8
NAMES = [f"x{column}" for column in range(INPUTS)]


def written(folder: Path, rows: int) -> dict[str, Source]:
    """The table in every format."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(rows, INPUTS)), generator.normal(size=rows)
    table = pa.table({**dict(zip(NAMES, x.T, strict=True)), "y": y})
    pa.parquet.write_table(table, folder / "one.parquet", row_group_size=rows)
    pa.parquet.write_table(table, folder / "many.parquet", row_group_size=max(rows // 50, 1))
    pa.feather.write_feather(table, str(folder / "plain.arrow"), compression="uncompressed")
    pa.feather.write_feather(table, str(folder / "lz4.arrow"), compression="lz4")
    pa.csv.write_csv(table, folder / "table.csv")
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    arrays = []
    for name, values in (("x", x), ("y", y)):
        kind: dict[str, Any] = {"shape": values.shape, "chunks": (65536, *values.shape[1:]), "dtype": "float64"}
        arrays.append(zarr.create_array(store=str(folder / f"{name}.zarr"), **kind))
        arrays[-1][:] = values
    side = round(rows ** (1.0 / 3.0))
    maps = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y")]
    return {
        "tensors, views": ArraySource(torch.from_numpy(x), torch.from_numpy(y)),
        "NumPy memory map": ArraySource(*maps),
        "Zarr": ArraySource(*arrays),
        "Parquet, one row group": ParquetSource(folder / "one.parquet", NAMES, "y"),
        "Parquet, 50 row groups": ParquetSource(folder / "many.parquet", NAMES, "y"),
        "Parquet to float32": ParquetSource(folder / "one.parquet", NAMES, "y", dtype=torch.float32),
        "Arrow": ArrowSource(folder / "plain.arrow", NAMES, "y"),
        "Arrow, lz4": ArrowSource(folder / "lz4.arrow", NAMES, "y"),
        "CSV": CsvSource(folder / "table.csv", NAMES, "y"),
        "grid of 3 axes": GridSource([torch.linspace(0.0, 1.0, side, dtype=torch.float64)] * 3),
    }


def a_pass(source: Source) -> int:
    """Read all rows; their number."""
    return sum(len(batch[0]) for batch in source)


def measured(functions: dict[str, Callable[[], int]], repeats: int) -> list[dict[str, Any]]:
    """Millions of rows a second by processor time and by the clock, medians of passes in turn after a warm-up."""
    counts = {name: function() for name, function in functions.items()}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            clock, processor = time.perf_counter(), time.process_time()
            function()
            seconds[name].append((time.process_time() - processor, time.perf_counter() - clock))
    return [
        {
            "what": name,
            "processor_mrows": 1e-6 * counts[name] / statistics.median(pair[0] for pair in pairs),
            "clock_mrows": 1e-6 * counts[name] / statistics.median(pair[1] for pair in pairs),
        }
        for name, pairs in seconds.items()
    ]


def peak(path: str) -> dict[str, float]:
    """The memory that a pass over a Parquet file adds to this process, in MB: the largest after any batch."""
    before, largest, rows = anonymous_mb(), 0.0, 0
    for x, _ in ParquetSource(path, NAMES, "y"):
        largest, rows = max(largest, anonymous_mb()), rows + len(x)
    return {"rows": rows, "added_mb": largest - before}


def anonymous_mb() -> float:
    """The memory of this process that is in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def a_fit(width: int) -> rfgp.WeightSpaceGP:
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    kernel = rfgp.approximate(exact, num_features=width, input_dim=INPUTS, seed=0)
    return rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())


def main() -> None:
    options = arguments(__doc__, "scale_reading").parse_args()
    torch.set_num_threads(1)
    rows, width, repeats = (20_000, 32, 1) if options.quick else (1_000_000, 1024, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = written(folder, rows)
        x, y = sources["tensors, views"].arrays  # type: ignore[attr-defined]
        functions: dict[str, Callable[[], int]] = {"copy in memory": lambda: len((x.clone(), y.clone())[0])}
        functions |= {name: lambda source=source: a_pass(source) for name, source in sources.items()}
        one = sources["Parquet, one row group"]
        functions["sample of 2,000, tensors"] = lambda: sample(sources["tensors, views"], 2000, seed=0).num_rows
        functions["sample of 2,000, Parquet"] = lambda: sample(one, 2000, seed=0).num_rows
        found = measured(functions, repeats)
        few = ArraySource(x[: rows // 10], y[: rows // 10])
        with torch.no_grad():
            found += measured(
                {f"fit, {width} features": lambda: int(a_fit(width).condition(few) is not None) * few.num_rows}, 1
            )
        memory = alone(peak, str(folder / "one.parquet"), seconds=600.0)
        more = folder / "more.parquet"
        with pa.parquet.ParquetWriter(more, pa.parquet.read_schema(folder / "one.parquet")) as writer:
            for _ in range(2 if options.quick else 10):
                writer.write_table(pa.parquet.read_table(folder / "one.parquet"), row_group_size=rows)
        memory_of_ten = alone(peak, str(more), seconds=600.0)
    for row in found:
        print(f"{row['what']:26s} {row['processor_mrows']:8.2f} M rows/s, by the clock {row['clock_mrows']:8.2f}")
    for result in (memory, memory_of_ten):
        print(f"{result['rows']} rows of Parquet in row groups of {rows}: {result['added_mb']:.0f} MB more")
    write(options.out, {"environment": environment(), "rows": rows, "passes": found, "memory": [memory, memory_of_ten]})


if __name__ == "__main__":
    main()

"""Time and memory of a fit of a Parquet file against its number of rows, beside its products alone and beside others.

A fit is measured in a process of its own, whose largest resident memory is that of the process, libraries included. The
products alone are those of chunks of features that are there, in the dtypes of the fit, interleaved with it: after
every few batches those of one of them are made once more, and their time is taken off. All methods have the parameters
of the kernel and of the noise given, and 1,024 features; SVGP has 256 inducing points and one epoch.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common
import gpytorch
import numpy as np
import torch
from gpytorch.means import ZeroMean
from gpytorch_models import SVGP, ExactModel

import rfgp
from rfgp.linalg import add_gram_, row_chunks

DIMS, WIDTH, LENGTHSCALE, NOISE, PIECE = 8, 1024, 3.0, 0.1, 100_000
INPUTS = [f"x{k}" for k in range(DIMS)]
ROWS = {
    "rfgp, Parquet": (10_000, 100_000, 1_000_000, 10_000_000),
    "features in memory": (10_000, 100_000, 1_000_000),
    "scikit-learn": (10_000, 100_000),
    "GPyTorch exact": (1_000, 4_000),
    "GPyTorch SVGP": (10_000, 100_000),
}
SECONDS = 6 * 3600.0


def rows(number: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A piece of the table."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(count, DIMS, generator=generator)
    return x, torch.sin(x.sum(-1)) + NOISE**0.5 * torch.randn(count, generator=generator)


def table(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first rows."""
    pieces = [rows(number, min(PIECE, count - first)) for number, first in enumerate(range(0, count, PIECE))]
    return torch.cat([x for x, _ in pieces]), torch.cat([y for _, y in pieces])


def write_table(path: Path, count: int) -> None:
    """Write the first rows as single-precision columns, piece by piece."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.float32()) for name in (*INPUTS, "y")])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        for number, first in enumerate(range(0, count, PIECE)):
            x, y = rows(number, min(PIECE, count - first))
            file.write_table(pyarrow.table([*x.numpy().T.copy(), y.numpy()], schema=schema))


def exact_kernel() -> gpytorch.kernels.Kernel:
    """The kernel of all methods."""
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, LENGTHSCALE
    return kernel


def likelihood() -> gpytorch.likelihoods.GaussianLikelihood:
    """The noise of all methods."""
    known = gpytorch.likelihoods.GaussianLikelihood()
    known.noise = NOISE
    return known


def fitted_kernel() -> Any:
    """Random features of the kernel."""
    return rfgp.approximate(exact_kernel(), WIDTH, input_dim=DIMS, seed=0)


def clocks() -> np.ndarray:
    """Processor seconds of all threads, and seconds."""
    return np.array([time.process_time(), time.perf_counter()])


class Interleaved:
    """A source, between whose batches the products alone are made and timed."""

    def __init__(self, source: Any, kernel: Any, every: int) -> None:
        self.source, self.every = source, every
        self.floor, self.floor_rows = np.zeros(2), 0
        self.chunk = row_chunks(10**9, WIDTH, 4)[0].stop
        with torch.no_grad():
            self.features = kernel.scalar_features(rows(0, self.chunk)[0])
        self.gram, self.cross = torch.zeros(WIDTH, WIDTH).double(), torch.zeros(WIDTH, 2).double()
        self.columns = torch.ones(self.chunk, 2).double()

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.source):
            yield batch
            if number % self.every == 0:
                start = clocks()
                for part in row_chunks(len(batch[0]), WIDTH, 4):
                    size = part.stop - part.start
                    add_gram_(self.gram, self.cross, self.features[:size], self.columns[:size], None, torch.float32)
                self.floor += clocks() - start
                self.floor_rows += len(batch[0])


def fit(path: str, count: int) -> dict[str, float]:
    """A fit of the file, with the products alone between its batches."""
    source = rfgp.data.ParquetSource(path, INPUTS, target="y", dtype=torch.float32)
    kernel = fitted_kernel()
    model = rfgp.WeightSpaceGP(kernel, likelihood())
    with torch.no_grad():
        model.condition(*rows(0, 9000))
        next(iter(source))
        parts = Interleaved(source, kernel, every=max(1, count // 10**6))
        start = clocks()
        model.condition(parts)
        total = clocks() - start - parts.floor
        model.posterior(rows(0, 5)[0])
    processor, wall = total / (parts.floor * count / parts.floor_rows)
    return {"seconds": total[0], "wall seconds": total[1], "to products": processor, "to products, wall": wall}


def in_memory(path: str, count: int) -> dict[str, float]:
    """The features of all rows at once, their products and the solution."""
    kernel, (x, y) = fitted_kernel(), table(count)
    start = clocks()
    with torch.no_grad():
        features = kernel.scalar_features(x)
        gram = (features.mT @ features).double() + NOISE * torch.eye(WIDTH)
        torch.cholesky_solve((features.mT @ y).double()[:, None], torch.linalg.cholesky(gram))
    return _timed(start)


def sklearn_ridge(path: str, count: int) -> dict[str, float]:
    """Random Fourier features of scikit-learn and its ridge regression."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import Ridge

    x, y = (value.numpy() for value in table(count))
    start = clocks()
    features = RBFSampler(gamma=0.5 / LENGTHSCALE**2, n_components=WIDTH, random_state=0).fit_transform(x)
    Ridge(alpha=NOISE, fit_intercept=False, solver="cholesky").fit(features, y)
    return _timed(start)


def gpytorch_exact(path: str, count: int) -> dict[str, float]:
    """The prediction of GPyTorch's exact model at five points, by a Cholesky factor."""
    x, y = table(count)
    model = ExactModel(x, y, likelihood(), exact_kernel(), ZeroMean()).eval()
    start = clocks()
    with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**6):
        _ = model(rows(1, 5)[0]).variance
    return _timed(start)


def gpytorch_svgp(path: str, count: int) -> dict[str, float]:
    """One epoch of GPyTorch's variational model in minibatches of 1,024 rows."""
    x, y = table(count)
    model, noise = SVGP(x[:256], exact_kernel(), mean=ZeroMean()).train(), likelihood().train()
    bound = gpytorch.mlls.VariationalELBO(noise, model, num_data=count)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start = clocks()
    for part in torch.arange(count).split(1024):
        optimizer.zero_grad()
        (-bound(model(x[part]), y[part])).backward()
        optimizer.step()
    return _timed(start)


def _timed(start: np.ndarray) -> dict[str, float]:
    processor, wall = clocks() - start
    return {"seconds": processor, "wall seconds": wall}


WORK: dict[str, Callable[[str, int], dict[str, float]]] = {
    "rfgp, Parquet": fit,
    "features in memory": in_memory,
    "scikit-learn": sklearn_ridge,
    "GPyTorch exact": gpytorch_exact,
    "GPyTorch SVGP": gpytorch_svgp,
}


def measure(work: str, count: int, path: str) -> dict[str, float]:
    """One measurement, with the largest resident memory of this process in MB."""
    found = WORK[work](path, count)
    return found | {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def slopes(cells: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How seconds and memory grow with the rows: the exponent of time, and MB per million rows."""
    found = {}
    for work, own in cells.items():
        known = sorted((int(n), cell) for n, cell in own.items() if "seconds" in cell)
        known = [(n, cell) for n, cell in known if n >= 100_000 or work != "rfgp, Parquet"]
        if len(known) > 1:
            (few, first), (many, last) = known[0], known[-1]
            exponent = np.log(last["seconds"] / first["seconds"]) / np.log(many / few)
            found[work] = {
                "exponent of time": float(exponent),
                "MB per 10^6 rows": (last["mb"] - first["mb"]) * 1e6 / (many - few),
            }
    return found


def plot(out: Path) -> None:
    """Time and memory against the rows."""
    from rfgp.study.plots import figure, legend

    cells = json.loads(out.read_text())["cells"]
    drawing, axes = figure(1, 2)
    for ax, key, label in zip(axes.flat, ("seconds", "mb"), ("processor seconds", "peak memory, MB"), strict=True):
        for work, own in cells.items():
            known = sorted((int(n), cell[key]) for n, cell in own.items() if key in cell)
            ax.plot(*zip(*known, strict=True), marker="o", label=work)
        ax.set(xlabel="rows", ylabel=label, xscale="log", yscale="log")
        ax.grid(alpha=0.3)
    legend(drawing, list(axes.flat), columns=3)
    common.save_figure(drawing, out)


def main() -> None:
    parser = common.arguments(__doc__ or "", "scale_rows")
    common.add_plot(parser)
    parser.add_argument("--most", type=int, default=10**6, help="no more rows than this")
    options = parser.parse_args()
    if options.plot:
        plot(options.out)
        return
    result: dict[str, Any] = common.resumed(options) | {"environment": common.environment()}
    most = 20_000 if options.quick else options.most
    with tempfile.TemporaryDirectory() as folder:
        for count, work in sorted((count, work) for work, counts in ROWS.items() for count in counts):
            own = result["cells"].setdefault(work, {})
            if count > most or "seconds" in own.get(str(count), {}):
                continue
            path = Path(folder) / f"{count}.parquet"
            if work == "rfgp, Parquet":
                write_table(path, count)
            own[str(count)] = common.alone(measure, work, count, str(path), seconds=SECONDS)
            path.unlink(missing_ok=True)
            result["slopes"] = slopes(result["cells"])
            common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()

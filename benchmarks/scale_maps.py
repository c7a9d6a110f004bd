"""Means and variances at the points of a map: rows per second and memory, against two products and other packages.

First, processor seconds of a point against those of the two products that a point cannot do without, of its features
with the weights and with a full D x D matrix. Second, peak memory against the number of points, each map in a process
of its own. Third, maps by one and by two worker processes. Fourth, seconds of a point in GPyTorch's ExactGP and SVGP
and scikit-learn's GaussianProcessRegressor. Last, a map of 10^8 points into a folder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_plot, alone, arguments, run_cells, save_figure
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch_models import SVGP, ExactModel
from torch import Tensor

import rfgp
from rfgp.data import GridSource
from rfgp.models import WeightSpaceGP
from rfgp.study import plots

DTYPES = {"float32": torch.float32, "float64": torch.float64}
LENGTHSCALE = 0.1


def data(num_rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Points of the unit square, and a smooth function of them with noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(7.0 * x[:, 0]) * torch.cos(5.0 * x[:, 1]) + 0.1 * torch.randn(num_rows, generator=generator)
    return x.to(dtype), y.to(dtype)


def exact_kernel() -> ScaleKernel:
    """A Gaussian kernel."""
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale = LENGTHSCALE
    return kernel


def model_of(width: int, dtype: torch.dtype) -> WeightSpaceGP:
    """A fitted model of the square."""
    kernel = rfgp.approximate(exact_kernel().to(dtype), width, input_dim=2, method="fourier", seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood().to(dtype)).condition(*data(4 * width, dtype))


def grid_of(num_rows: int, dtype: torch.dtype) -> GridSource:
    """A grid of the square with about so many points."""
    side = round(num_rows**0.5)
    axis = torch.linspace(0.0, 1.0, side, dtype=dtype)
    return GridSource([axis, torch.linspace(0.0, 1.0, -(-num_rows // side), dtype=dtype)])


def processor_seconds(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median processor seconds of each function, run in turn after one warm-up each."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.process_time()
            function()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure_point(width: int, name: str, repeats: int, num_chunks: int) -> dict[str, float]:
    """Processor microseconds of a point: of the map, of means alone, of the features, and of the two products."""
    dtype, rows = DTYPES[name], 8192
    model = model_of(width, dtype)
    predictor, x = model.point_predictor(), data(num_chunks * rows, dtype)[0]
    square, column = torch.randn(width, width, dtype=dtype), torch.randn(width, 1, dtype=dtype)
    kernel = model.covar_module
    with torch.no_grad():
        features = kernel.scalar_features(x[:rows])
        room = torch.empty(rows, width, dtype=dtype)

        def products() -> None:
            for _ in range(num_chunks):
                torch.mm(features, square, out=room)
                features @ column

        def only_features() -> None:
            for chunk in x.split(rows):
                kernel.scalar_features(chunk)

        def posterior() -> None:
            for chunk in x.split(rows):
                found = model.posterior(chunk)
                found.mean, found.variance  # noqa: B018

        functions = {
            "map": lambda: predictor(x),
            "two products": products,
            "means alone": lambda: predictor(x, variance=False),
            "features": only_features,
            "model.posterior": posterior,
        }
        seconds = processor_seconds(functions, repeats)
    return {name: 1e6 * value / len(x) for name, value in seconds.items()}


def measure_peers(rows: int, width: int, num_points: int, chunk: int, repeats: int) -> dict[str, Any]:
    """Processor microseconds of a point in other packages, mean and variance, in chunks of points."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    x, y = data(rows, torch.float32)
    points = data(num_points, torch.float32)[0]
    exact = ExactModel(x, y, GaussianLikelihood(), exact_kernel(), ZeroMean()).eval()
    variational = SVGP(x[:width], exact_kernel(), mean=ZeroMean()).eval()
    regressor = GaussianProcessRegressor(ConstantKernel() * RBF(LENGTHSCALE), alpha=0.01, optimizer=None)
    regressor.fit(x.numpy(), y.numpy())
    predictor = model_of(width, torch.float32).point_predictor()

    def of(model: Any) -> Callable[[], None]:
        def predict() -> None:
            for part in points.split(chunk):
                found = model(part)
                found.mean, found.variance  # noqa: B018

        return predict

    def fast() -> None:
        with gpytorch.settings.fast_pred_var():
            of(exact)()

    functions: dict[str, Callable[[], Any]] = {
        f"rfgp, {width} features": lambda: predictor(points),
        f"GPyTorch SVGP, {width} inducing points": of(variational),
        f"GPyTorch ExactGP, {rows:,} rows": of(exact),
        f"GPyTorch ExactGP, {rows:,} rows, fast_pred_var": fast,
        f"scikit-learn, {rows:,} rows": lambda: [regressor.predict(p.numpy(), True) for p in points.split(chunk)],
    }
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = processor_seconds(functions, repeats)
    return {name: 1e6 * value / num_points for name, value in seconds.items()}


def peak_mib(_: Any = None) -> float:
    """The peak memory of this process; ``getrusage`` would count that of the process that started it too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(float(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024


def a_map(rows: int, workers: int, width: int) -> dict[str, Any]:
    """A map in single precision, by this process or by workers."""
    dtype = torch.float32
    model, grid = model_of(width, dtype), grid_of(rows, dtype)
    rfgp.predict_map(model, grid_of(10_000, dtype), progress=False)
    start_peak, of_workers = peak_mib(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "map", time.process_time()
        if workers:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context) as executor:
                rfgp.predict_map(model, grid_of(2**19, dtype), executor=executor, progress=False)  # starts them
                summary = rfgp.predict_map(model, grid, out, executor=executor, progress=False)
                of_workers = max(executor.map(peak_mib, range(16)))
        else:
            summary = rfgp.predict_map(model, grid, out, progress=False)
        seconds, peak = time.process_time() - start, peak_mib()  # before a memory map brings pages of its own
        mean = np.load(out / "mean.npy", mmap_mode="r")
        assert len(mean) == grid.num_rows and bool(np.isfinite(mean[:: max(1, len(mean) // 1000)]).all())
    error = None if summary.float32_error is None else list(summary.float32_error)
    return {
        "status": "ok",
        "points": summary.num_rows,
        "seconds": summary.seconds,
        "processor_seconds": seconds,
        "peak_mib": peak,
        "start_mib": start_peak,
        "worker_mib": of_workers,
        "float32_error": error,
        "float64_rows": summary.float64_rows,
    }


def run(options: argparse.Namespace) -> None:
    quick, cells = options.quick, {}
    for dtype, width in itertools.product(DTYPES, (64, 128) if quick else (256, 512, 1024)):
        chunks = 1 if quick else max(1, 2048 // width)
        cells[f"point, {dtype}, {width}"] = partial(measure_point, width, dtype, 2 if quick else 7, chunks)

    def by_itself(rows: int, workers: int, seconds: float = 900.0) -> Callable[[], dict[str, Any]]:
        about = {"rows": rows, "workers": workers}
        return lambda: about | alone(a_map, rows, workers, options.width, seconds=seconds)

    for rows in (10**4, 10**5) if quick else (10**5, 10**6, 10**7):
        cells[f"memory, {rows:.0e}"] = by_itself(rows, 0)
    for workers in (1, 2):
        cells[f"workers, {workers}"] = by_itself(10**5 if quick else 4 * 10**6, workers)
    peers = (200, 32, 500, 250, 1) if quick else (2000, options.width, 10_000, 1000, 3)
    cells["peers"] = partial(measure_peers, *peers)
    if options.whole:
        cells["whole"] = by_itself(10**8, 2, 3 * 3600.0)
    chosen = [(name, cell) for name, cell in cells.items() if name.startswith(options.only or "")]
    run_cells(options, chosen, width=options.width)


def draw(result: dict[str, Any], out: Path) -> None:
    """Microseconds of a point and of the two products, peak memory against points, and other packages."""
    cells = result["cells"]
    figure, (axes,) = plots.figure(1, 3, width=4.2, height=3.6)
    for index, dtype in enumerate(DTYPES):
        known = {int(n.split(", ")[2]): c for n, c in cells.items() if n.startswith(f"point, {dtype}")}
        for column, line in (("map", "-"), ("two products", "--")):
            style = {"color": plots.COLORS[index], "linestyle": line, "marker": "o" if column == "map" else None}
            axes[0].plot(list(known), [c[column] for c in known.values()], label=f"{column}, {dtype}", **style)
    axes[0].set(xscale="log", yscale="log", xlabel="features D", title="processor microseconds of a point")
    axes[0].set_xticks(list(known), [str(width) for width in known])
    axes[0].minorticks_off()
    axes[0].legend(frameon=False, fontsize="small")
    axes[0].set_yticks([2, 5, 10, 20, 40], ["2", "5", "10", "20", "40"])
    memory = sorted((c for n, c in cells.items() if n.startswith(("memory, ", "whole"))), key=lambda c: c["points"])
    sizes, peaks = [c["points"] for c in memory], [c["worker_mib"] or c["peak_mib"] for c in memory]
    axes[1].plot(sizes, peaks, color=plots.COLORS[0], marker="o", label="peak memory of a process")
    axes[1].plot(sizes, [8 * n / 2**20 for n in sizes], color=plots.COLORS[1], linestyle="--", label="size of the map")
    axes[1].set(xscale="log", yscale="log", xlabel="points", title="MiB, float32")
    axes[1].legend(frameon=False, fontsize="small")
    names = [name.replace(", ", ",\n", 1) for name in cells["peers"]][::-1]
    values = list(cells["peers"].values())[::-1]
    bars = axes[2].barh(names, values, 0.6, color=plots.COLORS[0])
    axes[2].bar_label(bars, [f"{value:,.0f}" if value > 100 else f"{value:.1f}" for value in values], padding=2)
    axes[2].set(xscale="log", title="processor microseconds of a point")
    axes[2].tick_params(axis="y", labelsize="small")
    axes[2].margins(x=0.25)
    for ax in axes:
        ax.title.set_fontsize("medium")
        ax.spines[["top", "right"]].set_visible(False)
    save_figure(figure, out)


def main() -> None:
    parser = arguments(__doc__, "scale_maps")
    add_plot(parser)
    parser.add_argument("--width", type=int, default=256, help="features of the maps")
    parser.add_argument("--whole", action="store_true", help="the map of 10^8 points too")
    parser.add_argument("--only", help="only measurements whose name begins so")
    options = parser.parse_args()
    if options.plot:
        draw(json.loads(options.out.read_text()), options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()

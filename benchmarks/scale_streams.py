"""Streams: the drift of a million additions and subtractions, forgetting, and parameters that follow an input drift.

A cell of the JSON is kept when the script is run again: a run that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch
from gpytorch_models import ExactModel

import rfgp
from rfgp.models.streams import Forgetting, LengthscaleBank, SlidingWindow

WIDTH, WINDOW, BATCH = 256, 500, 50
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
METHODS = (
    "fixed",
    "fixed and forgetting",
    "bank",
    "bank on a grid",
    "bank of 17",
    "bank of 17 on a grid",
    "bank and forgetting",
    "refit every 10 batches",
    "fantasies of GPyTorch",
)
MOST_FANTASIES = 2_000
PARTS = ("forgetting", "following", "drift")
ROWS_OF_BATCHES = {1_000: 1_000_000, 100: 200_000, 10: 20_000}


FINE = tuple(2.0 ** (0.25 * step) for step in range(-8, 9))


def model_of(dims: int, lengthscale: float, width: int = WIDTH, **options: Any) -> rfgp.WeightSpaceGP:
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    exact.base_kernel.lengthscale = lengthscale
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01
    kernel = rfgp.approximate(exact, width, input_dim=dims, seed=0)
    return rfgp.WeightSpaceGP(kernel, likelihood, gpytorch.means.ConstantMean().double(), **options)


def on_a_grid(trained: rfgp.WeightSpaceGP, box: torch.Tensor) -> rfgp.WeightSpaceGP:
    """The same model with a Fourier grid that has room for lengthscales that are 30 times shorter."""
    exact = copy.deepcopy(trained.covar_module.exact_kernel)
    lengthscale = exact.base_kernel.lengthscale.detach().clone()
    exact.base_kernel.lengthscale = lengthscale / 30.0
    kernel = rfgp.approximate(exact, WIDTH, method="fourier_grid", train_inputs=box)
    kernel.exact_kernel.base_kernel.lengthscale = lengthscale
    return rfgp.WeightSpaceGP(kernel, copy.deepcopy(trained.likelihood), copy.deepcopy(trained.mean_module))


def rows(count: int, dims: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.rand(count, dims, dtype=torch.float64)
    return x, torch.sin(5.0 * x.sum(-1)) + 0.1 * torch.randn(count, dtype=torch.float64)


@torch.no_grad()
def drift(products: str, has_exchange: bool, total: int, size: int, batch: int) -> dict[str, Any]:
    """A window of ``size`` rows through which ``total`` rows go: differences from a refit, and seconds."""
    x, y = rows(size + total)
    model = model_of(4, 0.7, product_dtype=PRECISIONS[products])
    window = SlidingWindow(model, size)
    if has_exchange:
        window.update(x[:size], y[:size])
    else:
        model.condition(x[:size], y[:size])
    points, found, seconds, wall = torch.rand(500, 4, dtype=torch.float64), [], 0.0, 0.0
    exact = model_of(4, 0.7, product_dtype=torch.float64)
    for start in range(0, total, batch):
        stop = start + batch
        cpu, clock = time.process_time(), time.perf_counter()
        if has_exchange:
            window.update(x[size + start : size + stop], y[size + start : size + stop])
        else:
            model.slide(
                (x[size + start : size + stop], y[size + start : size + stop], None),
                (x[start:stop], y[start:stop], None),
            )
        seconds, wall = seconds + time.process_time() - cpu, wall + time.perf_counter() - clock
        if stop % (total // 20) == 0:
            exact.condition(x[stop : stop + size], y[stop : stop + size])
            ours, theirs = model.posterior(points), exact.posterior(points)
            gram = model.statistics.gram - exact.statistics.gram
            found.append(
                {
                    "rows": stop,
                    "mean": float((ours.mean - theirs.mean).abs().max() / theirs.mean.abs().max()),
                    "variance": float((ours.variance / theirs.variance - 1.0).abs().max()),
                    "gram": float(
                        torch.linalg.vector_norm(gram) / exact.statistics.gram.diagonal(dim1=-2, dim2=-1).sum()
                    ),
                }
            )
    return {
        "differences": found,
        "drift": window.drift._asdict(),
        "processor seconds": seconds,
        "wall seconds": wall,
        "microseconds per row": 1e6 * seconds / total,
    }


@torch.no_grad()
def forgetting(total: int, batch: int) -> dict[str, Any]:
    """A stream that forgets against a fit with the noise of every row divided by its weight."""
    x, y = rows(total)
    stream = Forgetting(model_of(4, 0.7), 0.999)
    for start in range(0, total, batch):
        stream.update(x[start : start + batch], y[start : start + batch])
    ages = (torch.arange(total - 1, -1, -1) // batch * batch).double()
    weights = 0.999**ages
    kept = weights > 1e-18
    model = model_of(4, 0.7)
    weighted = rfgp.WeightSpaceGP(
        model.covar_module, gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(1)), model.mean_module
    ).condition(x[kept], y[kept], stream.model.likelihood.noise / weights[kept])
    points = torch.rand(500, 4, dtype=torch.float64)
    ours, theirs = stream.model.posterior(points), weighted.posterior(points)
    return {
        "mean": float((ours.mean - theirs.mean).abs().max() / theirs.mean.abs().max()),
        "variance": float((ours.variance - theirs.variance).abs().max() / theirs.variance.max()),
    }


def chirp(total: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs that move to the right, and a function whose lengthscale falls by 16 on the way."""
    torch.manual_seed(2)
    time_of_row = torch.linspace(0.0, 1.0, total, dtype=torch.float64)
    x = 20.0 * time_of_row + 2.0 * torch.rand(total, dtype=torch.float64)
    s = x / 22.0
    phase = 22.0 * (16.0**s - 1.0) / math.log(16.0)
    return x.unsqueeze(-1), torch.sin(phase) + 0.1 * torch.randn(total, dtype=torch.float64)


def powerplant(options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """The table of the power plant sorted by temperature, standardized by its first window."""
    data = rfgp.study.datasets.load("powerplant", options.data_dir)
    x, y = torch.cat([data.x_train, data.x_test]).double(), torch.cat([data.y_train, data.y_test]).double()
    order = x[:, 0].argsort()
    x, y = x[order], y[order]
    x = (x - x.mean(0)) / x.std(0)
    return x, (y - y[:WINDOW].mean()) / y[:WINDOW].std()


def learner(
    method: str, trained: Any, x: torch.Tensor, y: torch.Tensor, box: torch.Tensor
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    """What predicts new observations, and what learns a batch, after a first window."""
    model = on_a_grid(trained, box) if "grid" in method else copy.deepcopy(trained)
    if method == "fantasies of GPyTorch":
        parts = model.likelihood, model.covar_module.exact_kernel, model.mean_module
        known = [ExactModel(x, y, *parts).eval()]

        def learn(new: torch.Tensor, targets: torch.Tensor) -> None:
            if len(known[0].train_targets) >= MOST_FANTASIES:
                raise RuntimeError(f"{MOST_FANTASIES} rows")
            known[0] = known[0].get_fantasy_model(new, targets)

        return lambda new: known[0].likelihood(known[0](new)), learn
    fades = "forgetting" in method
    stream: Any = Forgetting(model, 1.0 - 1.0 / WINDOW) if fades else SlidingWindow(model, WINDOW)
    if method.startswith("bank"):
        factors = {"factors": FINE} if "17" in method else {}
        stream = LengthscaleBank(stream, learn_every=WINDOW // 2, **factors)
    stream.update(x, y)
    count = [0]

    def learn_rows(new: torch.Tensor, targets: torch.Tensor) -> None:
        stream.update(new, targets)
        count[0] += 1
        if method.startswith("refit") and count[0] % 10 == 0:
            with torch.enable_grad():
                rfgp.fit(model, *stream.rows[:2])
            stream.refit()

    if isinstance(stream, LengthscaleBank):
        return stream.predictive, learn_rows
    return lambda new: model.likelihood(model.posterior(new)), learn_rows


def prequential(method: str, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """Predict a batch, then learn it: the negative log density of observations, and seconds."""
    trained = model_of(x.shape[-1], 1.0)
    rfgp.fit(trained, x[:WINDOW], y[:WINDOW])
    start, losses, error = time.process_time(), [], 0.0
    status = "all rows"
    with torch.no_grad():
        box = torch.stack([x.amin(0), x.amax(0)])
        predict, learn = learner(method, trained, x[:WINDOW], y[:WINDOW], box)
        for first in range(WINDOW, len(x) - BATCH + 1, BATCH):
            new, targets = x[first : first + BATCH], y[first : first + BATCH]
            found = predict(new)
            mean, variance = found.mean, found.variance
            loss = 0.5 * ((targets - mean).square() / variance + variance.log() + math.log(2.0 * math.pi))
            losses.append(float(loss.mean()))
            error += float((targets - mean).square().sum())
            try:
                learn(new, targets)
            except Exception as stopped:
                status = str(stopped).splitlines()[0]
                break
    count = len(losses) * BATCH
    seconds = time.process_time() - start
    return {
        "nlpd": sum(losses) / len(losses),
        "rmse": math.sqrt(error / count),
        "losses": losses,
        "processor seconds": seconds,
        "milliseconds per batch": 1e3 * seconds / len(losses),
        "status": status,
    }


def plot(options: argparse.Namespace) -> None:
    import matplotlib.pyplot as plt

    cells = json.loads(options.out.read_text())["cells"]
    figure, axes = plt.subplots(1, 3, figsize=(18, 5.6), constrained_layout=True)
    for name, cell in cells.items():
        if name.startswith("drift"):
            _, products, size, kind = name.split(", ")
            color = f"C{[f'batches of {batch}' for batch in ROWS_OF_BATCHES].index(size)}"
            style = ("-" if kind == "exchanges" else "--") + ("o" if products == "float64" else "x")
            known = cell["differences"]
            values = [max(point["mean"], point["variance"]) for point in known]
            places = [point["rows"] for point in known]
            axes[0].plot(places, values, style, color=color, lw=1, ms=4, label=name.removeprefix("drift, "))
    axes[0].set(
        xscale="log",
        yscale="log",
        xlabel="rows that went through the window",
        ylabel="difference of the posterior from a refit",
    )
    axes[0].axhline(1e-6, color="gray", ls=":")
    for axis, data in zip(axes[1:], ("chirp", "powerplant"), strict=True):
        for method in METHODS:
            cell = cells.get(f"{data}, {method}")
            if cell is None:
                continue
            losses = torch.tensor(cell["losses"])
            smooth = losses.unfold(0, 5, 1).mean(-1) if len(losses) > 5 else losses
            stopped = "" if cell["status"] == "all rows" else f" (to {cell['status']})"
            label = f"{method}{stopped}: {cell['nlpd']:.2f}, {cell['milliseconds per batch']:.0f} ms"
            axis.plot(WINDOW + BATCH * torch.arange(len(smooth)), smooth, lw=1.2, label=label)
        axis.set(xlabel="rows of the stream", ylabel="NLPD of the next batch, mean of 5", title=data)
    axes[1].set_yscale("symlog", linthresh=1.0)
    for axis in axes:
        axis.legend(fontsize=7, ncols=2, columnspacing=1.0, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    common.save_figure(figure, options.out)


def main() -> None:
    parser = common.arguments(__doc__ or "", "scale_streams")
    common.add_data_dir(parser, required=False)
    common.add_plot(parser)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which measurements")
    options = parser.parse_args()
    if options.plot:
        plot(options)
        return
    warnings.simplefilter("ignore")
    size = 1_000 if options.quick else 10_000
    cells = []

    def measure(name: str, function: Callable[[], dict[str, Any]]) -> None:
        cells.append((name, lambda: function() | {"load": os.getloadavg()[0]}))

    if "forgetting" in options.parts:
        measure("forgetting", lambda: forgetting(5_000 if options.quick else 50_000, 100))
    tables = {"chirp": chirp(1_500 if options.quick else 6_000)}
    if options.data_dir is not None and "following" in options.parts:
        tables["powerplant"] = tuple(part[:1_500] if options.quick else part for part in powerplant(options))
    for data, (x, y) in tables.items() if "following" in options.parts else ():
        for method in METHODS:
            if "grid" in method and x.shape[-1] > 3:
                continue
            measure(f"{data}, {method}", lambda x=x, y=y, method=method: prequential(method, x, y))
    for batch, total in ROWS_OF_BATCHES.items() if "drift" in options.parts else ():
        total = 10_000 if options.quick else total
        for products in PRECISIONS:
            for has_exchange in (True, False):
                name = f"drift, {products}, batches of {batch}, " + ("exchanges" if has_exchange else "no exchanges")
                if not options.quick or batch == 100:
                    measure(name, lambda p=products, e=has_exchange, b=batch, t=total: drift(p, e, t, size, b))
    common.run_cells(options, cells)


if __name__ == "__main__":
    main()

"""What the rows of blocks are worth in a file of a model, and what a file costs beside torch.save of the state."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import gpytorch
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import rfgp

LANDMARKS, BLOCK_SIZE = 512, 128
WIDTH = 2048


def predictions(model: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Root mean squared error and negative log predictive density of test rows, in units of the targets' deviation."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = model.likelihood(model.posterior(x))
    normal = torch.distributions.Normal(predicted.mean, predicted.variance.sqrt())
    return {"rmse": float((predicted.mean - y).square().mean().sqrt()), "nlpd": float(-normal.log_prob(y).mean())}


def fitted(x: torch.Tensor, y: torch.Tensor, block_size: int | None, seed: int) -> Any:
    """A model with landmarks, trained."""
    exact = ScaleKernel(RBFKernel(ard_num_dims=x.shape[-1])).double()
    kernel = rfgp.approximate(exact, LANDMARKS, method="landmarks", train_inputs=x, seed=seed)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    mean = gpytorch.means.ConstantMean().double()
    model = rfgp.WeightSpaceGP(kernel, likelihood, mean, block_size=block_size)
    rfgp.fit(model, x, y, strategy="subset", progress=False)
    return model


def price(name: str, seed: int, largest: int, folder: Path) -> dict[str, Any]:
    """Predictions of a model in blocks that was saved with its rows and without, and of landmarks alone."""
    data = rfgp.study.datasets.load(name)
    chosen = torch.randperm(len(data.x_train), generator=torch.Generator().manual_seed(seed))[:largest]
    count = len(chosen)
    pairs = ((data.x_train[chosen], data.x_test), (data.y_train[chosen], data.y_test))
    scaled = [[(part.double() - known.mean(0)) / known.std(0) for part in (known, new)] for known, new in pairs]
    (train, test), (targets, wanted) = scaled
    model = fitted(train, targets, BLOCK_SIZE, seed)
    result: dict[str, Any] = {"rows": count}
    for label, with_rows in (("with rows", True), ("without rows", False)):
        path = folder / f"{label}.pt"
        rfgp.save(model, path, with_rows=with_rows)
        result[label] = predictions(rfgp.load(path), test, wanted) | {"bytes": path.stat().st_size}
    result["landmarks alone"] = predictions(fitted(train, targets, None, seed), test, wanted)
    return result


def cost(width: int, folder: Path) -> dict[str, float]:
    """Processor seconds and sizes of files of a model, and of torch.save and torch.load of its state."""
    x = torch.randn(4 * width, 8, dtype=torch.float64)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), width, input_dim=8, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    with torch.no_grad():
        model.condition(x, x.sin().sum(-1))
    own, state = folder / "model.pt", folder / "state.pt"
    functions: dict[str, Callable[[], Any]] = {
        "save": lambda: rfgp.save(model, own),
        "torch.save": lambda: torch.save(model.state_dict(), state),
        "load": lambda: rfgp.load(own),
        "torch.load": lambda: model.load_state_dict(torch.load(state, weights_only=True)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(7):
        for name, function in functions.items():
            start = time.process_time()
            function()
            seconds[name].append(time.process_time() - start)
    sizes = {"bytes": own.stat().st_size, "bytes of the state": state.stat().st_size}
    return {name: statistics.median(values) for name, values in seconds.items()} | sizes


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Means over seeds, of every data set."""
    found: dict[str, Any] = {}
    for name in ("kin8nm", "protein"):
        if cells := [cell for key, cell in result["cells"].items() if key.startswith(f"{name}|")]:
            kinds = ("with rows", "without rows", "landmarks alone")
            found[name] = {"rows": cells[0]["rows"]} | {
                kind: {score: statistics.mean(cell[kind][score] for cell in cells) for score in ("rmse", "nlpd")}
                for kind in kinds
            }
    return found


def main() -> None:
    """Measure all cells."""
    parser: argparse.ArgumentParser = common.arguments(__doc__ or "", "saving")
    options = parser.parse_args()
    seeds, largest, width = (1, 1000, 128) if options.quick else (2, 50_000, WIDTH)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cells: list[tuple[str, Callable[[], Any]]] = [(f"D = {width}", lambda: cost(width, folder))]
        cells += [
            (f"{data}|{seed}", partial(price, data, seed, largest, folder))
            for data in ("kin8nm", "protein")
            for seed in range(seeds)
        ]
        common.run_cells(options, cells, claims)


if __name__ == "__main__":
    main()

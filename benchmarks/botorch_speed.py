"""What `import botorch` costs a training step, and a batch of points a prediction.

BoTorch switches GPyTorch's fast_computations.log_prob off for the whole process. In processor time, in one process: a
training step of an ExactGP with features before and after the import, and the same with a plain GPyTorch kernel of the
same features after it; then a prediction of 64 batches of one and of four points beside one batch of as many points.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch

import rfgp

sys.path.insert(0, str(common.HERE.parent / "tests" / "support"))
from dense_features import DenseFeatureKernel
from problems import ExactModel

COLUMNS, BATCHES = 6, 64
REPEATS = 7


def model(num_rows: int, num_features: int, is_dense: bool = False) -> Any:
    """An ExactGP in float64 with an approximated Gaussian kernel."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, COLUMNS, generator=generator)
    y = torch.sin(x.sum(-1)) + 0.1 * torch.randn(num_rows, generator=generator)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=COLUMNS))
    kernel = rfgp.approximate(exact, num_features, input_dim=COLUMNS, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return ExactModel(x, y, likelihood, DenseFeatureKernel(kernel) if is_dense else kernel)


def seconds(functions: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Median seconds of processor time of each function, run in turn after one warm-up each."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = time.process_time()
            function()
            if repeat:
                found[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in found.items()}


def training_step(known: Any) -> Callable[[], None]:
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(known.likelihood, known)

    def step() -> None:
        known.zero_grad()
        objective(known.train()(known.train_inputs[0]), known.train_targets).backward()

    return step


def prediction(known: Any, *shape: int) -> Callable[[], Any]:
    at = torch.rand(*shape, COLUMNS, generator=torch.Generator().manual_seed(1))

    def predict() -> Any:
        with torch.no_grad():
            latent = known.eval()(at)
            return latent.mean, latent.variance

    return predict


def main() -> None:
    options = common.arguments(__doc__ or "", "botorch_speed").parse_args()
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    training, predicting = ((500, 64), (500, 64)) if options.quick else ((4000, 256), (2000, 512))
    known = model(*training)
    cells = {"before": seconds({"step": training_step(known)})["step"]}
    import botorch  # noqa: F401

    cells["after"] = seconds({"step": training_step(known)})["step"]
    cells["dense, after"] = seconds({"step": training_step(model(*training, is_dense=True))}, repeats=1)["step"]
    known = model(*predicting)
    shapes = {f"{BATCHES} x {q}": (BATCHES, q) for q in (1, 4)} | {f"{BATCHES * q}": (BATCHES * q,) for q in (1, 4)}
    cells |= seconds({name: prediction(known, *shape) for name, shape in shapes.items()})
    ratios = {
        "training step, after to before": cells["after"] / cells["before"],
        "training step, dense kernel to ours": cells["dense, after"] / cells["after"],
        **{f"{BATCHES} batches of {q} to one": cells[f"{BATCHES} x {q}"] / cells[f"{BATCHES * q}"] for q in (1, 4)},
    }
    common.write(options.out, {"environment": common.environment(), "seconds": cells, "ratios": ratios})
    print(common.markdown(["what", "seconds"], [[name, f"{value:.4f}"] for name, value in cells.items()]))
    print(common.markdown(["ratio", ""], [[name, f"{value:.2f}"] for name, value in ratios.items()]))


if __name__ == "__main__":
    main()

"""Certified posterior means: bounds that hold in 10^4 trials, and the exact mean of all protein rows with its time.

Trials: random kernels, noise, data, points and numbers of iterations, against exact values in 80-bit arithmetic.
Protein: 41,157 training rows, parameters by rfgp.fit with 512 landmarks, 2,048 landmarks for the certificate; the same
with a tenth of the noise, which is harder. Bounds are in standard deviations of the targets.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_data_dir, add_plot, arguments, run_cells, save_figure
from gpytorch.kernels import MaternKernel, ScaleKernel
from tqdm import tqdm

import rfgp
from rfgp.diagnostics.certificates import certified_posterior
from rfgp.study import plots

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from certified import Trial

TRAINING_ROWS, LANDMARKS, TOLERANCE, NUM_TRIALS, PART = 41_157, 2_048, 1e-3, 10_000, 500


def trials(first: int, count: int) -> dict[str, Any]:
    """How near errors come to their bounds: violations, and the largest shares."""
    shares, misses = [], []
    for seed in tqdm(range(first, first + count), desc="trials", leave=False):
        trial = Trial(seed)
        shares.append(trial.ratios())
        misses.append(trial.misses())
    shares, misses = np.array(shares), np.array(misses)
    return {
        "trials": count,
        "means outside": int((~(shares <= 1.0)).sum()),
        "variances outside": int((~(misses <= 0.0)).sum()),
        "largest share": float(shares.max()),
        "median share": float(np.median(shares)),
    }


def protein(data_dir: Path) -> tuple[torch.Tensor, ...]:
    """Standardized training rows and test rows."""
    with np.load(data_dir / "protein.npz") as archive:
        x, y = (torch.as_tensor(archive[key], dtype=torch.float64) for key in ("x", "y"))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order].flatten()
    train = slice(0, TRAINING_ROWS)
    x = (x - x[train].mean(0)) / x[train].std(0)
    y = (y - y[train].mean()) / y[train].std(correction=0)
    return x[train], y[train], x[TRAINING_ROWS:], y[TRAINING_ROWS:]


def fitted(x: torch.Tensor, y: torch.Tensor, evaluations: int) -> rfgp.WeightSpaceGP:
    """A model with landmarks and the parameters that it learned."""
    exact = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=x.shape[-1])).double()
    kernel = rfgp.approximate(exact, 512, train_inputs=x, method="landmarks", seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    rfgp.fit(model, x, y, strategy="subset", max_evaluations=evaluations, progress=False)
    return model


def certified(model: rfgp.WeightSpaceGP, rows: tuple[torch.Tensor, ...], factor: float, landmarks: int) -> Any:
    """The certified mean of all rows, with time, and how far the model is from it."""
    x, y, test_x, test_y = rows
    model.likelihood.noise = factor * model.likelihood.noise.detach()
    model.condition(x, y)
    kernel, clock, processor = model.covar_module.exact_kernel, time.monotonic(), time.process_time()
    found = certified_posterior(kernel, model.likelihood, x, y, tolerance=TOLERANCE, num_landmarks=landmarks)
    seconds = {"wall": time.monotonic() - clock, "processor": time.process_time() - processor}
    mean, bound, approximate = found.mean(test_x), found.error_bound(test_x), model.posterior(test_x).mean.detach()
    return {
        "noise variance": float(model.likelihood.noise),
        "outputscale": float(kernel.outputscale.detach()),
        "lengthscales": kernel.base_kernel.lengthscale.detach().flatten().tolist(),
        "landmarks": landmarks,
        "iterations": found.iterations,
        "relative bound": found.relative_bound,
        "largest bound at test points / sd of the mean there": float(bound.max() / mean.std()),
        "history": found.history,
        "seconds": seconds,
        "test rmse of the certified mean": float((mean - test_y).square().mean().sqrt()),
        "test rmse of the model": float((approximate - test_y).square().mean().sqrt()),
        "model from exact, root mean square": float((approximate - mean).square().mean().sqrt()),
        "model from exact, largest": float((approximate - mean).abs().max()),
    }


def claims(result: dict[str, Any]) -> dict[str, float]:
    """Processor seconds of an iteration on the protein data."""
    cell = result["cells"].get("protein, noise times 1")
    return {} if cell is None else {"seconds of an iteration": cell["seconds"]["processor"] / cell["iterations"]}


def plot(result: dict[str, Any], out: Path) -> None:
    """The bounds against the iterations."""
    figure, axes = plots.figure(1, 1, width=4.6, height=3.2)
    bounds = {name: cell["history"] for name, cell in result["cells"].items() if "history" in cell}
    plots.convergence(bounds, tolerance=TOLERANCE, ylabel="bound (sd of the targets)", ax=axes[0, 0])
    axes[0, 0].legend(fontsize=7)
    save_figure(figure, out)


def main() -> None:
    parser = arguments(__doc__, "certificate")
    add_data_dir(parser, required=False)
    add_plot(parser)
    parser.add_argument("--trials", type=int, default=NUM_TRIALS, help="the number of trials")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.plot:
        plot(json.loads(options.out.read_text()), options.out)
        return
    count = 50 if options.quick else options.trials
    cells = [(f"trials from {k}", partial(trials, k, min(PART, count - k))) for k in range(0, count, PART)]
    if options.data_dir is not None:
        rows = protein(options.data_dir)
        if options.quick:
            rows = tuple(part[:2_000] for part in rows)
        model = cache(lambda: fitted(*rows[:2], 10 if options.quick else 200))
        landmarks = 256 if options.quick else LANDMARKS
        for factor in (1.0, 0.1):
            cells.append((f"protein, noise times {factor:g}", lambda f=factor: certified(model(), rows, f, landmarks)))
    run_cells(options, cells, claims)


if __name__ == "__main__":
    main()

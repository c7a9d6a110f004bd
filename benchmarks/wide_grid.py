"""A hundred thousand measurements in three inputs: Fourier grids of up to 100,001 features, and landmarks with blocks.

The function is drawn from a Matern-3/2 prior of lengthscale 0.15 and variance 1, and has noise of deviation 0.1. Grids
of up to 4,001 features have dense matrices, and others products by fast Fourier transforms. Seconds are those of the
processor, by one thread. Every case runs in a process of its own.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import fourier_grid
import gpytorch
import torch
from common import alone, arguments, run_cells

import rfgp

NUM_ROWS, QUICK_ROWS, SECONDS = 100_000, 2000, 3600.0
fourier_grid.NOISE = 0.1
CASES = (("fourier_grid", 1801), ("fourier_grid", 20_001), ("landmarks", 512))


def case(method: str, num_features: int, num_rows: int) -> dict[str, Any]:
    """Seconds, error and coverage of one model, with blocks of 256 rows for landmarks."""
    torch.set_num_threads(1)
    x, y, x_test, truth = fourier_grid.measured("Matern-3/2", num_rows, 3).values()
    start = time.process_time()
    base = gpytorch.kernels.MaternKernel(nu=1.5)
    exact = gpytorch.kernels.ScaleKernel(base).double()
    features = rfgp.approximate(exact, num_features, method=method, train_inputs=x, seed=0)
    likelihood, mean = gpytorch.likelihoods.GaussianLikelihood(), gpytorch.means.ConstantMean()
    block_size = 256 if method == "landmarks" else None
    model = rfgp.WeightSpaceGP(features, likelihood.double(), mean.double(), block_size=block_size)
    summary = rfgp.fit(model, x, y, progress=False)
    fitted = time.process_time()
    with torch.no_grad():
        posterior = model.posterior(x_test)
        center, deviation = posterior.mean, posterior.stddev
    predicted = time.process_time()
    error, weights = (center - truth).abs(), model.weight_posterior()
    return {
        "method": "landmarks, blocks of 256" if block_size else method,
        "features": features.num_scalar_features,
        "rows": num_rows,
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "evaluations": summary.evaluations,
        "log_evidence": summary.log_marginal_likelihood,
        "evidence_error": getattr(weights, "evidence_error", 0.0),
        "lengthscale": float(base.lengthscale.detach()),
        "noise_deviation": float(likelihood.noise.detach().sqrt()),
        "rmse": float(error.square().mean().sqrt()),
        "deviation": float(deviation.mean()),
        "coverage_95": float((error < 1.96 * deviation).double().mean()),
    }


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Error, coverage, and seconds of fit and predictions, by method and number of features."""
    return {
        f"{cell['method']}; {cell['features']:,} features": {
            "rmse": cell["rmse"],
            "coverage": cell["coverage_95"],
            "seconds": cell["fit_seconds"] + cell["predict_seconds"],
        }
        for cell in result["cells"].values()
        if "rmse" in cell
    }


def main() -> None:
    options = arguments(__doc__, "wide_grid").parse_args()
    cases = (("fourier_grid", 4501), ("landmarks", 64)) if options.quick else CASES
    num_rows = QUICK_ROWS if options.quick else NUM_ROWS
    cells = [
        (f"{method}, {count}", partial(alone, case, method, count, num_rows, seconds=SECONDS))
        for method, count in cases
    ]
    run_cells(options, cells, claims)


if __name__ == "__main__":
    main()

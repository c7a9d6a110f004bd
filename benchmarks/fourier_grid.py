"""A million measurements in one and two inputs on a Fourier grid: fit with all parameters, predictions, and a map.

In one input celerite2 and the Hilbert-space features of NumPyro (``grid_peers.py``) learn from the same measurements,
where ``--peers-python`` names an interpreter with ``pip install celerite2 numpyro``. Functions are drawn from a
Gaussian and from a Matern-3/2 prior of lengthscale 0.15 and variance 1, and have noise of deviation 0.3. Seconds are
those of the processor, by one thread; memory is what the fit adds to data and libraries. Every case runs in a process
of its own.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import finufft
import gpytorch
import numpy as np
import torch
from common import alone, arguments, environment, in_process, show, write
from torch import Tensor

import rfgp
from rfgp.models import WeightSpaceGP

LENGTHSCALE, NOISE, WAVES, NUM_TEST = 0.15, 0.3, 50_000, 2000


def drawn(kernel: str, dim: int, generator: torch.Generator) -> Any:
    """A function drawn from a prior, as a sum of random waves."""
    frequencies = torch.randn(WAVES, dim, generator=generator, dtype=torch.float64) / LENGTHSCALE
    if kernel != "Gaussian":
        normal = torch.randn(WAVES, 3, generator=generator, dtype=torch.float64)
        frequencies = frequencies * (3.0 / normal.square().sum(-1, keepdim=True)).sqrt()
    phases = 2.0 * math.pi * torch.rand(WAVES, generator=generator, dtype=torch.float64)
    transform = getattr(finufft, f"nufft{dim}d3")

    def function(x: Tensor) -> Tensor:
        points, waves = ([part[:, axis].contiguous().numpy() for axis in range(dim)] for part in (x, frequencies))
        found = transform(*waves, torch.exp(1j * phases).numpy(), *points, eps=1e-9, isign=1, nthreads=1)
        return math.sqrt(2.0 / WAVES) * torch.from_numpy(found.real.copy())

    return function


def peak() -> float:
    """The largest memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measured(kernel: str, num_rows: int, dim: int) -> dict[str, Tensor]:
    """Measurements of a function, and its values at other points."""
    generator = torch.Generator().manual_seed(0)
    function = drawn(kernel, dim, generator)
    x, x_test = (torch.rand(n, dim, generator=generator, dtype=torch.float64) for n in (num_rows, NUM_TEST))
    y = function(x) + NOISE * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return {"x": x, "y": y, "x_test": x_test, "truth": function(x_test)}


def case(kernel: str, num_rows: int, num_features: int | None, map_points: int, dim: int) -> dict[str, Any]:
    """Seconds, memory, errors and coverage of one fit; None for an open number of features."""
    torch.set_num_threads(1)
    x, y, x_test, truth = measured(kernel, num_rows, dim).values()
    before, start = peak(), time.process_time()
    base = gpytorch.kernels.RBFKernel() if kernel == "Gaussian" else gpytorch.kernels.MaternKernel(nu=1.5)
    exact = gpytorch.kernels.ScaleKernel(base).double()
    features = rfgp.approximate(exact, num_features, method="fourier_grid", train_inputs=x)
    likelihood, mean = gpytorch.likelihoods.GaussianLikelihood(), gpytorch.means.ConstantMean()
    model = WeightSpaceGP(features, likelihood.double(), mean.double())
    made = time.process_time()
    summary = rfgp.fit(model, x, y, progress=False)
    fitted = time.process_time()
    with torch.no_grad():
        posterior = model.posterior(x_test)
        center, deviation = posterior.mean, posterior.stddev
    predicted, memory = time.process_time(), peak() - before
    error = (center - truth).abs()
    axes = [torch.linspace(0.0, 1.0, round(map_points ** (1.0 / dim)), dtype=torch.float64)] * dim
    source = rfgp.data.GridSource(axes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        rfgp.predict_map(model, source, Path(folder) / "map", progress=False)
        mapped = time.process_time() - began
    return {
        "kernel": kernel,
        "method": "fourier_grid" if num_features is not None else "fourier_grid, open",
        "inputs": dim,
        "rows": num_rows,
        "features": features.num_scalar_features,
        "approximate_seconds": made - start,
        "fit_seconds": fitted - made,
        "predict_seconds": predicted - fitted,
        "fit_mb": memory,
        "evaluations": summary.evaluations,
        "lengthscale": float(base.lengthscale.detach()),
        "noise_deviation": float(likelihood.noise.detach().sqrt()),
        "cut_off": float(features.residual_variance(x_test[:1]).detach()),
        "rmse": float(error.square().mean().sqrt()),
        "function_deviation": float(truth.std()),
        "coverage_95": float((error < 1.96 * deviation).double().mean()),
        "map_points": source.num_rows,
        "map_seconds": mapped,
        "peak_mb": peak(),
    }


def peers(python: str | None, num_rows: int) -> list[dict[str, Any]]:
    """The same measurements in one input by others, or why not."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        values = measured("Matern-3/2", num_rows, 1)
        np.savez(path, **{name: value.squeeze(-1).numpy() for name, value in values.items()})
        for peer in ("celerite2", "hsgp"):
            found = {"status": "not run: --peers-python names no interpreter that has it"}
            if python is not None:
                found = in_process([python, str(Path(__file__).with_name("grid_peers.py")), peer, str(path)], 900.0)
            rows.append({"kernel": "Matern-3/2", "method": peer, "inputs": 1, "rows": num_rows, **found})
    return rows


def claims(result: dict[str, Any]) -> dict[str, float]:
    """What all parameters of a Gaussian kernel in two inputs take with an open number of features, and a map."""
    cases = {f"{case['kernel']}, {case['inputs']}, {case['method']}": case for case in result["cases"]}
    seconds = [case["fit_seconds"] for name, case in cases.items() if "fourier_grid" in name]
    whole, fit = cases["Gaussian, 2, fourier_grid"], cases["Gaussian, 2, fourier_grid, open"]
    return {
        "fit seconds": fit["fit_seconds"],
        "least fit seconds": min(seconds),
        "most fit seconds": max(seconds),
        "map seconds": whole["map_seconds"],
        "map GB": whole["peak_mb"] / 1000.0,
    }


def main() -> None:
    parser = arguments(__doc__, "fourier_grid")
    parser.add_argument("--peers-python", help="an interpreter that has celerite2 and numpyro")
    options = parser.parse_args()
    num_rows, width, large, small = (10_000, 101, 10_000, 100) if options.quick else (10**6, 841, 10**8, 10**4)
    sizes = ((width, large, 2), (None, small, 2), (None, small, 1))
    cases = [(kernel, num_rows, *size) for size in sizes for kernel in ("Gaussian", "Matern-3/2")]
    rows = [alone(case, *chosen, seconds=900.0) for chosen in cases]
    rows += peers(options.peers_python, num_rows)
    result: dict[str, Any] = {"environment": environment(), "cases": rows}
    result["claims"] = claims(result)
    write(options.out, result)
    show(result)


if __name__ == "__main__":
    main()

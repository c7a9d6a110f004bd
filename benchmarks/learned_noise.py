"""The noise variance that training finds on data drawn from the model, over the true one, for several strategies.

Learned from the evidence of few random features the noise is too large: what features cannot follow counts as noise.
"""

from __future__ import annotations

import itertools
import statistics
import time
from functools import partial
from typing import Any

import common
import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch_models import ExactModel
from torch import Tensor

import rfgp

KERNELS = {"Gaussian": RBFKernel, "Matern-3/2": lambda **options: MaternKernel(nu=1.5, **options)}
STRATEGIES = {
    "evidence, D = 64": ("evidence", "fourier", 64),
    "evidence, D = 256": ("evidence", "fourier", 256),
    "evidence, D = 1,024": ("evidence", "fourier", 1024),
    "subset": ("subset", "exact", 0),
    "blocks": ("blocks", "exact", 0),
    "subset, landmarks with blocks": ("subset", "landmarks", 256),
    "blocks, landmarks with blocks": ("blocks", "landmarks", 256),
}
ROWS, EVALUATIONS, BLOCK_SIZE = 2000, 60, 128


def kernel_of(name: str, dim: int) -> Kernel:
    """The kernel that data are drawn from: unit scale, lengthscales of half the root of the dimension."""
    kernel = ScaleKernel(KERNELS[name](ard_num_dims=dim)).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, 0.5 * dim**0.5
    return kernel


def draw(name: str, dim: int, noise: float, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal inputs, and targets drawn from the model."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        matrix = kernel_of(name, dim)(x).to_dense() + noise * torch.eye(rows, dtype=torch.float64)
    return x, torch.linalg.cholesky(matrix) @ torch.randn(rows, generator=generator, dtype=torch.float64)


def learned(
    name: str, dim: int, noise: float, rows: int, seed: int, strategy: str, features: str, width: int
) -> dict[str, float]:
    """The noise variance that is found, over the true one, and the seconds that it takes."""
    x, y = draw(name, dim, noise, rows, seed)
    kernel = ScaleKernel(KERNELS[name](ard_num_dims=dim)).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
    if features == "exact":
        model: Any = ExactModel(x, y, likelihood, kernel).double()
    else:
        approximated = rfgp.approximate(kernel, width, method=features, train_inputs=x, seed=seed)
        block_size = BLOCK_SIZE if features == "landmarks" else None
        mean = gpytorch.means.ConstantMean()
        model = rfgp.WeightSpaceGP(approximated, likelihood, mean, block_size=block_size).double()
    start = time.process_time()
    rfgp.fit(model, x, y, strategy=strategy, max_evaluations=EVALUATIONS, progress=False)
    return {"ratio": float(likelihood.noise.detach()) / noise, "seconds": time.process_time() - start}


def main() -> None:
    """Measure all cells."""
    options = common.arguments(__doc__ or "", "learned_noise").parse_args()
    rows, seeds, dims = (300, 1, (2,)) if options.quick else (ROWS, 2, (2, 8))
    problems = itertools.product(range(seeds), KERNELS, dims, (0.1, 0.01), STRATEGIES)
    cells = [
        (f"{label}|{name}|{dim}|{noise}|{seed}", partial(learned, name, dim, noise, rows, seed, *STRATEGIES[label]))
        for seed, name, dim, noise, label in problems
    ]
    common.run_cells(options, cells, claims)


def claims(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Median, quartiles and range of the ratio, and median seconds, of problems all strategies were measured on."""
    cells, found = result["cells"], {}
    problems = {key.partition("|")[2] for key in cells}
    complete = [problem for problem in problems if all(f"{label}|{problem}" in cells for label in STRATEGIES)]
    for label in STRATEGIES if complete else ():
        own = [cells[f"{label}|{problem}"] for problem in complete]
        ratios = [cell["ratio"] for cell in own]
        quantiles = {name: np.quantile(ratios, shares).tolist() for name, shares in SHARES.items()}
        found[label] = quantiles | {"seconds": statistics.median(cell["seconds"] for cell in own)}
    return found


SHARES = {"median": 0.5, "quartiles": (0.25, 0.75), "range": (0.0, 1.0)}


if __name__ == "__main__":
    main()

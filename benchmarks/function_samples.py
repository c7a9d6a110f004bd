"""1,000 functions at 1,000 points: drawn and evaluated one by one, by hand, and as one callable; in processor seconds.

By hand is a triangular solution, the features and one product, without a mean function, checks or snapshots.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch
from gpytorch_models import ExactModel

import rfgp

COLUMNS, ROWS, WIDTH, FUNCTIONS, POINTS, REPEATS = 4, 5000, 512, 1000, 1000, 5


def ways(num_functions: int, num_points: int, num_rows: int, width: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name; the posterior of the weights is known in all of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, COLUMNS, generator=generator, dtype=torch.float64)
    points = torch.rand(num_points, COLUMNS, generator=generator, dtype=torch.float64)
    y = torch.sin(3.0 * x.sum(-1)) + 0.1 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    kernel = rfgp.approximate(exact, width, input_dim=COLUMNS, seed=0)
    model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double()).condition(x, y)
    posterior: Any = model.weight_posterior()
    gpytorch_model = ExactModel(x, y, model.likelihood, model.covar_module, model.mean_module).eval()
    gpytorch_model(points)

    def one_by_one() -> torch.Tensor:
        return torch.stack([function(points) for function in model.sample_functions(num_functions)])

    def by_hand() -> torch.Tensor:
        noise = torch.randn(width, num_functions, dtype=torch.float64)
        weights = posterior.mean + torch.linalg.solve_triangular(posterior.factor.mT, noise, upper=True)
        return weights.mT @ kernel.features(points).mT

    def with_gradients() -> torch.Tensor:
        at = points.clone().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(model.sample_functions(num_functions)(at).sum(), at)[0]

    return {
        "one by one": one_by_one,
        "by hand": by_hand,
        "as one callable": lambda: model.sample_functions(num_functions)(points),
        "as one callable, from the prior": lambda: model.sample_functions(num_functions, prior=True)(points),
        "as one callable, and gradients in the points": with_gradients,
        "as one callable, of an ExactGP": lambda: rfgp.models.sample_functions(gpytorch_model, num_functions)(points),
    }


@torch.no_grad()
def seconds(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median processor seconds of each, in turn after one warm-up of all but the slowest."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats):
        for name, function in functions.items():
            if name == "one by one" and repeat > 0:
                continue
            start = time.process_time()
            function()
            found[name].append(time.process_time() - start)
    return {name: statistics.median(values[1:] or values) for name, values in found.items()}


def main() -> None:
    options = common.arguments(__doc__ or "", "function_samples").parse_args()
    sizes = (20, 50, 200, 64) if options.quick else (FUNCTIONS, POINTS, ROWS, WIDTH)
    found = seconds(ways(*sizes), 2 if options.quick else REPEATS + 1)
    names = ("functions", "points", "rows", "features")
    sizes_by_name = dict(zip(names, sizes, strict=True))
    result = {"environment": common.environment(), "sizes": sizes_by_name, "seconds": found}
    common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()

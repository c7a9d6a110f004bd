"""A field without curl in two inputs: the evidence and its gradient on a Fourier grid, and by random features.

The field is the gradient of a function drawn from a Gaussian prior of lengthscale 0.2, and every component has noise of
a tenth of its deviation. Parameters are known. Errors are those of the predicted field in units of its deviation at
2,000 points, and "error_in_deviations" are errors in units of the predicted deviation. Seconds are those of the
processor, by one thread, for one evaluation at new parameters: random features read all rows for each, a grid once
for all.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from common import arguments, environment, show, write
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from torch import Tensor

import rfgp
from rfgp.kernels import CurlFreeKernel
from rfgp.models import WeightSpaceGP

LENGTHSCALE, NOISE, WAVES, NUM_TEST = 0.2, 0.1, 400, 2000


def gradient_of_waves(x: Tensor, generator: torch.Generator) -> Tensor:
    """The gradient of a function drawn from the prior, at points (N, 2), in units of its deviation."""
    frequencies = torch.randn(WAVES, 2, generator=generator, dtype=torch.float64) / LENGTHSCALE
    phases = 2.0 * math.pi * torch.rand(WAVES, generator=generator, dtype=torch.float64)
    slopes = [-torch.sin(rows @ frequencies.mT + phases) @ frequencies for rows in x.split(20_000)]
    return LENGTHSCALE * math.sqrt(2.0 / WAVES) * torch.cat(slopes)


def case(method: str, num_features: int, num_rows: int) -> dict[str, Any]:
    """Seconds and errors of one kind of features."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows + NUM_TEST, 2, generator=generator, dtype=torch.float64)
    field = gradient_of_waves(x, generator)
    y = field + NOISE * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    base = RBFKernel().double().initialize(lengthscale=LENGTHSCALE)
    exact = ScaleKernel(CurlFreeKernel(base)).double().initialize(outputscale=LENGTHSCALE**2)
    kernel = rfgp.approximate(exact, num_features, method=method, train_inputs=x, seed=0)
    likelihood = MultitaskGaussianLikelihood(2, has_task_noise=False).double().initialize(noise=NOISE**2)
    model = WeightSpaceGP(kernel, likelihood)
    rows, test = x[:num_rows], x[num_rows:]
    start = time.process_time()
    model.condition(rows, y[:num_rows])
    read = time.process_time() - start
    evaluations = 5 if model.sums_hold else 1
    start = time.process_time()
    for _ in range(evaluations):
        with torch.no_grad():
            base.lengthscale = base.lengthscale * 1.0  # new parameters, of the same value
        if not model.sums_hold:
            model.condition(rows, y[:num_rows])
        model.log_marginal_likelihood().backward()
    evaluated = (time.process_time() - start) / evaluations
    with torch.no_grad():
        posterior = model.posterior(test)
        error = (posterior.mean - field[num_rows:]).abs()
        relative = error / posterior.stddev
    return {
        "method": method,
        "rows": num_rows,
        "features": kernel.num_scalar_features,
        "read_seconds": read,
        "evidence_and_gradient_seconds": evaluated,
        "rmse": float(error.square().mean().sqrt()),
        "error_in_deviations": float(relative.square().mean().sqrt()),
        "coverage_95": float((relative < 1.96).double().mean()),
    }


def main() -> None:
    parser = arguments(__doc__, "fields_on_grid")
    options = parser.parse_args()
    torch.set_num_threads(1)
    num_rows, *widths = (2000, 195, 64) if options.quick else (100_000, 401, 512, 1024, 2048)
    methods = ["fourier_grid", *["fourier"] * (len(widths) - 1)]
    cases = [case(method, width, num_rows) for method, width in zip(methods, widths, strict=True)]
    result = {"environment": environment(), "cases": cases}
    write(options.out, result)
    show(result)


if __name__ == "__main__":
    main()

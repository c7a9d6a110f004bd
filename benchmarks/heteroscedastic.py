"""Noise that depends on the inputs: learned, known, and one variance for all rows.

Rows are drawn from f(x) = sin(5 x_1) + x_2^2 with a standard deviation that grows twentyfold along x_1; two
outputs have different noise. A model that knows the variances is the best that can be hoped for.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import common
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from torch import Tensor

import rfgp
from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import HeteroscedasticGP, WeightSpaceGP

WIDTH, NOISE_WIDTH, TEST_ROWS = 128, 64, 4000


def rows(count: int, outputs: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and noise variances, (N, T) each, or (N,) for one output."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    function = torch.stack([torch.sin(5.0 * x[:, 0]) + x[:, 1] ** 2, torch.cos(4.0 * x[:, 1]) + x[:, 0]], -1)
    spread = torch.stack([0.05 * torch.exp(3.0 * x[:, 0]), 0.05 * torch.exp(3.0 * (1.0 - x[:, 1]))], -1)
    y = function + spread * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return (x, y[:, 0], spread[:, 0] ** 2) if outputs == 1 else (x, y, spread**2)


def kernel(width: int, seed: int, outputs: int = 1) -> Any:
    """A Gaussian kernel with a lengthscale per input, by random features."""
    base = RBFKernel(ard_num_dims=2)
    exact = ScaleKernel(base) if outputs == 1 else MultitaskKernel(base, num_tasks=outputs, rank=outputs)
    return rfgp.approximate(exact.double(), width, input_dim=2, seed=seed)


def mean(outputs: int = 1) -> Any:
    """A constant for every output."""
    return (ConstantMean() if outputs == 1 else MultitaskMean(ConstantMean(), num_tasks=outputs)).double()


def regression(count: int, outputs: int, seed: int) -> list[dict[str, Any]]:
    """Density and coverage of the models of one drawn data set."""
    x, y, noise = rows(count, outputs, seed)
    xs, ys, truth = rows(TEST_ROWS, outputs, seed + 1000)
    if outputs == 1:
        fixed, common_noise = FixedNoiseGaussianLikelihood(noise), GaussianLikelihood().double()
    else:
        fixed = MultitaskFixedNoiseGaussianLikelihood(noise)
        common_noise = MultitaskGaussianLikelihood(num_tasks=outputs).double()
    found = []
    for name in ("learned", "known", "one for all rows"):
        began = time.process_time()
        if name == "learned":
            model: Any = HeteroscedasticGP(kernel(WIDTH, seed, outputs), kernel(NOISE_WIDTH, seed + 1), mean(outputs))
            rfgp.fit(model, x, y, progress=False)
            with torch.no_grad():
                predicted, density = model.predictive(xs), model.log_prob(xs, ys)
        else:
            likelihood = fixed if name == "known" else common_noise
            model = WeightSpaceGP(kernel(WIDTH, seed, outputs), likelihood, mean(outputs))
            rfgp.fit(model, x, y, noise=noise if name == "known" else None, strategy="evidence", progress=False)
            with torch.no_grad():
                latent = model.posterior(xs)
                predicted = likelihood(latent, noise=truth) if name == "known" else likelihood(latent)
                density = torch.distributions.Normal(predicted.mean, predicted.stddev).log_prob(ys)
        is_inside = ((ys - predicted.mean).abs() < 1.96 * predicted.stddev).double()
        is_quiet = truth < truth.median()
        found.append(
            {
                "rows": count,
                "outputs": outputs,
                "noise": name,
                "nlpd": -float(density.mean()),
                "covered where quiet": float(is_inside[is_quiet].mean()),
                "covered where noisy": float(is_inside[~is_quiet].mean()),
                "seconds": time.process_time() - began,
            }
        )
    return found


def averaged(cells: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Means over data sets of the numbers of cells that agree in these keys."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    found = []
    for same in groups.values():
        means = {key: statistics.mean(cell[key] for cell in same) for key in same[0] if key not in keys}
        found.append(dict(zip(keys, (same[0][key] for key in keys), strict=True)) | means)
    return found


def main() -> None:
    options = common.arguments(__doc__ or "", "heteroscedastic").parse_args()
    counts, seeds = ((100,), range(1)) if options.quick else ((300,), range(3))
    cells = [cell for seed in seeds for n in counts for outputs in (1, 2) for cell in regression(n, outputs, 10 * seed)]
    found = averaged(cells, ("rows", "outputs", "noise"))
    result = {"environment": common.environment(), "data sets": len(seeds), "regression": found}
    common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()

"""What KL per point says about coverage, and whether a sample says what all rows lose.

For d in {2, 8} x {Gaussian, Matern 3/2} x noise {0.1, 0.01} x rows x methods x numbers of features: the loss of the
posterior with all rows as training data, and of the sample that `posterior_loss` looks at; the coverage of 95%
intervals of the function in closed form, KL in both directions, and the relative Frobenius error of the kernel matrix;
held-out points and points beyond the data together. No targets are needed: they are those that the exact model draws.
"""

from __future__ import annotations

import itertools
import math
import warnings
from functools import partial

import gpytorch
import torch
from common import arguments, run_cells
from gpytorch.kernels import MaternKernel, RBFKernel
from scipy.stats import spearmanr

import rfgp
from rfgp.approximation.selection import posterior_loss
from rfgp.diagnostics import coverage_at_least, relative_frobenius_error

KERNELS = {"Gaussian": RBFKernel, "Matern 3/2": lambda: MaternKernel(nu=1.5)}
WIDTHS = {"fourier": (64, 128, 256, 512, 1024), "fourier_orthogonal": (64, 256, 1024), "landmarks": (32, 128, 512)}
LIMITS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
TEST_ROWS = 300


def inputs(columns, num_rows):
    """Training rows, and points within the data and twice as far out."""
    x = torch.rand(num_rows + TEST_ROWS, columns, generator=torch.Generator().manual_seed(1))
    train, test = x[:num_rows], x[num_rows:]
    return train, torch.cat([test, 0.5 + 2.0 * (test - 0.5)])


@torch.no_grad()
def losses(kernel, train, points, noise):
    """KL(exact, approximate) and KL(approximate, exact) per point, and the coverage of 95% intervals, by all rows."""
    count, both = len(train), torch.cat([train, points])
    with gpytorch.settings.lazily_evaluate_kernels(False):
        full, features = kernel.exact_kernel(both, both).to_dense(), kernel.features(both)
    missing, weights, variances = kernel.residual_variance(points), [], []
    for covariance in (full, features @ features.mT):
        noisy = covariance[:count, :count] + noise * torch.eye(count)
        weights.append(torch.linalg.solve(noisy, covariance[:count, count:]))
        prior = covariance.diagonal()[count:]
        variances.append(prior - (covariance[:count, count:] * weights[-1]).sum(0))
    exact, own = variances[0], variances[1] + (0.0 if missing is None else missing)
    exact, own = exact.clamp_min(1e-10), own.clamp_min(1e-10)
    change = weights[1] - weights[0]
    shift = (change * (full[:count, :count] @ change + noise * change)).sum(0)
    forward = 0.5 * ((exact + shift) / own - 1.0 - (exact / own).log())
    backward = 0.5 * ((own + shift) / exact - 1.0 - (own / exact).log())
    coverage = torch.erf(torch.special.ndtri(torch.tensor(0.975)) * (own / (exact + shift)).sqrt() / math.sqrt(2.0))
    return float(forward.mean()), float(backward.mean()), float(coverage.mean())


def cell(columns, kernel_name, noise, num_rows, method, width, seed):
    """One case."""
    train, points = inputs(columns, num_rows)
    exact = KERNELS[kernel_name]()
    exact.lengthscale = 0.4 if columns == 2 else 1.2
    kernel = rfgp.approximate(exact, width, method=method, train_inputs=train, seed=seed)
    forward, backward, coverage = losses(kernel, train, points, noise)
    sample = posterior_loss(kernel, train, noise=noise)
    return {
        "exact_from_approximate": forward,
        "approximate_from_exact": backward,
        "coverage": coverage,
        "sample_kl": sample.kl_per_point,
        "sample_coverage": sample.coverage,
        "kernel_error": float(relative_frobenius_error(kernel, points)),
    }


def claims(result):
    """Coverage by KL per point; rank correlations with it of Fourier features; how far the sample is from all rows."""
    every = list(result["cells"].values())
    fourier, landmarks = (
        [cell for key, cell in result["cells"].items() if name in key] for name in ("fourier", "landmarks")
    )
    names = {"kernel error": "kernel_error", "KL": "exact_from_approximate"}
    covered = [cell["coverage"] for cell in fourier]
    logs = [math.log(c["sample_kl"] / c["exact_from_approximate"]) for c in every if c["sample_kl"] > 1e-3]
    misses = [abs(c["sample_coverage"] - c["coverage"]) for c in every]
    return {name: float(spearmanr([cell[own] for cell in fourier], covered)[0]) for name, own in names.items()} | {
        "by KL": {
            f"{low:g} to {high:g}": {
                "bound": [coverage_at_least(high), coverage_at_least(low)],
                "Fourier": covered_between(fourier, low, high),
                "landmarks": covered_between(landmarks, low, high),
            }
            for low, high in itertools.pairwise((0.0, *LIMITS))
        },
        "sample": {
            "KL off, in log": math.sqrt(sum(v * v for v in logs) / max(len(logs), 1)),
            "coverage off, mean": sum(misses) / len(misses),
            "coverage off, most": max(misses),
        },
    }


def covered_between(cells, low, high):
    """The least and the most coverage of cells by their KL, as text."""
    found = [cell["coverage"] for cell in cells if low <= cell["exact_from_approximate"] < high]
    return f"{min(found):.2f} to {max(found):.2f}" if found else "(none)"


def main() -> None:
    options = arguments(__doc__, "kl_and_coverage").parse_args()
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    sizes, seeds = ((300,), (0,)) if options.quick else ((500, 2000), (0,))
    pairs = [(method, width) for method, widths in WIDTHS.items() for width in widths]
    cells = [
        (
            f"d={columns}|{name}|noise={noise}|N={num_rows}|{method}|D={width}|seed={seed}",
            partial(cell, columns, name, noise, num_rows, method, width, seed),
        )
        for columns, name, noise, num_rows, (method, width), seed in itertools.product(
            (2, 8), KERNELS, (0.1, 0.01), sizes, pairs, seeds
        )
        if width < num_rows
    ]
    run_cells(options, cells, claims)


if __name__ == "__main__":
    main()

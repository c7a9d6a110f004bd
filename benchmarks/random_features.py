"""How near random features come to the exact model: the script of the README's first block, with 16 to 1,024 of them.

Three outputs of two inputs, a fifth of whose values are missing. Parameters are learned once, features are drawn for
every seed. Divergences and coverage are those of 100 inputs that the models have not seen.
"""

from __future__ import annotations

import functools
import statistics
from pathlib import Path
from typing import Any

import gpytorch
import torch
from common import add_grid, add_plot, arguments, resumed, run_cells, save_figure
from gpytorch.kernels import MultitaskKernel, RBFKernel
from torch import Tensor

import rfgp
from rfgp.study import plots

WIDTHS, SEEDS = (16, 32, 64, 128, 256, 512, 1024), 5
ROWS, NEW, OUTPUTS, NOISE, MISSING = 500, 100, 3, 0.1, 0.2
LENGTHSCALE, REACH, SHOWN = 1.0, 4.0, (16, 64, 256)


def problem() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, functions and observations with missing values."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS + NEW, 2, generator=generator)
    wave = (6 * x[:, 0]).sin()
    truth = torch.stack([wave, wave * x[:, 1], (4 * x[:, 1]).cos()], dim=-1)
    y = truth + NOISE * torch.randn(truth.shape, generator=generator)
    y[torch.rand(truth.shape, generator=generator) < MISSING] = torch.nan
    return x, truth, y


@functools.cache
def learned() -> rfgp.WeightSpaceGP:
    """A model with parameters that many features have learned."""
    x, _, y = problem()
    kernel = MultitaskKernel(RBFKernel(ard_num_dims=2), num_tasks=OUTPUTS, rank=2)
    kernel = rfgp.approximate(kernel, 512, train_inputs=x, seed=0)
    model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=OUTPUTS))
    rfgp.fit(model, x[:ROWS], y[:ROWS], progress=False)
    return model


@torch.no_grad()
def measured(width: int, seed: int) -> dict[str, float]:
    """The divergence from the exact model in nats a value, and how much of the functions 95 % intervals cover."""
    x, truth, y = problem()
    known: Any = learned()
    kernel = rfgp.approximate(known.covar_module.exact_kernel, width, train_inputs=x, seed=seed)
    model = rfgp.WeightSpaceGP(kernel, known.likelihood, keep_data=True).condition(x[:ROWS], y[:ROWS])
    new = model.posterior(x[ROWS:])
    is_covered = (new.mean - truth[ROWS:]).abs() < 1.96 * new.stddev
    return {
        "nats a value": float(rfgp.diagnostics.kl_to_exact(model, x[ROWS:])) / (NEW * OUTPUTS),
        "coverage": float(is_covered.double().mean()),
    }


def main() -> None:
    """Measure all cells, or draw the figure."""
    parser = arguments(__doc__ or "", "random_features")
    add_plot(parser)
    options = parser.parse_args()
    widths, seeds = (WIDTHS[:3], 1) if options.quick else (WIDTHS, SEEDS)
    cells = [(f"{width}|{seed}", functools.partial(measured, width, seed)) for width in widths for seed in range(seeds)]
    result = resumed(options, is_of_commit=False) if options.plot else run_cells(options, cells, claims)
    plot(result, options.out)


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Means over the seeds."""
    found: dict[str, Any] = {}
    for width in dict.fromkeys(key.partition("|")[0] for key in result["cells"]):
        own = [cell for key, cell in result["cells"].items() if key.partition("|")[0] == width]
        found[width] = {name: statistics.mean(cell[name] for cell in own) for name in own[0]}
    return found


def plot(result: dict[str, Any], out: Path) -> None:
    """The kernel that features draw, and the distance of the models to the exact one."""
    figure, (axes,) = plots.figure(1, 3, width=3.7, height=3.2)
    distances = torch.linspace(0.0, REACH, 200).unsqueeze(-1)
    exact = RBFKernel()
    exact.lengthscale = LENGTHSCALE
    with torch.no_grad():
        for color, width in zip(plots.COLORS, SHOWN, strict=False):
            features = rfgp.approximate(exact, width, method="fourier", input_dim=1, seed=0)
            axes[0].plot(
                distances, features(distances, distances[:1]).to_dense(), color=color, label=f"{width} features"
            )
        axes[0].plot(distances, exact(distances, distances[:1]).to_dense(), color="black", label="exact kernel")
    axes[0].set(xlabel="distance of two inputs, in lengthscales", title="kernel")
    axes[0].legend(frameon=False, fontsize="small")
    means = result["claims"]
    widths = [int(width) for width in means]
    for axis, name in zip(axes[1:], ("nats a value", "coverage"), strict=True):
        axis.plot(widths, [mean[name] for mean in means.values()], color=plots.COLORS[0], marker="o")
        axis.set(xlabel="number of features", xscale="log")
        axis.set_xticks(widths, [str(width) for width in widths], fontsize="small")
        axis.minorticks_off()
    axes[1].set(yscale="log", title="KL to the exact model (nats a value)")
    axes[2].set(ylim=(0.0, 1.02), title="coverage of 95 % intervals")
    axes[2].axhline(0.95, color="black", linestyle="--", linewidth=1.0)
    for axis in axes:
        axis.title.set_fontsize("medium")
        add_grid(axis)
    save_figure(figure, out)


if __name__ == "__main__":
    main()

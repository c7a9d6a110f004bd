r"""Operator-valued random features against exact kernels: Tables 1 and 2 of M (Minh, 2016), with the trace measure.

Table 1: the relative Frobenius error of the Gram matrix of the curl-free and the divergence-free Gaussian kernel at 100
normal points in R^3, scaled to [-1, 1] per coordinate, new ones per run, with sigma = 1, a lengthscale of 1/sqrt(2).
Table 2: a gradient field on 40 x 40 points of [-1, -0.4765]^2, learned from 5 % of them by vector-valued least squares
with curl-free features, sigma = 0.2 and a ridge of l 1e-9. M does not say what the RMSE is of. Here it is the root of
the mean squared length of the error vectors, at the held-out points, and at all 1600 with the training points; errors
per component would be smaller by sqrt(2). They have heavy tails, so that medians are given, too.

Features: bounded (M Eq. 40, 42), unbounded (Eq. 37, 41), both independent; the trace measure of Theorem 9 with
independent and with orthogonal frequencies. D counts frequencies, with a cosine and a sine each. Means of 100 runs with
new points, new training sets and new weights each, all in float64. M has ten runs, and deviations over these.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor
from tqdm import tqdm

import rfgp
from rfgp.features import Gaussian, PowerWeighted, RandomFourier, WidenedGaussian
from rfgp.kernels import CurlFreeKernel, DivergenceFreeKernel
from rfgp.models import VectorLeastSquares
from rfgp.study import plots

from ..common import add_grid, environment, mean_and_error, resumed, save_figure, write
from .item import Claim, Options

KERNELS = {"curl-free": CurlFreeKernel, "divergence-free": DivergenceFreeKernel}
TRACE = PowerWeighted(Gaussian(), (1,))
MEASURES: dict[str, tuple[Any, str]] = {
    "bounded": (WidenedGaussian(), "independent"),
    "unbounded": (Gaussian(), "independent"),
    "trace": (TRACE, "independent"),
    "trace, orthogonal": (TRACE, "orthogonal"),
}
FREQUENCIES = {1: (100, 500, 1000), 2: (50, 100)}
PRINTED = {
    "curl-free/bounded": ((0.2811, 0.0606), (0.1011, 0.0216), (0.0906, 0.0172)),
    "curl-free/unbounded": ((0.3315, 0.0638), (0.1363, 0.0227), (0.0984, 0.0207)),
    "divergence-free/bounded": ((0.2223, 0.0605), (0.1006, 0.0221), (0.0680, 0.0114)),
    "divergence-free/unbounded": ((0.2826, 0.0567), (0.1386, 0.0388), (0.0842, 0.0167)),
}
PRINTED_FIELD = {
    "exact": ((0.0020, math.nan), (0.0024, math.nan)),
    "bounded": ((0.0079, 0.0076), (0.0032, 0.0024)),
    "unbounded": ((0.0254, 0.0118), (0.0118, 0.0098)),
}
SIDE, EDGE = 40, (-1.0, -0.4765)
NUM_TRAIN, GAMMA, SIGMA = 80, 1e-9, 0.2
_SAVE_EVERY = 10


def approximation(exact: Kernel, measure: str, frequencies: int, dim: int, generator: torch.Generator) -> Kernel:
    """The kernel with features of one of the measures."""
    spectrum, structure = MEASURES[measure]
    features = RandomFourier(dim, 2 * frequencies, spectrum, structure, generator=generator)
    return rfgp.approximate(exact, 2 * frequencies, input_dim=dim, method=features.double())


def gaussian(sigma: float) -> RBFKernel:
    """The kernel exp(-|x - y|^2 / sigma^2)."""
    kernel = RBFKernel().double()
    kernel.lengthscale = sigma / math.sqrt(2.0)
    return kernel


def relative_errors(seed: int) -> dict[str, float]:
    """Table 1: the errors of every kernel, measure and number of frequencies at the points of one run."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(100, 3, generator=generator)
    low, high = points.min(0).values, points.max(0).values
    x = 2.0 * (points - low) / (high - low) - 1.0
    errors = {}
    for name, kind in KERNELS.items():
        exact = kind(gaussian(1.0))
        target = exact(x).to_dense()
        for measure in MEASURES:
            for frequencies in FREQUENCIES[1]:
                features = approximation(exact, measure, frequencies, 3, generator).features(x)
                error = torch.linalg.norm(features @ features.mT - target) / torch.linalg.norm(target)
                errors[f"{name}/{measure}/{frequencies}"] = float(error)
    return errors


def field(x: Tensor) -> Tensor:
    """The gradient of sin^2(2 pi x) sin^2(2 pi y) / (2 pi)."""
    once, twice = torch.sin(2.0 * torch.pi * x).square(), torch.sin(4.0 * torch.pi * x)
    return torch.stack([twice[:, 0] * once[:, 1], once[:, 0] * twice[:, 1]], dim=-1)


def reconstructions(seed: int) -> dict[str, dict[str, float]]:
    """Table 2: RMSE over all points and over the held-out ones, for a training set per number of frequencies."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    axis = torch.linspace(*EDGE, SIDE)
    x = torch.cartesian_prod(axis, axis)
    y = field(x)
    errors = {}
    for frequencies in FREQUENCIES[2]:
        order = torch.randperm(len(x), generator=generator)
        train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
        exact = CurlFreeKernel(gaussian(SIGMA))

        def add(name: str, found: Tensor, test: Tensor = test, frequencies: int = frequencies) -> None:
            rmse = {
                key: (found - y)[rows].square().sum(-1).mean().sqrt() for key, rows in (("all", ...), ("test", test))
            }
            errors[f"{name}/{frequencies}"] = {key: float(value) for key, value in rmse.items()}

        covariance = exact(x[train]).to_dense()
        covariance.diagonal().add_(NUM_TRAIN * GAMMA)
        weights = torch.linalg.solve(covariance, y[train].flatten())
        add("exact", (exact(x, x[train]).to_dense() @ weights).unflatten(-1, (-1, 2)))
        for measure in MEASURES:
            kernel = approximation(exact, measure, frequencies, 2, generator)
            model = VectorLeastSquares(kernel, regularization=GAMMA).fit(x[train], y[train])
            add(measure, model.predict(x))
    return errors


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    seeds = 1 if options.quick else 100
    result = resumed(options) | {"environment": environment(), "frequencies": FREQUENCIES}
    for name, measure in (("table 1", relative_errors), ("table 2", reconstructions)):
        cell = result["cells"].setdefault(name, {})
        for seed in tqdm(range(seeds), desc=name):
            if str(seed) not in cell:
                cell[str(seed)] = measure(seed)
            if seed % _SAVE_EVERY == 0 or seed == seeds - 1:
                write(options.out, result)
    return result


def values(result: dict[str, Any], table: int, key: str, part: str | None = None) -> list[float]:
    """What all runs have measured for a cell of a table."""
    return [run[key] if part is None else run[key][part] for run in result["cells"][f"table {table}"].values()]


def draw(result: dict[str, Any], out: Any) -> None:
    """Table 1 as points with standard errors, Table 2 as means and all runs, and what M prints."""
    figure, axes = plots.figure(1, 3, width=3.9, height=3.3)
    for ax, name in zip(axes[0], KERNELS, strict=False):
        positions = range(len(FREQUENCIES[1]))
        for i, measure in enumerate(MEASURES):
            at = [p + 0.17 * (i - 1.5) for p in positions]
            cells = [mean_and_error(values(result, 1, f"{name}/{measure}/{d}")) for d in FREQUENCIES[1]]
            mean, error = zip(*cells, strict=True)
            style = {"color": plots.COLORS[i], "marker": plots.MARKERS[i], "linestyle": "", "markersize": 5.0}
            ax.errorbar(at, mean, yerr=error, label=measure, capsize=2.0, **style)
            if f"{name}/{measure}" in PRINTED:
                printed = [value for value, _ in PRINTED[f"{name}/{measure}"]]
                label = "printed in M" if i == 1 else None
                ax.plot(at, printed, linestyle="", marker="_", markersize=11.0, color=plots.EXACT, label=label)
        ax.set_xticks(list(positions), [str(d) for d in FREQUENCIES[1]])
        ax.set(title=f"Table 1, {name}", xlabel="frequencies D", ylabel="relative Frobenius error")
    ax = axes[0, 2]
    for i, name in enumerate([*MEASURES, "exact"]):
        color = plots.EXACT if name == "exact" else plots.COLORS[i]
        for j, frequencies in enumerate(FREQUENCIES[2]):
            found, at = values(result, 2, f"{name}/{frequencies}", "test"), j + 0.17 * (i - 2.0)
            jitter = [at + 0.05 * math.sin(9.0 * k) for k in range(len(found))]
            ax.plot(jitter, found, linestyle="", marker=".", markersize=2.0, color=color, alpha=0.35)
            label = name if j == 0 and name == "exact" else None
            style = {"color": color, "marker": plots.MARKERS[i], "linestyle": "", "markersize": 5.0}
            ax.plot(at, statistics.mean(found), label=label, **style)
            ax.plot(at, statistics.median(found), marker="x", markersize=5.0, color=color)
            if name in PRINTED_FIELD:
                ax.plot(at, PRINTED_FIELD[name][j][0], marker="_", markersize=11.0, color=plots.EXACT)
    ax.plot([], [], marker="x", linestyle="", color=plots.COLORS[-1], label="median")
    ax.set_xticks(range(len(FREQUENCIES[2])), [str(d) for d in FREQUENCIES[2]])
    ax.set(title="Table 2, curl-free field", xlabel="frequencies D", ylabel="RMSE at held-out points", yscale="log")
    for ax in axes[0]:
        ax.set_yscale("log")
        add_grid(ax, "y")
        ax.title.set_fontsize("medium")
    for ax in axes[0, :2]:
        ax.set_yticks([0.05, 0.1, 0.2, 0.3], ["0.05", "0.1", "0.2", "0.3"])
        ax.minorticks_off()
    axes[0, 0].legend(frameon=False, fontsize="x-small")
    axes[0, 2].legend(frameon=False, fontsize="x-small", loc="upper right")
    save_figure(figure, out)


def kernel_claims(result: dict[str, Any]) -> list[Claim]:
    """Table 1: every printed mean beside ours, and that bounded features are better than unbounded ones."""
    claims = []
    for key, printed in PRINTED.items():
        for frequencies, (mean, deviation) in zip(FREQUENCIES[1], printed, strict=True):
            found = values(result, 1, f"{key}/{frequencies}")
            ours = statistics.mean(found)
            claims.append(
                Claim(
                    f"{key}, D = {frequencies}: {mean} ± {deviation}",
                    f"{ours:.4f} ± {_deviation(found):.4f}",
                    abs(ours - mean) <= 3.0 * _standard_error(found, deviation),
                )
            )
    wins = [
        statistics.mean(values(result, 1, f"{name}/bounded/{d}"))
        < statistics.mean(values(result, 1, f"{name}/unbounded/{d}"))
        for name in KERNELS
        for d in FREQUENCIES[1]
    ]
    return [
        *claims,
        Claim("bounded maps tend to outperform unbounded ones", f"in {sum(wins)} of {len(wins)} means", all(wins)),
    ]


def field_claims(result: dict[str, Any]) -> list[Claim]:
    """Table 2: every printed mean beside ours, and that bounded features are better than unbounded ones."""
    claims = []
    for name, printed in PRINTED_FIELD.items():
        for frequencies, (mean, deviation) in zip(FREQUENCIES[2], printed, strict=True):
            found = values(result, 2, f"{name}/{frequencies}", "test")
            ours = statistics.mean(found)
            claims.append(
                Claim(
                    f"{name}, D = {frequencies}: {mean}",
                    f"{ours:.4f} ± {_deviation(found):.4f}, median {statistics.median(found):.4f}",
                    abs(ours - mean) <= 3.0 * _standard_error(found, deviation),
                )
            )
    wins = [
        statistics.mean(values(result, 2, f"bounded/{d}", "test"))
        < statistics.mean(values(result, 2, f"unbounded/{d}", "test"))
        for d in FREQUENCIES[2]
    ]
    return [
        *claims,
        Claim("bounded maps tend to outperform unbounded ones", f"in {sum(wins)} of {len(wins)} means", all(wins)),
    ]


def _deviation(found: list[float]) -> float:
    return statistics.stdev(found) if len(found) > 1 else math.nan


def _standard_error(found: list[float], printed: float) -> float:
    """Of the difference of our mean and that of M's ten runs, whose deviation may not be printed."""
    return math.hypot(
        _deviation(found) / math.sqrt(len(found)), 0.0 if math.isnan(printed) else printed / math.sqrt(10.0)
    )


CLAIMS = {"M Table 1": kernel_claims, "M Table 2": field_claims}

r"""Uniform errors of kernel derivatives from random Fourier features, over compact sets of growing diameter.

The claim of S (Szabó and Sriperumbudur, 2019): values and derivatives of a kernel are approximated uniformly over a set
of diameter |S| with m frequencies up to an error of the order of sqrt(log|S| / m). Here with a Gaussian kernel of unit
lengthscale in one and two dimensions: its values, first derivatives and second derivatives, up to order 2 in total,
beyond which S has no theorem. Slopes against m should be -1/2, and error^2 m linear in log|S|. Far from the origin the
error is close to a stationary Gaussian process of variance sigma^2 / (2 m), sigma^2 = E[w^(2(p + q))], the supremum of
which gives a slope of d sigma^2 against log|S|, up to log log terms. With few frequencies and large sets suprema are
smaller: they can never exceed the mean of |w^(p + q)| over the frequencies by more than the derivative itself.

Errors depend on z = x - y alone. Of S, a ball of diameter |S|, the differences fill the ball of radius |S|, and half of
it is enough, by symmetry. The complex feature exp(i w.x) / sqrt(m) has the derivative feature prod_j (i w_j)^p_j
exp(i w.x) / sqrt(m), and the real part is taken at the end. Suprema are maxima over a grid. Around its maximum M over
the whole space, a sum of cosines of frequencies up to W stays above M cos(W r) within a distance of r < pi / (2 W), so
that steps of 0.05 (d = 1) and 0.1 (d = 2) miss 0.5 % and 4 % at most were all frequencies W = 4, and far less as most
are below 2. How much half of the step changes is measured, too. One evaluation gives the suprema for all diameters.
Weights are new for every m and seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from rfgp.diagnostics import bounds
from rfgp.features import RandomFourier
from rfgp.study import plots

from ..common import add_grid, environment, mean_and_error, resumed, save_figure, write
from .item import Claim, Options, spread

STEP = {1: 0.05, 2: 0.1}
DIAMETERS = {1: (4, 16, 64, 256, 1024, 4096, 16384), 2: (4, 8, 16, 32, 64, 128)}
NUM_FREQUENCIES = (64, 128, 256, 512, 1024, 2048, 4096)
DELTA = 0.05
MANY = 512
"""Frequencies from which on even suprema over the largest sets are close to those of a Gaussian process."""

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_ROWS = 64


class Derivative(NamedTuple):
    """Orders with respect to x and to y, one per dimension."""

    name: str
    p: tuple[int, ...]
    q: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(p + q for p, q in zip(self.p, self.q, strict=True))

    @property
    def sigma(self) -> float:
        """The root of E[w^(2(p + q))]: 1, 1 and 3 for orders 0, 1 and 2 of a coordinate."""
        return math.sqrt(math.prod((1, 1, 3)[r] for r in self.order))


DERIVATIVES = {
    1: (
        Derivative("k", (0,), (0,)),
        Derivative("d/dx k", (1,), (0,)),
        Derivative("d²/dx dy k", (1,), (1,)),
    ),
    2: (
        Derivative("k", (0, 0), (0, 0)),
        Derivative("d/dx₁ k", (1, 0), (0, 0)),
        Derivative("d²/dx₁ dy₁ k", (1, 0), (1, 0)),
        Derivative("d²/dx₁ dy₂ k", (1, 0), (0, 1)),
    ),
}


def frequencies(dim: int, m: int, seed: int) -> tuple[RandomFourier, Tensor]:
    """A complex Fourier map with m independent frequencies, and these (m, d)."""
    generator = torch.Generator().manual_seed(1_000_000 * dim + 1000 * m.bit_length() + seed)
    features = RandomFourier(dim, m, is_complex=True, generator=generator).double()
    return features, features.get_buffer("weight")


def coefficients(weight: Tensor, derivative: Derivative) -> Tensor:
    """What stands before exp(i w.(x - y)): the product of both derivative features without their exponentials, (m,)."""
    left = torch.prod((1j * weight) ** torch.tensor(derivative.p), dim=-1)
    right = torch.prod((1j * weight) ** torch.tensor(derivative.q), dim=-1)
    return left * right.conj() / len(weight)


def exact(z: Tensor, p: int, q: int) -> Tensor:
    """The derivative of exp(-(x - y)^2 / 2) in one dimension, with z = x - y."""
    hermite = (torch.ones_like(z), z, z.square() - 1.0)[p + q]
    return (-1.0) ** p * hermite * torch.exp(-0.5 * z.square())


def blocks(dim: int, largest: float, step: float) -> tuple[Tensor, Tensor]:
    """Two axes whose sums (d = 1) or pairs (d = 2) are the grid of differences."""
    count = round(largest / step)
    if dim == 2:
        return step * torch.arange(-count, count + 1.0), step * torch.arange(count + 1.0)
    width = 1024
    return step * width * torch.arange(-(-count // width) + 0.0), step * torch.arange(width + 0.0)


def suprema(weight: Tensor, diameters: tuple[int, ...], step: float) -> dict[str, list[float]]:
    """The largest error of every derivative for every diameter."""
    dim = weight.shape[-1]
    first, second = blocks(dim, max(diameters), step)
    edges = torch.tensor(diameters) + 1e-9
    right = torch.outer(weight[:, -1], second)
    right_parts = torch.cat([right.cos(), right.sin()])
    scaled = {d.name: coefficients(weight, d) for d in DERIVATIVES[dim]}
    largest = {d.name: torch.zeros(len(diameters) + 1) for d in DERIVATIVES[dim]}
    for rows in first.split(_ROWS):
        left = torch.polar(torch.ones(()), torch.outer(rows, weight[:, 0]))
        radius = torch.hypot(rows[:, None], second) if dim == 2 else rows[:, None] + second
        ring = torch.bucketize(radius.flatten(), edges)
        for derivative in DERIVATIVES[dim]:
            both = left * scaled[derivative.name]
            estimate = torch.cat([both.real, -both.imag], dim=-1) @ right_parts
            p, q = derivative.p, derivative.q
            if dim == 2:
                target = torch.outer(exact(rows, p[0], q[0]), exact(second, p[1], q[1]))
            else:
                target = exact(radius, p[0], q[0])
            error = (estimate - target).abs().flatten()
            largest[derivative.name].scatter_reduce_(0, ring, error, "amax")
    return {name: values[:-1].cummax(0).values.tolist() for name, values in largest.items()}


def check(dim: int) -> None:
    """Raise where estimates differ from derivatives of the map's own kernel estimate by autograd, or targets do."""
    features, weight = frequencies(dim, 16, 0)
    x = torch.randn(5, dim, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = torch.zeros(5, dim, requires_grad=True)
    values = (
        (features(x) * features(y).conj()).real.sum(-1),
        torch.exp(-0.5 * (x - y).square().sum(-1)),
    )
    for derivative in DERIVATIVES[dim]:
        found = (coefficients(weight, derivative) * torch.exp(1j * (x @ weight.mT))).real.sum(-1)
        columns = zip(x.unbind(-1), derivative.p, derivative.q, strict=True)
        target = math.prod((exact(column, p, q) for column, p, q in columns), start=torch.ones(()))
        for value, expected in zip(values, (found, target), strict=True):
            for variable, orders in ((x, derivative.p), (y, derivative.q)):
                for j, order in enumerate(orders):
                    for _ in range(order):
                        (gradient,) = torch.autograd.grad(value.sum(), variable, create_graph=True)
                        value = gradient[:, j]
            if not torch.allclose(value, expected, rtol=0.0, atol=1e-10):
                raise RuntimeError(f"expected the derivative of autograd for {derivative.name}, got another")


def sizes(options: Options, dim: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Numbers of frequencies, diameters and the number of seeds."""
    if options.quick:
        return (64, 128), DIAMETERS[dim][: 4 - dim], 2
    return NUM_FREQUENCIES, DIAMETERS[dim], 40 if dim == 1 else 20


def measure(options: Options) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    result: dict[str, Any] = {"refined": {}} | resumed(options) | {"environment": environment(), "step": STEP}
    for dim in DERIVATIVES:
        check(dim)
        counts, diameters, seeds = sizes(options, dim)
        for m, seed in tqdm(
            [(m, seed) for m in counts for seed in range(seeds)], desc=f"d = {dim}", disable=options.quick
        ):
            cell = result["cells"].setdefault(f"{dim}/{m}", {"diameters": diameters, "seeds": {}})
            if str(seed) not in cell["seeds"]:
                _, weight = frequencies(dim, m, seed)
                cell["seeds"][str(seed)] = suprema(weight, diameters, STEP[dim])
                write(options.out, result)
        for seed in range(2):
            m, key = counts[-1], f"{dim}/{counts[-1]}/{seed}"
            if key not in result["refined"]:
                _, weight = frequencies(dim, m, seed)
                result["refined"][key] = suprema(weight, diameters, 0.5 * STEP[dim])
                write(options.out, result)
    return result


class Errors(NamedTuple):
    """All suprema of a derivative, (seeds, numbers of frequencies, diameters)."""

    dim: int
    derivative: Derivative
    m: np.ndarray
    diameters: np.ndarray
    values: np.ndarray


def collected(result: dict[str, Any]) -> Iterator[Errors]:
    """The suprema of every dimension and derivative."""
    for dim, derivatives in DERIVATIVES.items():
        cells = {int(key.split("/")[1]): c for key, c in result["cells"].items() if key.startswith(f"{dim}/")}
        diameters = np.array(next(iter(cells.values()))["diameters"])
        for derivative in derivatives:
            values = [[seed[derivative.name] for seed in cells[m]["seeds"].values()] for m in sorted(cells)]
            yield Errors(dim, derivative, np.array(sorted(cells)), diameters, np.array(values).swapaxes(0, 1))


def slopes(x: np.ndarray, y: np.ndarray) -> list[float]:
    """The slope of a straight line through y (seeds, points) at x, for every seed."""
    centered = x - x.mean()
    return (y @ centered / (centered @ centered)).tolist()


def linearity(x: np.ndarray, y: np.ndarray) -> float:
    """R^2 of a straight line."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def bound(errors: Errors) -> np.ndarray:
    """The bound of S that holds with probability 1 - DELTA, (numbers of frequencies, diameters)."""
    p, q = errors.derivative.p, errors.derivative.q
    return np.array(
        [
            [
                bounds.derivative_bound(p, q, float(ell), lengthscale=1.0).error(2 * int(m), DELTA)
                for ell in errors.diameters
            ]
            for m in errors.m
        ]
    )


def draw(result: dict[str, Any], out: Any) -> None:
    """Per dimension: errors against m, error^2 m against the diameter, and the collapse."""
    figure, axes = plots.figure(2, 3, width=3.7, height=3.1)
    every = list(collected(result))
    for row, dim in enumerate(DERIVATIVES):
        chosen = [errors for errors in every if errors.dim == dim]
        draw_widths(axes[row, 0], chosen[2])
        draw_growth(axes[row, 1], chosen)
        draw_collapse(axes[row, 2], chosen)
        for ax in axes[row]:
            add_grid(ax)
            ax.legend(frameon=False, fontsize="x-small")
    save_figure(figure, out)


def draw_widths(ax: Any, errors: Errors) -> None:
    """Errors of a second derivative against m, one line per diameter, and the slope of -1/2."""
    for i in range(len(errors.diameters) - 1, -1, -2):
        mean, error = zip(*(mean_and_error(column.tolist()) for column in errors.values[:, :, i].T), strict=True)
        style = {"color": plots.COLORS[i], "marker": plots.MARKERS[i % len(plots.MARKERS)], "markersize": 4.0}
        ax.errorbar(errors.m, mean, yerr=error, label=f"|S| = {errors.diameters[i]}", linewidth=1.2, **style)
    start = 0.75 * errors.values[:, 0, (len(errors.diameters) - 1) % 2].mean()
    ax.plot(
        errors.m, start * np.sqrt(errors.m[0] / errors.m), "--", color=plots.EXACT, linewidth=1.0, label="slope -1/2"
    )
    ax.set(xscale="log", yscale="log", xlabel="frequencies m", ylabel="uniform error")
    plain(ax.xaxis, errors.m)
    plain(ax.yaxis, TICKS)
    ax.set_title(f"d = {errors.dim}: {errors.derivative.name}", fontsize="medium")


def draw_growth(ax: Any, every: list[Errors]) -> None:
    """Error^2 m / sigma^2 against the diameter at the largest m, with straight lines in log|S| and the slope d."""
    for i, errors in enumerate(every):
        squares = errors.values[:, -1] ** 2 * errors.m[-1] / errors.derivative.sigma**2
        mean, error = zip(*(mean_and_error(column.tolist()) for column in squares.T), strict=True)
        log_size = np.log(errors.diameters)
        line = np.polyval(np.polyfit(log_size, mean, 1), log_size)
        style = {"color": plots.COLORS[i], "marker": plots.MARKERS[i], "linestyle": "", "markersize": 4.0}
        ax.errorbar(errors.diameters, mean, yerr=error, label=errors.derivative.name, **style)
        ax.plot(errors.diameters, line, color=plots.COLORS[i], linewidth=0.9)
    first = every[0]
    reference = first.dim * np.log(first.diameters / first.diameters[0])
    ax.plot(first.diameters, reference, "--", color=plots.EXACT, linewidth=1.0, label=f"slope d = {first.dim}")
    ax.set(xscale="log", xlabel="diameter |S|", ylabel="error² m / σ²")
    plain(ax.xaxis, first.diameters)
    ax.set_title(f"d = {first.dim}: m = {first.m[-1]}, lines linear in log|S|", fontsize="medium")


def draw_collapse(ax: Any, every: list[Errors]) -> None:
    """Errors of all m and diameters against sqrt(log|S| / m)."""
    for i, errors in enumerate(every):
        x = np.sqrt(np.log(errors.diameters) / errors.m[:, None])
        y = errors.values.mean(0) / errors.derivative.sigma
        style = {"color": plots.COLORS[i], "marker": plots.MARKERS[i], "linestyle": "", "markersize": 3.5}
        ax.plot(x.ravel(), y.ravel(), label=errors.derivative.name, alpha=0.8, markeredgewidth=0.0, **style)
    dim = every[0].dim
    ends = np.array([x.min(), x.max()])
    ax.plot(ends, math.sqrt(dim) * ends, "--", color=plots.EXACT, linewidth=1.0, label="sqrt(d log|S| / m)")
    ax.set(xscale="log", yscale="log", xlabel="sqrt(log|S| / m)", ylabel="uniform error / σ")
    plain(ax.xaxis, TICKS)
    plain(ax.yaxis, TICKS)
    ax.set_title(f"d = {dim}: all m and |S|", fontsize="medium")


def plain(axis: Any, ticks: Any) -> None:
    """These ticks within the limits of a logarithmic axis, as plain numbers."""
    low, high = axis.get_view_interval()
    kept = [tick for tick in ticks if low <= tick <= high]
    axis.set_ticks(kept, [f"{tick:g}" for tick in kept], fontsize="small")
    axis.set_ticks([], minor=True)


def missed(result: dict[str, Any]) -> float:
    """How much larger suprema are at most on a grid of half the step."""
    return max(
        float(np.max(np.array(fine[name]) / np.array(result["cells"][cell]["seeds"][seed][name]))) - 1.0
        for cell, _, seed, fine in ((*key.rpartition("/"), fine) for key, fine in result["refined"].items())
        for name in fine
    )


def claims(result: dict[str, Any]) -> list[Claim]:
    """The two rates and the bound."""
    in_m, in_size, straight, loose, beyond, trials = [], [], [], [], 0, 0
    for errors in collected(result):
        log_size = np.log(errors.diameters)
        kept = errors.m >= MANY if (errors.m >= MANY).sum() > 1 else errors.m > 0
        in_m += [float(np.mean(slopes(np.log(errors.m[kept]), np.log(errors.values[:, kept, -1]))))]
        squares = (errors.values**2 * errors.m[:, None] / errors.derivative.sigma**2)[:, -1]
        in_size.append(float(np.mean(slopes(log_size, squares / errors.dim))))
        straight.append(linearity(log_size, squares.mean(0)))
        limit = bound(errors)
        loose += (limit / errors.values.mean(0)).ravel().tolist()
        beyond, trials = beyond + int((errors.values > limit).sum()), trials + errors.values.size
    return [
        Claim(
            "error of the order of m^(-1/2)",
            f"exponents {spread(in_m)}; a grid of half the step adds {100 * missed(result):.1f} % at most",
            all(abs(s + 0.5) < 0.06 for s in in_m),
        ),
        Claim(
            "error² linear in log|S|",
            f"R² {spread(straight, 4)}, slopes {spread(in_size)} d σ²/m",
            min(straight) > 0.95,
        ),
        Claim(
            "a bound that holds with probability 0.95",
            f"exceeded in {beyond} of {trials} trials; a bound of {min(loose):.0f} to {max(loose):.0f} times the error",
            beyond <= 0.05 * trials,
        ),
    ]


CLAIMS = {"S rates": claims}

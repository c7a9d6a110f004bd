"""Coverage of a function drawn from the model by its 50, 90 and 95 % intervals, for every method, and its seconds.

Inputs are standard normal, lengthscales .5 for 2 inputs and 2 for 8. Functions are drawn jointly at 8,000 training
inputs, of which smaller problems take the first, and at two kinds of 500 test inputs: inside, from the same normal
distribution, and outside, in uniform directions with radii from 1 to 1.5 times the 99 % radius of the inputs.
Parameters are the true ones, or learned by ``rfgp.fit``: for models with blocks from a subset, for a mixture by its
first draw. Standard errors are over functions.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import statistics
import time
from typing import Any, NamedTuple

import common
import gpytorch
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy.stats import chi2
from torch import Tensor
from torch.distributions import Normal

import rfgp
from rfgp.study import plots


class Method(NamedTuple):
    """A model: its kind of features, how many, in how many draws, and what becomes of the rest."""

    features: str
    width: int = 0
    num_draws: int = 1
    block_size: int | None = None
    num_neighbors: int | None = 64


METHODS = {
    "Fourier, 256": Method("fourier", 256),
    "Fourier, 1,024": Method("fourier", 1024),
    "8 draws of Fourier, 256": Method("fourier", 256, num_draws=8),
    "landmarks, 128": Method("landmarks", 128),
    "landmarks, 512": Method("landmarks", 512),
    "landmarks, 128, blocks of 128": Method("landmarks", 128, block_size=128),
    "landmarks, 512, blocks of 256": Method("landmarks", 512, block_size=256),
    "the same, 128, own block only": Method("landmarks", 128, block_size=128, num_neighbors=None),
    "the same, 512, own block only": Method("landmarks", 512, block_size=256, num_neighbors=None),
    "exact": Method("exact"),
}
LEARNED = (
    "Fourier, 256",
    "8 draws of Fourier, 256",
    "landmarks, 128",
    "landmarks, 128, blocks of 128",
    "landmarks, 512, blocks of 256",
)
KERNELS = {"Gaussian": RBFKernel, "Matern-3/2": lambda: MaternKernel(nu=1.5)}
LENGTHSCALES = {2: 0.5, 8: 2.0}
LEVELS = (0.5, 0.9, 0.95)
PLACES = ("inside", "outside")
MOST_EXACT = 2000


class Sizes(NamedTuple):
    """How large the comparison is."""

    rows: tuple[int, ...] = (500, 2000, 8000)
    functions: tuple[int, ...] = (3, 3, 2)
    tests: int = 500
    learned: tuple[int, int] = (2000, 2)
    """Rows and functions where parameters are learned, at noise .01."""


class Problem(NamedTuple):
    """What a cell is about."""

    parameters: str
    kernel: str
    dim: int
    noise: float
    rows: int

    def key(self, method: str) -> str:
        return "|".join([*map(str, self), method])


class Data(NamedTuple):
    """Training inputs (N, d), test inputs (2 T, d), those outside last, and functions at both, (N, K) and (2 T, K)."""

    x: Tensor
    tests: Tensor
    f: Tensor
    f_tests: Tensor


def kernel_of(name: str, dim: int) -> ScaleKernel:
    """The kernel of unit scale that functions are drawn from."""
    kernel = ScaleKernel(KERNELS[name]()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, LENGTHSCALES[dim]
    return kernel


def draw(name: str, dim: int, rows: int, tests: int, functions: int) -> Data:
    """Inputs, and functions drawn jointly at all of them."""
    torch.manual_seed(dim)
    x, inside, directions = (torch.randn(n, dim).double() for n in (rows, tests, tests))
    radii = chi2(dim).ppf(0.99) ** 0.5 * (1.0 + 0.5 * torch.rand(tests, 1).double())
    places = torch.cat([inside, radii * torch.nn.functional.normalize(directions, dim=-1)])
    with torch.no_grad():
        matrix = kernel_of(name, dim)(torch.cat([places, x])).to_dense()
    matrix.diagonal().add_(1e-8)
    values = torch.linalg.cholesky(matrix) @ torch.randn(len(matrix), functions).double()
    return Data(x, places, values[2 * tests :], values[: 2 * tests])


def posterior(method: Method, problem: Problem, x: Tensor, y: Tensor, tests: Tensor, seed: int) -> Normal:
    """The marginal posterior of the function."""
    kernel, likelihood = kernel_of(problem.kernel, problem.dim), GaussianLikelihood().double()
    likelihood.noise = problem.noise
    if method.features == "exact":
        return rfgp.diagnostics.exact_posterior(kernel, likelihood, x, y, tests)
    width = method.width if method.features == "fourier" else min(method.width, len(x))
    features = rfgp.approximate(kernel, width, method=method.features, train_inputs=x, seed=seed)
    mean = gpytorch.means.ConstantMean().double() if problem.parameters == "learned" else None
    local = {"block_size": method.block_size, "num_neighbors": method.num_neighbors}
    if problem.parameters == "learned":
        strategy = "auto" if method.block_size is None else "subset"
        single = rfgp.WeightSpaceGP(features, likelihood, mean, **local)
        rfgp.fit(single, x, y, strategy=strategy, progress=False)
    model = rfgp.WeightSpaceGP(features, likelihood, mean, num_draws=method.num_draws, **local)
    with torch.no_grad():
        found = model.condition(x, y).posterior(tests)
    return Normal(found.mean, found.variance.clamp(min=1e-12).sqrt())


def measure(method: Method, problem: Problem, data: Data, number: int) -> dict[str, Any]:
    """Coverage and the mean negative log density of one function, inside and outside, and seconds."""
    generator = torch.Generator().manual_seed(number)
    x, f = data.x[: problem.rows], data.f[: problem.rows, number]
    y = f + problem.noise**0.5 * torch.randn(len(f), generator=generator).double()
    start = time.process_time()
    found = posterior(method, problem, x, y, data.tests, number)
    result: dict[str, Any] = {"seconds": time.process_time() - start}
    truth = data.f_tests[:, number]
    scores = ((truth - found.mean) / found.stddev).abs().chunk(2)
    losses = (-found.log_prob(truth)).chunk(2)
    for place, score, loss in zip(PLACES, scores, losses, strict=True):
        limits = [math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level))) for level in LEVELS]
        result[place] = {"coverage": [float((score <= z).double().mean()) for z in limits], "nlpd": float(loss.mean())}
    return result


def cells_of(problem: Problem) -> list[str]:
    """The methods that a problem is measured with."""
    names = list(METHODS) if problem.parameters == "true" else list(LEARNED)
    return [name for name in names if name != "exact" or problem.rows <= MOST_EXACT]


def problems(parameters: str, name: str, dim: int, sizes: Sizes) -> list[tuple[Problem, int]]:
    """All problems on the functions of one kernel, with the number of functions."""
    if parameters == "learned":
        rows, count = sizes.learned
        return [(Problem(parameters, name, dim, 0.01, rows), count)]
    counts = zip(sizes.rows, sizes.functions, strict=True)
    return [(Problem(parameters, name, dim, noise, rows), count) for rows, count in counts for noise in (0.1, 0.01)]


def run(options: argparse.Namespace) -> None:
    """Measure what an earlier run has not."""
    sizes = Sizes((200, 400), (2, 2), 100, (200, 2)) if options.quick else Sizes()
    drawn = functools.lru_cache(1)(draw)

    def measured(problem: Problem, count: int, method: str, most: int) -> list[dict[str, Any]]:
        data = drawn(problem.kernel, problem.dim, most, sizes.tests, max(sizes.functions))
        return [measure(METHODS[method], problem, data, number) for number in range(count)]

    cells = []
    for parameters, name, dim in itertools.product(("true", "learned"), KERNELS, LENGTHSCALES):
        own = problems(parameters, name, dim, sizes)
        most = max(problem.rows for problem, _ in own)
        cells += [(p.key(m), functools.partial(measured, p, count, m, most)) for p, count in own for m in cells_of(p)]
    common.run_cells(options, cells, claims, sizes=sizes._asdict())


def chosen(cells: dict[str, Any], method: str, **wanted: Any) -> list[list[dict[str, Any]]]:
    """The cells of a method whose problems have certain properties."""
    keys = [key for key in cells if key.split("|")[-1] == method]
    texts = {name: str(value) for name, value in wanted.items()}
    has = {key: dict(zip(Problem._fields, key.split("|"), strict=False)) for key in keys}
    return [cells[key] for key in keys if all(has[key][name] == value for name, value in texts.items())]


def coverage(cell: list[dict[str, Any]], place: str, level: float = 0.95) -> tuple[float, float]:
    """The mean over functions with its standard error."""
    return common.mean_and_error([one[place]["coverage"][LEVELS.index(level)] for one in cell])


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Coverage by 95 % over problems, and medians of densities and seconds, for every method; the range of blocks."""
    cells, found = result["cells"], {}
    for parameters in ("true", "learned"):
        own = {method: chosen(cells, method, parameters=parameters) for method in METHODS}
        found[parameters] = {method: summary(some) for method, some in own.items() if some}
    shares = [
        coverage(cell, place)[0]
        for method in ("landmarks, 128, blocks of 128", "landmarks, 512, blocks of 256")
        for cell in chosen(cells, method, parameters="true")
        for place in PLACES
    ]
    found["from exact"] = {method: most for method in METHODS if (most := from_exact(cells, method))}
    return found | ({"blocks": {"least": min(shares), "most": max(shares)}} if shares else {})


def from_exact(cells: dict[str, Any], method: str) -> float:
    """The largest difference in coverage from the exact model, on the same functions and rows, at all levels."""
    found = [
        abs(coverage(cell, place, level)[0] - coverage(cells[exact], place, level)[0])
        for key, cell in cells.items()
        if key.endswith(f"|{method}") and (exact := f"{key.rpartition('|')[0]}|exact") in cells
        for place, level in itertools.product(PLACES, LEVELS)
    ]
    return max(found, default=0.0)


def summary(cells: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The mean, least and most coverage of problems, and medians of densities and seconds."""
    found: dict[str, Any] = {"seconds": statistics.median(one["seconds"] for cell in cells for one in cell)}
    for place in PLACES:
        shares = [coverage(cell, place)[0] for cell in cells]
        density = statistics.median(one[place]["nlpd"] for cell in cells for one in cell)
        found[place] = {"mean": statistics.fmean(shares), "least": min(shares), "most": max(shares), "nlpd": density}
    return found


SHOWN = tuple(name for name in METHODS if "own block" not in name)


def plot(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Coverage by 95 % intervals against the number of rows, at noise .01 and true parameters."""
    figure, axes = plots.figure(2, 4, width=3.0, height=2.7)
    columns = list(itertools.product(KERNELS, LENGTHSCALES))
    for (row, place), (column, (name, dim)) in itertools.product(enumerate(PLACES), enumerate(columns)):
        ax = axes[row, column]
        ax.axhspan(0.92, 0.98, color="#DDDDDD", linewidth=0)
        ax.axhline(0.95, color=plots.EXACT, linewidth=0.8)
        for color, marker, method in zip([*plots.COLORS, plots.EXACT], plots.MARKERS, SHOWN, strict=False):
            problem = Problem("true", name, dim, 0.01, 0)
            found = {
                rows: coverage(result["cells"][key], place)
                for rows in result["sizes"]["rows"]
                if (key := problem._replace(rows=rows).key(method)) in result["cells"]
            }
            values, errors = zip(*found.values(), strict=True)
            ax.errorbar(list(found), values, yerr=errors, color=color, marker=marker, markersize=4, label=method)
        ax.set(xscale="log", ylim=(0.0, 1.03), title=f"{name}, {dim} inputs, {place}", xlabel="rows")
        ax.set_xticks(result["sizes"]["rows"], [f"{rows:,}" for rows in result["sizes"]["rows"]])
        ax.minorticks_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("coverage by 95 % intervals")
    plots.legend(figure, list(axes.flat), columns=4)
    common.save_figure(figure, options.out)


def main() -> None:
    """Measure, and draw the figure."""
    parser = common.arguments(__doc__ or "", "coverage")
    common.add_plot(parser)
    options = parser.parse_args()
    if not options.plot:
        run(options)
    plot(json.loads(options.out.read_text()), options)


if __name__ == "__main__":
    main()

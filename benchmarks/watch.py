"""Twenty-one ratios of processor seconds, in five minutes: what a slower commit shows first.

Each is a piece of work over what it cannot do without, such as the Gram product of a fit, or over what a peer takes,
measured in turn in one process. The result keeps those of the last ten runs; a ratio that exceeds their median by more
than 30 % is named, and the exit status is then 1. Fewer than three runs are compared with nothing.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_grid, add_plot, arguments, environment, markdown, save_figure, write
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler

import rfgp
from rfgp.features import polynomial_sketch
from rfgp.linalg import add_gram_, row_chunks
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor
from rfgp.study import plots

KEPT, ENOUGH, ALLOWED = 10, 3, 1.3
DIMS, WIDTH = 8, 512
History = dict[str, dict[str, float]]
"""Ratios of commits, the oldest first."""
Work = tuple[Callable[[], Any], Callable[[], Any]]
"""What is watched, and what it is compared with."""


def model_of(num_rows: int, dtype: torch.dtype, **options: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A model with features, and rows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, DIMS, generator=generator, dtype=dtype)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows, generator=generator, dtype=dtype)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=DIMS)).to(dtype)
    exact.base_kernel.lengthscale = 3.0
    kernel = rfgp.approximate(exact, WIDTH, seed=0, **({"input_dim": DIMS} | options))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = 0.1
    return rfgp.WeightSpaceGP(kernel, likelihood), x, y


def fits(num_rows: int) -> Iterator[tuple[str, Work]]:
    """Fits, evidence, leaving out and predictions, in single and double precision."""
    for dtype, name in ((torch.float32, "float32"), (torch.float64, "float64")):
        model, x, y = model_of(num_rows, dtype)
        chunks = row_chunks(num_rows, WIDTH, x.element_size())
        features = model.covar_module.scalar_features(x[chunks[0]]).detach()
        gram, cross = (torch.zeros(WIDTH, columns, dtype=torch.float64) for columns in (WIDTH, 1))

        def products(
            chunks: Any = chunks, features: Any = features, y: Any = y, sums: Any = (gram, cross), dtype: Any = dtype
        ) -> None:
            for rows in chunks:
                size = min(rows.stop, num_rows) - rows.start
                add_gram_(*sums, features[:size], y[:size, None], None, dtype)

        def fit(model: Any = model, x: Any = x, y: Any = y) -> None:
            with torch.no_grad():
                model.condition(x, y).weight_posterior()

        def evidence(model: Any = model, x: Any = x, y: Any = y) -> None:
            model.condition(x, y).log_marginal_likelihood().backward()

        def left_out(model: Any = model, x: Any = x, y: Any = y, fit: Callable[[], None] = fit) -> None:
            fit()
            model.leave_one_out(x, y)

        def predictions(model: Any = model, x: Any = x) -> None:
            with torch.no_grad():
                posterior = model.posterior(x)
                assert len(posterior.mean) == len(posterior.variance)

        fit()
        yield f"fit, {name} / Gram product", (fit, products)
        yield f"evidence and gradient, {name} / Gram product", (evidence, products)
        yield f"fit and leave one out, {name} / fit", (left_out, fit)
        yield f"mean and variance, {name} / Gram product", (predictions, products)


def maps(num_rows: int) -> Iterator[tuple[str, Work]]:
    """Constructions of features, beside writing them and scikit-learn."""
    x = torch.nn.functional.normalize(torch.rand(num_rows, 1024, generator=torch.Generator().manual_seed(0)), dim=-1)
    output = torch.randn(num_rows, 4096)
    for method, form in (("tensor_srht", "ctr"), ("tensor_srht", "real"), ("tensor_sketch", "real")):
        own = polynomial_sketch(method, form, 1024, 4096, 3, torch.Generator().manual_seed(0))
        yield f"{method}, {form} / writing", (lambda own=own: own(x), lambda: output * 2.0)
    sketch = PolynomialCountSketch(degree=3, n_components=4096, random_state=0).fit(x.numpy())
    own = polynomial_sketch("tensor_sketch", "real", 1024, 4096, 3, torch.Generator().manual_seed(0))
    yield "tensor_sketch / scikit-learn", (lambda: own(x), lambda: sketch.transform(x.numpy()))
    few = x[:, :DIMS].contiguous()
    sampler = RBFSampler(n_components=1024, random_state=0).fit(few.numpy())
    for method in ("fourier", "fourier_orthogonal", "fourier_hadamard"):
        kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 1024, method=method, input_dim=DIMS, seed=0)
        yield (
            f"{method} / scikit-learn's RBFSampler",
            (
                lambda kernel=kernel: kernel.features(few),
                lambda: sampler.transform(few.numpy()),
            ),
        )


def users(num_rows: int) -> Iterator[tuple[str, Work]]:
    """Estimators beside boosting, functions beside a product, grids beside a copy, files beside those of PyTorch."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_rows, 6))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * generator.normal(size=num_rows)
    labels = (y > 0.0).astype(int)
    yield (
        "regressor / boosting of 500 trees",
        (
            lambda: RandomFeatureGPRegressor(random_state=0).fit(x, y),
            lambda: HistGradientBoostingRegressor(max_iter=500, random_state=0).fit(x, y),
        ),
    )
    yield (
        "classifier / boosting of 500 trees",
        (
            lambda: RandomFeatureGPClassifier(random_state=0).fit(x, labels),
            lambda: HistGradientBoostingClassifier(max_iter=500, random_state=0).fit(x, labels),
        ),
    )
    model, rows, targets = model_of(2_000, torch.float64)
    with torch.no_grad():
        model.condition(rows, targets)
    posterior: Any = model.weight_posterior()

    def by_hand() -> Any:
        noise = torch.randn(WIDTH, 500, dtype=torch.float64)
        weights = posterior.mean + torch.linalg.solve_triangular(posterior.factor.mT, noise, upper=True)
        return model.covar_module.features(rows) @ weights

    @torch.no_grad()
    def functions() -> Any:
        return model.sample_functions(500)(rows)

    yield "500 functions / by hand", (functions, torch.no_grad()(by_hand))

    def saved(save: Callable[[io.BytesIO], Any]) -> Callable[[], Any]:
        return lambda: [save(io.BytesIO()) for _ in range(20)]

    yield (
        "update by one row / Gram product of 2,000",
        (
            lambda: [model.update(rows[:1], targets[:1]) for _ in range(3)],
            lambda: [rows.new_ones(WIDTH, 2_000) @ rows.new_ones(2_000, WIDTH) for _ in range(3)],
        ),
    )
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    grid = rfgp.approximate(exact, 401, method="fourier_grid", train_inputs=rows[:, :2], seed=0)
    on_grid = rfgp.WeightSpaceGP(grid, gpytorch.likelihoods.GaussianLikelihood().double())
    dense = torch.randn(2_000, 401, dtype=torch.float64)

    @torch.no_grad()
    def sums() -> Any:
        return on_grid.condition(rows[:, :2], targets)

    yield "sums of a Fourier grid / dense Gram product", (sums, lambda: dense.mT @ dense)
    yield (
        "state_dict / torch.save of as many numbers",
        (
            saved(lambda file: torch.save(model.state_dict(), file)),
            saved(lambda file: torch.save(posterior.factor, file)),
        ),
    )


def measured(work: Work, repeats: int) -> float:
    """The ratio of median processor seconds, in turn, after one warm-up of each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 1):
        for function, own in zip(work, seconds, strict=True):
            start = time.process_time()
            function()
            if repeat > 0:
                own.append(time.process_time() - start)
    return statistics.median(seconds[0]) / statistics.median(seconds[1])


def slower(history: History, ratios: dict[str, float]) -> list[str]:
    """What exceeds the median of earlier runs, in words."""
    found = []
    for name, ratio in ratios.items():
        known = list(history.get(name, {}).values())
        if len(known) >= ENOUGH and ratio > ALLOWED * statistics.median(known):
            found.append(f"{name}: {ratio:.3g}, where the last {len(known)} runs have {statistics.median(known):.3g}")
    return found


def extended(history: History, commit: str, ratios: dict[str, float]) -> History:
    """The ratios of the last runs and of this one."""
    return {
        name: dict([*((c, v) for c, v in history.get(name, {}).items() if c != commit), (commit, ratio)][-KEPT:])
        for name, ratio in ratios.items()
    }


def draw(history: History, out: Any) -> None:
    """A row for each ratio, with a point for each run; the last one is dark."""
    figure, ((ax,),) = plots.figure(1, 1, width=6.4, height=0.24 * len(history) + 0.8)
    for row, runs in enumerate(history.values()):
        *before, last = runs.values()
        ax.plot(before, [row] * len(before), "o", color="#BBBBBB", markersize=4)
        ax.plot(last, row, "o", color=plots.COLORS[0], markersize=5)
    ax.set(xscale="log", xlabel=f"ratio, at most the last {KEPT} runs")
    ax.set_yticks(range(len(history)), list(history), fontsize="small")
    ax.invert_yaxis()
    add_grid(ax)
    save_figure(figure, out)


def main() -> int:
    """Measure, compare with the last runs, and keep the result."""
    parser = arguments(__doc__ or "", "watch")
    add_plot(parser)
    options = parser.parse_args()
    history = json.loads(options.out.read_text())["ratios"] if options.out.exists() else {}
    if options.plot:
        draw(history, options.out)
        return 0
    torch.set_num_threads(1)
    rows, repeats = (2_000, 1) if options.quick else (30_000, 5)
    ratios: dict[str, float] = {}
    for work in (fits(rows), maps(500 if options.quick else 2_000), users(300 if options.quick else 2_000)):
        for name, pair in work:
            ratios[name] = measured(pair, repeats)
            print(f"{name}: {ratios[name]:.3g}", flush=True)
    found, commit = slower(history, ratios), environment()["commit"][:7]
    write(options.out, {"environment": environment(), "ratios": extended(history, commit, ratios)})
    print(markdown(["ratio", "now"], [[name, f"{ratio:.3g}"] for name, ratio in ratios.items()]))
    print("\n".join(found) or "nothing is slower than in the last runs")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

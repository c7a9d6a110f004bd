r"""Operator-valued features against exact kernels on two toys of B section 6: Figures 12 to 14, without numbers.

Gradient field (data set 2 of B): inputs uniform on [-1, 1]^5, targets the gradient of a sum of 500 random plane waves
with the spectrum of a Gaussian kernel of lengthscale 0.4, without noise; B does not tell the number of waves. Learned
with the curl-free kernel, and with the scalar kernel times the identity, which takes its outputs for independent. The
lengthscale is the median distance of the inputs as in B, 1.8 here, far from that of the field; and 0.4.

Quadratic functions (data set 3): inputs uniform on [0, 1]^20, four outputs linear in (x1^2, x4^2, x1 x2, x3 x5, x2, x4,
1) with normal weights of variances (0.5, 0.25, 0.1, 0.05, 0.15, 0.1, 0.15). The kernel is decomposable, with the
identity for outputs, which B does not tell, and the median distance.

D counts frequencies, independent ones, of the trace measure for the curl-free kernel. Features solve their normal
equations, whose optimum is that of B's L-BFGS. The regularization is the best of a grid on 500 validation points; R^2
is of 1000 test points, relative to the means of the outputs. Means and standard errors of new functions, points and
weights. Seconds are those of the processor for one fit with one thread, for the exact kernels with the kernel matrix.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor
from tqdm import tqdm

import rfgp
from rfgp import linalg
from rfgp.features import RandomFourier
from rfgp.kernels import ConstantCovariance, CurlFreeKernel, DecomposableKernel
from rfgp.models import VectorLeastSquares
from rfgp.study import plots

from ..common import add_grid, environment, mean_and_error, resumed, save_figure, write
from .item import Claim, Options

GRID = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3)
NUM_WAVES, FIELD_LENGTHSCALE = 500, 0.4
VARIANCES = (0.5, 0.25, 0.1, 0.05, 0.15, 0.1, 0.15)
VALIDATION, TEST = 500, 1000
FREQUENCIES = (50, 100, 200, 500, 1000, 2000)
ROWS = (100, 300, 1000, 3000, 10_000)
FIXED_ROWS, FIXED_FREQUENCIES = 1000, 1000
KINDS = ("curl-free", "decomposable")
SETTINGS = ("gradient field, median", "gradient field, 0.4", "quadratic, median")


class Data(NamedTuple):
    """Inputs and targets for training (as many as are wanted), validation and test."""

    x: Tensor
    y: Tensor
    held_out: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


def gradient_field(num_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    waves = RandomFourier(5, 2 * NUM_WAVES, generator=generator).double().frequencies() / FIELD_LENGTHSCALE
    cosine, sine = torch.randn(2, NUM_WAVES, generator=generator) / math.sqrt(NUM_WAVES)
    x = 2.0 * torch.rand(num_rows, 5, generator=generator) - 1.0
    phase = x @ waves.mT
    return x, (sine * torch.cos(phase) - cosine * torch.sin(phase)) @ waves


def quadratic(num_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    weights = torch.randn(7, 4, generator=generator) * torch.tensor(VARIANCES).sqrt()[:, None]
    x = torch.rand(num_rows, 20, generator=generator)
    x1, x2, x3, x4, x5 = x[:, :5].unbind(-1)
    return x, torch.stack([x1**2, x4**2, x1 * x2, x3 * x5, x2, x4, torch.ones_like(x1)], dim=-1) @ weights


def data(setting: str, seed: int, most: int) -> Data:
    """All rows of a function; the first ones for training, whatever their number."""
    generator = torch.Generator().manual_seed(10_000 + seed)  # seeds of the features are others
    draw = quadratic if setting.startswith("quadratic") else gradient_field
    x, y = draw(VALIDATION + TEST + most, generator)
    validation, test, train = (
        slice(0, VALIDATION),
        slice(VALIDATION, VALIDATION + TEST),
        slice(VALIDATION + TEST, None),
    )
    return Data(x[train], y[train], ((x[validation], y[validation]), (x[test], y[test])))


def exact_kernel(kind: str, setting: str, known: Data) -> Kernel:
    base = RBFKernel().double()
    base.lengthscale = 0.4 if setting.endswith("0.4") else torch.pdist(known.x[:1000]).median()
    return (
        CurlFreeKernel(base)
        if kind == "curl-free"
        else DecomposableKernel(base, ConstantCovariance(torch.eye(known.y.shape[-1])))
    )


def r_squared(predicted: Tensor, y: Tensor) -> float:
    return float(1.0 - (predicted - y).square().sum() / (y - y.mean(0)).square().sum())


def chosen(
    known: Data, seconds: float, fits: Iterator[tuple[float, Callable[[Tensor], Tensor], float]]
) -> dict[str, float]:
    """Test R^2 of the best fit on the validation data; ``fits`` are a regularization, a prediction and seconds."""
    (x_validation, y_validation), (x_test, y_test) = known.held_out
    best, result = -math.inf, {}
    for regularization, predict, own in fits:
        score = r_squared(predict(x_validation), y_validation)
        if score > best:
            best = score
            result = {
                "r2": r_squared(predict(x_test), y_test),
                "regularization": regularization,
                "seconds": seconds + own,
            }
    return result


def with_features(kind: str, setting: str, known: Data, num_rows: int, frequencies: int, seed: int) -> dict[str, float]:
    exact = exact_kernel(kind, setting, known)
    columns = known.x.shape[-1]
    kernel = rfgp.approximate(exact, 2 * frequencies, input_dim=columns, method="fourier", seed=seed)
    start = time.process_time()
    first = VectorLeastSquares(kernel, regularization=GRID[-1]).fit(known.x[:num_rows], known.y[:num_rows])
    sums = time.process_time() - start

    def fits() -> Iterator[tuple[float, Callable[[Tensor], Tensor], float]]:
        yield GRID[-1], first.predict, 0.0
        for regularization in GRID[:-1]:
            try:
                model = first.with_regularization(regularization)
            except ValueError:  # not positive definite to working precision
                continue
            yield regularization, model.predict, 0.0

    return chosen(known, sums, fits())


def with_exact_kernel(kind: str, setting: str, known: Data, num_rows: int) -> dict[str, float]:
    exact = exact_kernel(kind, setting, known)
    x, y = known.x[:num_rows], known.y[:num_rows]
    kernel, targets = (exact, y.reshape(-1, 1)) if kind == "curl-free" else (exact.data_covar_module, y)
    start = time.process_time()
    matrix = kernel(x).to_dense()
    seconds = time.process_time() - start
    crosses = {id(z): kernel(z, x).to_dense() for z, _ in known.held_out}

    def fits() -> Iterator[tuple[float, Callable[[Tensor], Tensor], float]]:
        for regularization in GRID:
            start = time.process_time()
            system = matrix.clone()
            system.diagonal().add_(num_rows * regularization)
            try:
                weights = torch.cholesky_solve(targets, linalg.cholesky(system))
            except ValueError:
                continue
            own = time.process_time() - start

            def predict(z: Tensor, weights: Tensor = weights) -> Tensor:
                return (crosses[id(z)] @ weights).reshape(len(z), -1)

            yield regularization, predict, own

    return chosen(known, seconds, fits())


def jobs(options: Options) -> Iterator[tuple[str, str, int, int | None, int]]:
    """Settings, kinds, rows, frequencies (None: exact) and seeds."""
    frequencies, rows, seeds = FREQUENCIES, ROWS, 2
    fixed_rows, fixed_frequencies = FIXED_ROWS, FIXED_FREQUENCIES
    if options.quick:
        frequencies, rows, seeds, fixed_rows, fixed_frequencies = (20, 50), (50, 100), 1, 100, 50
    for seed in range(seeds):
        for setting in SETTINGS:
            for kind in KINDS[int(setting.startswith("quadratic")) :]:
                most = 1000 if kind == "curl-free" else 3000
                cells = [(n, None) for n in rows if n <= most]
                cells += [(fixed_rows, d) for d in frequencies] + [(n, fixed_frequencies) for n in rows]
                yield from ((setting, kind, n, d, seed) for n, d in dict.fromkeys(cells))


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    result = resumed(options) | {"environment": environment(), "grid": GRID, "waves": NUM_WAVES}
    known: dict[tuple[str, int], Data] = {}
    for setting, kind, rows, frequencies, seed in tqdm(list(jobs(options)), disable=options.quick):
        key = f"{setting}/{kind}/{rows}/{'exact' if frequencies is None else frequencies}"
        cell = result["cells"].setdefault(key, {})
        if str(seed) in cell:
            continue
        if (setting, seed) not in known:
            known = {(setting, seed): data(setting, seed, 100 if options.quick else max(ROWS))}
        if frequencies is None:
            cell[str(seed)] = with_exact_kernel(kind, setting, known[setting, seed], rows)
        else:
            cell[str(seed)] = with_features(kind, setting, known[setting, seed], rows, frequencies, seed)
        write(options.out, result)
    return result


class Line(NamedTuple):
    """What is measured along an axis: abscissae and one list of values over seeds each."""

    x: list[int]
    r2: list[list[float]]
    seconds: list[list[float]]


def line(result: dict[str, Any], setting: str, kind: str, rows: int | None, frequencies: str | None) -> Line:
    """The cells of a kind with given rows or given frequencies ("exact" for none), in the order of the other."""
    found = []
    for key, cell in result["cells"].items():
        own_setting, own_kind, own_rows, own_frequencies = key.split("/")
        is_wanted = (own_setting, own_kind) == (setting, kind)
        if rows is None and is_wanted and own_frequencies == frequencies:
            found.append((int(own_rows), cell))
        elif frequencies is None and is_wanted and int(own_rows) == rows and own_frequencies != "exact":
            found.append((int(own_frequencies), cell))
    found.sort(key=lambda pair: pair[0])
    values = [[[run[name] for run in cell.values()] for _, cell in found] for name in ("r2", "seconds")]
    return Line([x for x, _ in found], *values)


def kinds(setting: str) -> tuple[str, ...]:
    return KINDS[int(setting.startswith("quadratic")) :]


def add_line(ax: Any, x: list[int], values: list[list[float]], **style: Any) -> None:
    mean, error = zip(*(mean_and_error(column) for column in values), strict=True)
    ax.errorbar(x, mean, yerr=error, markersize=4.5, linewidth=1.2, capsize=1.5, **style)


def draw(result: dict[str, Any], out: Any) -> None:
    """A row per setting: against D with the exact kernel as a line, against N, and seconds against N."""
    figure, axes = plots.figure(len(SETTINGS), 3, width=3.7, height=2.8)
    for row, setting in enumerate(SETTINGS):
        is_quadratic = setting.startswith("quadratic")
        label = "1 - R²" if is_quadratic else "R²"
        for kind in kinds(setting):
            i = KINDS.index(kind)
            features = {"color": plots.COLORS[i], "marker": plots.MARKERS[i]}
            exact = {"color": plots.COLORS[i], "marker": plots.MARKERS[i], "mfc": "white", "linestyle": "--"}
            by_width = line(result, setting, kind, FIXED_ROWS, None)
            by_rows = line(result, setting, kind, None, str(FIXED_FREQUENCIES))
            of_exact = line(result, setting, kind, None, "exact")

            def score(values: list[list[float]], is_quadratic: bool = is_quadratic) -> list[list[float]]:
                return [[1.0 - v for v in column] for column in values] if is_quadratic else values

            if not (by_width.x and by_rows.x and of_exact.x):
                continue
            add_line(axes[row, 0], by_width.x, score(by_width.r2), **features)
            if FIXED_ROWS in of_exact.x:
                level = mean_and_error(score(of_exact.r2)[of_exact.x.index(FIXED_ROWS)])[0]
                axes[row, 0].axhline(
                    level, color=plots.COLORS[i], linestyle="--", linewidth=1.2, label=f"{kind}, exact"
                )
            for ax, of_features, of_kernel in (
                (axes[row, 1], score(by_rows.r2), score(of_exact.r2)),
                (axes[row, 2], by_rows.seconds, of_exact.seconds),
            ):
                add_line(ax, by_rows.x, of_features, label=f"{kind}, features", **features)
                add_line(ax, of_exact.x, of_kernel, label=f"{kind}, exact", **exact)
        axes[row, 0].set(xlabel="frequencies D", ylabel=label, title=f"{setting} lengthscale: N = {FIXED_ROWS}")
        axes[row, 1].set(xlabel="training points N", ylabel=label, title=f"D = {FIXED_FREQUENCIES}")
        axes[row, 2].set(
            xlabel="training points N",
            ylabel="seconds per fit",
            yscale="log",
            title=f"D = {FIXED_FREQUENCIES}",
        )
        for ax in axes[row]:
            ax.set_xscale("log")
            if is_quadratic:
                ax.set_yscale("log")
            add_grid(ax)
            ax.title.set_fontsize("medium")
        for ax in axes[row, 1:]:
            ax.legend(frameon=False, fontsize="x-small")
    save_figure(figure, out)


def means(line: Line) -> tuple[list[float], list[float]]:
    """Mean R^2 and seconds along a line."""
    return [statistics.fmean(v) for v in line.r2], [statistics.fmean(v) for v in line.seconds]


def lines(result: dict[str, Any], setting: str, kind: str) -> tuple[Line, Line, Line]:
    """Against D at the rows, against N at the frequencies that most cells have, and against N for the exact kernel."""
    keys = [key.split("/") for key in result["cells"]]
    rows = Counter(int(rows) for *_, rows, width in keys if width != "exact").most_common(1)[0][0]
    width = Counter(width for *_, width in keys if width != "exact").most_common(1)[0][0]
    kernel = line(result, setting, kind, None, "exact")
    return line(result, setting, kind, rows, None), line(result, setting, kind, None, width), kernel


def level(widths: Line, by_rows: Line, exact: Line, result: dict[str, Any]) -> float:
    """Mean R^2 of the exact kernel with as many rows as the line against D has."""
    keys = [key.split("/") for key in result["cells"]]
    rows = Counter(int(rows) for *_, rows, width in keys if width != "exact").most_common(1)[0][0]
    return statistics.fmean(exact.r2[exact.x.index(rows)])


def field_claims(result: dict[str, Any]) -> list[Claim]:
    """B Fig. 12, at the median lengthscale, as in B, and at that of the field."""
    claims = []
    for setting in SETTINGS[:2]:
        curl, curl_rows, curl_exact = lines(result, setting, "curl-free")
        other_rows = lines(result, setting, "decomposable")[1]
        ours, theirs = means(curl_rows)[0], means(other_rows)[0]
        wins = [n for n, a, b in zip(curl_rows.x, ours, theirs, strict=True) if a > b]
        claims.append(
            Claim(
                f"curl-free ORFF outperforms independent RFF ({setting})",
                f"at {len(wins)} of {len(ours)} N, the largest of them {max(wins, default=0):,}; R² {ours[-1]:.3f} "
                f"against {theirs[-1]:.3f} at N = {curl_rows.x[-1]:,}",
                2 * len(wins) > len(ours),
            )
        )
        best, exact = max(means(curl)[0]), level(curl, curl_rows, curl_exact, result)
        claims.append(
            Claim(
                f"curl-ORFF can even be better than curl-OVK ({setting})",
                f"R² {best:.3f} against {exact:.3f} at most, D = {curl.x[-1]:,}",
                best > exact,
            )
        )
        slow, fast = (_slope(part.x, means(part)[1]) for part in (curl_exact, curl_rows))
        claims.append(
            Claim(
                f"OVK does not scale with N, ORFF does ({setting})",
                f"seconds grow as N^{slow:.1f} (exact), N^{fast:.1f} (features)",
                slow > fast,
            )
        )
    return claims


def quadratic_claims(result: dict[str, Any]) -> list[Claim]:
    """B Fig. 13."""
    setting = SETTINGS[2]
    by_width, by_rows, exact = lines(result, setting, "decomposable")
    errors, width = [1.0 - r for r in means(by_width)[0]], by_width.x[-1]
    known = 1.0 - level(by_width, by_rows, exact, result)
    most, seconds = means(by_rows)
    least, exact_seconds = means(exact)
    return [
        Claim(
            "OVK is more accurate than ORFF at equal N",
            f"1 - R² {known:.3g} against {errors[0]:.3g} at D = {by_width.x[0]}",
            known < errors[0],
        ),
        Claim(
            "ORFF tends to the accuracy of OVK with D",
            f"1 - R² {errors[0]:.3g} at D = {by_width.x[0]}, {errors[-1]:.3g} at {width}; exact {known:.3g}",
            errors[-1] < errors[0] and errors[-1] < 2.0 * known,
        ),
        Claim(
            "ORFF takes more data in the same time and reaches a better accuracy",
            f"1 - R² {1.0 - most[-1]:.2g} of {by_rows.x[-1]:,} rows in {seconds[-1]:.2g} s; "
            f"exact {1.0 - least[-1]:.2g} of "
            f"{exact.x[-1]:,} rows in {exact_seconds[-1]:.2g} s",
            most[-1] > least[-1] and seconds[-1] < exact_seconds[-1] * (by_rows.x[-1] / exact.x[-1]),
        ),
    ]


def _slope(x: list[int], seconds: list[float]) -> float:
    """Of log seconds against log N, between the last two points that are far enough apart."""
    return math.log(max(seconds[-1], 1e-6) / max(seconds[-2], 1e-6)) / math.log(x[-1] / x[-2])


CLAIMS = {"B Fig. 12": field_claims, "B Fig. 13": quadratic_claims}

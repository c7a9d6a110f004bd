"""Error and negative log likelihood against processor seconds, of rfgp and of its peers.

Each method of each set runs in a process of its own, on one thread. Seconds are the processor's, of fit and prediction,
and so are time limits of the estimators, since other work must not count. What a peer does not find itself (learning
rate and epochs of SVGP, the width of Nystroem) is shown for several values, each at its own seconds alone. The best on
the test rows is then better than what a user finds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accuracy import ours, peers
from accuracy.rows import CLASSES, KERNELS, Method, load, measured
from common import (
    HERE,
    add_data_dir,
    add_plot,
    arguments,
    environment,
    in_process,
    markdown,
    resumed,
    save_figure,
    write,
)
from tqdm import tqdm

from rfgp.study import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VECCHIA = {
    f"GPBoost, {label}, {neighbors} neighbors": (approximation, neighbors)
    for label, approximation, neighbors in (
        ("Vecchia", "vecchia", 10),
        ("Vecchia", "vecchia", 20),
        ("full-scale Vecchia", "full_scale_vecchia", 20),
    )
}
FAMILIES = {
    "rfgp": plots.COLORS[1],
    "GPyTorch, SVGP": plots.COLORS[0],
    "GPyTorch, SGPR": plots.COLORS[5],
    "GPyTorch, exact": plots.COLORS[2],
    "GPyTorch, RFFKernel": plots.COLORS[4],
    "scikit-learn, exact": plots.COLORS[6],
    "scikit-learn, Nystroem": plots.COLORS[3],
    "scikit-learn, gradient boosting": plots.COLORS[7],
    "GPBoost": plots.EXACT,
}
GAUSSIAN_PROCESSES = ("GPyTorch", "scikit-learn, exact", "scikit-learn, Nystroem", "GPBoost")
FROM_SECONDS = 5.0
COLUMNS = 4
SHOWN_SECONDS = (0.2, 500.0)
PATIENCE = 20
"""Seconds by the clock for a second of the processor, which may have other work."""


def methods(name: str) -> dict[str, Method]:
    """What is measured on a set in this interpreter."""
    if name == "mnist":
        return {**ours.IMAGES, **peers.IMAGES}
    return {**ours.CLASSIFIERS, **peers.CLASSIFIERS} if name in CLASSES else {**ours.METHODS, **peers.METHODS}


def command(name: str, method: str, options: argparse.Namespace) -> list[str]:
    """What runs one cell."""
    where = ["--data-dir", str(options.data_dir), "--seed", str(options.seed), "--limit", str(options.limit)]
    if method in VECCHIA:
        approximation, neighbors = VECCHIA[method]
        choice = ["--set", name, "--approximation", approximation, "--neighbors", str(neighbors)]
        return [options.gpboost_python, "-m", "accuracy.vecchia", *where, *choice]
    return [sys.executable, str(HERE / "accuracy_per_second.py"), *where, "--cell", name, method]


def points_of(cells: dict[str, Any], name: str) -> dict[str, dict[str, float]]:
    """The measurements of a set under the names of their methods, without cells that were stopped."""
    return {
        f"{key.split('|')[1]}{', ' if label else ''}{label}": point
        for key, cell in cells.items()
        if key.split("|")[0] == name and "status" not in cell
        for label, point in cell.items()
    }


def family(method: str) -> str:
    """The family of a method."""
    return next(name for name in FAMILIES if method.startswith(name))


def front(points: dict[str, dict[str, float]], score: str) -> list[tuple[float, float]]:
    """Seconds and scores of those points of rfgp that no faster one of its points beats."""
    found: list[tuple[float, float]] = []
    for point in sorted((p for m, p in points.items() if family(m) == "rfgp"), key=lambda p: p["seconds"]):
        if not found or point[score] < found[-1][1]:
            found.append((point["seconds"], point[score]))
    return found


def below(points: dict[str, dict[str, float]], score: str) -> list[str]:
    """Gaussian processes of others that take five seconds or more and are below the front of rfgp."""
    steps, found = front(points, score), []
    for method, point in points.items():
        best = min((value for seconds, value in steps if seconds <= point["seconds"]), default=float("inf"))
        is_late = point["seconds"] >= FROM_SECONDS
        if method.startswith(GAUSSIAN_PROCESSES) and is_late and point[score] < best:
            found.append(f"{method}: {point[score]:.4f} in {point['seconds']:.1f} s, rfgp {best:.4f}")
    return found


def report(result: dict[str, Any]) -> None:
    """Print the table of every set, what is below rfgp's front, and what was stopped."""
    for name in KERNELS:
        points = points_of(result["cells"], name)
        if not points:
            continue
        ordered = sorted(points.items(), key=lambda item: item[1]["nlpd"])
        table = [[m, f"{p['error']:.4f}", f"{p['nlpd']:.4f}", f"{p['seconds']:.1f}"] for m, p in ordered]
        first = "error rate" if name in CLASSES else "RMSE"
        print(f"\n{name}\n{markdown([name, first, 'MNLL' if name in CLASSES else 'NLPD', 'seconds'], table)}")
        for score, label in (("error", first), ("nlpd", "NLPD")):
            for line in below(points, score):
                print(f"below the front in {label}: {line}")
    for key, cell in result["cells"].items():
        if "status" in cell:
            print(f"{key}: {cell['status']}")


def draw(result: dict[str, Any], out: Path) -> None:
    """A panel for the error of every set, and one below it for the negative log likelihood."""
    names = [name for name in KERNELS if points_of(result["cells"], name)]
    columns = min(len(names), COLUMNS)
    bands = math.ceil(len(names) / columns)
    figure, axes = plots.figure(2 * bands, columns, width=2.9, height=2.2)
    for index, name in enumerate(names):
        points, is_classes = points_of(result["cells"], name), name in CLASSES
        upper, lower = axes[2 * (index // columns) : 2 * (index // columns) + 2, index % columns]
        draw_panel(upper, points, "error")
        draw_panel(lower, points, "nlpd")
        upper.set_title(name)
        upper.set_ylabel("error rate" if is_classes else "RMSE")
        lower.set_ylabel("MNLL" if is_classes else "NLPD")
        lower.set_xlabel("processor seconds")
    for ax in axes[-2:, len(names) - (bands - 1) * columns :].ravel():
        ax.set_axis_off()
    plots.legend(figure, axes.ravel().tolist(), columns=5)
    save_figure(figure, out)


def draw_panel(ax: Axes, points: dict[str, dict[str, float]], score: str) -> None:
    """One set and score: points of every family, and rfgp's front as a line."""
    for index, (label, color) in enumerate(FAMILIES.items()):
        own = [p for m, p in points.items() if family(m) == label]
        if not own:
            continue
        x, y = [p["seconds"] for p in own], [p[score] for p in own]
        is_ours = label == "rfgp"
        marker = "o" if is_ours else "s^Dv<>pX"[index - 1]
        ax.scatter(x, y, s=26, color=color, marker=marker, linewidths=0, alpha=0.9, label=label, zorder=3 + is_ours)
    steps = front(points, score)
    if steps:
        x = [seconds for seconds, _ in steps] + [SHOWN_SECONDS[1]]
        y = [value for _, value in steps] + [steps[-1][1]]
        ax.step(x, y, where="post", color=FAMILIES["rfgp"], linewidth=1.2, label="front of rfgp", zorder=2)
    ax.set_xscale("log")
    ax.set_xlim(*SHOWN_SECONDS)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.grid(True, which="major", linewidth=0.3)


def main() -> None:
    """Measure the cells that are missing, one at a time, and print the tables."""
    parser = arguments(__doc__ or "", "accuracy_per_second")
    add_data_dir(parser)
    add_plot(parser)
    parser.add_argument("--sets", nargs="+", default=list(KERNELS), choices=list(KERNELS), help="default: all")
    parser.add_argument("--only", default="", help="measure the methods whose names contain this text")
    parser.add_argument("--seed", type=int, default=1, help="of the split (default: 1)")
    parser.add_argument("--limit", type=int, default=300, help="processor seconds of a cell (default: 300)")
    parser.add_argument("--gpboost-python", help="an interpreter that has gpboost; default: leave GPBoost out")
    parser.add_argument("--cell", nargs=2, metavar=("SET", "METHOD"), help="measure one cell here, and print it")
    options = parser.parse_args()
    if options.cell:
        warnings.simplefilter("ignore")
        time.perf_counter = time.process_time
        name, method = options.cell
        print(json.dumps(measured(methods(name)[method], load(name, options.data_dir, options.seed), options.limit)))
        return
    result = resumed(options)
    if options.plot:
        report(result)
        draw(result, options.out)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    options.out, options.data_dir = options.out.resolve(), options.data_dir.resolve()
    os.chdir(HERE)
    result["environment"] = environment() | {"threads": 1, "seed of the split": options.seed}
    others = list(VECCHIA) if options.gpboost_python else []
    if not options.gpboost_python:
        print("GPBoost is left out: --gpboost-python names no interpreter that has it")
    grid = [
        (name, method)
        for name in options.sets
        for method in [*methods(name), *(others if name not in CLASSES else [])]
        if options.only in method
    ]
    for name, method in tqdm(grid[:1] if options.quick else grid):
        key = f"{name}|{method}|{options.seed}"
        if key not in result["cells"]:
            result["cells"][key] = in_process(command(name, method, options), PATIENCE * options.limit)
            write(options.out, result)
    report(result)


if __name__ == "__main__":
    main()

"""Error and negative log likelihood against processor seconds, of rfgp and of its peers.

Each method of each set runs in a process of its own, on one thread. Seconds are the processor's, of fit and prediction,
and so are time limits of the estimators, since other work must not count. What a peer does not find itself (learning
rate and epochs of SVGP, the width of Nystroem) is shown for several values, each at its own seconds alone. The best on
the test rows is then better than what a user finds. Peers without a setting have scikit-learn's defaults.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from accuracy import ours, peers, plain, recursive
from accuracy.rows import CLASSES, COUNTS, IMAGES, SETS, Method, load, measured
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
    "scikit-learn": "#AAAAAA",
    "GPBoost": plots.EXACT,
    "xRFM": "#555555",
}
GAUSSIAN_PROCESSES = ("GPyTorch", "scikit-learn, exact", "scikit-learn, Nystroem", "GPBoost")
FROM_SECONDS = 5.0
COLUMNS = 4
SHOWN_SECONDS = (0.2, 500.0)
PATIENCE = 20
"""Seconds by the clock for a second of the processor, which may have other work."""


SHORT_SETS, SHORT_ROWS, SHORT_METHODS = ("few_rare", "missing", "counts"), 150, ("rfgp, time limit 5 s", "linear")
"""What ``--short`` measures."""


def methods(name: str) -> dict[str, Method]:
    """What is measured on a set in this interpreter."""
    if name in IMAGES:
        return {**ours.IMAGES, **plain.CLASSES, **peers.IMAGES}
    if name in COUNTS:
        return {**ours.COUNTS, **plain.COUNTS}
    if name in CLASSES:
        two = ours.TWO_CLASSES if CLASSES[name] == 2 else {}
        return {**ours.CLASSIFIERS, **two, **plain.CLASSES, **peers.CLASSIFIERS}
    return {**ours.NUMBERS, **plain.NUMBERS, **recursive.NUMBERS, **peers.NUMBERS}


def vecchia(name: str) -> list[str]:
    """What GPBoost measures on a set: it has no multinomial likelihood."""
    return list(VECCHIA) if CLASSES.get(name, 2) == 2 else []


def command(name: str, method: str, seed: int, options: argparse.Namespace) -> list[str]:
    """What runs one cell."""
    where = ["--limit", str(options.limit)]
    where += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
    where += [] if options.rows is None else ["--rows", str(options.rows)]
    if method in VECCHIA:
        approximation, neighbors = VECCHIA[method]
        choice = ["--set", name, "--approximation", approximation, "--neighbors", str(neighbors)]
        return [options.gpboost_python, "-m", "accuracy.vecchia", *where, "--seed", str(seed), *choice]
    cell = ["--seeds", str(seed), "--cell", name, method]
    return [sys.executable, str(HERE / "accuracy_per_second.py"), *where, *cell]


def points_of(cells: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """The means over splits of a set under the names of methods, without cells that were stopped."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key, cell in cells.items():
        if key.split("|")[0] == name and "status" not in cell:
            for label, point in cell.items():
                found.setdefault(f"{key.split('|')[1]}{', ' if label else ''}{label}", []).append(point)
    return {method: averaged(points) for method, points in found.items()}


def averaged(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of scores and seconds over splits, and how many there are."""
    mean: dict[str, Any] = {"splits": len(points)}
    for key in points[0]:
        values = [point[key] for point in points]
        mean[key] = None if values[0] is None else np.mean(values, axis=0).tolist()
    return mean


def family(method: str) -> str:
    """The family of a method."""
    return next(name for name in FAMILIES if method.startswith(name))


def front(points: dict[str, dict[str, Any]], score: str) -> list[tuple[float, float]]:
    """Seconds and scores of those points of rfgp that no faster one of its points beats."""
    found: list[tuple[float, float]] = []
    for point in sorted((p for m, p in points.items() if family(m) == "rfgp"), key=lambda p: p["seconds"]):
        if not found or point[score] < found[-1][1]:
            found.append((point["seconds"], point[score]))
    return found


def below(points: dict[str, dict[str, Any]], score: str) -> list[str]:
    """Gaussian processes of others that take five seconds or more and are below the front of rfgp."""
    steps, found = front(points, score), []
    for method, point in points.items():
        best = min((value for seconds, value in steps if seconds <= point["seconds"]), default=float("inf"))
        is_late = point["seconds"] >= FROM_SECONDS
        if method.startswith(GAUSSIAN_PROCESSES) and is_late and point[score] < best:
            found.append(f"{method}: {point[score]:.4f} in {point['seconds']:.1f} s, rfgp {best:.4f}")
    return found


def number(value: float | None) -> str:
    """A score to be read."""
    return "" if value is None else f"{value:.4f}"


def table_of(cells: dict[str, Any], name: str) -> str:
    """The table of a set: what was measured, best first, and what was stopped."""
    points = points_of(cells, name)
    ordered = sorted(points.items(), key=lambda item: (item[1]["nlpd"] is None, item[1]["nlpd"] or 0.0))
    rows = []
    for method, point in ordered:
        outputs = " ".join(f"{value:.3f}" for value in point.get("by_output", []))
        seconds = f"{point['seconds']:.1f}"
        rows.append([method, number(point["error"]), number(point["nlpd"]), seconds, str(point["splits"]), outputs])
    stopped = {
        key.split("|")[1]: cell["status"]
        for key, cell in cells.items()
        if key.split("|")[0] == name and "status" in cell
    }
    rows += [[method, status, "", "", "", ""] for method, status in stopped.items()]
    scores = ["error rate", "log loss"] if name in CLASSES else ["RMSE", "NLPD"]
    return markdown([name, *scores, "seconds", "splits", "RMSE by output"], rows)


def report(result: dict[str, Any], out: Path) -> None:
    """Write the tables of all sets beside the JSON, and print them with what is below rfgp's front."""
    tables = []
    for name in SETS:
        if not any(key.split("|")[0] == name for key in result["cells"]):
            continue
        tables.append(table_of(result["cells"], name))
        print(f"\n{tables[-1]}")
        for score in ("error", "nlpd"):
            points = points_of(result["cells"], name)
            for line in below({m: p for m, p in points.items() if p[score] is not None}, score):
                print(f"below the front in {score}: {line}")
    out.with_suffix(".md").write_text("\n\n".join(tables) + "\n")


def draw(result: dict[str, Any], out: Path) -> None:
    """A panel for the error of every set, and one below it for the negative log likelihood."""
    names = [name for name in SETS if points_of(result["cells"], name)]
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


def draw_panel(ax: Axes, points: dict[str, dict[str, Any]], score: str) -> None:
    """One set and score: points of every family, and rfgp's front as a line."""
    for index, (label, color) in enumerate(FAMILIES.items()):
        own = [p for m, p in points.items() if family(m) == label and p[score] is not None]
        if not own:
            continue
        x, y = [p["seconds"] for p in own], [p[score] for p in own]
        is_ours = label == "rfgp"
        marker = "o" if is_ours else "s^Dv<>pXP*h"[index - 1]
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


def gpboost_python(given: str | None) -> str | None:
    """An interpreter that has gpboost, or None."""
    if given is None and importlib.util.find_spec("gpboost") is not None:
        return sys.executable
    return given


def main() -> None:
    """Measure the cells that are missing, one at a time, and print the tables."""
    parser = arguments(__doc__ or "", "accuracy_per_second")
    add_data_dir(parser, required=False)
    add_plot(parser)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), help="default: all")
    parser.add_argument("--only", default="", help="measure the methods whose names contain this text")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of the splits (default: 1 2 3)")
    parser.add_argument("--limit", type=int, default=300, help="processor seconds of a cell (default: 300)")
    parser.add_argument("--rows", type=int, help="the largest number of training and of test rows (default: all)")
    parser.add_argument("--short", action="store_true", help="few methods on few rows of generated sets")
    parser.add_argument("--gpboost-python", help="an interpreter that has gpboost; default: this one if it has it")
    parser.add_argument("--cell", nargs=2, metavar=("SET", "METHOD"), help="measure one cell here, and print it")
    options = parser.parse_args()
    if options.cell:
        warnings.simplefilter("ignore")
        time.perf_counter = time.process_time
        name, method = options.cell
        rows = load(name, options.data_dir, options.seeds[0], options.rows)
        print(json.dumps(measured(methods(name)[method], rows, options.limit)))
        return
    if options.short:
        options.sets, options.rows, options.seeds = SHORT_SETS, SHORT_ROWS, options.seeds[:1]
    result = {"cells": {}} if options.short else resumed(options)
    options.out = options.out.resolve()
    if options.plot:
        report(result, options.out)
        draw(result, options.out)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    options.data_dir = None if options.data_dir is None else Path(options.data_dir).resolve()
    options.gpboost_python = gpboost_python(options.gpboost_python)
    os.chdir(HERE)
    result["environment"] = environment() | {"threads": 1, "seeds of the splits": options.seeds}
    grid = [
        (name, method, seed)
        for name in options.sets
        for method in [*methods(name), *vecchia(name)]
        for seed in options.seeds
        if options.only in method and (not options.short or method.endswith(SHORT_METHODS))
    ]
    for name, method, seed in tqdm(grid[:1] if options.quick else grid):
        key = f"{name}|{method}|{seed}"
        if key in result["cells"]:
            continue
        if method in VECCHIA and options.gpboost_python is None:
            result["cells"][key] = {"status": "gpboost is not installed"}
        else:
            result["cells"][key] = in_process(command(name, method, seed, options), PATIENCE * options.limit)
        write(options.out, result)
    report(result, options.out)


if __name__ == "__main__":
    main()

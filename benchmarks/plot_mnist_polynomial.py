"""Draw what mnist_polynomial.py has measured so far, and print it as Markdown tables of means and standard errors."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path

from common import HERE, markdown, save_figure

from rfgp import plots

MEASURES = {
    "frobenius": "relative Frobenius error",
    "kl": "KL to the exact posterior",
    "error": "test error",
    "mnll": "test MNLL",
}

Cells = dict[tuple[int, str, int], list[dict[str, float]]]
"""The records of all seeds by degree, method and width."""


def cells(path: Path) -> Cells:
    result: Cells = defaultdict(list)
    for key, record in json.loads(path.read_text())["cells"].items():
        power, method, width, _ = key.split("/")
        result[int(power), method, int(width)].append(record)
    return result


def mean_and_error(records: list[dict[str, float]], measure: str) -> tuple[float, float]:
    """The mean over seeds and its standard error, NaN for a single seed."""
    values = [record[measure] for record in records]
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), error


def report(measured: Cells) -> None:
    for power in sorted({key[0] for key in measured}):
        rows = []
        for (degree, method, width), records in measured.items():
            if degree == power:
                shown = [_plus_minus(*mean_and_error(records, measure)) for measure in MEASURES]
                rows.append([f"{width:,}", method, str(len(records)), *shown])
        print(f"\nDegree {power}\n")
        print(markdown(["D", "method", "seeds", *MEASURES.values()], rows))


def _plus_minus(mean: float, error: float) -> str:
    return f"{mean:.4g}" + ("" if math.isnan(error) else f" ± {error:.2g}")


def draw(measured: Cells, out: Path) -> None:
    powers = sorted({key[0] for key in measured})
    methods = list(dict.fromkeys(key[1] for key in measured))
    figure, axes = plots.figure(len(powers), len(MEASURES))
    for row, power in zip(axes, powers, strict=True):
        for ax, (measure, label) in zip(row, MEASURES.items(), strict=True):
            curves = {}
            for method in methods:
                widths = sorted(key[2] for key in measured if key[:2] == (power, method))
                points = [mean_and_error(measured[power, method, width], measure) for width in widths]
                means, errors = zip(*points, strict=True) if points else ((), ())
                curves[method] = plots.Curve(widths, means, errors)
            plots.comparison(curves, xlabel="features D", ylabel=label, log_x=2, ax=ax)
            ax.set_title(f"degree {power}", fontsize="medium")
    plots.legend(figure, list(axes.flat), columns=len(methods))
    save_figure(figure, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = HERE / "results" / "mnist_polynomial.json"
    parser.add_argument("--out", type=Path, default=default, help="the JSON that mnist_polynomial.py writes")
    path = parser.parse_args().out
    measured = cells(path)
    report(measured)
    draw(measured, path)


if __name__ == "__main__":
    main()

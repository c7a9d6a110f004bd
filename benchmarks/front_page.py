"""The figure of the README: error and coverage of 95 % intervals against processor seconds, on one split of kin8nm.

Cells are those of ``accuracy_per_second.py``: the estimator with its defaults and with limits of time, boosting with
the variance of held-out residuals, SVGP after several epochs, the exact model of 2,000 rows, and GPBoost where an
interpreter has it. Cells that a results file has are not measured again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from accuracy_per_second import FAMILIES, add_data_dir, arguments, family, points_of, resumed, save_figure
from matplotlib.axes import Axes

from rfgp.study import plots

NAME = "kin8nm"
METHODS = (
    "rfgp, defaults",
    "rfgp, time limit",
    "scikit-learn, gradient boosting, up to",
    "GPyTorch, exact, 2000",
    "GPyTorch, SVGP, 512, rate 0.03",
    "GPBoost",
)
LABELS = {
    "scikit-learn, gradient boosting": "boosting",
    "GPyTorch, exact": "exact, 2,000 rows",
    "GPyTorch, SVGP": "SVGP",
}


def main() -> None:
    parser = arguments(__doc__, "front_page")
    add_data_dir(parser, required=False)
    parser.add_argument("--plot", action="store_true", help="draw the stored cells only")
    parser.add_argument("--gpboost-python", help="an interpreter that has gpboost")
    options = parser.parse_args()
    script = Path(__file__).parent / "accuracy_per_second.py"
    common = ["--sets", NAME, "--seeds", "1", "--limit", "200", "--out", str(options.out)]
    common += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
    common += [] if options.gpboost_python is None else ["--gpboost-python", options.gpboost_python]
    common += ["--rows", "300"] if options.quick else []
    for method in () if options.plot else METHODS[: 1 if options.quick else None]:
        subprocess.run([sys.executable, str(script), *common, "--only", method], check=True)
    points = points_of(resumed(options)["cells"], NAME)
    figure, axes = plots.figure(1, 2, width=4.0, height=2.8)
    for ax, score, label in zip(axes[0], ("error", "coverage"), ("RMSE", "coverage (95 %)"), strict=True):
        _draw(ax, points, score)
        ax.set_ylabel(label)
    axes[0, 1].axhline(0.95, color="#888888", linewidth=0.8, linestyle="--")
    plots.legend(figure, axes.ravel().tolist(), columns=3)
    save_figure(figure, options.out)


def _draw(ax: Axes, points: dict[str, dict[str, float]], score: str) -> None:
    """The points of every family, those of one that goes on with a line."""
    for name, color in FAMILIES.items():
        own = sorted((p["seconds"], p[score]) for m, p in points.items() if family(m) == name and score in p)
        if own:
            label = LABELS.get(name, name)
            ax.plot(*zip(*own, strict=True), "o-", color=color, markersize=4, linewidth=0.9, label=label)
    ax.set_xscale("log")
    ax.set_xlabel("processor seconds")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(True, which="major", linewidth=0.3)


if __name__ == "__main__":
    main()

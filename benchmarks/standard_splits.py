"""The page of standard splits and its figures: cells of ``accuracy_per_second.py`` and of ``accuracy_peers.py``."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accuracy.rows import CLASSES, FRESH, SETS
from accuracy.table import Point, details, points, summary
from common import HERE, arguments, save_figure

from rfgp.study import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAMILIES = {
    "rfgp": plots.COLORS[1],
    "boosting": plots.COLORS[7],
    "LightGBM": plots.COLORS[3],
    "RealMLP": plots.COLORS[6],
    "xRFM": "#555555",
    "SVGP": plots.COLORS[0],
    "VNNGP": plots.COLORS[4],
    "SGPR": plots.COLORS[5],
    "exact": plots.COLORS[2],
    "GPBoost": plots.EXACT,
    "MuyGPs": "#AA7744",
}
MARKERS = "os^Dv<>pXP*"
COLUMNS, SECONDS = 4, (0.01, 300.0)
PAGE = HERE.parent / "docs" / "standard_splits.md"


def page(cells: dict[str, Any], fresh: dict[str, Any], limit: int) -> str:
    """The page of the documentation.

    :param fresh: the cells of tables by which no default was chosen.
    :param limit: the processor seconds that cells of rfgp and of boosting have.
    """
    tables = [summary(cells, score) for score in ("error", "nlpd", "seconds")]
    return (
        "\n\n".join(
            [
                "# Standard splits",
                textwrap.dedent(INTRODUCTION).strip().replace("LIMIT", str(limit)),
                *tables,
                "## Fresh tables",
                textwrap.dedent(FRESH_TABLES).strip(),
                *(summary(fresh, score, FRESH) for score in ("error", "nlpd", "seconds")),
                "## Every set",
                *(details(cells, name) for name in SETS if points(cells, name)),
                *(details(fresh, name) for name in FRESH),
            ]
        )
        + "\n"
    )


INTRODUCTION = """
    Defaults only, one thread, at most LIMIT processor seconds for fit and predictions, 60 for peers. Means and
    standard errors over up to three splits: the first three folds of airfoil, pol, kin40k and keggundirected, the
    test images of MNIST, and else a random tenth. Inputs and targets are standardized by the training rows. RMSE
    and NLPD are in standard deviations of the target; classes have the error rate and the log loss. Of methods with
    several settings, such as the rate of SVGP, the best on the test rows is shown. A method without error bars has
    the variance of residuals of rows that it was not fitted to. "over 60 s" had no prediction in that time; "error"
    is GPBoost's of a constant column. Published numbers are of other splits. rfgp and boosting were measured in one
    run, the other peers before, on a server of the same kind where boosting took a third of the seconds: compare
    the seconds of the first two, and divide them by three beside those of the others. NLPD and coverage of rfgp are
    those of the distributions that it predicts, Student's t or mixtures; those of others are of normal
    distributions. What took more than 20 s has the first split alone, and no standard error; of the others the
    lowest is bold. Empty cells are of methods that are not measured for classes.

    The cells are in `benchmarks/results/accuracy_per_second.json` and `benchmarks/results/accuracy_peers.json`;
    `python benchmarks/standard_splits.py` writes this page.
"""

FRESH_TABLES = """
    Three tables of UCI with the first three of the field's ten folds, which were in no table before and chose no
    default: readings of gas sensors (2,565 rows, 128 columns), players of a game (3,338 rows, 19 columns) and the
    dynamics of a robot arm (8,192 rows, 32 columns). On the first split, the only one of peers that took more than
    20 s, rfgp has RMSE .100, .607 and .217.

    The cells are in `benchmarks/results/accuracy_fresh.json`, by `python benchmarks/accuracy_fresh.py`.
"""


def draw(cells: dict[str, Any], out: Path) -> None:
    """A panel for the error of every set, and one below it for the negative log likelihood."""
    names = [name for name in SETS if points(cells, name)]
    columns = min(len(names), COLUMNS)
    bands = math.ceil(len(names) / columns)
    figure, axes = plots.figure(2 * bands, columns, width=2.9, height=2.2)
    for index, name in enumerate(names):
        found, is_classes = points(cells, name), name in CLASSES
        upper, lower = axes[2 * (index // columns) : 2 * (index // columns) + 2, index % columns]
        draw_panel(upper, found, "error", FAMILIES)
        draw_panel(lower, found, "nlpd", FAMILIES)
        upper.set_title(name)
        upper.set_ylabel("error rate" if is_classes else "RMSE")
        lower.set_ylabel("log loss" if is_classes else "NLPD")
    for ax in axes[-2:, len(names) - (bands - 1) * columns :].ravel():
        ax.set_axis_off()
    plots.legend(figure, axes.ravel().tolist(), columns=6)
    save_figure(figure, out)


def draw_panel(ax: Axes, found: dict[str, Point], score: str, shown: Iterable[str]) -> None:
    """The means of every family, those of one that goes on or has limits of time with a line."""
    for label, marker in zip(FAMILIES, MARKERS, strict=True):
        own = [p for m, p in found.items() if m.startswith(label) and score in p and label in shown]
        if own:
            pairs = sorted((sum(p["seconds"]) / len(p["seconds"]), sum(p[score]) / len(p[score])) for p in own)
            style = {"color": FAMILIES[label], "marker": marker, "markersize": 4, "linewidth": 0.8, "label": label}
            ax.plot(*zip(*pairs, strict=True), **style, zorder=4 if label == "rfgp" else 3)
    ax.set_xscale("log")
    ax.set_xlabel("processor seconds")
    ax.set_xlim(*SECONDS)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.grid(True, which="major", linewidth=0.3)


def main() -> None:
    """Write the page, and draw."""
    options = arguments(__doc__ or "", "accuracy_per_second").parse_args()
    out = options.out.resolve()
    beside = out.with_name("accuracy_peers.json")
    own, others, fresh = (json.loads(path.read_text()) for path in (out, beside, out.with_name("accuracy_fresh.json")))
    cells = others["cells"] | own["cells"]
    text = page(cells, fresh["cells"], own["environment"]["processor seconds of a cell"])
    PAGE.write_text(text, encoding="utf-8")
    draw(cells, out)


if __name__ == "__main__":
    main()

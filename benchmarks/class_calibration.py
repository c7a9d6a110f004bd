"""Calibration of class probabilities by default: how often the most probable class is right, by its probability.

Letters have a random tenth of the rows to test on, MNIST its test images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import matplotlib.pyplot as plt
import numpy as np
from accuracy.rows import load

from rfgp.sklearn import RandomFeatureGPClassifier
from rfgp.study import plots

SETS = {"letter": "letters", "mnist": "MNIST"}
EDGES = np.array([0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0 + 1e-9])


def curve(name: str, data_dir: Path, count: int | None) -> dict[str, Any]:
    """Means of the largest probability and of correctness by bins, the number of rows in each, and error and loss."""
    rows = load(name, data_dir, 1, count)
    found = RandomFeatureGPClassifier(random_state=0).fit(rows.x, rows.y).predict_proba(rows.test_x)
    sure, right = found.max(-1), found.argmax(-1) == rows.test_y
    bins = np.digitize(sure, EDGES) - 1
    members = [bins == number for number in range(len(EDGES) - 1)]
    counts = [int(inside.sum()) for inside in members]
    gaps = [
        count * abs(sure[inside].mean() - right[inside].mean())
        for inside, count in zip(members, counts, strict=True)
        if count
    ]
    return {
        "probability": [float(sure[inside].mean()) if inside.any() else None for inside in members],
        "right": [float(right[inside].mean()) if inside.any() else None for inside in members],
        "rows": counts,
        "error": float(1.0 - right.mean()),
        "nlpd": float(-np.log(found[np.arange(len(found)), rows.test_y]).mean()),
        "calibration error": float(sum(gaps) / len(sure)),
    }


def draw(cells: dict[str, Any], out: Path) -> None:
    """A curve for every set, with two standard errors."""
    figure, axes = plt.subplots(
        1, len(cells), figsize=(3.4 * len(cells), 3.2), squeeze=False, sharey=True, layout="constrained"
    )
    for ax, (name, cell) in zip(axes[0], cells.items(), strict=True):
        known = [bin for bin in zip(cell["probability"], cell["right"], cell["rows"], strict=True) if bin[2] >= 10]
        sure, right, count = (np.array(part) for part in zip(*known, strict=True))
        ax.plot([0.0, 1.0], [0.0, 1.0], color="0.7", linewidth=0.8)
        ax.errorbar(
            sure, right, 2.0 * np.sqrt(sure * (1.0 - sure) / count), fmt="o", color=plots.COLORS[1], markersize=4
        )
        ax.set_title(f"{SETS[name]}: calibration error {cell['calibration error']:.3f}", fontsize=9)
        ax.set_xlabel("probability of the most probable class")
    axes[0, 0].set_ylabel("part of rows where it is right")
    common.save_figure(figure, out)


def main() -> None:
    """Measure, and draw the curves."""
    parser = common.arguments(__doc__ or "", "class_calibration")
    common.add_data_dir(parser)
    options = parser.parse_args()
    rows = 500 if options.quick else None
    cells = [(name, lambda name=name: curve(name, options.data_dir, rows)) for name in SETS]
    result = common.run_cells(options, cells)
    draw(result["cells"], options.out)


if __name__ == "__main__":
    main()

"""What cells say: means and standard errors over splits, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common import markdown, mean_and_error

from .rows import CLASSES, SETS

Cells = dict[str, Any]
Point = dict[str, list[Any]]
COLUMNS = (
    "rfgp",
    "boosting",
    "LightGBM",
    "RealMLP",
    "xRFM",
    "SVGP",
    "VNNGP",
    "SGPR",
    "exact",
    "GPBoost, Vecchia",
    "GPBoost, VIF",
    "MuyGPs",
    "linear",
)
"""Methods whose names begin so; of several, the one with the lowest value is shown."""
PUBLISHED = {
    "pol": ".127 / -.96, exact",
    "kin40k": ".065 / -1.32, exact; .192, Soft-KI",
    "protein": ".538 / .575, exact; .649, Soft-KI",
}
"""RMSE / NLPD of other splits: exact Matern-3/2 on a GPU (frasertajima/gp_engine), and Soft-KI (danehuang/softki)."""


def points(cells: Cells, name: str) -> dict[str, Point]:
    """Scores and seconds of every split under the names of methods, without cells that were stopped."""
    found: dict[str, Point] = {}
    for key, cell in cells.items():
        where, method, _ = key.split("|")
        if where == name and "status" not in cell:
            for label, scores in cell.items():
                point = found.setdefault(f"{method}{', ' if label else ''}{label}", {})
                for score, value in scores.items():
                    point.setdefault(score, []).append(value)
    return found


def stopped(cells: Cells, name: str) -> dict[str, str]:
    """What ended methods of a set before they had a prediction: the limit, or an error."""
    return {
        key.split("|")[1]: cell["status"] if cell["status"].startswith("over") else "error"
        for key, cell in cells.items()
        if key.split("|")[0] == name and "status" in cell
    }


def number(values: list[float]) -> str:
    """Mean and standard error, the latter where there are several splits."""
    mean, error = mean_and_error(values)
    return f"{mean:.3f}" + ("" if len(values) == 1 else f" ± {error:.3f}")


def best(found: dict[str, Point], column: str, score: str) -> list[float] | None:
    """The values of the method of a column with the lowest error, or that of another score than seconds."""
    own = [p for m, p in found.items() if (m == column if column == "rfgp" else m.startswith(column))]
    by = "error" if score == "seconds" else score
    chosen = min(own, key=lambda p: sum(p[by]) / len(p[by]), default=None)
    return None if chosen is None else chosen[score]


def summary(cells: Cells, score: str, sets: Sequence[str] = SETS) -> str:
    """A row for every set and a column for every method, the lowest mean of all splits in bold; of seconds means."""
    rows = []
    for name in sets:
        found = points(cells, name)
        values = {column: best(found, column, score) for column in COLUMNS}
        means = {column: sum(own) / len(own) for column, own in values.items() if own}
        most = max(map(len, filter(None, values.values())), default=0)
        whole = [column for column, own in values.items() if own and len(own) == most]
        lowest = "" if score == "seconds" else min(whole, key=means.__getitem__, default="")
        texts = []
        for column, own in values.items():
            if not own:
                text = next((status for m, status in stopped(cells, name).items() if m.startswith(column)), "")
            else:
                text = f"{means[column]:.2g}" if score == "seconds" else number(own)
            texts.append(f"**{text}**" if column == lowest else text)
        rows.append([name, *texts, *([PUBLISHED.get(name, "")] if score == "error" else [])])
    return markdown([name_of(score), *COLUMNS, *(["published"] if score == "error" else [])], rows)


def name_of(score: str) -> str:
    """What a score is called."""
    return {"error": "RMSE or error rate", "nlpd": "NLPD or log loss", "seconds": "processor seconds"}[score]


def details(cells: Cells, name: str) -> str:
    """All methods of a set, the lowest negative log likelihood first."""
    rows = []
    for method, p in sorted(points(cells, name).items(), key=lambda item: sum(item[1]["nlpd"]) / len(item[1]["nlpd"])):
        coverage = number(p["coverage"]) if "coverage" in p else ""
        splits = str(len(p["error"]))
        rows.append(
            [method, number(p["error"]), number(p["nlpd"]), coverage, f"{mean_and_error(p['seconds'])[0]:.1f}", splits]
        )
    rows += [[method, status, "", "", "", ""] for method, status in stopped(cells, name).items()]
    scores = ["error rate", "log loss"] if name in CLASSES else ["RMSE", "NLPD"]
    return markdown([name, *scores, "95 % intervals", "seconds", "splits"], rows)

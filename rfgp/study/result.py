"""All that a study measured: as a table, as a figure and in files."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _files, plots
from ..training import FitSummary
from . import report
from .measurements import Run, Summary, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = ("results.json", "study.png")
"""The files that a study writes."""


@dataclass(frozen=True)
class StudyResult:
    """All that a study measured, and under which circumstances.

    :param settings: every setting of the study; where "auto" was among the methods, ``settings["auto"]`` has the method
        that it took, by number of features.
    :param data: the data set, its size, origin and scaling.
    :param training: how the parameters of the exact model were learned, and their values.
    :param environment: versions and machine.
    :param exact: the measurements of the exact model.
    :param runs: those of every approximation.

    >>> import rfgp
    >>> result = rfgp.study.run(
    ...     rfgp.datasets.load("diabetes"), methods=["rademacher:real"], num_features=[8], num_seeds=1, exact_limit=50
    ... )
    >>> "rademacher:real" in result.table()
    True
    """

    settings: dict[str, Any]
    data: dict[str, Any]
    training: FitSummary
    environment: dict[str, Any]
    exact: Run
    runs: tuple[Run, ...]

    @property
    def error_name(self) -> str:
        """What ``error`` stands for."""
        return "error rate" if self.data["task"] == "classification" else "RMSE"

    @property
    def exact_name(self) -> str:
        """The exact model and its number of rows."""
        return f"exact, {self.data['exact_rows']:,} rows"

    def summaries(self) -> list[Summary]:
        """Means and standard errors over seeds, by number of features, then by method."""
        return [
            summary([run for run in self.runs if (run.method, run.num_features) == (method, width)])
            for width in self.settings["num_features"]
            for method in self.settings["methods"]
        ]

    def table(self) -> str:
        """A table for terminals: means and standard errors by method and number of features, the exact model last."""
        measures = {
            "kl": "KL to exact",
            "error": self.error_name,
            "mnll": "MNLL",
            "kernel_error": "kernel error",
            "fit_seconds": "fit (s)",
            "predict_seconds": "predict (s)",
        }
        blocks: dict[int | None, list[list[str]]] = {}
        for row in [*self.summaries(), dataclasses.replace(summary([self.exact]), method=self.exact_name)]:
            cells = [report.plus_minus(row.mean[m], row.standard_error[m]) for m in measures]
            width = "" if row.num_features is None else str(row.num_features)
            blocks.setdefault(row.num_features, []).append([self._label(row), width, *cells])
        table = report.table(["method", "features", *measures.values()], list(blocks.values()))
        rows, count = self.data["exact_rows"], len(self.settings["seeds"])
        notes = ["± standard error over seeds" if count > 1 else "one seed"]
        if rows < self.data["num_train"]:
            notes.append(f"divergences between fits to {rows:,} rows, the rest for fits to {self.data['num_train']:,}")
        return f"{table}\n{'; '.join(notes)}"

    def _label(self, row: Summary) -> str:
        """The method of a row, with the one that "auto" took in brackets."""
        is_auto = row.method == "auto" and row.num_features is not None
        return f"auto ({self.settings['auto'][row.num_features]})" if is_auto else row.method

    def figure(self) -> Figure:
        """KL, error and MNLL against the number of features (top) and against time (bottom).

        :raises ImportError: without matplotlib.
        """
        rows, exact = self.summaries(), self.exact
        columns = (
            ("kl", "KL(approximate, exact)", None),
            ("error", f"test {self.error_name}", exact.error),
            ("mnll", "test MNLL", exact.mnll),
        )
        figure, axes = plots.figure(2, len(columns))
        for column, (measure, label, level) in enumerate(columns):
            is_positive = min(row.mean[measure] for row in rows) > 0 and (level is None or level > 0)
            is_density = measure == "mnll" and self.data["task"] == "regression"
            for ax, by_time in zip(axes[:, column], (False, True), strict=True):
                curves = {method: _curve(rows, method, measure, by_time) for method in self.settings["methods"]}
                plots.comparison(
                    curves,
                    exact=level,
                    exact_x=exact.seconds if by_time else None,
                    exact_name=self.exact_name,
                    xlabel="time to fit and predict (s)" if by_time else "number of features",
                    ylabel=label,
                    log_x=10 if by_time else 2,
                    log_y=is_positive and not is_density,
                    ax=ax,
                )
        plots.legend(figure, list(axes.flat))
        count = len(self.settings["seeds"])
        figure.suptitle(
            f"{self.data['name']}, {self.settings['kernel']} kernel, {self.data['num_train']:,} training rows: "
            + (f"mean and standard error over {count} seeds" if count > 1 else "one seed"),
            fontsize="medium",
        )
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON has it: numbers that are not finite become None."""
        summaries = [dataclasses.asdict(row) for row in self.summaries()]
        return report.plain({**dataclasses.asdict(self), "summaries": summaries})

    def save(self, directory: str | Path) -> list[Path]:
        """Write ``results.json`` and ``study.png``; each appears whole or not at all.

        :param directory: where to; it is made where it does not exist.
        :returns: the paths of the files.
        :raises ImportError: without matplotlib.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        figure = self.figure()
        return [
            _files.write_whole(folder / FILES[0], lambda path: path.write_text(text, encoding="utf-8")),
            _files.write_whole(folder / FILES[1], lambda path: figure.savefig(path, format="png", dpi=200)),
        ]


def _curve(rows: list[Summary], method: str, measure: str, by_time: bool) -> plots.Curve:
    selected = [row for row in rows if row.method == method]
    return plots.Curve(
        [row.mean["seconds"] if by_time else row.num_features for row in selected],
        [row.mean[measure] for row in selected],
        [row.standard_error[measure] for row in selected],
    )

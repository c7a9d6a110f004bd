"""All that a study measured: as a table, as a figure, in plain words."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..diagnostics.measurement import Measurement
from ..training import FitSummary
from . import plots
from .losses import LEVEL
from .report import ReportTable
from .runs import KernelScore, Run, Summary, plain, summary
from .verdict import Facts, Model, Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_CURVES = 4
"""Methods of a panel."""


@dataclass(frozen=True)
class StudyRecord:
    """All that a study measured, and under which circumstances.

    :param settings: every setting, and in ``settings["auto"]`` the method that "auto" took, by number of features.
    :param data: the data set, its size, origin and scaling.
    :param training: how the parameters of the exact model were learned, and their values.
    :param environment: versions and machine.
    :param exact: the measurements of the exact model.
    :param runs: those of every approximation.
    :param baselines: those of a linear model, and of one that looks at no input.
    :param kernels: the kernels that were tried where the kernel was "auto", the best first.
    :param request: what was asked for, and a hash of the data, where it is in a directory.
    """

    settings: dict[str, Any]
    data: dict[str, Any]
    training: FitSummary
    environment: dict[str, Any]
    exact: Run
    runs: tuple[Run, ...]
    baselines: tuple[Run, ...] = ()
    kernels: tuple[KernelScore, ...] = ()
    request: dict[str, Any] = field(default_factory=dict)

    @property
    def error_name(self) -> str:
        """What ``error`` stands for."""
        if self.data["task"] == "classification":
            return "error rate"
        return "RMSE / sd" if self.data.get("outputs") else "RMSE"

    @property
    def trust(self) -> str:
        """The measure by which intervals or probabilities are too sure of themselves."""
        return "overconfidence" if self.data["task"] == "classification" else "coverage"

    @property
    def exact_name(self) -> str:
        """The exact model and its number of rows."""
        return f"exact, {self.data['exact_rows']:,} rows"

    @property
    def num_marginals(self) -> int:
        """The number of latent marginals over which a divergence is a sum."""
        return self.settings["kl_rows"] * max(len(self.data.get("outputs") or ()), 1)

    def of(self, method: str, num_features: int | None) -> list[Run]:
        """The runs of a method and a number of features, one per seed."""
        return [run for run in self.runs if (run.method, run.num_features) == (method, num_features)]

    def summaries(self) -> list[Summary]:
        """Means and standard errors over seeds, by number of features, then by method."""
        groups = [(m, d) for d in self.settings["num_features"] for m in self.settings["methods"] if self.of(m, d)]
        return [summary(self.of(*group)) for group in groups]

    def verdict(self) -> Verdict:
        """What the measurements say, in plain words."""
        return verdict(self.facts())

    def facts(self) -> Facts:
        """What a verdict is made of."""
        data = self.data
        others = {run.method: self._model([run]) for run in (self.exact, *self.baselines)}
        groups = [(row.method, row.num_features) for row in self.summaries() if row.num_features is not None]
        return Facts(
            is_regression=data["task"] == "regression",
            error_name=self.error_name,
            kernel=self.settings["kernel"],
            num_train=data["num_train"],
            num_test=data["num_test"],
            exact_rows=data["exact_rows"],
            num_outputs=max(len(data.get("outputs") or ()), 1),
            exact=others["exact"],
            approximations=tuple(self._model(self.of(*group)) for group in groups),
            baselines={name: others[name] for name in others if name != "exact"},
            kernels=self.kernels,
        )

    def _model(self, runs: list[Run]) -> Model:
        """What a verdict has to know of a model."""
        row, first = summary(runs), runs[0]

        def score(measure: str) -> Measurement:
            return Measurement.of(
                [getattr(run, measure) for run in runs], [run.row_errors.get(measure) for run in runs]
            )

        def behind(other: str, measure: str) -> Measurement:
            pairs = [run.against[other][measure] for run in runs]
            return Measurement.of([mean for mean, _ in pairs], [error for _, error in pairs])

        common = set.intersection(*(set(run.against) for run in runs))
        return Model(
            name=self.label(first.method, first.num_features),
            num_features=first.num_features,
            seconds=row.mean["seconds"],
            divergence=Measurement.of([run.kl_reverse / self.num_marginals for run in runs]),
            error=score("error"),
            mnll=score("mnll"),
            trust=score(self.trust) if getattr(first, self.trust) is not None else None,
            against={other: {m: behind(other, m) for m in ("error", "mnll")} for other in common},
        )

    def scores(self, **more: str) -> ReportTable:
        """Means and standard errors: approximations by number of features, then the exact model and the baselines.

        :param more: titles of other measures, by their names.
        """
        measures = {
            "kl": "KL to exact",
            "error": self.error_name,
            "mnll": "MNLL",
            self.trust: self.trust,
            **more,
            "fit_seconds": "fit (s)",
            "predict_seconds": "predict (s)",
        }
        blocks: dict[int | None, list[list[str]]] = {}
        exact = dataclasses.replace(summary([self.exact]), method=self.exact_name)
        for row in [*self.summaries(), exact, *(summary([run]) for run in self.baselines)]:
            cells = [str(Measurement(row.mean[m], row.standard_error[m])) for m in measures]
            width = "" if row.num_features is None else str(row.num_features)
            train = f"{self.training.seconds:.3g}" if row is exact else ""
            cells = ["" if cell == "nan" else cell for cell in cells]
            blocks.setdefault(row.num_features, []).append(
                [self.label(row.method, row.num_features), width, *cells, train]
            )
        return ReportTable(["method", "features", *measures.values(), "train (s)"], list(blocks.values()))

    @property
    def notes(self) -> str:
        """What has to be known to read the table."""
        rows, count = self.data["exact_rows"], len(self.settings["seeds"])
        notes = ["± standard error over seeds" if count > 1 else "one seed"]
        if rows < self.data["num_train"]:
            notes.append(f"divergences between fits to {rows:,} rows, the rest for fits to {self.data['num_train']:,}")
        return "; ".join([*notes, "all methods have the parameters of the exact model"])

    def table(self) -> str:
        """A table for terminals: means and standard errors by method and number of features, other models last."""
        return f"{self.scores()}\n{self.notes}"

    def label(self, method: str, num_features: int | None) -> str:
        """The name of a method, with the one that "auto" took in brackets."""
        is_auto = method == "auto" and num_features is not None
        return f"auto ({self.settings['auto'][num_features]})" if is_auto else method

    def panels(self) -> list[tuple[str, str, float | None]]:
        """Measures to draw, with their labels and the values of the exact model."""
        exact, is_regression = self.exact, self.data["task"] == "regression"
        trust = ("coverage", "coverage of 95 %", exact.coverage)
        if not is_regression:
            trust = ("overconfidence", "confidence − accuracy", exact.overconfidence)
        return [
            ("kl", "KL(approximate, exact)", None),
            ("error", f"test {self.error_name}", exact.error),
            ("mnll", "test MNLL", exact.mnll),
            *([trust] if trust[2] is not None else []),
        ]

    def drawn(self) -> list[str]:
        """The methods in figures: that of the verdict, and others of the smallest KL; at most four, in their order."""
        best = self.verdict()
        kl: dict[str, float] = dict.fromkeys(self.settings["methods"], math.inf)
        for row in self.summaries():
            is_best = (self.label(row.method, row.num_features), row.num_features) == (best.method, best.num_features)
            kl[row.method] = min(kl[row.method], -math.inf if is_best else row.mean["kl"])
        chosen = sorted(kl, key=lambda method: kl[method])[:_MOST_CURVES]
        return [method for method in kl if method in chosen]

    @property
    def drawn_note(self) -> str:
        """Which methods figures show, where these are not all."""
        shown, count = len(self.drawn()), len(self.settings["methods"])
        which = "the best one, and the others with the smallest KL to the exact model"
        return f"{shown} of {count} methods: {which}" if shown < count else ""

    def draw(self, measure: str, label: str, level: float | None, by_time: bool, ax: Axes | None = None) -> Axes:
        """A measure against the number of features, or against time."""
        rows = self.summaries()
        levels = {run.method: getattr(run, measure) for run in self.baselines if run.method == "linear"}
        levels = {} if measure == "kl" else levels
        values = [*levels.values(), *(row.mean[measure] for row in rows), *([] if level is None else [level])]
        is_density = measure == "mnll" and self.data["task"] == "regression"
        if measure in ("coverage", "overconfidence"):
            levels = {"nominal": LEVEL if measure == "coverage" else 0.0}
        return plots.comparison(
            {method: _curve(rows, method, measure, by_time) for method in self.drawn()},
            exact=level,
            exact_x=self.exact.seconds if by_time else None,
            exact_name=self.exact_name,
            levels=levels,
            xlabel="time to fit and predict (s)" if by_time else "number of features",
            ylabel=label,
            log_x=10 if by_time else 2,
            log_y=measure in ("kl", "error", "mnll") and min(values) > 0 and not is_density,
            ax=ax,
        )

    def figure(self) -> Figure:
        """KL, error, MNLL and coverage against the number of features (top) and against time (bottom)."""
        panels = self.panels()
        figure, axes = plots.figure(2, len(panels), 2.9)
        for column, panel in enumerate(panels):
            for ax, by_time in zip(axes[:, column], (False, True), strict=True):
                self.draw(*panel, by_time, ax)
        plots.legend(figure, list(axes.flat), columns=5)
        count = len(self.settings["seeds"])
        figure.suptitle(
            f"{self.data['name']}, {self.settings['kernel']} kernel, {self.data['num_train']:,} training rows: "
            + (f"mean and standard error over {count} seeds" if count > 1 else "one seed")
            + (f"\n{self.drawn_note}" if self.drawn_note else ""),
            fontsize="medium",
        )
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON has it: numbers that are not finite become None."""
        summaries = [dataclasses.asdict(row) for row in self.summaries()]
        return plain(
            {**dataclasses.asdict(self), "summaries": summaries, "verdict": dataclasses.asdict(self.verdict())}
        )


def _curve(rows: list[Summary], method: str, measure: str, by_time: bool) -> plots.Curve:
    selected = [row for row in rows if row.method == method]
    return plots.Curve(
        [row.mean["seconds"] if by_time else row.num_features for row in selected],
        [row.mean[measure] for row in selected],
        [row.standard_error[measure] for row in selected],
    )

"""The report of a comparison of methods."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..diagnostics.measurement import Measurement
from . import plots
from .names import spoken
from .record import StudyRecord
from .report import Page, ReportTable, Section
from .verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEANINGS = {
    "KL to exact": "KL(approximate, exact) of the latent function, summed over up to 1,000 test rows. 0 is exact; "
    "divided by the rows, up to 0.1 is close.",
    "RMSE": "root mean squared error, in units of the target.",
    "RMSE / sd": "root mean squared error of targets over their standard deviations.",
    "error rate": "part of the test rows whose most probable class is not theirs.",
    "MNLL": "mean negative log likelihood of the test targets: lower is better, and it punishes wrong error bars.",
    "coverage": "part of the test targets inside intervals that should have 95 % of them.",
    "overconfidence": "mean probability of the predicted class, less the part that is right: 0 is as it should be.",
    "kernel error": "relative error of the kernel matrix of test rows.",
    "fit, predict, train": "wall-clock seconds: of a fit with known parameters, of predictions for all test rows, and "
    "of the search for parameters, which all methods share.",
}


def page(result: StudyRecord) -> Page:
    """The report of a study: verdict, figures, tables, and what is needed to repeat it."""
    data, count, verdict = result.data, len(result.settings["seeds"]), result.verdict()
    kind = f"{data['task']}, {data['num_train']:,} training rows, {data['num_test']:,} test rows"
    kind += f", {data['input_dim']} inputs"
    if data.get("num_classes"):
        kind += f", {data['num_classes']} classes"
    if data.get("outputs"):
        kind += f", {len(data['outputs'])} targets"
    shown = {"KL to exact", result.error_name, "MNLL", result.trust, "kernel error", "fit, predict, train"}
    of_data = {name: value for name, value in data.items() if name not in ("columns", "origin")}
    machine = result.environment["versions"] | {k: v for k, v in result.environment.items() if k != "versions"}
    sections = [
        Section(
            "Figures",
            [f"Curves show {result.drawn_note}."] if result.drawn_note else [],
            figures=lambda: _figures(result),
        ),
        Section("All methods", table=result.scores(kernel_error="kernel error"), note=f"{result.notes}."),
        *_outputs(result, verdict),
        *_kernels(result),
        Section("What the methods are", pairs={method: spoken(method) for method in result.settings["methods"]}),
        Section("What the numbers mean", pairs={name: words for name, words in _MEANINGS.items() if name in shown}),
        Section(
            "The data",
            pairs={name: value for name, value in of_data.items() if value not in (None, [])},
            code=data.get("columns") or "",
        ),
        Section("The exact model", code=str(result.training)),
        Section("To repeat it", code=command(result)),
        Section(pairs=result.settings | machine),
    ]
    return Page(
        f"{data['name']}: random features against the exact Gaussian process",
        verdict.headline,
        verdict.reasons,
        sections,
        verdict.advice,
        f"{kind}; {result.settings['kernel']} kernel; {count} seed{'s' if count > 1 else ''}.",
    )


def command(result: StudyRecord) -> str:
    """A command that measures the same again."""
    settings, data = result.settings, result.data
    origin = data.get("origin") or shlex.quote(data["name"])
    options = {
        "--kernel": settings.get("kernel_asked", settings["kernel"]),
        "--methods": ",".join(asked) if (asked := result.request.get("methods")) else None,
        "--num-features": ",".join(map(str, settings["num_features"])),
        "--seeds": str(len(settings["seeds"])),
        "--exact-limit": str(settings["exact_limit"]),
        "--alpha-epsilon": None if settings["alpha_epsilon"] is None else f"{settings['alpha_epsilon']:g}",
        "--scaling": settings["scaling"],
    }
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    return f"rfgp study {origin} {shlex.join(words)}"


def _figures(result: StudyRecord) -> Iterator[tuple[str, Figure]]:
    """How far from the exact model methods are, by their time, and scores of models; with what they show."""
    figure, axes = plots.figure(1, 1, 4.6, 4.2)
    panel = result.panels()[0]
    result.draw(*panel, True, axes[0, 0])
    plots.legend(figure, [axes[0, 0]], columns=2)
    yield f"{panel[1]} by time", figure
    for measure, label in {"error": f"test {result.error_name}", "mnll": "test MNLL"}.items():
        yield (
            f"{label[0].upper()}{label[1:]} of the best approximation, the exact model and the baselines",
            _models(result, measure, label),
        )


def _models(result: StudyRecord, measure: str, label: str) -> Figure:
    """The best approximation of the verdict beside the exact model and the baselines."""
    facts, verdict = result.facts(), result.verdict()
    (best,) = [m for m in facts.approximations if (m.name, m.num_features) == (verdict.method, verdict.num_features)]
    models = {f"{best.name},\n{best.num_features} features": best, result.exact_name: facts.exact, **facts.baselines}
    estimates = {name: getattr(model, measure) for name, model in models.items()}
    means = {name: estimate.mean for name, estimate in estimates.items()}
    errors = {name: estimate.error for name, estimate in estimates.items()}
    figure, axes = plots.figure(1, 1, 4.6, 2.6)
    plots.estimates(means, errors, xlabel=label, ax=axes[0, 0])
    return figure


def _outputs(result: StudyRecord, verdict: Verdict) -> list[Section]:
    """A table of single outputs where there are several: of the best approximation, and of the other models."""
    if not result.data.get("outputs"):
        return []
    labels = {result.label(method, verdict.num_features): method for method in result.settings["methods"]}
    models = [result.of(labels[verdict.method], verdict.num_features)[0], result.exact, *result.baselines]
    names = [verdict.method, "exact", *(run.method for run in result.baselines)]
    header = ["target", *(f"{m}, {name}" for name in names for m in ("RMSE", "MNLL", "coverage"))]
    rows = [
        [output, *(f"{value:.4g}" for run in models for value in run.outputs[output].values())]
        for output in result.data["outputs"]
    ]
    note = "In units of the targets; of the approximation the first seed."
    return [Section("Each target", table=ReportTable(header, [rows]), note=note)]


def _kernels(result: StudyRecord) -> list[Section]:
    """The kernels that were tried."""
    if not result.kernels:
        return []
    rows = [[c.kernel, f"{c.nlpd:.4g}", str(Measurement(c.behind, c.behind_error))] for c in result.kernels]
    return [Section("Kernels", table=ReportTable(["kernel", "NLPD of left-out rows", "behind the best"], [rows]))]

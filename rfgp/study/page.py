"""The report of a study as one HTML file, with figures inside, which needs no network."""

from __future__ import annotations

import shlex
from html import escape

from ..diagnostics.measurement import Measurement
from . import plots
from .html import document, image, pairs, table
from .names import spoken
from .record import StudyRecord
from .verdict import Verdict

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


def html(result: StudyRecord) -> str:
    """The report of a study: verdict, figures, tables, and what is needed to repeat it."""
    data, count = result.data, len(result.settings["seeds"])
    kind = f"{data['task']}, {data['num_train']:,} training rows, {data['num_test']:,} test rows"
    kind += f", {data['input_dim']} inputs"
    if data.get("num_classes"):
        kind += f", {data['num_classes']} classes"
    if data.get("outputs"):
        kind += f", {len(data['outputs'])} targets"
    shown = {"KL to exact", result.error_name, "MNLL", result.trust, "kernel error", "fit, predict, train"}
    parts = [
        f"<h1>{escape(data['name'])}: random features against the exact Gaussian process</h1>",
        f'<p class="note">{escape(kind)}; {escape(result.settings["kernel"])} kernel; '
        f"{count} seed{'s' if count > 1 else ''}.</p>",
        _verdict(result.verdict()),
        "<h2>Figures</h2>",
        _figures(result),
        "<h2>All methods</h2>",
        _methods(result),
        *_outputs(result),
        *_kernels(result),
        "<h2>What the methods are</h2>",
        pairs({method: spoken(method) for method in result.settings["methods"]}),
        "<h2>What the numbers mean</h2>",
        pairs({name: meaning for name, meaning in _MEANINGS.items() if name in shown}),
        "<h2>The data</h2>",
        pairs(
            {
                name: value
                for name, value in data.items()
                if name not in ("columns", "origin") and value not in (None, [])
            }
        ),
        f"<pre>{escape(data['columns'])}</pre>" if data.get("columns") else "",
        "<h2>The exact model</h2>",
        f"<pre>{escape(str(result.training))}</pre>",
        "<h2>To repeat it</h2>",
        f"<pre>{escape(command(result))}</pre>",
        pairs(result.settings),
        pairs({**result.environment["versions"], **{k: v for k, v in result.environment.items() if k != "versions"}}),
    ]
    return document(f"{data['name']}: study", parts)


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


def _verdict(verdict: Verdict) -> str:
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict.reasons)
    advice = "".join(f"<p>{escape(words)}</p>" for words in verdict.advice)
    return f'<div class="verdict"><p>{escape(verdict.headline)}</p><ul>{reasons}</ul>{advice}</div>'


def _figures(result: StudyRecord) -> str:
    measures = {"error": f"test {result.error_name}", "mnll": "test MNLL"}
    drawn = [_models(result, *item) for item in measures.items()]
    return f'<div class="figures">{"".join(drawn)}{_divergence(result)}</div>'


def _models(result: StudyRecord, measure: str, label: str) -> str:
    """The best approximation of the verdict beside the exact model and the baselines."""
    facts, verdict = result.facts(), result.verdict()
    (best,) = [m for m in facts.approximations if (m.name, m.num_features) == (verdict.method, verdict.num_features)]
    models = {f"{best.name},\n{best.num_features} features": best, result.exact_name: facts.exact, **facts.baselines}
    estimates = {name: getattr(model, measure) for name, model in models.items()}
    means = {name: estimate.mean for name, estimate in estimates.items()}
    errors = {name: estimate.error for name, estimate in estimates.items()}
    figure, axes = plots.figure(1, 1, 4.6, 2.6)
    plots.estimates(means, errors, xlabel=label, ax=axes[0, 0])
    return image(figure, f"{label} of the best approximation, the exact model and the baselines")


def _divergence(result: StudyRecord) -> str:
    """How far from the exact model every method is, by its time."""
    figure, axes = plots.figure(1, 1, 4.6, 4.2)
    panel = result.panels()[0]
    result.draw(*panel, True, axes[0, 0])
    plots.legend(figure, [axes[0, 0]], columns=2)
    return image(figure, f"{panel[1]} by time")


def _methods(result: StudyRecord) -> str:
    measures = {
        "kl": "KL to exact",
        "error": result.error_name,
        "mnll": "MNLL",
        result.trust: result.trust,
        "kernel_error": "kernel error",
        "fit_seconds": "fit (s)",
        "predict_seconds": "predict (s)",
    }
    header = ["method", "features", *measures.values(), "train (s)"]
    return f'{table(header, result.rows(measures))}<p class="note">{escape(result.notes)}.</p>'


def _outputs(result: StudyRecord) -> list[str]:
    """A table of single outputs where there are several: of the best approximation, and of the other models."""
    if not result.data.get("outputs"):
        return []
    verdict = result.verdict()
    runs = [run for run in result.runs if (run.method, run.num_features) == _method(result, verdict)][:1]
    blocks = [
        [[output, *(f"{by[measure]:.4g}" for run in models for by in [run.outputs[output]] for measure in by)]]
        for output in result.data["outputs"]
        for models in [[*runs, result.exact, *result.baselines]]
    ]
    names = [verdict.method, "exact", *(run.method for run in result.baselines)]
    header = ["target", *(f"{m}, {name}" for name in names for m in ("RMSE", "MNLL", "coverage"))]
    note = '<p class="note">In units of the targets; of the approximation the first seed.</p>'
    return ["<h2>Each target</h2>", table(header, blocks), note]


def _method(result: StudyRecord, verdict: Verdict) -> tuple[str, int | None]:
    """The method of a verdict as settings have it."""
    labels = {result.label(method, verdict.num_features): method for method in result.settings["methods"]}
    return labels[verdict.method], verdict.num_features


def _kernels(result: StudyRecord) -> list[str]:
    if not result.kernels:
        return []
    rows = [[c.kernel, f"{c.nlpd:.4g}", str(Measurement(c.behind, c.behind_error))] for c in result.kernels]
    header = ["kernel", "NLPD of left-out rows", "behind the best"]
    return ["<h2>Kernels</h2>", table(header, [rows])]

"""The report of a study as one HTML file, with figures inside, which needs no network."""

from __future__ import annotations

import base64
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

from ..diagnostics.measurement import Measurement
from . import plots
from .record import StudyRecord
from .verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOCUMENT = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 66rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
.verdict { border-left: 4px solid #0072b2; background: #f3f7fa; padding: .6rem 1rem; margin: 1rem 0; }
.verdict p { font-size: 1.1rem; font-weight: 600; margin: .2rem 0; }
.verdict ul { margin: .5rem 0; padding-left: 1.2rem; }
.box { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #eee; }
th { border-bottom: 1px solid #888; font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
tbody + tbody tr:first-child td { border-top: 1px solid #999; }
.wrap td { white-space: normal; text-align: left; vertical-align: top; }
.wrap td:first-child { white-space: nowrap; color: #555; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure { margin: 0; }
img { max-width: 100%; height: auto; display: block; }
pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; font-size: .8rem; line-height: 1.35; }
.note { color: #555; font-size: .85rem; }
@media print { body { max-width: none; font-size: 10pt; } .box, pre { overflow: visible; white-space: pre-wrap; }
  figure, tr, .verdict { break-inside: avoid; } }
</style>
</head>
<body>
$body
</body>
</html>
""")

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
        "<h2>What the numbers mean</h2>",
        _pairs({name: meaning for name, meaning in _MEANINGS.items() if name in shown}),
        "<h2>The data</h2>",
        _pairs(
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
        _pairs(result.settings),
        _pairs({**result.environment["versions"], **{k: v for k, v in result.environment.items() if k != "versions"}}),
    ]
    return _DOCUMENT.substitute(title=escape(f"{data['name']}: study"), body="\n".join(filter(None, parts)))


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
    drawn += [_panel(result, panel, by_time=False) for panel in result.panels()]
    drawn += [_panel(result, panel, by_time=True) for panel in result.panels()[:3]]
    return f'<div class="figures">{"".join(drawn)}</div>'


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
    return _image(figure, f"{label} of the best approximation, the exact model and the baselines")


def _panel(result: StudyRecord, panel: tuple[str, str, float | None], by_time: bool) -> str:
    """A measure of all methods, with a legend of its own."""
    figure, axes = plots.figure(1, 1, 4.6, 4.2)
    result.draw(*panel, by_time, axes[0, 0])
    plots.legend(figure, [axes[0, 0]], columns=2)
    return _image(figure, f"{panel[1]} by {'time' if by_time else 'number of features'}")


def _image(figure: Figure, name: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    text = base64.b64encode(buffer.getvalue()).decode()
    return f'<figure><img alt="{escape(name, quote=True)}" src="data:image/png;base64,{text}"></figure>'


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
    return f'{_table(header, result.rows(measures))}<p class="note">{escape(result.notes)}.</p>'


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
    return ["<h2>Each target</h2>", _table(header, blocks), note]


def _method(result: StudyRecord, verdict: Verdict) -> tuple[str, int | None]:
    """The method of a verdict as settings have it."""
    labels = {result.label(method, verdict.num_features): method for method in result.settings["methods"]}
    return labels[verdict.method], verdict.num_features


def _kernels(result: StudyRecord) -> list[str]:
    if not result.kernels:
        return []
    rows = [[c.kernel, f"{c.nlpd:.4g}", str(Measurement(c.behind, c.behind_error))] for c in result.kernels]
    header = ["kernel", "NLPD of left-out rows", "behind the best"]
    return ["<h2>Kernels</h2>", _table(header, [rows])]


def _table(header: Sequence[str], blocks: Iterable[Iterable[Sequence[str]]]) -> str:
    """A table that scrolls in a box of its own."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    bodies = "".join(f"<tbody>{''.join(f'<tr>{_cells(row)}</tr>' for row in block)}</tbody>" for block in blocks)
    return f'<div class="box"><table><thead><tr>{head}</tr></thead>{bodies}</table></div>'


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<td>{escape(cell)}</td>" for cell in row)


def _pairs(values: Mapping[str, Any]) -> str:
    """Names and values, a row each."""
    rows = "".join(f"<tr>{_cells([name, _text(value)])}</tr>" for name, value in values.items())
    return f'<div class="box"><table class="wrap"><tbody>{rows}</tbody></table></div>'


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

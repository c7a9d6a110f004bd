"""An uncertainty study in words and tables, for people and for files."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...diagnostics.sensitivity.estimate import Estimate
from ..report import table
from .findings import Findings

_GOOD, _FAIR = 0.99, 0.9
"""Shares of the variance that an emulator of good and of fair quality predicts."""
_FAR = 5.0
_MATTERS = 0.01
_OUTSIDE = 0.02
_QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Section:
    """A part of the page: a title, sentences, a table, and what its columns mean."""

    title: str
    sentences: list[str]
    header: list[str]
    blocks: list[list[list[str]]]
    note: str = ""


def page(study: Findings) -> str:
    """The whole study as plain text."""
    parts = [heading(study)]
    for section in sections(study):
        lines = [section.title, *section.sentences, "", table(section.header, section.blocks)]
        parts.append("\n".join(lines + ([section.note] if section.note else [])))
    return "\n\n".join(parts)


def heading(study: Findings) -> str:
    """What was studied, in a line."""
    count, dim, outputs = len(study.runs.x), len(study.runs.inputs), len(study.runs.outputs)
    return f"Uncertainty study: {count:,} runs, {_counted(dim, 'input')}, {_counted(outputs, 'output')}"


def sections(study: Findings) -> list[Section]:
    """The parts of the page."""
    return [_check(study), _indices(study), _outputs(study), *_exceedance(study), _next(study), _inputs(study)]


def _check(study: Findings) -> Section:
    check, sentences, rows = study.check, [], []
    for t, name in enumerate(study.runs.outputs):
        explained, spread, farthest = (float(part[t]) for part in (check.explained, check.spread, check.farthest))
        quality = "well" if explained >= _GOOD else "fairly" if explained >= _FAIR else "badly"
        sentences.append(f"{name} is predicted {quality}: {_percent(explained)} of its variance.")
        if explained < _FAIR:
            sentences.append("  Indices and quantiles of it are rough; do more runs.")
        if spread > 1.0:
            sentences.append(f"  Its intervals were too narrow, and have been widened by a factor of {spread:.2f}.")
        if farthest > _FAR:
            run = int(check.worst[t]) + 1
            sentences.append(f"  Look at run {run}: it is {farthest:.1f} standard deviations from what others say.")
        rows.append([name, f"{float(check.rmse[t]):.3g}", f"{explained:.4f}", f"{float(check.coverage[t]):.3f}"])
        rows[-1].append(f"x {spread:.2f}" if spread > 1.0 else "as it is")
    return Section(
        "Can the emulator be trusted?",
        sentences,
        ["output", "RMSE", "R2", "in 95 %", "width"],
        [rows],
        "Every run is predicted by the others; in 95 %: the share of runs inside their 95 % intervals.",
    )


def _indices(study: Findings) -> Section:
    names, sentences, blocks = list(study.runs.inputs), [], []
    for t, output in enumerate(study.runs.outputs):
        first, total = study.sobol.first[t], study.sobol.total[t]
        order = total.value.argsort(descending=True).tolist()
        sentences.append(f"{output}: {_what_matters(names, order, first.value, total.value)}")
        blocks.append([[output, names[k], *_with_interval(first, k), *_with_interval(total, k)] for k in order])
    return Section(
        "Which inputs matter?",
        sentences,
        ["output", "input", "alone", "95 %", "with others", "95 %"],
        blocks,
        "Shares of the variance of the output: of the input alone (first-order Sobol' index), and with its "
        "interactions (total).",
    )


def _what_matters(names: list[str], order: list[int], first: Tensor, total: Tensor) -> str:
    largest = [k for k in order if float(total[k]) >= _MATTERS][:3]
    words = ", ".join(f"{names[k]} {_percent(float(total[k]))}" for k in largest)
    idle = [names[k] for k in order if float(total[k]) < _MATTERS]
    interactions = max(0.0, 1.0 - float(first.sum()))
    text = f"{words}; {_percent(interactions)} is due to interactions."
    return text + (f" Less than 1 %: {', '.join(idle)}." if idle else "")


def _outputs(study: Findings) -> Section:
    known, rows = study.propagation, []
    quantiles = {level: known.quantile(level) for level in _QUANTILES}
    for t, name in enumerate(study.runs.outputs):
        cells = [name, *(f"{float(part[t]):.4g}" for part in (known.mean, known.input_std, known.model_std))]
        rows.append(cells + [_between(quantiles[level], t) for level in _QUANTILES])
    return Section(
        "How uncertain are the outputs?",
        [],
        ["output", "mean", "sd, inputs", "sd, model", *(f"{level:.0%} quantile" for level in _QUANTILES)],
        [rows],
        "sd, inputs: what the uncertain inputs contribute; sd, model: what more runs would remove. Quantiles with 95 % "
        "intervals.",
    )


def _exceedance(study: Findings) -> list[Section]:
    rows = [
        [name, f"{limit:.4g}", f"{value:.4f}", f"{low:.4f} to {high:.4f}"]
        for name, (limit, value, low, high) in study.exceedance.items()
    ]
    header = ["output", "threshold", "probability", "95 %"]
    return [Section("How likely is it that a threshold is exceeded?", [], header, [rows])] if rows else []


def _next(study: Findings) -> Section:
    before, after = study.model_std[0], study.model_std[-1]
    both = zip(study.runs.outputs, before.tolist(), after.tolist(), strict=True)
    gains = [f"{name} {first:.2g} to {last:.2g}" for name, first, last in both]
    columns = zip(study.runs.inputs, study.next_inputs.mT.tolist(), strict=True)
    rows = [[name, *(f"{value:.4g}" for value in values)] for name, values in columns]
    sentence = "After these runs, what the model does not know goes, as a standard deviation, from"
    header = ["input", *(f"run {i + 1}" for i in range(len(study.next_inputs)))]
    return Section("What should be run next?", [sentence, *gains], header, [rows])


def _inputs(study: Findings) -> Section:
    rows, sentences = [], []
    middles = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000.0
    for k, (name, known) in enumerate(study.runs.inputs.items()):
        values, runs = known.quantile(middles), study.runs.x[:, k]
        outside = float(((values < runs.min()) | (values > runs.max())).double().mean())
        by = "assumed: the range of the runs" if name in study.runs.assumed else "given"
        rows.append([name, f"{known}", by, f"{outside:.1%}"])
        if outside > _OUTSIDE:
            sentences.append(
                f"{outside:.0%} of {name} is outside the runs, where predictions are guesses: do runs there."
            )
    header = ["input", "distribution", "by", "outside the runs"]
    return Section("What was assumed of the inputs?", sentences, header, [rows])


def _with_interval(estimate: Estimate, k: int) -> list[str]:
    low, high = estimate.interval()
    return [f"{max(float(estimate.value[k]), 0.0):.3f}", f"{float(low[k]):.3f} to {float(high[k]):.3f}"]


def _between(estimate: Estimate, t: int) -> str:
    low, high = estimate.interval()
    return f"{float(estimate.value[t]):.4g} ({float(low[t]):.4g} to {float(high[t]):.4g})"


def _percent(share: float) -> str:
    """A share in percent, which is 100 only where nothing is left."""
    if 0.99 < share < 1.0:
        return "more than 99.99 %" if share > 0.9999 else f"{math.floor(1e4 * share) / 100.0:.2f} %"
    return "less than 1 %" if share < 0.005 else f"{100.0 * share:.0f} %"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")

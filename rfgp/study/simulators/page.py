"""The report of an uncertainty study: the check, what matters, how uncertain outputs are, and what to run next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from ...diagnostics.sensitivity.estimate import Estimate
from .. import plots
from ..report import Page, ReportTable, Section
from .findings import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GOOD, _FAIR = 0.99, 0.9
"""Shares of the variance that an emulator of good and of fair quality predicts."""
_FAR = 5.0
_MATTERS = 0.01
_OUTSIDE, _OUTSIDE_OF_VARIANCE = 0.02, 0.1
_APART = 0.1
"""By how much mean ranks of an input, as shares, differ where failed runs are said to be."""
_QUANTILES = (0.05, 0.5, 0.95)
_MOST_BARS, _MOST_LINES, _MOST_CHARACTERS = 8, 4, 40
"""Inputs of a figure of indices, of one of main effects, and characters of names that fit beside each other."""


def page(study: Findings) -> Page:
    """The whole study in words, tables and figures."""
    sections = [_check(study), _indices(study), _outputs(study), *_exceedance(study), *_failed(study)]
    sections += [_next(study), _inputs(study)]
    return Page(heading(study), "Can the emulator be trusted?", _trust(study), sections)


def heading(study: Findings) -> str:
    """What was studied, in a line."""
    count, dim, outputs = len(study.runs.x), len(study.runs.inputs), len(study.runs.outputs)
    failed = int(study.runs.y.isnan().any(-1).sum())
    which = f" ({failed:,} failed)" if failed else ""
    return f"Uncertainty study: {count:,} runs{which}, {_counted(dim, 'input')}, {_counted(outputs, 'output')}"


def _trust(study: Findings) -> list[str]:
    """How well each output is predicted, and what to look at."""
    check, sentences = study.check, []
    for t, name in enumerate(study.runs.outputs):
        explained, spread, farthest = (float(part[t]) for part in (check.explained, check.spread, check.farthest))
        quality = "well" if explained >= _GOOD else "fairly" if explained >= _FAIR else "badly"
        where = " where runs succeeded" if study.failed[t] else ""
        sentences.append(f"{name} is predicted {quality}{where}: {_percent(explained)} of its variance.")
        sentences += _failures(study, t) + _repeated(study, t)
        if explained < _FAIR:
            sentences.append("  Indices and quantiles of it are rough; do more runs.")
        if spread > 1.0:
            sentences.append(f"  Its intervals were too narrow, and have been widened by a factor of {spread:.2f}.")
        if farthest > _FAR:
            run = int(check.worst[t]) + 1
            sentences.append(f"  Look at run {run}: it is {farthest:.1f} standard deviations from what others say.")
    return sentences


def _check(study: Findings) -> Section:
    check = study.check
    columns = zip(study.runs.outputs, *(part.tolist() for part in (check.rmse, check.explained)), strict=True)
    rows = [[name, f"{rmse:.3g}", f"{explained:.4f}"] for name, rmse, explained in columns]
    for row, coverage, spread in zip(rows, check.coverage.tolist(), check.spread.tolist(), strict=True):
        row += [f"{coverage:.3f}", f"{max(spread, 1.0):.2f}"]
    return Section(
        table=ReportTable(["output", "RMSE", "R2", "in 95 %", "width"], [rows]),
        note="Every run is predicted by others, from which all is learned anew; in 95 %: the share of runs inside "
        "their 95 % intervals; width: by what intervals have been multiplied.",
    )


def _failures(study: Findings, t: int) -> list[str]:
    """How many runs failed, and what this means for indices and quantiles."""
    failed, count = int(study.failed[t]), len(study.runs.x)
    if not failed:
        return []
    share = _percent(float(study.lost[t]))
    return [
        f"  {failed:,} of {count:,} runs have no value of it: they failed. {share} of the inputs are expected to fail; "
        "there indices and quantiles are guesses from runs elsewhere."
    ]


def _repeated(study: Findings, t: int) -> list[str]:
    """Which value is repeated, and which bounds are taken."""
    limits, words = study.limits, []
    most, low, high = limits.repeated[t], float(limits.low[t]), float(limits.high[t])
    if most is not None:
        words.append(
            f"  {most.count:,} runs have the value {most.value:.4g} of it: near repeated values it is predicted worse."
        )
    bounds = [f"{what} {value:.4g}" for what, value in (("at least", low), ("at most", high)) if math.isfinite(value)]
    if bounds:
        words.append(f"  It is taken to be {' and '.join(bounds)}: its repeated values are a bound.")
    return words


def _failed(study: Findings) -> list[Section]:
    """Where runs failed: medians of the inputs, those first that differ most."""
    sentences, blocks, count = [], [], len(study.runs.x)
    for t in study.failed.nonzero().flatten().tolist():
        has_run, output, failed = study.failures.has_run[:, t], study.runs.outputs[t], int(study.failed[t])
        without, others = study.runs.x[~has_run], study.runs.x[has_run]
        ranks = (study.runs.x.argsort(0).argsort(0) + 0.5) / count
        apart = ranks[~has_run].mean(0) - ranks[has_run].mean(0)
        order = apart.abs().argsort(descending=True).tolist()
        both = zip(study.runs.inputs, without.median(0).values.tolist(), others.median(0).values.tolist(), strict=True)
        rows = [[output, name, f"{low:.4g}", f"{high:.4g}"] for name, low, high in both]
        blocks.append([rows[k] for k in order])
        right = study.failures.recognized(t)
        known = f"by others, {right[0]:,} of {failed:,} are recognized, and {right[1]:,} of {count - failed:,} others"
        if sum(right) > max(failed, count - failed):
            sides = [f"{rows[k][1]} is {'large' if apart[k] > 0.0 else 'small'}" for k in order[:2]]
            apart_enough = [side for side, k in zip(sides, order, strict=False) if abs(float(apart[k])) > _APART]
            place = f"most where {' and '.join(apart_enough)}" if apart_enough else "in a part of the inputs"
            sentences.append(f"{output}: runs fail {place}; {known}.")
        else:
            sentences.append(f"{output}: runs do not fail in one part of the inputs; {known}.")
    table = ReportTable(["output", "input", "median of failed", "of others"], blocks)
    note = "The runs below are where runs are expected to succeed."
    return [Section("Where do runs fail?", sentences, table, note)] if blocks else []


def _indices(study: Findings) -> Section:
    names, sentences, blocks = list(study.runs.inputs), [], []
    for t, output in enumerate(study.runs.outputs):
        first, total = study.sobol.first[t], study.sobol.total[t]
        order = total.value.argsort(descending=True).tolist()
        sentences.append(f"{output}: {_what_matters(names, order, first.value, total.value)}")
        blocks.append([[output, names[k], *_with_interval(first, k), *_with_interval(total, k)] for k in order])
    sentences += _beyond(study)
    return Section(
        "Which inputs matter?",
        sentences,
        ReportTable(["output", "input", "alone", "95 %", "with others", "95 %"], blocks),
        "Shares of the variance of the output: of the input alone (first-order Sobol' index), and with its "
        "interactions (total).",
        figures=lambda: _figures(study),
    )


def _beyond(study: Findings) -> list[str]:
    """The inputs of which much of the variance is outside the runs."""
    shares = dict(zip(study.runs.inputs, study.sobol.outside[1].tolist(), strict=True))
    far = [f"{share:.0%} of that of {name}" for name, share in shares.items() if share > _OUTSIDE_OF_VARIANCE]
    if not far:
        return []
    return [
        f"Outside the runs there is a part of the variance of inputs: {', '.join(far)}. There outputs are taken to go "
        "on as at the edge of the runs, by a factor that is not known; intervals are as wide as that makes them."
    ]


def _what_matters(names: list[str], order: list[int], first: Tensor, total: Tensor) -> str:
    largest = [k for k in order if float(total[k]) >= _MATTERS][:3]
    words = ", ".join(f"{names[k]} {_percent(float(total[k]))}" for k in largest)
    idle = [names[k] for k in order if float(total[k]) < _MATTERS]
    interactions = max(0.0, 1.0 - float(first.sum()))
    text = f"{words}; {_percent(interactions)} is due to interactions."
    return text + (f" Less than 1 %: {', '.join(idle)}." if idle else "")


def _figures(study: Findings) -> Iterator[tuple[str, Figure]]:
    """Indices and main effects of each output, with what they show."""
    some = len(study.runs.inputs) > _MOST_LINES
    which = f" ({_MOST_LINES} inputs with the largest total indices)" if some else ""
    for t, output in enumerate(study.runs.outputs):
        bars, lines = _figures_of(study, t)
        yield f"Sobol' indices of {output}", bars
        yield f"Main effects on {output}{which}", lines


def _figures_of(study: Findings, t: int) -> tuple[Figure, Figure]:
    names, output = [*map(plots.literal, study.runs.inputs)], plots.literal(study.runs.outputs[t])
    order = study.sobol.total.value[t].argsort(descending=True).tolist()[:_MOST_BARS]
    shown = [names[k] for k in order]
    first, total = study.sobol.first[t], study.sobol.total[t]
    bars, axes = plots.figure(1, 1, 4.6, 3.4)
    intervals = [(low[order], high[order]) for low, high in (first.interval(), total.interval())]
    plots.sobol_bars(
        shown,
        first.value[order],
        total.value[order],
        *intervals,
        ylabel="share of the variance",
        ax=axes[0, 0],
    )
    if sum(map(len, shown)) > _MOST_CHARACTERS:
        axes[0, 0].tick_params(axis="x", labelrotation=25)
    plots.legend(bars, [axes[0, 0]])
    order, shown = order[:_MOST_LINES], shown[:_MOST_LINES]
    effect = study.effects.effect[t]
    lines, axes = plots.figure(1, 1, 4.6, 3.4)
    low, high = effect.interval()
    plots.main_effects(
        shown,
        study.effects.grid[:, order],
        effect.value[:, order],
        (low[:, order], high[:, order]),
        ylabel=f"mean of {output}",
        ax=axes[0, 0],
    )
    plots.legend(lines, [axes[0, 0]], columns=2)
    return bars, lines


def _outputs(study: Findings) -> Section:
    known, rows = study.propagation, []
    quantiles = {level: known.quantile(level) for level in _QUANTILES}
    for t, name in enumerate(study.runs.outputs):
        cells = [name, *(f"{float(part[t]):.4g}" for part in (known.mean, known.input_std, known.model_std))]
        rows.append(cells + [_between(quantiles[level], t) for level in _QUANTILES])
    return Section(
        "How uncertain are the outputs?",
        table=ReportTable(
            ["output", "mean", "sd, inputs", "sd, model", *(f"{level:.0%} quantile" for level in _QUANTILES)], [rows]
        ),
        note="sd, inputs: what the uncertain inputs contribute; sd, model: what more runs would remove. "
        "Quantiles with 95 % intervals.",
    )


def _exceedance(study: Findings) -> list[Section]:
    rows = [
        [name, f"{limit:.4g}", f"{value:.4f}", f"{low:.4f} to {high:.4f}"]
        for name, (limit, value, low, high) in study.exceedance.items()
    ]
    table = ReportTable(["output", "threshold", "probability", "95 %"], [rows])
    return [Section("How likely is it that a threshold is exceeded?", table=table)] if rows else []


def _next(study: Findings) -> Section:
    before, after = study.model_std[0], study.model_std[-1]
    both = zip(study.runs.outputs, before.tolist(), after.tolist(), strict=True)
    gains = [f"{name} {first:.2g} to {last:.2g}" for name, first, last in both]
    columns = zip(study.runs.inputs, study.next_inputs.mT.tolist(), strict=True)
    rows = [[name, *(f"{value:.4g}" for value in values)] for name, values in columns]
    sentence = "After these runs, what the model does not know goes, as a standard deviation, from"
    header = ["input", *(f"run {i + 1}" for i in range(len(study.next_inputs)))]
    return Section("What should be run next?", [sentence, *gains], ReportTable(header, [rows]))


def _inputs(study: Findings) -> Section:
    rows, sentences = [], []
    shares = zip(study.runs.inputs.items(), *study.sobol.outside.tolist(), strict=True)
    for (name, known), outside, of_variance in shares:
        by = "assumed: the range of the runs" if name in study.runs.assumed else "given"
        rows.append([name, f"{known}", by, f"{outside:.1%}", f"{of_variance:.1%}"])
        if outside > _OUTSIDE or of_variance > _OUTSIDE_OF_VARIANCE:
            sentences.append(
                f"{outside:.1%} of {name} is outside the runs, with {of_variance:.0%} of its variance; predictions are "
                "guesses there, and widen the intervals of indices and quantiles: do runs there."
            )
    header = ["input", "distribution", "by", "outside the runs", "of its variance"]
    return Section("What was assumed of the inputs?", sentences, ReportTable(header, [rows]))


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

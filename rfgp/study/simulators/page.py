"""The report of an uncertainty study: the check, what matters, how uncertain outputs are, and what to run next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...diagnostics.sensitivity import MainEffects, ShapleyEffects, SobolIndices
from ...diagnostics.sensitivity.estimate import Estimate
from .. import plots
from ..report import Page, ReportTable, Section
from .findings import Findings
from .units import quantity, without_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GOOD, _FAIR = 0.99, 0.9
"""Shares of the variance that an emulator of good and of fair quality predicts."""
_FAR = 5.0
_MATTERS = 0.01
_OUTSIDE, _OUTSIDE_OF_VARIANCE = 0.02, 0.1
_APART = 0.1
"""By how much mean ranks of an input, as shares, differ where failed runs are said to be."""
_SHOWN, _TURNS = 0.1, 0.05
"""The first-order index of an input where its effect is put in words, and how far means turn back, as shares of their
range, where this is said."""
_QUANTILES = (0.05, 0.5, 0.95)
_MOST_BARS, _MOST_LINES, _MOST_CHARACTERS = 8, 4, 40
"""Inputs of a figure of indices, of one of main effects, and characters of names that fit beside each other."""


def page(study: Findings) -> Page:
    """The whole study in words, tables and figures."""
    matters = _sobol(study, study.shares) if isinstance(study.shares, SobolIndices) else _shapley(study, study.shares)
    sections = [_check(study), matters, _outputs(study), *_exceedance(study), *_failed(study)]
    sections += [_next(study), _inputs(study), *_correlations(study)]
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
        sentences.append(
            f"{name} is predicted {quality}{where}: {_percent(explained)} of its variance; "
            f"the 95 % interval of a new run is {quantity(float(check.width[t]), name, 2)} wide (median)."
        )
        sentences += _failures(study, t) + _repeated(study, t)
        if explained < _FAIR:
            sentences.append("  Indices and quantiles of it are rough; do more runs.")
        if spread > 1.0:
            sentences.append(f"  Its intervals were too narrow, and have been widened by a factor of {spread:.2f}.")
        if farthest > _FAR:
            run = int(check.worst[t]) + 1
            sentences.append(f"  Look at run {run}: it is {farthest:.1f} standard deviations from its prediction.")
    return sentences


def _check(study: Findings) -> Section:
    check = study.check
    parts = (check.rmse, check.explained, check.coverage, check.width, check.spread)
    rows = [
        [name, f"{rmse:.3g}", f"{explained:.4f}", f"{coverage:.3f}", f"{width:.2g}", f"{spread:.2f}"]
        for name, rmse, explained, coverage, width, spread in zip(
            study.runs.outputs, *(part.tolist() for part in parts), strict=True
        )
    ]
    return Section(
        table=ReportTable(["output", "RMSE", "R2", "coverage", "width of interval", "widened by"], [rows]),
        note="Every run is predicted from other runs, with parameters learned from these alone. Coverage: the share of "
        "the runs inside their 95 % intervals. The intervals are then multiplied by the factor in the last column. "
        "Width of interval: how wide they are after that, as a median over the runs that are not known to be at a "
        "bound, in the unit of the output.",
    )


def _failures(study: Findings, t: int) -> list[str]:
    """How many runs failed, and what this means for indices and quantiles."""
    failed, count = int(study.failed[t]), len(study.runs.x)
    if not failed:
        return []
    share = _percent(float(study.lost[t]))
    return [
        f"  {failed:,} of {count:,} runs failed: they have no value of it. {share} of the inputs are expected to fail; "
        "there, indices and quantiles are extrapolated from the runs that succeeded."
    ]


def _repeated(study: Findings, t: int) -> list[str]:
    """Which value is repeated, and which bounds are taken."""
    name, limits, words = study.runs.outputs[t], study.limits, []
    most, low, high = limits.repeated[t], float(limits.low[t]), float(limits.high[t])
    if most is not None:
        value, count = quantity(most.value, name), len(study.runs.x) - int(study.failed[t])
        is_worse = not limits.cuts_off[t] or low < most.value < high
        worse = ": predictions near this value are worse, and probabilities rough" if is_worse else ""
        words.append(f"  {most.count:,} of {count:,} runs have the value {value}{worse}.")
    bounds = [("at least", low), ("at most", high)]
    taken = [f"{side} {quantity(value, name)}" for side, value in bounds if math.isfinite(value)]
    if taken:
        words.append(f"  It is taken to be {' and '.join(taken)}: its repeated values are a bound.")
        if limits.cuts_off[t]:
            words.append("  The bound cuts off a function that goes on beyond it, which predicts the runs better.")
    return words


def _failed(study: Findings) -> list[Section]:
    """Where runs failed: medians of the inputs, those first that differ most."""
    sentences, blocks, count, names = [], [], len(study.runs.x), list(study.runs.inputs)
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
        known = (
            f"a classifier that has not seen a run recognizes {right[0]:,} of the {failed:,} failed runs, "
            f"and {right[1]:,} of the {count - failed:,} others"
        )
        if sum(right) > max(failed, count - failed):
            sides = [
                f"{without_unit(name)} is {'large' if apart[k] > 0.0 else 'small'} (median of failed runs "
                f"{quantity(float(without.median(0).values[k]), name)}, of others "
                f"{quantity(float(others.median(0).values[k]), name)})"
                for k, name in [(k, names[k]) for k in order[:2]]
            ]
            apart_enough = [side for side, k in zip(sides, order, strict=False) if abs(float(apart[k])) > _APART]
            place = f"most where {' and '.join(apart_enough)}" if apart_enough else "in a part of the inputs"
            sentences.append(f"{output}: runs fail {place}; {known}.")
        else:
            sentences.append(f"{output}: runs do not fail in one part of the inputs; {known}.")
    table = ReportTable(["output", "input", "median of failed", "of others"], blocks)
    note = "The next runs, which are proposed below, are where runs are expected to succeed."
    return [Section("Where do runs fail?", sentences, table, note)] if blocks else []


def _sobol(study: Findings, sobol: SobolIndices) -> Section:
    """Which inputs matter, where they do not depend on each other."""
    names, sentences, blocks = list(study.runs.inputs), [], []
    for t, output in enumerate(study.runs.outputs):
        first, total = sobol.first[t], sobol.total[t]
        order = total.value.argsort(descending=True).tolist()
        sentences.append(f"{output}: {_what_matters(names, order, first.value, total.value)}")
        if study.effects is not None and float(first.value[order[0]]) >= _SHOWN:
            sentences.append(_shape(study, study.effects, t, order[0]))
        sentences += _kinks(study, t)
        blocks.append([[output, names[k], *_with_interval(first, k), *_with_interval(total, k)] for k in order])
    sentences += _beyond(study)
    return Section(
        "Which inputs matter?",
        sentences,
        ReportTable(["output", "input", "alone", "95 %", "with others", "95 %"], blocks),
        "Shares of the variance of the output: of the input alone (first-order Sobol' index), and with its "
        "interactions (total).",
        figures=lambda: _figures(study, sobol),
    )


def _shapley(study: Findings, shapley: ShapleyEffects) -> Section:
    """Which inputs matter, where they depend on each other."""
    names, sentences, blocks = list(study.runs.inputs), [], []
    for t, output in enumerate(study.runs.outputs):
        effect = shapley.effects[t]
        order = effect.value.argsort(descending=True).tolist()
        sentences.append(f"{output}: {_largest(names, order, effect.value)}.{_idle(names, order, effect.value)}")
        sentences += _kinks(study, t)
        blocks.append([[output, names[k], *_with_interval(effect, k)] for k in order])
    return Section(
        "Which inputs matter?",
        sentences + _beyond(study),
        ReportTable(["output", "input", "share", "95 %"], blocks),
        "Shapley effects: shares of the variance of the output, of inputs that depend on each other. What inputs "
        "explain together, by interactions or because they are correlated, is shared equally among them.",
        figures=lambda: _shapley_figures(study, shapley),
    )


def _beyond(study: Findings) -> list[str]:
    """The inputs of which much of the variance is outside the runs."""
    shares = dict(zip(study.runs.inputs, study.shares.outside[1].tolist(), strict=True))
    far = [
        f"{100.0 * share:.0f} % of the variance of {name}"
        for name, share in shares.items()
        if share > _OUTSIDE_OF_VARIANCE
    ]
    if not far:
        return []
    return [
        f"The runs do not cover {', '.join(far)}. There, the outputs are extrapolated with their slope at the edge of "
        "the runs, times a factor that is not known; the intervals include what this factor may do."
    ]


def _what_matters(names: list[str], order: list[int], first: Tensor, total: Tensor) -> str:
    interactions = max(0.0, 1.0 - float(first.sum()))
    text = f"{_largest(names, order, total)}; {_percent(interactions)} is due to interactions."
    whole = round(100.0 * float(total.sum()))
    if whole > 100:
        text += f" Totals sum to {whole} %, because an interaction is counted in the total of each of its inputs."
    return text + _idle(names, order, total)


def _largest(names: list[str], order: list[int], shares: Tensor) -> str:
    largest = [k for k in order if float(shares[k]) >= _MATTERS][:3]
    return ", ".join(f"{names[k]} {_percent(float(shares[k]))}" for k in largest)


def _idle(names: list[str], order: list[int], shares: Tensor) -> str:
    idle = [names[k] for k in order if float(shares[k]) < _MATTERS]
    return f" Less than 1 %: {', '.join(idle)}." if idle else ""


def _shape(study: Findings, effects: MainEffects, t: int, k: int) -> str:
    """How the mean of an output depends on an input: where it rises and falls."""
    name, output = list(study.runs.inputs)[k], study.runs.outputs[t]
    grid, mean = effects.grid[:, k], effects.effect.value[t, :, k]
    last, sides = len(mean) - 1, mean[[0, -1]]
    depths = float(sides.min() - mean.min()), float(mean.max() - sides.max())
    turn = int(mean.argmin() if depths[0] >= depths[1] else mean.argmax())
    places = [0, turn, last] if max(depths) > _TURNS * float(mean.max() - mean.min()) else [0, last]
    at = [f"{quantity(float(mean[i]), output)} at {quantity(float(grid[i]), name)}" for i in places]
    verbs = ["rises" if mean[j] > mean[i] else "falls" for i, j in itertools.pairwise(places)]
    path = f"{verbs[0]} from {at[0]} to {at[1]}" + (f", and {verbs[1]} to {at[2]}" if len(places) > 2 else "")
    return f"  With {without_unit(name)}, the mean of {without_unit(output)} {path}."


def _kinks(study: Findings, t: int) -> list[str]:
    """Where an output bends or jumps, and what to do about it."""
    names, places = list(study.runs.inputs), []
    for kink in study.kinks[t]:
        verb, name = "jumps" if kink.is_jump else "has a kink", names[kink.input]
        places.append(f"{verb} along {without_unit(name)} near {quantity(kink.place, name)}")
    if not places:
        return []
    what = f"{without_unit(study.runs.outputs[t])} {', and '.join(places)}"
    return [f"  It seems that {what}: predictions are worse there. Do more runs around it, or study each side alone."]


def _figures(study: Findings, sobol: SobolIndices) -> Iterator[tuple[str, Figure]]:
    """Indices and main effects of each output, with what they show."""
    some = len(study.runs.inputs) > _MOST_LINES
    which = f" ({_MOST_LINES} inputs with the largest total indices)" if some else ""
    for t, output in enumerate(study.runs.outputs):
        order = sobol.total.value[t].argsort(descending=True).tolist()
        yield f"Sobol' indices of {output}", _bars(study, order, [sobol.first[t], sobol.total[t]], plots.sobol_bars)
        if study.effects is not None:
            yield f"Main effects on {output}{which}", _lines(study, order[:_MOST_LINES], study.effects, t)


def _shapley_figures(study: Findings, shapley: ShapleyEffects) -> Iterator[tuple[str, Figure]]:
    """The effects on each output."""
    for t, output in enumerate(study.runs.outputs):
        effect = shapley.effects[t]
        order = effect.value.argsort(descending=True).tolist()
        yield f"Shapley effects on {output}", _bars(study, order, [effect], plots.shapley_bars)


def _bars(study: Findings, order: list[int], estimates: list[Estimate], draw: Callable[..., Any]) -> Figure:
    """Bars of the inputs with the largest shares, by one of the functions of plots."""
    order, names = order[:_MOST_BARS], [*map(plots.literal, study.runs.inputs)]
    shown = [names[k] for k in order]
    figure, axes = plots.figure(1, 1, 4.6, 3.4)
    intervals = [(low[order], high[order]) for low, high in (estimate.interval() for estimate in estimates)]
    draw(shown, *(estimate.value[order] for estimate in estimates), *intervals, ax=axes[0, 0])
    if sum(map(len, shown)) > _MOST_CHARACTERS:
        axes[0, 0].tick_params(axis="x", labelrotation=25)
    plots.legend(figure, [axes[0, 0]])
    return figure


def _lines(study: Findings, order: list[int], effects: MainEffects, t: int) -> Figure:
    """The mean of an output along some inputs."""
    names, effect = [*map(plots.literal, study.runs.inputs)], effects.effect[t]
    figure, axes = plots.figure(1, 1, 4.6, 3.4)
    low, high = effect.interval()
    plots.main_effects(
        [names[k] for k in order],
        effects.grid[:, order],
        effect.value[:, order],
        (low[:, order], high[:, order]),
        ylabel=f"mean of {plots.literal(study.runs.outputs[t])}",
        ax=axes[0, 0],
    )
    plots.legend(figure, [axes[0, 0]], columns=2)
    return figure


def _outputs(study: Findings) -> Section:
    known, rows, sentences = study.propagation, [], []
    level = f"{100.0 * (_QUANTILES[-1] - _QUANTILES[0]):.0f} %"
    quantiles = {level: known.quantile(level) for level in _QUANTILES}
    for t, name in enumerate(study.runs.outputs):
        cells = [name, *(f"{float(part[t]):.4g}" for part in (known.mean, known.input_std, known.model_std))]
        rows.append(cells + [_between(quantiles[level], t) for level in _QUANTILES])
        low, high = (float(quantiles[level].value[t]) for level in (_QUANTILES[0], _QUANTILES[-1]))
        sentences.append(
            f"{name}: the mean is {quantity(float(known.mean[t]), name)}, and the {level} interval is "
            f"{quantity(high - low, name, 3)} wide, from {quantity(low, name)} to {quantity(high, name)}."
        )
    return Section(
        "How uncertain are the outputs?",
        sentences,
        table=ReportTable(
            ["output", "mean", "sd, inputs", "sd, model", *(f"{100.0 * level:.0f} % quantile" for level in _QUANTILES)],
            [rows],
        ),
        note="sd, inputs: what the uncertain inputs contribute; sd, model: what more runs would remove. "
        "Quantiles with 95 % intervals.",
    )


def _exceedance(study: Findings) -> list[Section]:
    rows = [
        [name, f"{limit:.4g}", f"{value:.4f}", f"{low:.4f} to {high:.4f}"]
        for name, (limit, value, low, high) in study.exceedance.items()
    ]
    sentences = [
        f"{name} exceeds {quantity(limit, name)} with a probability of {_probability(value, low, high)}."
        for name, (limit, value, low, high) in study.exceedance.items()
    ]
    table = ReportTable(["output", "threshold", "probability", "95 %"], [rows])
    return [Section("How likely is it that a threshold is exceeded?", sentences, table)] if rows else []


def _next(study: Findings) -> Section:
    before, after = study.model_std[0], study.model_std[-1]
    both = zip(study.runs.outputs, before.tolist(), after.tolist(), strict=True)
    gains = [f"{name}: from {quantity(first, name, 2)} to {quantity(last, name, 2)}." for name, first, last in both]
    columns = zip(study.runs.inputs, study.next_inputs.mT.tolist(), strict=True)
    rows = [[name, *(f"{value:.4g}" for value in values)] for name, values in columns]
    sentence = "These runs are expected to reduce the standard deviation of what the emulator does not know."
    header = ["input", *(f"run {i + 1}" for i in range(len(study.next_inputs)))]
    return Section("What should be run next?", [sentence, *gains], ReportTable(header, [rows]))


def _inputs(study: Findings) -> Section:
    rows, sentences = [], []
    shares = zip(study.runs.inputs.items(), *study.shares.outside.tolist(), strict=True)
    for (name, known), outside, of_variance in shares:
        by = "assumed: the range of the runs" if name in study.runs.assumed else "given"
        rows.append([name, f"{known}", by, f"{100.0 * outside:.1f} %", f"{100.0 * of_variance:.1f} %"])
        if outside > _OUTSIDE or of_variance > _OUTSIDE_OF_VARIANCE:
            sentences.append(
                f"{100.0 * outside:.1f} % of {name} is outside the runs, with {100.0 * of_variance:.0f} % of its "
                "variance. Predictions are extrapolated there, which widens the intervals of indices and quantiles: do "
                "runs there."
            )
    header = ["input", "distribution", "by", "outside the runs", "of its variance"]
    return Section("What was assumed of the inputs?", sentences, ReportTable(header, [rows]))


def _correlations(study: Findings) -> list[Section]:
    """The correlations of inputs that depend on each other."""
    if study.runs.copula is None:
        return []
    names, rows = list(study.runs.inputs), study.runs.copula.correlation.tolist()
    table = ReportTable(
        ["input", *names], [[[name, *(f"{c:.2f}" for c in row)] for name, row in zip(names, rows, strict=True)]]
    )
    return [Section("How do the inputs depend on each other?", [], table, "Correlations of the Gaussian copula.")]


def _with_interval(estimate: Estimate, k: int) -> list[str]:
    low, high = estimate.interval()
    return [f"{max(float(estimate.value[k]), 0.0):.3f}", f"{float(low[k]):.3f} to {float(high[k]):.3f}"]


def _between(estimate: Estimate, t: int) -> str:
    low, high = estimate.interval()
    return f"{float(estimate.value[t]):.4g} ({float(low[t]):.4g} to {float(high[t]):.4g})"


def _probability(value: float, low: float, high: float) -> str:
    return f"{100.0 * value:.3g} % (95 % interval: {100.0 * low:.3g} % to {100.0 * high:.3g} %)"


def _percent(share: float) -> str:
    """A share in percent, which is 100 only where nothing is left."""
    if 0.99 < share < 1.0:
        return "more than 99.99 %" if share > 0.9999 else f"{math.floor(1e4 * share) / 100.0:.2f} %"
    return "less than 1 %" if share < 0.005 else f"{100.0 * share:.0f} %"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")

"""An uncertainty study as one HTML file with figures."""

from __future__ import annotations

from html import escape

from .. import plots
from ..html import document, image, table
from .findings import Findings
from .words import heading, sections

_MOST_LINES, _MOST_CHARACTERS = 8, 40


def html(study: Findings) -> str:
    """The page: the check, then what matters, how uncertain outputs are, what to run next, and what was assumed."""
    check, indices, *rest = sections(study)
    sentences = "".join(f"<li>{escape(words.strip())}</li>" for words in check.sentences)
    parts = [
        f"<h1>{escape(heading(study))}</h1>",
        f'<div class="verdict"><p>{escape(check.title)}</p><ul>{sentences}</ul></div>',
        table(check.header, check.blocks),
        _note(check.note),
        f"<h2>{escape(indices.title)}</h2>",
        "".join(f"<p>{escape(words)}</p>" for words in indices.sentences),
        f'<div class="figures">{"".join(map(lambda t: _figures(study, t), range(len(study.runs.outputs))))}</div>',
        table(indices.header, indices.blocks),
        _note(indices.note),
    ]
    for section in rest:
        parts += [
            f"<h2>{escape(section.title)}</h2>",
            f"<p>{escape(' '.join(section.sentences[:1]))} {escape('; '.join(section.sentences[1:]))}</p>"
            if section.sentences
            else "",
            table(section.header, section.blocks),
            _note(section.note),
        ]
    return document(heading(study), parts)


def _note(words: str) -> str:
    return f'<p class="note">{escape(words)}</p>' if words else ""


def _figures(study: Findings, t: int) -> str:
    """Indices and main effects of one output."""
    names, output = [*map(plots.literal, study.runs.inputs)], plots.literal(study.runs.outputs[t])
    order = study.sobol.total.value[t].argsort(descending=True).tolist()[:_MOST_LINES]
    shown = [names[k] for k in order]
    first, total = study.sobol.first[t], study.sobol.total[t]
    bars, axes = plots.figure(1, 1, 4.6, 3.2)
    intervals = [(low[order], high[order]) for low, high in (first.interval(), total.interval())]
    plots.sobol_bars(
        shown,
        first.value[order],
        total.value[order],
        *intervals,
        ylabel=f"share of the variance of {output}",
        ax=axes[0, 0],
    )
    if sum(map(len, shown)) > _MOST_CHARACTERS:
        axes[0, 0].tick_params(axis="x", labelrotation=25)
    effect = study.effects.effect[t]
    lines, axes = plots.figure(1, 1, 4.6, 3.2)
    low, high = effect.interval()
    plots.main_effects(
        shown,
        study.effects.grid[:, order],
        effect.value[:, order],
        (low[:, order], high[:, order]),
        ylabel=f"mean of {output}",
        ax=axes[0, 0],
    )
    return image(bars, f"Sobol' indices of {output}") + image(lines, f"main effects of {output}")

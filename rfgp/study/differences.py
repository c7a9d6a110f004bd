"""Two studies side by side: what was different, and what came of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .._support import checks
from ..diagnostics.measurement import Measurement
from .record import StudyRecord
from .report import ReportTable
from .verdict import Model


@dataclass(frozen=True)
class Comparison:
    """What differs between two studies.

    :param settings: by the name of a setting, of the data or of the machine, its value in both.
    :param rows: models that both have, with what they measured: a name, and by measure both estimates.
    :param words: what it says in plain words.
    :param names: how the studies are called.

    >>> print(Comparison({"kernel": ("rbf", "rq")}, (), ("They differ in kernel.",), ("A", "B")))
    They differ in kernel.
    <BLANKLINE>
    setting  A    B
    ----------------
    kernel   rbf  rq
    """

    settings: dict[str, tuple[Any, Any]]
    rows: tuple[tuple[str, dict[str, tuple[Measurement, Measurement]]], ...]
    words: tuple[str, ...]
    names: tuple[str, str]

    def __str__(self) -> str:
        parts = ["\n".join(textwrap.fill(word, 100) for word in self.words)]
        if self.settings:
            cells = [[name, *map(_shown, pair)] for name, pair in self.settings.items()]
            parts.append(str(ReportTable(["setting", *self.names], [cells])))
        if self.rows:
            parts.append(self.table())
        return "\n\n".join(parts)

    def table(self) -> str:
        """The measures of models that both studies have, with their differences; a star marks those that count."""
        header = ["model", "measure", *self.names, "difference"]
        blocks = []
        for name, measures in self.rows:
            block = []
            for measure, (first, second) in measures.items():
                gap = _gap(first, second)
                star = " *" if measure != "seconds" and (gap.is_above or gap.is_below) else "  "
                block.append([name, measure, str(first), str(second), f"{gap}{star}"])
            blocks.append(block)
        return f"{ReportTable(header, blocks)}\n* more than two standard errors"


def compare(first: StudyRecord, second: StudyRecord, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """What differs between two studies, in settings and in measurements.

    Standard errors are those over seeds and test rows, as of independent studies.

    :param names: how to call them.
    :raises ValueError: for studies of different data sets.

    >>> import rfgp
    >>> data = rfgp.study.datasets.load("diabetes")
    >>> settings = {"methods": ["landmarks"], "num_features": [8], "num_seeds": 1, "exact_limit": 20}
    >>> result = rfgp.study.run(data, progress=False, **settings)
    >>> compare(result, result).words[0]
    'A and B have the same settings, data and versions.'
    """
    for study in (first, second):
        checks.instance("each of both", study, StudyRecord, "a study", "take rfgp.study.load or rfgp.study.run")
    different = [key for key in ("name", "task", "input_dim") if first.data.get(key) != second.data.get(key)]
    if different:
        pair = " and ".join(f"{study.data.get(different[0])!r}" for study in (first, second))
        raise ValueError(
            f"expected two studies of one data set, got {pair} as its {different[0].replace('_', ' ')}; scores of "
            "different data say nothing about methods"
        )
    label, other = checks.names("names", names, 2)
    names = label, other
    settings = dict(_different(first, second))
    is_same_data = all(a == b for a, b in zip(_data(first), _data(second), strict=True) if None not in (a, b))
    rows = tuple(_rows(first, second))
    words = [f"{label} and {other} differ in {', '.join(settings)}."]
    if not settings:
        words = [f"{label} and {other} have the same settings, data and versions."]
    if not is_same_data:
        words.append("The data are not the same, so that differences of scores say nothing about methods.")
    words += _verdicts(first, second, names)
    words.append(_differences_in_words(rows, names, first.error_name))
    return Comparison(settings, rows, tuple(words), names)


def _data(study: StudyRecord) -> tuple[Any, ...]:
    rows = study.request.get("rows")
    return rows, *(study.data.get(key) for key in ("name", "task", "num_train", "num_test", "input_dim"))


def _different(first: StudyRecord, second: StudyRecord) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Settings, data and versions that are not the same."""
    parts = [(study.settings, study.data, study.environment.get("versions", {})) for study in (first, second)]
    for a, b in zip(*parts, strict=True):
        for name in dict.fromkeys([*a, *b]):
            if a.get(name) != b.get(name) and name != "kernel_asked":
                yield name, (a.get(name), b.get(name))


def _rows(first: StudyRecord, second: StudyRecord) -> Iterator[tuple[str, dict[str, tuple[Measurement, Measurement]]]]:
    """Models that both studies have, with the measures that both have of them."""
    models = [{_key(model): model for model in _models(study)} for study in (first, second)]
    for key in models[0]:
        if key in models[1]:
            a, b = models[0][key], models[1][key]
            pairs = {"KL per point": (a.divergence, b.divergence), first.error_name: (a.error, b.error)}
            pairs |= {"MNLL": (a.mnll, b.mnll)}
            if a.trust is not None and b.trust is not None:
                pairs[first.trust] = (a.trust, b.trust)
            pairs["seconds"] = Measurement(a.seconds), Measurement(b.seconds)
            measures = {n: p for n, p in pairs.items() if all(math.isfinite(e.mean) for e in p) and p[0] != p[1]}
            if set(measures) - {"seconds"}:
                yield str(a), measures


def _models(study: StudyRecord) -> list[Model]:
    facts = study.facts()
    return [*facts.approximations, facts.exact, *facts.baselines.values()]


def _key(model: Model) -> tuple[str, int | None]:
    return model.name.partition(" ")[0], model.num_features


def _gap(first: Measurement, second: Measurement) -> Measurement:
    return Measurement(second.mean - first.mean, math.hypot(first.error, second.error))


def _verdicts(first: StudyRecord, second: StudyRecord, names: tuple[str, str]) -> list[str]:
    verdicts = first.verdict(), second.verdict()
    if verdicts[0].headline == verdicts[1].headline:
        return [f"Both say: {verdicts[0].headline}"]
    return [f"{name} says: {verdict.headline}" for name, verdict in zip(names, verdicts, strict=True)]


def _differences_in_words(
    rows: tuple[tuple[str, dict[str, tuple[Measurement, Measurement]]], ...], names: tuple[str, str], error_name: str
) -> str:
    """Which scores are better in which study."""
    if not rows:
        return "They have no model in common."
    better: dict[str, list[str]] = {name: [] for name in names}
    for model, measures in rows:
        for measure in (error_name, "MNLL", "KL per point"):
            if measure in measures:
                gap = _gap(*measures[measure])
                if gap.is_above or gap.is_below:
                    better[names[0] if gap.is_above else names[1]].append(f"{measure} of {model}")
    if not any(better.values()):
        return "No error, MNLL or divergence of a model that both have differs by more than two standard errors."
    return " ".join(f"Better in {name}: {_listed(items)}." for name, items in better.items() if items)


def _listed(items: list[str]) -> str:
    """The first few of a list."""
    most = 4
    return "; ".join(items[:most]) + (f"; and {len(items) - most} more" if len(items) > most else "")


def _shown(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

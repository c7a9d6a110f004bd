"""Runs of a simulator in a file, and what is known of its inputs in another."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...diagnostics.sensitivity import GaussianCopula
from ...sklearn.frames.encoding import cells_of
from ..tables.files import AS_RECOGNIZED, open_table

if TYPE_CHECKING:
    import pandas

_EXAMPLE = '[inputs]\nlength = "uniform(1, 2)"'
_NUMBERS = ("integer", "number", "boolean", "empty")


@dataclass(frozen=True)
class Files:
    """What a table of runs and a description of inputs say: the arguments of :func:`rfgp.study.uncertainty`."""

    x: pandas.DataFrame
    y: pandas.DataFrame
    inputs: dict[str, Any] | GaussianCopula
    thresholds: dict[str, float]


def read(runs: str | Path, description: str | Path, outputs: Sequence[str] | None = None) -> Files:
    """Read a table whose columns are inputs and outputs, and a TOML file that describes the inputs.

    :param runs: a file as :func:`rfgp.study.tables.read` takes it.
    :param description: a table ``[inputs]`` with a distribution for each input, and optionally ``[thresholds]`` with a
        number for outputs, and ``[correlations]`` of a :class:`~rfgp.diagnostics.sensitivity.GaussianCopula`, such as
        ``length = {load = 0.5}``; those of other pairs are zero.
    :param outputs: the columns that are outputs; default: all other columns of numbers.
    :raises ValueError: for names that the table does not have, cells that are no numbers, or other TOML.
    """
    import pandas as pd

    inputs, thresholds, correlations = _described(Path(description))
    raw = open_table(str(runs), AS_RECOGNIZED)
    cells, _ = cells_of(raw.frame, raw.name, usual="." if raw.reading.separator == "," else None)
    named = [*inputs, *(outputs or ()), *thresholds]
    for name in named:
        if name not in cells:
            close = difflib.get_close_matches(name, cells, n=1)
            advice = f"did you mean {close[0]!r}?" if close else "name columns of the table"
            raise ValueError(f"expected columns of {raw.name} ({', '.join(cells)}), got {name!r}; {advice}")
        if cells[name].kind not in _NUMBERS:
            raise ValueError(f"expected numbers in {name!r} of {raw.name}, got {cells[name].kind}; correct its cells")
    others = [name for name in cells if name not in inputs and cells[name].kind in _NUMBERS]
    chosen = list(outputs) if outputs else others
    if not chosen:
        raise ValueError(f"expected a column of {raw.name} that is no input, got none; add the outputs")
    x = pd.DataFrame({name: cells[name].values for name in inputs}, dtype=np.float64)
    y = pd.DataFrame({name: cells[name].values for name in chosen}, dtype=np.float64)
    return Files(x, y, _joined(inputs, correlations) if correlations else inputs, thresholds)


def _joined(inputs: dict[str, Any], correlations: dict[str, dict[str, float]]) -> GaussianCopula:
    """Inputs that depend on each other by correlations of pairs."""
    names, matrix = list(inputs), np.eye(len(inputs))
    for first, others in correlations.items():
        for second, value in others.items():
            if first not in names or second not in names or first == second:
                raise ValueError(
                    f"expected pairs of {', '.join(names)} in [correlations], got {first!r} and {second!r}; name inputs"
                )
            i, j = names.index(first), names.index(second)
            if matrix[i, j] not in (0.0, value):
                raise ValueError(
                    f"expected one correlation of {first!r} and {second!r}, got {matrix[i, j]:g} and {value:g}; "
                    "leave one of them out"
                )
            matrix[i, j] = matrix[j, i] = value
    return GaussianCopula(inputs, matrix)


def _described(path: Path) -> tuple[dict[str, Any], dict[str, float], dict[str, dict[str, float]]]:
    """The tables of a TOML file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"expected TOML in {path}, got {error}; such as {_EXAMPLE!r}") from None
    inputs, thresholds = content.pop("inputs", None), content.pop("thresholds", {})
    correlations = content.pop("correlations", {})
    if content or not isinstance(inputs, dict) or not inputs:
        got = f"[{next(iter(content))}]" if content else "none" if not inputs else repr(inputs)
        raise ValueError(
            f"expected [inputs] and optionally [thresholds] and [correlations] in {path}, got {got}; such as "
            f"{_EXAMPLE!r}"
        )
    if not _has_numbers(thresholds):
        raise ValueError(f"expected numbers by the names of outputs in [thresholds] of {path}, got {thresholds}")
    if not isinstance(correlations, dict) or not all(map(_has_numbers, correlations.values())):
        raise ValueError(
            f"expected numbers by pairs of inputs in [correlations] of {path}, got {correlations}; such as "
            "'length = {load = 0.5}'"
        )
    return inputs, {name: float(value) for name, value in thresholds.items()}, correlations


def _has_numbers(values: object) -> bool:
    """Whether these are numbers by name."""
    return isinstance(values, dict) and all(type(value) in (int, float) for value in values.values())

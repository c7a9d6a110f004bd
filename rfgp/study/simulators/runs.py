"""Runs of a simulator: what was put in, what came out, and what is known of the inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._support import checks
from ..._support.data_frames import as_pandas
from ...diagnostics.sensitivity import GaussianCopula, InputDistribution, Uniform
from ...diagnostics.sensitivity.given import distribution
from ...diagnostics.sensitivity.inputs import default_names, points

_FEWEST, _MOST = 10, 2000


@dataclass(frozen=True)
class Runs:
    """The runs of a study.

    :param x: inputs (N, d), in float64.
    :param y: outputs (N, T), NaN where a run has none.
    :param inputs: the distributions of the inputs by name, in the order of the columns.
    :param outputs: the names of the outputs.
    :param assumed: the names of the inputs that were not described, which are uniform over the range of the runs.
    :param copula: what joins the inputs; None for independent ones.
    """

    x: Tensor
    y: Tensor
    inputs: dict[str, InputDistribution]
    outputs: tuple[str, ...]
    assumed: tuple[str, ...]
    copula: GaussianCopula | None = None

    def points(self, levels: Tensor) -> Tensor:
        """Inputs (N, d) at levels between 0 and 1 that are independent of each other, (N, d)."""
        if self.copula is None:
            return points(list(self.inputs.values()), levels)
        return self.copula.at(self.copula.correlated(torch.special.ndtri(levels)))


def runs_of(x: Any, y: Any, inputs: Any) -> Runs:
    """The runs from frames or arrays, or a ValueError that says what is wrong with them."""
    x, y = as_pandas(x, "x"), as_pandas(y, "y")
    columns, x = _columns(x, "x"), _values(x, "x")
    outputs, y = _columns(y, "y"), _values(y, "y")
    if len(x) != len(y):
        raise ValueError(f"expected x and y of as many rows, got {len(x)} and {len(y)}; pass a row of each for a run")
    if len(x) < _FEWEST:
        raise ValueError(f"expected at least {_FEWEST} runs, got {len(x)}; run the simulator more often")
    if len(x) > _MOST:
        raise ValueError(
            f"expected at most {_MOST:,} runs for exact models, got {len(x):,}; fit rfgp.sklearn."
            "RandomFeatureGPRegressor, and pass it to sobol_indices and propagate of rfgp.diagnostics.sensitivity"
        )
    checks.finite(x, "x")
    copula = inputs if isinstance(inputs, GaussianCopula) else None
    inputs = inputs if copula is None else copula.inputs
    names = columns or _described(inputs, x.shape[-1])
    by_name, assumed = _distributions(inputs, names, x)
    if copula is not None:
        copula = _in_order(copula, names)
    outputs = outputs or (("y",) if y.shape[-1] == 1 else tuple(f"y{t + 1}" for t in range(y.shape[-1])))
    _check_varies(x, names, "input", "leave it out")
    _check_varies(y, outputs, "output", "leave it out")
    return Runs(x, y, by_name, outputs, assumed, copula)


def _in_order(copula: GaussianCopula, names: tuple[str, ...]) -> GaussianCopula:
    """The same copula, with the inputs in the order of the columns."""
    given = list(copula.inputs)
    if absent := [name for name in names if name not in given]:
        raise ValueError(f"expected all columns of x in the copula, got none of the name {absent[0]}; add it")
    places = [given.index(name) for name in names]
    return GaussianCopula({name: copula.inputs[name] for name in names}, copula.correlation[places][:, places])


def _columns(value: Any, name: str) -> tuple[str, ...] | None:
    """The names of the columns of a frame or a series; None for arrays."""
    if hasattr(value, "columns"):
        names = tuple(map(str, value.columns))
        if len(set(names)) < len(names):
            raise ValueError(f"expected columns of different names in {name}, got {', '.join(names)}; rename them")
        return names
    given = getattr(value, "name", None)
    return (str(given),) if given is not None and hasattr(value, "to_frame") else None


def _values(value: Any, name: str) -> Tensor:
    """The numbers of a frame or an array, (N, columns)."""
    if hasattr(value, "columns"):
        for column in value.columns:
            if value[column].dtype.kind not in "biuf":
                raise ValueError(
                    f"expected numbers in {name}, got {value[column].dtype} in the column {column}; leave it out or "
                    "encode it"
                )
    if hasattr(value, "to_numpy"):
        value = value.to_numpy(dtype=float, na_value=np.nan)
    numbers = checks.real_tensor(value, name).detach().double().cpu()
    if not numbers.numel():
        raise ValueError(
            f"expected rows and columns in {name}, got none: its shape is {tuple(numbers.shape)}; pass runs"
        )
    if numbers.dim() not in (1, 2):
        raise ValueError(f"expected {name} of shape (N, columns), got {tuple(numbers.shape)}; pass a row for each run")
    return numbers.reshape(len(numbers), -1)


def _described(inputs: Any, count: int) -> tuple[str, ...]:
    """The names of the columns of an array: those of a mapping, if it has as many."""
    if isinstance(inputs, Mapping):
        if len(inputs) != count:
            raise ValueError(
                f"expected a distribution for each of the {count} columns of x, got {len(inputs)}; or pass a data frame"
            )
        return tuple(map(str, inputs))
    return tuple(default_names(count))


def _distributions(
    inputs: Any, names: tuple[str, ...], x: Tensor
) -> tuple[dict[str, InputDistribution], tuple[str, ...]]:
    """The distributions of all inputs, and the names of those that were not described."""
    given: dict[str, Any]
    if inputs is None:
        given = {}
    elif isinstance(inputs, Mapping):
        given = {str(name): value for name, value in inputs.items()}
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        if len(inputs) != len(names):
            raise ValueError(f"expected {len(names)} distributions for inputs, got {len(inputs)}; or give them by name")
        given = dict(zip(names, inputs, strict=True))
    else:
        raise ValueError(
            f'expected distributions by name for inputs, got {inputs!r}; such as {{"{names[0]}": "uniform(0, 1)"}}'
        )
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            advice = f"did you mean {close[0]!r}?" if close else "name columns of x"
            raise ValueError(f"expected names among {', '.join(names)} in inputs, got {name!r}; {advice}")
    result = {}
    for k, name in enumerate(names):
        low, high = float(x[:, k].min()), float(x[:, k].max())
        if name in given:
            result[name] = distribution(given[name], f"the input {name}")
        elif low < high:
            result[name] = Uniform(low, high)
    return result, tuple(name for name in names if name not in given)


def _check_varies(values: Tensor, names: tuple[str, ...], what: str, advice: str) -> None:
    for name, column in zip(names, values.mT, strict=True):
        there = column[~column.isnan()]
        if what == "output" and len(there) < _FEWEST:
            raise ValueError(f"expected {_FEWEST} runs with the output {name}, got {len(there)}; {advice}")
        if not bool(there.isfinite().all()):
            raise ValueError(f"expected finite numbers in the {what} {name}, got an infinite one; use NaN for none")
        if bool((there == there[0]).all()):
            raise ValueError(f"expected runs with different values of the {what} {name}, got one value; {advice}")

"""Numbers of columns per degree that are best for the data, and the features that have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg import next_power_of_two
from ..maclaurin import Maclaurin
from ..sketch_registry import FORMS
from .gains import candidates_for, sorted_gains
from .pairs import PairTerms, sample_pairs, standard_error
from .terms import series_coefficients, sketches

CONVEX_SKETCHES = ("rademacher", "gaussian", "tensor_srht_stacked")
"""Sketches whose variance has a convex surrogate in the number of features."""


@dataclass(frozen=True)
class Allocation:
    """Numbers of columns per degree, the constant's included, and the predicted mean squared error over input pairs.

    ``squared_bias`` is the mean square of the terms left out, and ``standard_error`` that of the estimate ``error``.
    """

    num_columns: dict[int, int]
    variance: float
    squared_bias: float
    standard_error: float
    num_pairs: int

    @property
    def degree(self) -> int:
        """The largest degree."""
        return max(self.num_columns)

    @property
    def error(self) -> float:
        """The predicted mean squared error."""
        return self.variance + self.squared_bias


def optimized_maclaurin(
    x: Tensor,
    num_features: int,
    coefficients: Tensor,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    is_gaussian: bool = False,
    sketch: str = "tensor_srht_stacked",
    form: str = "ctr",
    min_degree: int = 1,
    num_pairs: int | None = None,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Maclaurin:
    r"""Maclaurin features whose columns go to the degrees where they lower the mean squared error on x most.

    .. math:: \min_{p, D_1, \dots, D_p} \sum_{n \le p} a_n^2\, E V_n(D_n)
        + E\Big(k - \sum_{n \le p} a_n (x^\top y)^n\Big)^2

    :param x: scaled inputs (N, d), such as the training inputs; means are over pairs of at most 500 of them.
    :param num_features: the number of columns D that come out, the constant included.
    :param coefficients: a_0, a_1, ..., non-negative, of degree 20 at most.
    :param function: the exact kernel as a function of the inner product, where that is more than the given terms.
    :param is_gaussian: for the Gaussian kernel, whose coefficients are 1/n!.
    :param sketch: "tensor_srht_stacked", "rademacher" or "gaussian".
    :param form: "real", "complex" or "ctr"; the linear term of "real" and "ctr" is real, or exact where that pays.
    :param min_degree: the smallest truncation p considered.
    :param num_pairs: take the means over so many random pairs, at a cost linear in N; default: all pairs.
    :param generator: a CPU generator for the weights and the choice of rows.
    :raises ValueError: for a budget below one feature per degree, or coefficients that are no kernel's.

    Source: T Algorithms 4 to 6, Table 5.1 and 5.3.1, with the errata; the CtR surrogate is in the errata.

    >>> x = torch.nn.functional.normalize(torch.randn(100, 5), dim=-1)
    >>> optimized_maclaurin(x, 64, torch.tensor([1.0, 1.0, 0.5])).num_features
    64
    """
    allocation = allocate(
        x,
        num_features,
        coefficients,
        function=function,
        is_gaussian=is_gaussian,
        sketch=sketch,
        form=form,
        min_degree=min_degree,
        num_pairs=num_pairs,
        generator=generator,
    )
    columns = {n: width for n, width in allocation.num_columns.items() if n > 0}
    maps = sketches(columns, x.shape[-1], sketch, form, generator, dtype)
    constants = allocation.num_columns.get(0, 1)
    return Maclaurin(maps, series_coefficients(coefficients), is_gaussian, constant_columns=constants, dtype=dtype)


def allocate(
    x: Tensor,
    num_features: int,
    coefficients: Tensor,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    is_gaussian: bool = False,
    sketch: str = "tensor_srht_stacked",
    form: str = "ctr",
    min_degree: int = 1,
    num_pairs: int | None = None,
    generator: Generator | None = None,
) -> Allocation:
    """The numbers of columns of :func:`optimized_maclaurin`, whose arguments it takes, without the map.

    >>> allocate(torch.randn(100, 4), 64, torch.tensor([1.0, 1.0, 0.5])).degree
    2
    """
    values = series_coefficients(coefficients)
    budget = checks.positive_integer("num_features", num_features)
    checks.choice("sketch", sketch, CONVEX_SKETCHES)
    checks.choice("form", form, FORMS)
    checks.flag("is_gaussian", is_gaussian)
    min_degree = checks.positive_integer("min_degree", min_degree)
    checks.generator(generator)
    if function is not None and (not callable(function) or isinstance(function, torch.nn.Module | type)):
        raise ValueError(f"expected a function of inner products, got {type(function).__name__}; such as torch.exp")
    left, right, weights, rows = sample_pairs(checks.finite(checks.inputs(x)), num_pairs, generator)
    block = next_power_of_two(x.shape[-1]) if sketch.startswith("tensor") else 1
    degrees = [n for n in range(1, len(values)) if values[n] > 0]
    forms = {n: "real" if form == "ctr" and n == 1 else form for n in degrees}
    pairs = PairTerms(left, right, is_gaussian, sketch, block)
    statistics = {n: pairs.statistics(n, float(values[n]), forms[n], weights) for n in degrees}
    unit = {n: 2 if forms[n] == "ctr" else 1 for n in degrees}
    dim = x.shape[-1]
    order = sorted_gains(statistics, unit, block, budget)
    exact = pairs.exact(values, function)
    if not bool(torch.isfinite(exact).all()):
        raise ValueError("expected a kernel that is finite at all inputs, got infinite values; scale the inputs down")
    residual = exact - float(values[0]) * pairs.power(0)
    has_constant, has_exact = values[0] > 0, forms.get(1) == "real"

    def variance_of(widths: dict[int, int]) -> float:
        exact_linear = {1: 0.0} if has_exact and widths.get(1) == dim else {}
        return sum(exact_linear.get(n, statistics[n].true_variance(width, block)) for n, width in widths.items())

    best: tuple[float, float, dict[int, int], Tensor] | None = None
    for p in degrees:
        residual = residual - float(values[p]) * pairs.power(p)
        kept = [n for n in degrees if n <= p]
        if p < min_degree and p != degrees[-1]:
            continue
        candidates = list(candidates_for(order, kept, unit, budget, dim if has_exact else None, bool(has_constant)))
        if not candidates:
            continue
        widths = min(candidates, key=variance_of)
        variance, bias = variance_of(widths), float((weights * residual.square()).sum())
        if best is None or variance + bias < best[0] + best[1]:
            best = (variance, bias, widths, residual.square())
    if best is None:
        first = next((n for n in degrees if n >= min_degree), degrees[-1])
        needed = int(has_constant) + sum(unit[n] for n in degrees if n <= first)
        if num_features >= needed:
            raise ValueError(
                f"expected an even number of features for pairs of columns without a constant or linear term, got "
                f"{num_features}; use {num_features + 1}"
            )
        raise ValueError(f"expected at least {needed} features, one per degree, got {num_features}; use more")
    variance, bias, widths, squares = best
    columns = {n: unit[n] * width for n, width in widths.items()}
    for n, width in widths.items():
        if not (n == 1 and has_exact and width == dim):
            squares = squares + pairs.variances(n, float(values[n]), forms[n], width)
    return Allocation(
        num_columns=({0: budget - sum(columns.values())} if has_constant else {}) | columns,
        variance=variance,
        squared_bias=bias,
        standard_error=standard_error(squares, weights, rows),
        num_pairs=int((weights > 0).sum()),
    )

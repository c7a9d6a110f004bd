"""How many features every degree of a Maclaurin series gets: drawn at random, or optimised for the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from . import _checks
from .features import FeatureMap, LinearFeatures, Maclaurin, polynomial_sketch
from .features.by_name import FORMS
from .linalg import next_power_of_two

CONVEX_SKETCHES = ("rademacher", "gaussian", "tensor_srht_stacked")
"""Sketches whose variance has a convex surrogate in the number of features."""

MAX_DEGREE = 20
_SAMPLE = 500
_Order = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Allocation:
    r"""Numbers of columns per degree, and the mean squared error they predict over pairs of different inputs.

    :param num_columns: the number of columns by degree, the constant (degree 0) included.
    :param variance: the mean variance of the estimate, by the closed forms.
    :param squared_bias: the mean square of the terms that are left out.
    :param standard_error: the standard error of ``error`` as an estimate for the distribution of the inputs.
    :param num_pairs: the number of pairs that the means are taken over.
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


class _Statistics(NamedTuple):
    """Means over pairs for one degree: what variance and surrogate need for every number of features D."""

    variance: float  # of one feature
    covariance: float  # within a block of signs, before c(D, d)/D^2
    positive: float  # variance + (d - 1) covariance, over pairs with positive covariance
    negative_variance: float
    negative_covariance: float

    def surrogate(self, width: np.ndarray, block: int) -> np.ndarray:
        """The convex surrogate of the variance for numbers of features D, T Eq. D.4 and D.5."""
        v, c = self.negative_variance, self.negative_covariance
        return self.positive / width + np.where(width <= block, (v - c) / width + c, (v + (block - 1) * c) / width)

    def true_variance(self, width: int, block: int) -> float:
        """The variance with D features, T Table 5.1."""
        full, rest = divmod(width, block)
        pairs = full * block * (block - 1) + rest * (rest - 1)
        return self.variance / width + pairs / width**2 * self.covariance


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

    over truncations p and numbers of features that use the whole budget. The gains of one more feature fall with every
    feature, so that the best allocation for a given p is found by sorting them.

    :param x: scaled inputs (N, d), such as the training inputs; the mean is over pairs of different rows of (at most
        500 of) them.
    :param num_features: the number of columns D that come out, the constant included.
    :param coefficients: a_0, a_1, ..., non-negative; the largest degree considered is the last one, at most 20.
    :param function: the exact kernel as a function of the inner product, where that is more than the given terms.
    :param is_gaussian: for the Gaussian kernel, whose coefficients are 1/n!.
    :param sketch: "tensor_srht_stacked", "rademacher" or "gaussian".
    :param form: "real", "complex" or "ctr". The linear term of "real" and "ctr" is sketched with real weights, or exact
        with d columns where that pays; a column that is left over beside pairs goes to it, or repeats the constant.
    :param min_degree: the smallest truncation p considered.
    :param num_pairs: take the means over so many random pairs, at a cost linear in N; all pairs where it is None.
    :param generator: a CPU generator for the weights and the choice of rows.
    :param dtype: the dtype of the weights; the default dtype where it is None.
    :returns: the map; :func:`allocate` returns its numbers of columns and the error that they predict.
    :raises ValueError: for a budget below one feature per degree, or coefficients that are no kernel's.

    Source: T Algorithms 4 to 6, Table 5.1 and 5.3.1, with the errata; the CtR surrogate is in the errata.

    >>> x = torch.nn.functional.normalize(torch.randn(100, 5), dim=-1)
    >>> series = torch.tensor([1.0 / math.factorial(n) for n in range(11)])
    >>> optimized_maclaurin(x, 64, series, function=torch.exp).num_features
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
    maps = _sketches(columns, x.shape[-1], sketch, form, generator, dtype)
    constants = allocation.num_columns.get(0, 1)
    return Maclaurin(maps, _coefficients(coefficients), is_gaussian, constant_columns=constants, dtype=dtype)


def random_maclaurin(
    input_dim: int,
    num_features: int,
    coefficients: Tensor,
    *,
    ratio: float = 2.0,
    is_gaussian: bool = False,
    sketch: str = "rademacher",
    form: str = "real",
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Maclaurin:
    r"""Maclaurin features with random degrees, drawn from :math:`\mu(n) \propto c^{-(n + 1)}` where a_n > 0.

    .. math:: \phi(x) = \Big[\sqrt{\tfrac{D_n a_n}{D \mu(n)}}\, \phi_n(x)\Big]_n, \qquad D_n = \#\{\ell: n_\ell = n\}

    Over degrees and weights the estimate is without bias for the given terms. All copies of the constant are one column
    of their joint weight, so that fewer than D columns may come out; draws of constants alone are repeated, which the
    weights take into account. ``resample`` draws weights, not degrees.

    :param input_dim: the number of columns d of the inputs.
    :param num_features: the number D of degrees drawn; D/2 of them stand for two columns each with "ctr".
    :param coefficients: a_0, a_1, ..., non-negative, the last of degree 20 at most: the support is truncated there.
    :param ratio: c > 1.
    :param is_gaussian: for the Gaussian kernel, whose coefficients are 1/n!.
    :param sketch: the name of a polynomial sketch.
    :param form: "real", "complex" or "ctr".
    :param generator: a CPU generator.
    :param dtype: the dtype of the weights; the default dtype where it is None.
    :raises ValueError: for a ratio of 1 or less, or coefficients that are no kernel's.

    Source: T 5.2, Eq. 5.6 to 5.9 (Kar and Karnick, 2012).
    """
    values = _coefficients(coefficients)
    if not 1.0 < _checks.number(ratio) < math.inf:
        raise ValueError(f"expected a finite ratio above 1, got {ratio!r}; 2 is usual")
    _checks.generator(generator)
    _checks.choice("form", form, FORMS)
    unit = 2 if form == "ctr" else 1
    draws = _checks.positive_integer("num_features", num_features) // unit
    if draws == 0:
        raise ValueError(f"expected at least {unit} features for {form}, got {num_features}; use more")
    law = torch.where(values > 0, ratio ** -(torch.arange(len(values), dtype=torch.float64) + 1.0), 0.0)
    law = law / law.sum()
    counts = torch.zeros(len(values), dtype=torch.int64)
    while not bool(counts[1:].any()):
        drawn = torch.multinomial(law, draws, replacement=True, generator=generator)
        counts = torch.bincount(drawn, minlength=len(values))
    only_constants = law[0] ** draws
    expected = draws * law
    expected[0] -= draws * only_constants
    columns = {n: unit * int(counts[n]) for n in range(1, len(values)) if counts[n]}
    maps = _sketches(columns, input_dim, sketch, form, generator, dtype, real_linear=False)
    importance = torch.where(counts > 0, counts * (1.0 - only_constants) / expected, 0.0)
    return Maclaurin(maps, values, is_gaussian, importance, dtype=dtype)


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
    """The numbers of columns of :func:`optimized_maclaurin`, whose arguments it takes, without the map."""
    values = _coefficients(coefficients)
    budget = _checks.positive_integer("num_features", num_features)
    _checks.choice("sketch", sketch, CONVEX_SKETCHES)
    _checks.choice("form", form, FORMS)
    _checks.flag("is_gaussian", is_gaussian)
    _checks.positive_integer("min_degree", min_degree)
    _checks.generator(generator)
    if function is not None and (not callable(function) or isinstance(function, torch.nn.Module | type)):
        raise ValueError(f"expected a function of inner products, got {type(function).__name__}; such as torch.exp")
    left, right, weights, rows = _pairs(_checks.finite(_checks.inputs(x)), num_pairs, generator)
    block = next_power_of_two(x.shape[-1]) if sketch.startswith("tensor") else 1
    degrees = [n for n in range(1, len(values)) if values[n] > 0]
    forms = {n: "real" if form == "ctr" and n == 1 else form for n in degrees}
    pairs = _PairTerms(left, right, is_gaussian, sketch, block)
    statistics = {n: pairs.statistics(n, float(values[n]), forms[n], weights) for n in degrees}
    unit = {n: 2 if forms[n] == "ctr" else 1 for n in degrees}
    dim = x.shape[-1]
    order = _sorted_gains(statistics, unit, block, budget)
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
        candidates = list(_candidates(order, kept, unit, budget, dim if has_exact else None, bool(has_constant)))
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
        standard_error=_standard_error(squares, weights, rows),
        num_pairs=int((weights > 0).sum()),
    )


def _coefficients(coefficients: Tensor) -> Tensor:
    values = _checks.series(coefficients).detach().to("cpu", torch.float64)
    return _checks.series(values[: MAX_DEGREE + 1])


def _pairs(
    x: Tensor, num_pairs: int | None, generator: Generator | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Left and right inputs whose kernel matrices hold the pairs, weights that average over these, and drawn rows."""
    data = x.detach().to("cpu", torch.float64)
    if data.dim() != 2 or len(data) < 2:
        raise ValueError(f"expected at least two inputs (N, d) for pairs, got shape {tuple(x.shape)}; pass more")
    if num_pairs is None:
        if len(data) > _SAMPLE:
            data = data[torch.randperm(len(data), generator=generator)[:_SAMPLE]]
        weights = 1.0 - torch.eye(len(data), dtype=torch.float64)
        return data, data, weights / weights.sum(), None
    count = _checks.positive_integer("num_pairs", num_pairs)
    first = torch.randint(len(data), (count,), generator=generator)
    second = (first + torch.randint(1, len(data), (count,), generator=generator)) % len(data)
    weights = torch.full((count, 1, 1), 1.0 / count, dtype=torch.float64)
    return data[first].unsqueeze(-2), data[second].unsqueeze(-2), weights, torch.stack([first, second])


class _PairTerms:
    """Kernel terms, variances and covariances of all pairs, in float64, scaled so that no power overflows."""

    def __init__(self, left: Tensor, right: Tensor, is_gaussian: bool, sketch: str, block: int) -> None:
        self.inner = left @ right.mT
        norms = left.square().sum(-1)[..., :, None], right.square().sum(-1)[..., None, :]
        self.norms = norms[0] * norms[1]
        is_gaussian_sketch = sketch == "gaussian"
        self.diagonal = torch.zeros_like(self.inner) if is_gaussian_sketch else left.square() @ right.square().mT
        self.log_envelope = -0.5 * (norms[0] + norms[1]) if is_gaussian else torch.zeros_like(self.inner)
        self.is_gaussian, self.block, self.is_structured = is_gaussian, block, sketch.startswith("tensor")

    def power(self, degree: int) -> Tensor:
        """The product of the envelopes and the inner product to the power of the degree."""
        return (self.inner * torch.exp(self.log_envelope / max(degree, 1))) ** degree * (
            torch.exp(self.log_envelope) if degree == 0 else 1.0
        )

    def exact(self, coefficients: Tensor, function: Callable[[Tensor], Tensor] | None) -> Tensor:
        """The exact kernel."""
        if self.is_gaussian:
            return torch.exp(self.inner + self.log_envelope)
        if function is not None:
            return function(self.inner)
        return torch.stack([float(a) * self.inner**n for n, a in enumerate(coefficients)]).sum(0)

    def single(self, degree: int, coefficient: float, form: str) -> tuple[Tensor, Tensor]:
        """Variance of one feature, and covariance of two that share their signs, of one weighted term."""
        scale = coefficient ** (2.0 / degree) * torch.exp(2.0 * self.log_envelope / degree)
        square, diagonal, norms = scale * self.inner.square(), scale * self.diagonal, scale * self.norms
        mean = square**degree
        raw = {"real": [norms + 2.0 * (square - diagonal)]}.get(form, [norms + square - diagonal])
        if form == "ctr":
            raw.append(2.0 * square - diagonal)
        variance = torch.stack([base**degree for base in raw]).mean(0) - mean
        if not self.is_structured:
            return variance, torch.zeros_like(variance)
        if self.block == 1:
            return torch.zeros_like(variance), torch.zeros_like(variance)
        shared = [(square - (base - square) / (self.block - 1)) ** degree for base in raw]
        return variance, torch.stack(shared).mean(0) - mean

    def statistics(self, degree: int, coefficient: float, form: str, weights: Tensor) -> _Statistics:
        """Means over pairs for one degree."""
        variance, covariance = self.single(degree, coefficient, form)
        positive, negative = weights * (covariance > 0), weights * (covariance <= 0)
        means = [
            (weights * variance).sum(),
            (weights * covariance).sum(),
            (positive * (variance + (self.block - 1) * covariance)).sum(),
            (negative * variance).sum(),
            (negative * covariance).sum(),
        ]
        return _Statistics(*[float(mean) for mean in means])

    def variances(self, degree: int, coefficient: float, form: str, width: int) -> Tensor:
        """The variance of every pair with ``width`` features."""
        variance, covariance = self.single(degree, coefficient, form)
        full, rest = divmod(width, self.block)
        return variance / width + (full * self.block * (self.block - 1) + rest * (rest - 1)) / width**2 * covariance


def _sorted_gains(statistics: dict[int, _Statistics], unit: dict[int, int], block: int, budget: int) -> _Order:
    """Degrees, costs in columns and gains per column of one more feature each, by falling gain."""
    gains, owners = [], []
    for n, means in statistics.items():
        values = means.surrogate(np.arange(1, max(budget // unit[n], 1) + 1, dtype=np.float64), block)
        gain = np.minimum.accumulate(np.maximum(values[:-1] - values[1:], 0.0)) / unit[n]
        gains.append(gain)
        owners.append(np.full(len(gain), n))
    falling = np.concatenate(gains)
    order = np.argsort(-falling, kind="stable")
    owner = np.concatenate(owners)[order]
    return owner, np.array(list(unit.values()))[np.searchsorted(list(unit), owner)], falling[order]


def _candidates(
    order: _Order, kept: list[int], unit: dict[int, int], budget: int, exact_columns: int | None, has_constant: bool
) -> Iterator[dict[int, int]]:
    """Numbers of features by degree that use a budget of columns, the constant included.

    The linear term is sketched, or has its exact columns; a column that is left over goes to it, or to the constant.
    """
    rest = budget - int(has_constant) - sum(unit[n] for n in kept)
    for spare in range(1 + int(has_constant)):
        if rest >= spare:
            widths = _take(order, kept, unit, rest - spare)
            if sum(unit[n] * width for n, width in widths.items()) + int(has_constant) + spare == budget:
                yield widths
    if exact_columns is None or kept[0] != 1:
        return
    others = kept[1:]
    rest = budget - int(has_constant) - exact_columns - sum(unit[n] for n in others)
    if rest < 0:
        return
    is_other = order[0] != 1
    widths = {1: exact_columns} | _take(
        (order[0][is_other], order[1][is_other], order[2][is_other]), others, unit, rest
    )
    if has_constant or sum(unit[n] * width for n, width in widths.items()) == budget:
        yield widths


def _take(order: _Order, kept: list[int], unit: dict[int, int], rest: int) -> dict[int, int]:
    """One feature for every degree kept, and the best of the others until the budget is used up.

    Where a pair of columns would be next and one column is left, either that is one more column of the linear term, or
    the pair is taken in place of the last one.
    """
    if not kept:
        return {}
    usable = order[0] <= kept[-1]
    owner, cost, gain = (values[usable] for values in order)
    spent = np.cumsum(cost)
    count = int(np.searchsorted(spent, rest, side="right"))
    taken = np.bincount(owner[:count], minlength=kept[-1] + 1)
    widths = {n: 1 + int(taken[n]) for n in kept}
    left_over = rest - (int(spent[count - 1]) if count else 0)
    linear = np.flatnonzero(cost == 1)
    used = int(np.searchsorted(linear, count))
    if left_over == 1 and used and count < len(owner):
        gains = gain[linear[used - 1 : used + 1]].sum()
        if 2.0 * gain[count] > gains:
            widths[int(owner[count])] += 1
            widths[int(owner[linear[used - 1]])] -= 1
            left_over = 0
    for n in kept:
        while left_over >= unit[n]:
            widths[n] += left_over // unit[n]
            left_over -= unit[n] * (left_over // unit[n])
    return widths


def _sketches(
    columns: dict[int, int],
    input_dim: int,
    sketch: str,
    form: str,
    generator: Generator | None,
    dtype: torch.dtype | None,
    real_linear: bool = True,
) -> dict[int, FeatureMap]:
    def make(degree: int, width: int) -> FeatureMap:
        kind = "real" if real_linear and form == "ctr" and degree == 1 else form
        if real_linear and degree == 1 and kind == "real" and width == input_dim:
            return LinearFeatures(input_dim)
        return polynomial_sketch(sketch, kind, input_dim, width, degree, generator, dtype)

    return {degree: make(degree, width) for degree, width in columns.items()}


def _standard_error(values: Tensor, weights: Tensor, rows: Tensor | None) -> float:
    """Of the mean over all pairs of independent rows, by their projections; or over pairs of the rows given, (2, M)."""
    if rows is None:
        projections = (values * weights).sum(-1) * len(values)
        return 2.0 * float(projections.std()) / math.sqrt(len(projections))
    deviations = (values - values.mean()).flatten() / len(values)
    by_row = torch.zeros(int(rows.max()) + 1, dtype=values.dtype)
    by_row.index_add_(0, rows[0], deviations).index_add_(0, rows[1], deviations)
    own = float(deviations.square().sum())
    return math.sqrt(max(float(by_row.square().sum()) - own, own))

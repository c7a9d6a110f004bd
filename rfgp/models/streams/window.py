"""A model of the last rows of a stream."""

from __future__ import annotations

import collections
import math
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from ..._support import checks
from ...approximation.width_warning import quiet
from ...data.batches import Batch, joined
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ..weight_space.model import WeightSpaceGP
from ..weight_space.row_summation import sums_without
from ..weight_space.row_sums import FeatureSums

_UNIT = 2.0**-53


class Drift(NamedTuple):
    """The difference of sums of additions and subtractions from sums of additions alone.

    :param last: that of the Gram matrix at the last exchange, relative to its largest trace; 0 before.
    :param largest: the largest of all exchanges.
    :param bound: the bound for the last exchange; NaN with blocks.
    :param exchanges: how many exchanges there were.
    """

    last: float = 0.0
    largest: float = 0.0
    bound: float = 0.0
    exchanges: int = 0


class SlidingWindow:
    r"""A model of the last n rows of a stream: new rows are added to its sums, and the oldest are subtracted.

    After every n rows, sums of additions alone take the place of the sums of the window. Their difference is the drift,

    .. math:: \frac{\|\hat G - G\|_F}{\max \mathrm{tr}\, G} \le 4 m u + 4 (b + 2) u_p

    for m batches of at most b rows, the rounding unit u of float64, and that of features and products, :math:`u_p`.

    :param model: the model, whose earlier data are forgotten at the first update.
    :param size: the number n of rows of the window.
    :raises ValueError: where the size is not a positive integer.

    >>> import gpytorch, rfgp, torch
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=1)
    >>> window = SlidingWindow(rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()), size=50)
    >>> for x in torch.rand(20, 10, 1):
    ...     _ = window.update(x, x.squeeze(-1))
    >>> window.model.statistics.num_rows, window.drift.largest < window.drift.bound
    (50.0, True)
    """

    def __init__(self, model: WeightSpaceGP, size: int) -> None:
        checks.instance("model", model, WeightSpaceGP, "a WeightSpaceGP", "make one of a kernel and a likelihood")
        self.model, self.size = model, checks.positive_integer("size", size)
        self.drift = Drift()
        self._batches: collections.deque[Batch] = collections.deque()
        self._fresh: FeatureSums | None = None
        self._num_rows = self._num_new = self._num_batches = self._largest = 0
        self._trace = 0.0

    def __len__(self) -> int:
        """The number of rows in the window."""
        return self._num_rows

    @property
    def rows(self) -> Batch:
        """The rows of the window, oldest first: inputs, targets, and noise variances or None."""
        return joined(list(self._batches))

    @property
    def has_rows(self) -> bool:
        """Whether rows have come."""
        return bool(self._batches)

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows, as :meth:`rfgp.models.WeightSpaceGP.condition` takes them, and take the oldest away.

        :raises ValueError: for bad data, or stale statistics (call :meth:`refit`); the window stays as it was.
        """
        x = checks.columns(x)
        _check_lengths((x, y, noise))
        if not self._batches or len(x) >= self.size:
            return self._begin(collections.deque([_last((x, y, noise), self.size)]))
        left = self._batches.copy()
        removed = _taken(left, self._num_rows + len(x) - self.size)
        sums = self.model.slide((x, y, noise), removed)
        left.append(_last((x, y, noise), len(x)))
        self._batches, self._num_rows = left, min(self.size, self._num_rows + len(x))
        self._num_new, self._num_batches = self._num_new + len(x), self._num_batches + 1
        self._largest = max(self._largest, len(x))
        if isinstance(sums, FeatureSums):
            self._fresh = sums if self._fresh is None else self._fresh.merge(sums, self.model)
            self._trace = max(self._trace, self.model.statistics.trace)
        if removed is not None and self._num_new >= self.size:
            self._exchange(_last(removed, self._num_new - self.size))
        return self

    def follow(self, other: Self) -> Self:
        """Have the rows of another stream, whose model has the same sums, as those of a Fourier grid are."""
        model = self.model
        vars(self).update(vars(other))
        self.model = model.take(other.model.sums, other.model.training_data)
        return self

    def refit(self) -> Self:
        """Condition the model on the rows of the window with the parameters that it has now."""
        return self._begin(self._batches)

    def _begin(self, rows: collections.deque[Batch]) -> Self:
        """Begin anew with some rows."""
        batches: Any = list(rows)
        self.model.condition(batches)
        self._batches, self._fresh = rows, None
        self._num_rows = self._largest = sum(len(x) for x, _, _ in rows)
        self._num_new = self._num_batches = 0
        self._trace = self.model.statistics.trace
        return self

    @torch.no_grad()
    def _exchange(self, gone: Batch) -> None:
        """Replace the sums of the window by those of additions alone, less the rows ``gone`` that have left since."""
        model = self.model
        before: Any = model.sums
        if self._fresh is None:
            with quiet():
                model.take(before.resummed(model))
        else:
            fresh = self._fresh
            if len(gone[0]):
                fresh = cast(FeatureSums, sums_without(model, fresh, gone, self._batches[-1]))
            with model.nothing_lost_on_error(), quiet():
                model.take(fresh.with_some_rows(before.some_rows))
        measured = max(_drift(a, b, self._trace) for a, b in zip(before.draws, model.draw_statistics, strict=True))
        dtype = model.product_dtype or self._batches[0][0].dtype
        roundings = 4 * self._num_batches * _UNIT + 2 * (self._largest + 2) * torch.finfo(dtype).eps
        bound = math.nan if self._fresh is None else roundings
        self.drift = Drift(measured, max(self.drift.largest, measured), bound, self.drift.exchanges + 1)
        if self._fresh is None:
            batches: Any = list(self._batches)
            model.condition(batches)
        self._fresh, self._num_new, self._num_batches = None, 0, 0
        self._largest = max(len(x) for x, _, _ in self._batches)
        self._trace = model.statistics.trace


def _check_lengths(rows: Batch) -> None:
    """Raise a ValueError where inputs, targets and noise are no tensors of equally many rows."""
    x, y, noise = rows
    checks.inputs(x)
    for name, values in (("y", y), ("noise", y if noise is None else noise)):
        if checks.tensor(values, name).shape[:1] != x.shape[:1]:
            raise ValueError(
                f"expected {name} with {len(x)} rows as x has, got shape {tuple(values.shape)}; pass as many"
            )


def _last(rows: Batch, count: int) -> Batch:
    """Copies of the last of some rows."""
    x, y, noise = rows
    return _end(x, count), _end(y, count), None if noise is None else _end(noise, count)


def _end(values: Tensor, count: int) -> Tensor:
    return values.detach()[max(0, len(values) - count) :].clone()


def _taken(batches: collections.deque[Batch], count: int) -> Batch | None:
    """The first rows of some batches, which are taken away; None where there are none to take."""
    taken: list[Batch] = []
    while count > 0:
        x, y, noise = batches.popleft()
        taken.append((x[:count], y[:count], None if noise is None else noise[:count]))
        if len(x) > count:
            batches.appendleft((x[count:], y[count:], None if noise is None else noise[count:]))
        count -= len(x)
    return joined(taken) if taken else None


def _drift(a: SufficientStatistics, b: SufficientStatistics, trace: float) -> float:
    a, b = a.pooled(), b.pooled()
    is_alike = abs(a.num_rows - b.num_rows) <= 1e-6 * b.num_rows
    return float(torch.linalg.vector_norm(a.gram - b.gram)) / trace if is_alike else math.nan

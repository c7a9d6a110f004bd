"""Whether a model predicts rows that it has not seen better than class frequencies, a constant, or other models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from torch import Tensor

from ..averaging.mixture import DEGREES, Tail
from ..averaging.stacking import best_tail
from .arrays import Floats
from .model_size import NUM_EXACT_ROWS

_FOLDS, _FEWEST_FOLDS = 10, 5
_SMALLEST_VARIANCE, _SMALLEST_GAIN = 1e-4, 0.01
_MOST_HELD_OUT = 500
_DEGREES = (2.0, *DEGREES[:-1])
"""Degrees of freedom of Student's t: of two it has no variance, of one no mean."""
_LEVEL, _HALF_WIDTH = 0.95, float(scipy.special.ndtri(0.975))
"""Of the intervals that have to cover enough, and their half width in standard deviations."""
_FEWER, _MORE, _NARROWEST = 1.0, 2.0, 0.5
"""Standard errors by which they may cover fewer rows, or more, before they become wider or narrower, and how narrow."""
_GAIN_OF_TAILS = 2.0
"""The nats by which all rows together have to be more probable with tails than without."""
_EXTREME = 10.0
"""Targets that are so many standard deviations from their mean."""
_NOTHING = "leave out inputs that tell nothing"
_REMEDIES = {
    "constant": _NOTHING,
    "frequencies": _NOTHING,
    "linear": 'try kernel="linear"',
    "boosting": 'try kernel="matern12", or more num_features',
}
"""What to do where one of the others predicts better."""
_MOST_COMPARED, _SHARE_OF_COPIES, _SHARE_OF_DIFFERENT = 20_000, 0.25, 0.9
"""Of up to how many rows copies are looked for, from which share on they are told, and the share of different inputs
and targets of different rows with which they are no chance."""
_FEWEST_ROWS, _MOST_NAMES = 5, 3
"""Of how many rows the losses are compared apart, and how many reasons for these are named."""


class LabeledRows(NamedTuple):
    """Standardized inputs (N, d), targets (N, T) or numbers of classes (N,), and weights (N,), or None for ones."""

    x: Floats
    y: NDArray[Any]
    weights: Floats | None

    def take(self, numbers: NDArray[np.int_]) -> LabeledRows:
        """Some of the rows."""
        return LabeledRows(self.x[numbers], self.y[numbers], None if self.weights is None else self.weights[numbers])

    @property
    def ones_or_weights(self) -> Floats:
        """The weights of the rows."""
        return np.ones(len(self.x)) if self.weights is None else self.weights


def class_losses(rows: LabeledRows, log_probabilities: Floats) -> Floats:
    """The log losses of rows, (N,), times their weights over the mean weight."""
    weights = rows.ones_or_weights
    return -log_probabilities[np.arange(len(rows.y)), rows.y] * weights / weights.mean()


def target_losses(rows: LabeledRows, moments: Floats, tail: Tail | None = None) -> Floats:
    """The negative log densities of targets with moments (N, 2, T): means over observed outputs, (N,).

    They are NaN where all are missing. Standard deviations below a hundredth of that of all targets count as that.

    :param tail: Student's t distributions; default: normal ones.
    """
    mean, std = moments[:, 0], np.sqrt(np.maximum(moments[:, 1], _SMALLEST_VARIANCE))
    standard = torch.from_numpy((rows.y - mean) / std)
    tail = Tail(torch.full((mean.shape[1],), torch.inf)) if tail is None else tail
    return observed_means(np.log(std) - tail.log_density(standard).numpy(), rows.y)


def tail_of(rows: LabeledRows, moments: Floats) -> Tail:
    """The tails of each target by which rows that a model has not seen, with moments (N, 2, T), are most probable.

    They are normal where that is chance, or where the target does not vary. They are wider where central 95 % intervals
    cover too few of these rows, by more than a standard error, and narrower where they cover too many, by over two.
    """
    standard = torch.from_numpy((rows.y - moments[:, 0]) / np.sqrt(np.maximum(moments[:, 1], _SMALLEST_VARIANCE)))
    varies = torch.from_numpy(np.fmax.reduce(rows.y) > np.fmin.reduce(rows.y))
    known = ~standard.isnan() & varies
    widths = _widths(torch.from_numpy((rows.y - moments[:, 0]) / np.sqrt(moments[:, 1])), known)
    tail, _ = best_tail(lambda tail: tail.widened(widths).log_density(standard), known, _DEGREES, _GAIN_OF_TAILS)
    return tail.widened(widths)


def _widths(standard: Tensor, known: Tensor) -> Tensor:
    """How many times as wide as those of the normal distribution intervals (T,) of standardized errors (N, T) are."""
    errors, count = torch.where(known, standard.abs(), torch.nan), known.sum(0)
    covered = (errors < _HALF_WIDTH).double().sum(0) / count
    excess = (covered - _LEVEL) / (_LEVEL * (1.0 - _LEVEL) / count).sqrt()
    is_wrong = (excess < -_FEWER) | (excess > _MORE)
    wanted = (errors.nanquantile(_LEVEL, dim=0) / _HALF_WIDTH).clamp_min(_NARROWEST)
    return torch.where(is_wrong, wanted, 1.0)


def observed_means(losses: Floats, targets: Floats) -> Floats:
    """The means (N,) of losses (N, T) over the targets that are known; NaN for none."""
    known = ~np.isnan(targets)
    count = known.sum(1)
    total: Floats = np.where(known, losses, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def split_rows(targets: Floats, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to train on, and rows on which the model is compared with others; none of a small table.

    Rows with extreme targets (N, T) are trained on: parameters must have seen spikes.
    """
    num_rows, is_extreme = len(targets), torch.from_numpy((np.abs(targets) > _EXTREME).any(1))
    order = torch.randperm(num_rows, generator=generator)
    order = torch.cat([order[~is_extreme[order]], order[is_extreme[order]]])
    count = 0 if num_rows <= NUM_EXACT_ROWS else min(num_rows // 10, _MOST_HELD_OUT)
    return order[count:].sort().values, order[:count]


def warn_of_copies(x: Floats, y: Floats) -> None:
    """Warn where many rows are copies of others, targets included: a model takes each for a measurement of its own.

    Rows agree by chance where inputs have few values, or targets are rounded.
    """
    if len(x) > _MOST_COMPARED:
        return
    num_rows, num_inputs, num_targets = (len(np.unique(of, axis=0)) for of in (np.column_stack([x, y]), x, y))
    num_copies, is_chance = len(x) - num_rows, min(num_inputs, num_targets) < _SHARE_OF_DIFFERENT * num_rows
    if num_copies >= _SHARE_OF_COPIES * len(x) and not is_chance:
        warnings.warn(
            f"{num_copies:,} of {len(x):,} rows are copies of other rows, targets included: each counts as a "
            "measurement of its own, and intervals become too narrow; leave copies out, by DataFrame.drop_duplicates",
            UserWarning,
            stacklevel=4,
        )


@contextmanager
def without_advice() -> Iterator[None]:
    """No warning that other models are better, where a fit is a trial."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="rows that were held out are predicted better")
        warnings.filterwarnings("ignore", message="rows where .* predicted worse than by a constant")
        yield


class BaselineComparison:
    """The losses of a model on rows that it has not seen, beside those of others.

    :param losses: of rows with predictions (N, ...): :func:`class_losses` or :func:`target_losses`.
    :param others: what makes the others, by name.
    """

    def __init__(
        self, losses: Callable[[LabeledRows, Floats], Floats], others: Mapping[str, Callable[[], Any]]
    ) -> None:
        self.losses, self.others = losses, others
        self.by_row: dict[str, Floats] = {}
        self.rows: LabeledRows | None = None

    def on_held_out(self, train: LabeledRows, held: LabeledRows, own: Floats) -> None:
        """Compare losses (N,) of held-out rows with those of others that have seen the training rows."""
        self.by_row, self.rows = {"model": own}, held
        for name, make in self.others.items():
            self.by_row[name] = self.losses(held, make().fit(*train).predict(held.x, held.weights))

    def on_left_out(self, rows: LabeledRows, own: Floats) -> None:
        """Compare losses (N,) of rows, each predicted by all others, with those of folds by other folds."""
        self.by_row, self.rows = {"model": own}, rows
        count = min(_FOLDS, len(rows.x) // 2)
        if count < _FEWEST_FOLDS:
            return
        folds = list(KFold(count, shuffle=True, random_state=0).split(rows.x))
        for name, make in self.others.items():
            parts = []
            for train, test in folds:
                unseen = rows.take(test)
                parts.append(make().fit(*rows.take(train)).predict(unseen.x, unseen.weights))
            order = np.argsort(np.concatenate([test for _, test in folds]))
            self.by_row[name] = self.losses(rows, np.concatenate(parts)[order])

    @property
    def means(self) -> dict[str, float]:
        """The mean losses by name."""
        return {name: float(np.nanmean(losses)) for name, losses in self.by_row.items()}

    @property
    def better(self) -> str | None:
        """The best of the others, where it is better than the model by more than 0.01."""
        means = self.means
        if len(means) < 2:
            return None
        best = min(self.others, key=means.__getitem__)
        return best if means["model"] - means[best] > _SMALLEST_GAIN else None

    def warn(self) -> None:
        """Warn where one of the others is better by more than a standard error."""
        if self.better is None:
            return
        if is_positive(self.by_row["model"] - self.by_row[self.better]):
            losses = ", ".join(f"{name} {loss:.3f}" for name, loss in self.means.items())
            warnings.warn(
                f"rows that were held out are predicted better by {self.better} than by the model, with mean log "
                f"losses of {losses}; set fallback=True to take it, or {_REMEDIES[self.better]}",
                UserWarning,
                stacklevel=5,
            )


def is_positive(gains: Floats) -> bool:
    """Whether gains are positive on average, by more than a standard error."""
    return bool(np.nanmean(gains) > np.nanstd(gains) / np.count_nonzero(~np.isnan(gains)) ** 0.5)

"""How well held-out rows are predicted, beside a prediction that knows no inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.distributions import Normal, Poisson

from ... import diagnostics
from ..._support import checks
from ...averaging import Mixture
from ...likelihoods.count_predictive import CountPredictive
from ...sklearn.baselines import baselines, rate_baselines
from ...sklearn.comparison import is_positive
from ..datasets import Dataset
from ..report import ReportTable
from .target_transform import TransformedNormal

LEVEL, _SMALLEST, _SMALLEST_GAIN = 0.95, 1e-12, 0.02
_SPOKEN = {"linear": "a linear model", "trivial": "a prediction without inputs"}
_REMEDIES = {
    "linear": "try --kernel linear",
    "boosting": "try --kernel matern:0.5, or more --num-features",
    "trivial": "leave out columns that tell nothing, by --drop",
}
"""What to do where another model predicts better."""


class Other(NamedTuple):
    """The errors and negative log densities of another model."""

    name: str
    error: tuple[float, ...]
    nlpd: tuple[float, ...]


Others = tuple[Other, ...]


@dataclass(frozen=True)
class Scores:
    """Scores of held-out rows, in the units of the table; for several targets one each.

    The error is the root mean squared one, or the error rate of classes, or the mean Poisson deviance of counts.

    :param num_rows: the number of held-out rows.
    :param error: the error.
    :param nlpd: the mean negative log predictive density of new observations, or of labels.
    :param coverage: the share of observations that are in their 95 % intervals, in which counts are more often, as
        they are whole; empty for classes.
    :param trivial_error: the error of the mean of the training targets, of their most frequent class, or of one rate.
    :param trivial_nlpd: that of a normal with mean and variance of the training targets, of their frequencies, or of
        Poisson counts of one rate.
    :param others: a linear model and boosting.
    :param quarters: the coverage of the rows with the smallest predictions, of the next ones, and so on.
    :param is_counts: whether the targets are counts.
    :param better: which of "linear", "boosting" and "trivial" have smaller squared errors of every target, log
        losses of labels, or deviances, by a fiftieth and by more than a standard error.

    >>> print(Scores(100, (2.0,), (2.1,), (0.93,), (4.0,), (2.8,)).table(("price",)))
                          this model  no inputs
    -------------------------------------------
    RMSE                           2          4
    NLPD                         2.1        2.8
    coverage  93.0 %, of 95 +- 2.2 %
    """

    num_rows: int
    error: tuple[float, ...]
    nlpd: tuple[float, ...]
    coverage: tuple[float, ...]
    trivial_error: tuple[float, ...]
    trivial_nlpd: tuple[float, ...]
    others: Others = ()
    quarters: tuple[tuple[float, ...], ...] = ()
    better: tuple[str, ...] = ()
    is_counts: bool = False

    @classmethod
    def none(cls) -> Self:
        """No scores yet."""
        return cls(0, (), (), (), (), ())

    @classmethod
    def of(
        cls,
        data: Dataset,
        predicted: Normal | TransformedNormal | Mixture | CountPredictive | Tensor,
        of_others: Dataset | None = None,
    ) -> Self:
        """The scores of distributions (M,) or (M, T), or probabilities (M, C), for the test rows of a data set.

        :param of_others: the same rows with the inputs that other models have; default: those of the data set.
        """
        y, rows = data.y_test, data if of_others is None else of_others
        found = _others(rows)
        others = {name: Other(name, *_measured(of_name, y)) for name, of_name in found.items()}
        trivial, losses = others.pop("trivial"), _losses(predicted, y)
        better = tuple(name for name, of_name in found.items() if _is_better(_losses(of_name, y), losses))
        coverage: tuple[float, ...] = ()
        quarters: tuple[tuple[float, ...], ...] = ()
        if not isinstance(predicted, Tensor):
            tail = torch.tensor(0.5 - 0.5 * LEVEL, dtype=y.dtype)
            inside = ((predicted.icdf(tail) <= y) & (y <= predicted.icdf(1.0 - tail))).double()
            coverage, quarters = _each(inside, y), _by_quarter(inside, y, predicted.mean)
        own = _measured(predicted, y)
        known = tuple(others.values())
        return cls(len(y), *own, coverage, trivial.error, trivial.nlpd, known, quarters, better, data.task == "counts")

    def table(self, names: tuple[str, ...]) -> str:
        """The scores in plain text, by the names of the targets."""
        names = checks.names("names", names, len(self.error))
        error, bound = "RMSE" if self.coverage else "error rate", ""
        if self.is_counts:
            error, bound = "deviance", "at least "
        rows, empty = [], [""] * len(self.others)
        for place, name in enumerate(names):
            of = f" of {name}" if len(names) > 1 else ""
            models = (Other("", self.error, self.nlpd), *self.others, self._trivial)
            rows.append([f"{error}{of}", *(f"{model.error[place]:.4g}" for model in models)])
            if self.is_counts:
                trivial = self.trivial_error[place]
                rows.append(["D2", *(f"{1.0 - model.error[place] / max(trivial, _SMALLEST):.4g}" for model in models)])
            rows.append([f"NLPD{of}", *(f"{model.nlpd[place]:.4g}" for model in models)])
            if self.coverage:
                spread = (LEVEL * (1.0 - LEVEL) / self.num_rows) ** 0.5
                share = f"{100 * self.coverage[place]:.1f} %, of {bound}{100 * LEVEL:.0f} +- {100 * spread:.1f} %"
                rows.append([f"coverage{of}", share, *empty, ""])
            if self.quarters:
                shares = " / ".join(f"{100 * share:.0f}" for share in self.quarters[place])
                rows.append([f"  by quarter{of}", f"{shares} %", *empty, ""])
        table = ReportTable(["", "this model", *(other.name for other in self.others), self._trivial.name], [rows])
        if not self.better:
            return str(table)
        verb, by = "predicts" if len(self.better) == 1 else "predict", "" if self.coverage else ", by log loss"
        spoken = " and ".join(_SPOKEN.get(name, name) for name in self.better)
        return f"{table}\nnote: {spoken} {verb} these rows better{by}; {_REMEDIES[self.better[0]]}"

    @property
    def _trivial(self) -> Other:
        return Other("no inputs", self.trivial_error, self.trivial_nlpd)


def _others(data: Dataset) -> dict[str, Any]:
    """What other models predict of the test rows, by name."""
    if data.exposure_train is not None and data.exposure_test is not None:
        return dict(rate_baselines(data.x_train, data.y_train, data.exposure_train, data.x_test, data.exposure_test))
    found = baselines(data.x_train, data.y_train, data.x_test, data.num_classes)
    return {name: predicted for name, (predicted, _) in found.items()}


def _losses(predicted: Any, y: Tensor) -> Tensor:
    """The squared errors of targets, the deviances of counts, or the log losses of labels, (M, T)."""
    if isinstance(predicted, Tensor):
        return -predicted.gather(1, y.unsqueeze(1)).clamp_min(_SMALLEST).log()
    return _errors(predicted, y).reshape(len(y), -1)


def _errors(predicted: Any, y: Tensor) -> Tensor:
    """Squared errors of the shape of targets, or the Poisson deviances of counts."""
    mean = predicted.mean
    if isinstance(predicted, CountPredictive | Poisson):
        return 2.0 * (torch.xlogy(y, y / mean) - y + mean)
    return (mean - y).square()


def _is_better(losses: Tensor, own: Tensor) -> bool:
    """Whether losses (M, T) are smaller for every target, by a fiftieth and by more than a standard error."""
    gains = own - losses
    is_large = bool((gains.nanmean(0) > _SMALLEST_GAIN * own.nanmean(0)).all())
    return is_large and all(is_positive(gain.numpy()) for gain in gains.mT)


def _by_quarter(inside: Tensor, y: Tensor, mean: Tensor) -> tuple[tuple[float, ...], ...]:
    """The coverage of quarters of the rows (M,) or (M, T), in ascending order of predictions, for every target."""
    found = []
    columns = (part.reshape(len(y), -1).unbind(-1) for part in (inside, y, mean))
    for covered, target, predicted in zip(*columns, strict=True):
        there = ~target.isnan()
        parts = covered[there][predicted[there].argsort()].tensor_split(4)
        found.append(tuple(float(part.mean()) for part in parts))
    return tuple(found)


def _measured(predicted: Any, y: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The errors and negative log densities of distributions (M,) or (M, T), or of probabilities (M, C), per target."""
    if isinstance(predicted, Tensor):
        return (float(diagnostics.error_rate(predicted, y)),), (float(diagnostics.classification_mnll(predicted, y)),)
    is_counts = isinstance(predicted, CountPredictive | Poisson)
    error = _each(_errors(predicted, y), y, *(() if is_counts else (torch.sqrt,)))
    return error, _each(-predicted.log_prob(y), y)


def _each(values: Tensor, y: Tensor, of_mean: Callable[[Tensor], Tensor] = lambda mean: mean) -> tuple[float, ...]:
    """A function of the means of values (M,) or (M, T), where targets are there."""
    means = values.where(~y.isnan(), torch.nan).nanmean(0).reshape(-1)
    return tuple(of_mean(means).tolist())

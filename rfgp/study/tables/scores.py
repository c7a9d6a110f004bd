"""How well held-out rows are predicted, beside a prediction that knows no inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.distributions import Normal

from ... import diagnostics
from ..._support import checks
from ...sklearn.baselines import baselines
from ..datasets import Dataset
from .target_transform import TransformedNormal

LEVEL = 0.95


class Other(NamedTuple):
    """The errors and negative log densities of another model."""

    name: str
    error: tuple[float, ...]
    nlpd: tuple[float, ...]


Others = tuple[Other, ...]


@dataclass(frozen=True)
class Scores:
    """Scores of held-out rows, in the units of the table; for several targets one each.

    :param num_rows: the number of held-out rows.
    :param error: the root mean squared error, or the error rate of classes.
    :param nlpd: the mean negative log predictive density of new observations, or of labels.
    :param coverage: the share of observations that are in their 95 % intervals; empty for classes.
    :param trivial_error: the error of the mean of the training targets, or of their most frequent class.
    :param trivial_nlpd: that of a normal with mean and variance of the training targets, or of their frequencies.
    :param others: a linear model and boosting.
    :param quarters: the coverage of the rows with the smallest predictions, of the next ones, and so on.

    >>> print(Scores(100, (2.0,), (2.1,), (0.93,), (4.0,), (2.8,)).table(("price",)))
              this model              without inputs
    RMSE      2                       4
    NLPD      2.1                     2.8
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

    @classmethod
    def none(cls) -> Self:
        """No scores yet."""
        return cls(0, (), (), (), (), ())

    @classmethod
    def of(
        cls, data: Dataset, predicted: Normal | TransformedNormal | Tensor, of_others: Dataset | None = None
    ) -> Self:
        """The scores of distributions (M,) or (M, T), or probabilities (M, C), for the test rows of a data set.

        :param of_others: the same rows with the inputs that other models have; default: those of the data set.
        """
        y, rows = data.y_test, data if of_others is None else of_others
        found = baselines(rows.x_train, rows.y_train, rows.x_test, rows.num_classes)
        others = {name: Other(name, *_measured(of_name, y)) for name, (of_name, _) in found.items()}
        trivial = others.pop("trivial")
        coverage: tuple[float, ...] = ()
        quarters: tuple[tuple[float, ...], ...] = ()
        if not isinstance(predicted, Tensor):
            tail = torch.tensor(0.5 - 0.5 * LEVEL, dtype=y.dtype)
            inside = ((predicted.icdf(tail) <= y) & (y <= predicted.icdf(1.0 - tail))).double()
            coverage, quarters = _each(inside, y), _by_quarter(inside, y, predicted.mean)
        own = _measured(predicted, y)
        return cls(len(y), *own, coverage, trivial.error, trivial.nlpd, tuple(others.values()), quarters)

    def table(self, names: tuple[str, ...]) -> str:
        """The scores in plain text, by the names of the targets."""
        names = checks.names("names", names, len(self.error))
        error = "RMSE" if self.coverage else "error rate"
        titles = ("", "this model", *(other.name for other in self.others), "without inputs")
        lines = [titles]
        for place, name in enumerate(names):
            of = f" of {name}" if len(names) > 1 else ""
            others = [f"{other.error[place]:.4g}" for other in self.others]
            densities = [f"{other.nlpd[place]:.4g}" for other in self.others]
            none = [""] * len(self.others)
            lines.append((f"{error}{of}", f"{self.error[place]:.4g}", *others, f"{self.trivial_error[place]:.4g}"))
            lines.append((f"NLPD{of}", f"{self.nlpd[place]:.4g}", *densities, f"{self.trivial_nlpd[place]:.4g}"))
            if self.coverage:
                spread = (LEVEL * (1.0 - LEVEL) / self.num_rows) ** 0.5
                share = f"{100 * self.coverage[place]:.1f} %, of {100 * LEVEL:.0f} +- {100 * spread:.1f} %"
                lines.append((f"coverage{of}", share, *none, ""))
            if self.quarters:
                shares = " / ".join(f"{100 * share:.0f}" for share in self.quarters[place])
                lines.append((f"  by quarter{of}", f"{shares} %", *none, ""))
        widths = [max(len(line[place]) for line in lines) for place in range(len(titles))]
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        table = "\n".join("  ".join(cells).rstrip() for cells in padded)
        trivial = Other("a prediction without inputs", self.trivial_error, self.trivial_nlpd)
        better = [name for name, errors, _ in (*self.others, trivial)
                  if all(other < own for other, own in zip(errors, self.error, strict=True))]  # fmt: skip
        return table + (
            f"\nnote: {' and '.join(better)} predict{'s' if len(better) == 1 else ''} these rows better"
            if better
            else ""
        )


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
    return _each((predicted.mean - y).square(), y, torch.sqrt), _each(-predicted.log_prob(y), y)


def _each(values: Tensor, y: Tensor, of_mean: Callable[[Tensor], Tensor] = lambda mean: mean) -> tuple[float, ...]:
    """A function of the means of values (M,) or (M, T), where targets are there."""
    means = values.where(~y.isnan(), torch.nan).nanmean(0).reshape(-1)
    return tuple(of_mean(means).tolist())

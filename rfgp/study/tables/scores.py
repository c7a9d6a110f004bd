"""How well held-out rows are predicted, beside a prediction that knows no inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Normal

from ... import diagnostics
from ..._support import checks
from ..datasets import Dataset

LEVEL = 0.95


@dataclass(frozen=True)
class Scores:
    """Scores of held-out rows, in the units of the table; for several targets one each.

    :param num_rows: the number of held-out rows.
    :param error: the root mean squared error, or the error rate of classes.
    :param nlpd: the mean negative log predictive density of new observations, or of labels.
    :param coverage: the share of observations that are in their 95 % intervals; empty for classes.
    :param trivial_error: the error of the mean of the training targets, or of their most frequent class.
    :param trivial_nlpd: that of a normal with mean and variance of the training targets, or of their frequencies.

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

    @classmethod
    def none(cls) -> Self:
        """No scores yet."""
        return cls(0, (), (), (), (), ())

    @classmethod
    def of(cls, data: Dataset, predicted: Normal | Tensor) -> Self:
        """The scores of normals (M,) or (M, T), or probabilities (M, C), for the test rows of a data set."""
        if isinstance(predicted, Tensor):
            return cls._of_classes(data, predicted)
        y_train, y = data.y_train.reshape(len(data.y_train), -1), data.y_test.reshape(len(data.y_test), -1)
        mean, std = predicted.mean.reshape(y.shape), predicted.stddev.reshape(y.shape)
        trivial_mean, trivial_std = y_train.mean(0).expand_as(y), y_train.std(0, correction=0).expand_as(y)
        half = std * torch.special.ndtri(torch.tensor(0.5 + 0.5 * LEVEL, dtype=std.dtype))
        return cls(
            len(y),
            _each(diagnostics.rmse, mean, y),
            _each(lambda m, s, t: diagnostics.regression_mnll(Normal(m, s), t), mean, std, y),
            _each(lambda m, h, t: ((m - t).abs() <= h).double().mean(), mean, half, y),
            _each(diagnostics.rmse, trivial_mean, y),
            _each(lambda m, s, t: diagnostics.regression_mnll(Normal(m, s), t), trivial_mean, trivial_std, y),
        )

    @classmethod
    def _of_classes(cls, data: Dataset, probabilities: Tensor) -> Self:
        counts = torch.bincount(data.y_train, minlength=probabilities.shape[-1]).double() + 1.0
        trivial = (counts / counts.sum()).expand_as(probabilities)
        scores = [
            float(score(chances, data.y_test))
            for chances in (probabilities, trivial)
            for score in (diagnostics.error_rate, diagnostics.classification_mnll)
        ]
        return cls(len(data.y_test), (scores[0],), (scores[1],), (), (scores[2],), (scores[3],))

    def table(self, names: tuple[str, ...]) -> str:
        """The scores in plain text, by the names of the targets."""
        names = checks.names("names", names, len(self.error))
        error = "RMSE" if self.coverage else "error rate"
        lines = [("", "this model", "without inputs")]
        for place, name in enumerate(names):
            of = f" of {name}" if len(names) > 1 else ""
            lines.append((f"{error}{of}", f"{self.error[place]:.4g}", f"{self.trivial_error[place]:.4g}"))
            lines.append((f"NLPD{of}", f"{self.nlpd[place]:.4g}", f"{self.trivial_nlpd[place]:.4g}"))
            if self.coverage:
                spread = (LEVEL * (1.0 - LEVEL) / self.num_rows) ** 0.5
                share = f"{100 * self.coverage[place]:.1f} %, of {100 * LEVEL:.0f} +- {100 * spread:.1f} %"
                lines.append((f"coverage{of}", share, ""))
        widths = [max(len(line[place]) for line in lines) for place in range(3)]
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _each(score: Any, *columns: Tensor) -> tuple[float, ...]:
    """A score of every column."""
    return tuple(float(score(*parts)) for parts in zip(*(column.unbind(-1) for column in columns), strict=True))

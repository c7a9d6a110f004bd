"""What is measured with one method, one number of features and one seed, and its means over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._support import optional

MEASURES = (
    "kl",
    "kl_reverse",
    "kl_noisy",
    "error",
    "mnll",
    "coverage",
    "overconfidence",
    "kernel_error",
    "fit_seconds",
    "predict_seconds",
    "seconds",
)
"""What a study measures of every run; :class:`Run` says what each is."""

Difference = tuple[float, float]
"""A mean and its standard error over test rows."""


@dataclass(frozen=True)
class Run:
    """What was measured with one method, one number of features and one seed.

    :param method: the name of the method, or "exact", "linear" or "trivial".
    :param num_features: the number of features, None for others.
    :param seed: the seed of the weights, None for others.
    :param kl: KL(approximate, exact) of the latent marginals, summed over test points, averaged over classes.
    :param kl_reverse: the same for KL(exact, approximate).
    :param kl_noisy: KL(approximate, exact) of the noisy predictions; None for classification.
    :param error: the error rate, or the root mean squared error in units of the (standardized, if several) targets.
    :param mnll: the mean negative log likelihood of the test targets, averaged over several standardized ones.
    :param kernel_error: the relative Frobenius error of the kernel matrix of test points.
    :param fit_seconds: the time for weights, features, statistics and factorization.
    :param predict_seconds: the time for latent means and variances of all test rows.
    :param coverage: the share of test targets in their 95 % intervals; None for classification.
    :param overconfidence: the mean probability of the predicted class, less the accuracy; None for regression.
    :param row_errors: the standard errors over test rows of error, mnll, and coverage or overconfidence.
    :param against: by the name of another model, how much higher error and mnll are, with standard errors.
    :param outputs: error, mnll and coverage of each of several outputs, in its units, by its name.

    >>> run = Run("landmarks", 64, 0, 0.1, 0.1, 0.1, 2.0, 1.0, 0.01, fit_seconds=0.2, predict_seconds=0.1)
    >>> round(run.seconds, 2)
    0.3
    """

    method: str
    num_features: int | None
    seed: int | None
    kl: float
    kl_reverse: float
    kl_noisy: float | None
    error: float
    mnll: float
    kernel_error: float
    fit_seconds: float
    predict_seconds: float
    coverage: float | None = None
    overconfidence: float | None = None
    row_errors: Mapping[str, float] = field(default_factory=dict)
    against: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The time to fit and to predict."""
        return self.fit_seconds + self.predict_seconds

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Run:
        """A run from what JSON made of it, where numbers that are not finite are None."""
        numbers = ("kl", "kl_reverse", "error", "mnll", "kernel_error", "fit_seconds", "predict_seconds")
        values = {name: math.inf if record[name] is None else record[name] for name in numbers}
        against = {
            other: {
                measure: (float(mean), math.nan if error is None else error) for measure, (mean, error) in of.items()
            }
            for other, of in record.get("against", {}).items()
        }
        rows = {name: math.nan if error is None else error for name, error in record.get("row_errors", {}).items()}
        return cls(**{**record, **values, "against": against, "row_errors": rows})


@dataclass(frozen=True)
class Summary:
    """Means and standard errors over seeds of every measure; NaN where a measure or its error does not exist.

    :param method: the name of the method.
    :param num_features: the number of features, None where there are none.
    :param mean: the means by measure.
    :param standard_error: their standard errors.

    >>> Summary("landmarks", 64, {"error": 2.0}, {"error": 0.1}).mean["error"]
    2.0
    """

    method: str
    num_features: int | None
    mean: dict[str, float]
    standard_error: dict[str, float]


def summary(runs: Sequence[Run]) -> Summary:
    """The means and standard errors of runs that differ in their seeds alone."""
    pandas = optional.require("pandas", "pandas", "means over seeds")
    values = pandas.DataFrame([{name: getattr(run, name) for name in MEASURES} for run in runs], dtype=float)
    mean, standard_error = values.mean(skipna=False), values.where(values.abs() < math.inf).sem(skipna=False)
    return Summary(runs[0].method, runs[0].num_features, mean.to_dict(), standard_error.to_dict())


@dataclass(frozen=True)
class KernelScore:
    """A kernel and what its exact model loses on rows that are left out.

    :param kernel: its name.
    :param nlpd: the mean negative log density of a row that is left out, given all others, at learned parameters.
    :param behind: how much that is above the best kernel's.
    :param behind_error: the standard error of this difference, over rows; 0 where it is infinite.

    >>> KernelScore("rbf", nlpd=0.5, behind=0.0, behind_error=0.0).kernel
    'rbf'
    """

    kernel: str
    nlpd: float
    behind: float
    behind_error: float

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> KernelScore:
        """A candidate from what JSON made of it, where numbers that are not finite are None."""
        nlpd, behind, error = record["nlpd"], record["behind"], record["behind_error"]
        nlpd, behind = (math.inf if value is None else value for value in (nlpd, behind))
        return cls(record["kernel"], nlpd, behind, error)


def plain(value: Any) -> Any:
    """Nested values as JSON has them: tuples become lists, and numbers that are not finite None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

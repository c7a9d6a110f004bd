"""What a study says in plain words: exact or approximate, by which method, how sure, and better than what."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .._support import checks
from ..approximation.selection.coverage import CLOSE
from ..diagnostics import kl_reading
from ..diagnostics.measurement import SIGNIFICANT, Measurement
from .losses import LEVEL
from .runs import KernelScore

AFFORDABLE = 5000
"""Up to so many rows, times outputs, an exact model takes seconds."""
_FASTER = 2.0
_NEGLIGIBLE = 0.01
"""A loss in nats per row that nobody notices."""

Choice = Literal["exact", "approximate", "linear", "trivial"]


@dataclass(frozen=True)
class Model:
    """What a verdict knows of a model; ``trust`` is the coverage of its intervals, or confidence less accuracy."""

    name: str
    num_features: int | None
    seconds: float
    divergence: Measurement
    error: Measurement
    mnll: Measurement
    trust: Measurement | None
    against: Mapping[str, Mapping[str, Measurement]]

    def __str__(self) -> str:
        return self.name if self.num_features is None else f"{self.name} with {self.num_features:,} features"

    def is_better_than(self, other: str) -> list[str]:
        """The measures in which it is better than another model, by more than the standard error explains."""
        return [measure for measure, difference in self.against.get(other, {}).items() if difference.is_below]

    def is_worse_than(self, other: str) -> list[str]:
        """The measures in which it is worse."""
        return [measure for measure, difference in self.against.get(other, {}).items() if difference.is_above]


@dataclass(frozen=True)
class Facts:
    """What a verdict is made of: data, the exact model, approximations, baselines, and kernels, the best first."""

    is_regression: bool
    error_name: str
    kernel: str
    num_train: int
    num_test: int
    exact_rows: int
    num_outputs: int
    exact: Model
    approximations: tuple[Model, ...]
    baselines: Mapping[str, Model]
    kernels: tuple[KernelScore, ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether the exact model has all training rows."""
        return self.exact_rows == self.num_train

    @property
    def is_small(self) -> bool:
        """Whether an exact model of all training rows takes seconds."""
        return self.num_train * self.num_outputs <= AFFORDABLE


@dataclass(frozen=True)
class Verdict:
    """What to do, and why.

    :param choice: the model to take: "exact", "approximate", "linear" or "trivial".
    :param method: the best method, whatever the choice is.
    :param num_features: its number of features.
    :param headline: the choice in one sentence.
    :param reasons: what it rests on, at most four.
    :param advice: what else there is to know.

    >>> print(Verdict("exact", "landmarks", 64, "Use the exact model.", ("It is affordable.",)))
    Use the exact model.
    - It is affordable.
    """

    choice: Choice
    method: str
    num_features: int | None
    headline: str
    reasons: tuple[str, ...]
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [textwrap.fill(self.headline, 100)]
        lines += [textwrap.fill(reason, 100, initial_indent="- ", subsequent_indent="  ") for reason in self.reasons]
        lines += [textwrap.fill(advice, 100) for advice in self.advice]
        return "\n".join(lines)


def verdict(facts: Facts) -> Verdict:
    """The model to take, with reasons; differences count above two standard errors, over test rows and seeds together.

    The exact model is taken where it has all rows and no approximation is within KL(exact, approximate) = 0.1 per point
    in half of the time; a linear model where the Gaussian process predicts neither means nor probabilities better; and
    no inputs at all where that predicts better means.
    """
    checks.instance("facts", facts, Facts, "the facts of a study", "take its facts()")
    best = best_approximation(facts)
    choice, headline = _exact_or_approximate(facts, best)
    taken = facts.exact if choice == "exact" else best
    simple = _simple(facts, taken)
    if simple is not None:
        choice, headline = simple
    reasons = [_nearness(facts, best), _scores(facts, best), *_trusts(facts, best), *_against_baselines(facts, taken)]
    advice = tuple(_advice(facts, best, choice))
    return Verdict(choice, best.name, best.num_features, headline, tuple(reasons), advice)


def best_approximation(facts: Facts) -> Model:
    """The approximation to take, if one is taken.

    With all rows in the exact model it is the fastest of those close to it, or else the closest one; otherwise the
    fastest of those whose MNLL is within 0.01, or two standard errors over seeds, of the lowest.
    """
    models = facts.approximations
    if facts.is_full:
        close = [model for model in models if is_close(model)]
        if close:
            return min(close, key=lambda model: model.seconds)
        return min(models, key=lambda model: model.divergence.mean)
    finite = [model for model in models if math.isfinite(model.mnll.mean)] or list(models)
    lowest = min(finite, key=lambda model: model.mnll.mean)
    near = [model for model in finite if model.mnll.mean - lowest.mnll.mean <= _NEGLIGIBLE]
    return min(near, key=lambda model: model.seconds)


def is_close(model: Model) -> bool:
    """Whether a posterior is close to the exact one, at the upper end of its standard error."""
    return model.divergence.mean + SIGNIFICANT * model.divergence.error <= CLOSE


def _exact_or_approximate(facts: Facts, best: Model) -> tuple[Choice, str]:
    rows = f"{facts.num_train:,} rows"
    if facts.is_full:
        size = f"N is small ({rows})" if facts.is_small else f"it takes all {rows}"
        if not is_close(best):
            return (
                "exact",
                f"Use the exact model: {size}, and every approximation that was tried loses by it.",
            )
        if best.seconds * _FASTER <= facts.exact.seconds:
            ratio = facts.exact.seconds / best.seconds
            return "approximate", f"Approximate: {best} is close to exact, and {ratio:.2g} times as fast."
        return (
            "exact",
            f"Use the exact model: {size}, and approximations that are close to it save no time.",
        )
    some = f"the exact model of {facts.exact_rows:,} rows"
    loss = best.against.get("exact", {}).get("mnll", Measurement(0.0))
    if loss.is_above and loss.mean > _NEGLIGIBLE:
        if facts.is_small:
            return "exact", (
                f"Use the exact model, with all {rows}: N is small, and with a part of them it predicts better than "
                "every approximation that was tried with all of them."
            )
        return "exact", (
            f"Of what was tried, take {some}: it predicts better than every approximation with all {rows}. Try more "
            "features before that."
        )
    comparison = "better than" if loss.is_below and loss.mean < -_NEGLIGIBLE else "as well as"
    return "approximate", f"Approximate: {best}, with all {rows}, predicts {comparison} {some}."


def _simple(facts: Facts, taken: Model) -> tuple[Choice, str] | None:
    """Whether a simple model does as well, with the sentence that says so."""
    if "trivial" in facts.baselines:
        what = "the mean of the targets" if facts.is_regression else "the frequencies of the classes"
        if "error" in taken.is_worse_than("trivial"):
            models = (facts.exact, *facts.approximations)
            is_all = all("error" in model.is_worse_than("trivial") for model in models)
            which = "everything that was tried" if is_all else str(taken)
            error = facts.baselines["trivial"].error
            return (
                "trivial",
                f"Take no inputs at all: {which} predicts worse than {what} ({facts.error_name} {taken.error} against "
                f"{error}). Try another kernel (--kernel).",
            )
        if not taken.is_better_than("trivial"):
            return (
                "trivial",
                f"Nothing was learned: the Gaussian process is no better than {what}, whatever the inputs are.",
            )
    if "linear" in facts.baselines and not taken.is_better_than("linear"):
        is_linear = ", and has a linear kernel itself" if facts.kernel == "linear" else ""
        return "linear", f"The Gaussian process is no better than a linear model on these data{is_linear}."
    return None


def _nearness(facts: Facts, best: Model) -> str:
    """How far the best approximation is from exact."""
    kind = "The fastest approximation that is close to exact"
    if facts.is_full and not is_close(best):
        kind = "The closest approximation"
    elif not facts.is_full:
        kind = "The best approximation"
    if not math.isfinite(best.divergence.mean):
        return f"{kind}: {best}, of which a variance has vanished, so that its distance from exact is infinite."
    error = f" ± {best.divergence.error:.2g}" if best.divergence.error else ""
    reading = kl_reading(max(best.divergence.mean, 0.0)).replace(" per point", f"{error} per point", 1)
    same = "" if facts.is_full else f", where both have the same {facts.exact_rows:,} rows"
    return f"{kind}: {best}. {reading}{same}."


def _scores(facts: Facts, best: Model) -> str:
    """What the approximation loses or gains in predictions, and in time."""
    words = [f"MNLL {best.mnll} against {facts.exact.mnll} of the exact model"]
    difference = best.against.get("exact", {}).get("mnll")
    if difference is not None:
        kind = "better" if difference.is_below else "worse" if difference.is_above else "no difference that counts"
        words.append(f"({'+' if difference.mean > 0 else ''}{difference}: {kind})")
    rows = "" if facts.is_full else f" with {facts.exact_rows:,} rows"
    times = f"{best.seconds:.2g} s to fit and predict in place of {facts.exact.seconds:.2g} s{rows}"
    return f"{' '.join(words)}; {facts.error_name} {best.error} against {facts.exact.error}; {times}."


def _trusts(facts: Facts, best: Model) -> list[str]:
    """Whether intervals or probabilities are too sure of themselves, of the approximation and of the exact model."""
    if best.trust is None or facts.exact.trust is None:
        return []
    models = [(model, model.trust) for model in (best, facts.exact) if model.trust is not None]
    if not facts.is_regression:
        return [" ".join(f"{_who(model)} is {_sure(trust)}" for model, trust in models)]
    words = []
    for model, trust in models:
        gap = trust.minus(LEVEL)
        kind = "overconfident" if gap.is_below else "too cautious" if gap.is_above else "as they should be"
        words.append(f"those of {_who(model, False)} {trust.times(100)} %, {kind}")
    return [f"Intervals that should have 95 % of the test targets: {'; '.join(words)}."]


def _who(model: Model, is_start: bool = True) -> str:
    if model.num_features is None:
        return "The exact model" if is_start else "the exact model"
    return str(model)


def _sure(gap: Measurement) -> str:
    """Confidence less accuracy in words."""
    points = Measurement(abs(gap.mean), gap.error).times(100)
    if gap.is_above:
        return (
            f"overconfident: the probability of its classes is on average {points} points above the part that is right."
        )
    if gap.is_below:
        return (
            f"too cautious: the probability of its classes is on average {points} points below the part that is right."
        )
    return f"as sure as it should be: probability and part that is right differ by {points} points on average."


_BASELINES = {"linear": "a linear model", "boosting": "boosting", "trivial": "no inputs at all"}


def _against_baselines(facts: Facts, taken: Model) -> list[str]:
    """Whether simpler models and boosting predict worse."""
    labels = {"error": facts.error_name, "mnll": "MNLL"}
    words = []
    for name, what in _BASELINES.items():
        other = facts.baselines.get(name)
        if other is None:
            continue
        better, worse = taken.is_better_than(name), taken.is_worse_than(name)
        sides = [f"better in {' and '.join(labels[m] for m in better)}"] if better else []
        sides += [f"worse in {' and '.join(labels[m] for m in worse)}"] if worse else []
        counts = ", ".join(sides) or "no difference that counts"
        words.append(f"{what} ({facts.error_name} {other.error}, MNLL {other.mnll}): {counts}")
    scores = f"{facts.error_name} {taken.error}, MNLL {taken.mnll}"
    return [f"{_who(taken)} has {scores}. Against {'; '.join(words)}."] if words else []


def _advice(facts: Facts, best: Model, choice: Choice) -> list[str]:
    words = []
    if facts.kernels:
        words.append(_kernels(facts))
    if not facts.is_full and facts.is_small:
        size = facts.num_train * facts.num_outputs
        words.append(
            f"An exact model of all {facts.num_train:,} rows is affordable; compare with it by --exact-limit {size}."
        )
    elif not facts.is_full:
        growth = (facts.num_train / facts.exact_rows) ** 3 * facts.exact.seconds
        memory = 8.0 * (facts.num_train * facts.num_outputs) ** 2 / 2**30
        words.append(
            f"An exact model of all {facts.num_train:,} rows would take about {_duration(growth)} for one fit, and "
            f"{memory:.2g} GiB for its matrix."
        )
    if (choice == "exact" and not facts.is_small) or (choice == "approximate" and not is_close(best)):
        words.append(
            "The error bars of the function, as opposed to those of new targets, are not those of the exact model: "
            "take more features where they matter."
        )
    return words


def _kernels(facts: Facts) -> str:
    """The kernels that were tried."""
    first, *others = facts.kernels
    close = [c.kernel for c in others if not Measurement(c.behind, c.behind_error).is_above]
    tie = (
        f"; {', '.join(close)} {'is' if len(close) == 1 else 'are'} not worse by more than the standard error explains"
    )
    return (
        f"The kernel {first.kernel} was chosen of {len(facts.kernels)}, by an NLPD of {first.nlpd:.4g} of left-out rows"
        f"{tie if close else ''}."
    )


def _duration(seconds: float) -> str:
    """A time in a unit of which there are some."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"

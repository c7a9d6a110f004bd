"""The words of a verdict, on results that were made up so that what is right to say is known."""

from __future__ import annotations

import math

import pytest

from rfgp.diagnostics import Measurement
from rfgp.study import KernelScore
from rfgp.study.verdict import Facts, Model, best_approximation, verdict

SAME = {"error": Measurement(0.0, 0.1), "mnll": Measurement(0.0, 0.1)}
BETTER = {"error": Measurement(-1.0, 0.1), "mnll": Measurement(-0.5, 0.1)}
WORSE = {"error": Measurement(1.0, 0.1), "mnll": Measurement(0.5, 0.1)}
SURER = {"error": Measurement(0.0, 0.1), "mnll": Measurement(-0.5, 0.1)}
NEARLY = {"error": Measurement(-0.19, 0.1), "mnll": Measurement(-0.19, 0.1)}
GOOD, BAD = Measurement(0.95, 0.01), Measurement(0.85, 0.01)


def model(name="landmarks", features=64, kl=0.005, seconds=0.1, mnll=1.0, trust=GOOD, **against):
    against = {"exact": SAME, "linear": BETTER, "trivial": BETTER, **against}
    divergence = kl if isinstance(kl, Measurement) else Measurement(kl, 0.0)
    return Model(name, features, seconds, divergence, Measurement(2.0, 0.1), Measurement(mnll, 0.1), trust, against)


def exact(seconds=1.0, **against):
    return model("exact", None, 0.0, seconds, **against)


def facts(*approximations, rows=800, exact_rows=800, outputs=1, own=None, **others):
    baselines = {name: model(name, None, 0.0) for name in ("linear", "trivial")}
    known = {"is_regression": True, "error_name": "RMSE", "kernel": "rbf", "num_train": rows, "num_test": 200}
    known |= {"exact_rows": exact_rows, "num_outputs": outputs, "exact": own or exact()}
    return Facts(**{**known, "approximations": approximations or (model(),), "baselines": baselines, **others})


def said(made):
    return verdict(made)


def words_of(made):
    verdict = said(made)
    assert len(verdict.reasons) <= 4
    return [*verdict.reasons, *verdict.advice]


CASES = [
    # all rows in the exact model
    (facts(), "approximate", "Approximate: landmarks with 64 features is close to exact, and 10 times as fast."),
    (
        facts(model(seconds=0.6)),
        "exact",
        "Use the exact model: N is small (800 rows), and approximations that are close",
    ),
    (
        facts(model(kl=0.2)),
        "exact",
        "Use the exact model: N is small (800 rows), and every approximation that was tried",
    ),
    (facts(model(kl=Measurement(0.08, 0.02))), "exact", "Use the exact model: N is small (800 rows), and every"),
    (
        facts(model(kl=0.2), rows=9000, exact_rows=9000),
        "exact",
        "Use the exact model: it takes all 9,000 rows, and every",
    ),
    (facts(model(kl=math.inf)), "exact", "Use the exact model"),
    # a part of the rows in the exact model
    (
        facts(exact_rows=500, rows=50_000),
        "approximate",
        "with all 50,000 rows, predicts as well as the exact model of 500",
    ),
    (facts(model(exact=BETTER), rows=50_000), "approximate", "predicts better than the exact model of 800 rows."),
    (
        facts(model(exact=WORSE), rows=50_000),
        "exact",
        "Of what was tried, take the exact model of 800 rows: it predicts",
    ),
    (facts(model(exact=WORSE), rows=2000), "exact", "Use the exact model, with all 2,000 rows: N is small"),
    (facts(model(exact=WORSE), rows=2000, outputs=5), "exact", "Of what was tried, take the exact model of 800 rows"),
    (
        facts(model(exact={**SAME, "mnll": Measurement(0.005, 0.001)}), rows=50_000),
        "approximate",
        "predicts as well as the exact model",
    ),
    # simple models that do as well
    (facts(own=exact(linear=SAME), rows=800), "approximate", "Approximate: landmarks"),
    (facts(model(linear=SAME)), "linear", "The Gaussian process is no better than a linear model on these data."),
    (facts(model(linear=NEARLY)), "linear", "The Gaussian process is no better than a linear model on these data."),
    (facts(model(linear=WORSE)), "linear", "The Gaussian process is no better than a linear model on these data."),
    (facts(model(linear=SURER)), "approximate", "Approximate: landmarks with 64 features"),
    (facts(model(kl=0.2), own=exact(linear=SAME)), "linear", "The Gaussian process is no better than a linear model"),
    (facts(model(linear=SAME), kernel="linear"), "linear", "on these data, and has a linear kernel itself."),
    (facts(model(linear=SAME, trivial=SAME)), "trivial", "no better than the mean of the targets, whatever the inputs"),
    (
        facts(model(linear=BETTER, trivial=WORSE), is_regression=False),
        "trivial",
        "Take no inputs at all: landmarks with 64 features predicts worse than the frequencies of the classes",
    ),
    (
        facts(model(trivial={**WORSE, "mnll": BETTER["mnll"]}), own=exact(trivial=WORSE)),
        "trivial",
        "Take no inputs at all: everything that was tried predicts worse than the mean of the targets",
    ),
    (facts(baselines={}), "approximate", "Approximate: landmarks with 64 features"),
]


@pytest.mark.parametrize(("made", "choice", "headline"), CASES, ids=range(len(CASES)))
def test_what_is_said_first(made, choice, headline):
    verdict = said(made)
    assert verdict.choice == choice and headline in verdict.headline
    assert str(verdict).startswith(verdict.headline[:60]) and len(verdict.reasons) >= 3


@pytest.mark.parametrize(
    ("made", "chosen"),
    [
        (facts(model(features=64, seconds=0.3), model(features=128, seconds=0.2)), 128),
        (facts(model(features=64, kl=0.5, seconds=0.1), model(features=128, kl=0.09, seconds=0.2)), 128),
        (facts(model(features=64, kl=0.5), model(features=128, kl=0.3), model(features=256, kl=0.4)), 128),
        (facts(model(features=64, mnll=1.2), model(features=128, mnll=1.0), rows=5000), 128),
        (facts(model(features=64, mnll=1.009), model(features=128, mnll=1.0, seconds=0.2), rows=5000), 64),
        (facts(model(features=64, mnll=math.inf), model(features=128, mnll=1.0), rows=5000), 128),
    ],
)
def test_the_approximation_that_is_taken(made, chosen):
    assert best_approximation(made).num_features == said(made).num_features == chosen


REASONS = [
    (facts(), "KL 0.005 per point: as good as exact; 95% intervals of the function cover at least 93% of it."),
    (
        facts(model(kl=Measurement(0.4, 0.03))),
        "The closest approximation: landmarks with 64 features. KL 0.4 ± 0.03 per",
    ),
    (facts(model(kl=math.inf)), "of which a variance has vanished, so that its distance from exact is infinite."),
    (facts(rows=50_000), "where both have the same 800 rows."),
    (facts(model(exact=WORSE)), "MNLL 1.00 ± 0.10 against 1.00 ± 0.10 of the exact model (+0.50 ± 0.10: worse)"),
    (facts(model(exact=BETTER)), "(-0.50 ± 0.10: better)"),
    (facts(), "(0: no difference that counts)"),
    (facts(), "those of landmarks with 64 features 95.0 ± 1.0 %, as they should be; those of the exact model 95.0"),
    (facts(model(trust=BAD)), "those of landmarks with 64 features 85.0 ± 1.0 %, overconfident; those of the exact"),
    (facts(model(trust=Measurement(0.99, 0.01))), "landmarks with 64 features 99.0 ± 1.0 %, too cautious;"),
    (
        facts(),
        "MNLL 1.00 ± 0.10. Against a linear model (RMSE 2.00 ± 0.10, MNLL 1.00 ± 0.10): better in",
    ),
    (facts(model(linear={**WORSE, "mnll": BETTER["mnll"]})), "better in MNLL, worse in RMSE;"),
    (facts(model(linear=SAME)), "MNLL 1.00 ± 0.10): no difference that counts;"),
    (
        facts(rows=2000, exact_rows=500, outputs=2),
        "all 2,000 rows is affordable; compare with it by --exact-limit 4000.",
    ),
    (facts(rows=80_000, own=exact(0.01)), "all 80,000 rows would take about 2.8 hours for one fit, and 48 GiB"),
    (facts(model(kl=0.7), rows=80_000), "are not those of the exact model: take more features where they matter."),
]


@pytest.mark.parametrize(("made", "reason"), REASONS, ids=range(len(REASONS)))
def test_what_it_rests_on(made, reason):
    assert reason in " ".join(words_of(made))


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.03, "landmarks with 64 features is overconfident: the probability of its classes is on average 3.0 ± 1.0"),
        (-0.03, "too cautious: the probability of its classes is on average 3.0 ± 1.0 points below the part that is"),
        (0.019, "as sure as it should be: probability and part that is right differ by 1.9 ± 1.0 points on average."),
    ],
)
def test_how_sure_a_classification_is(gap, words):
    made = facts(model(trust=Measurement(gap, 0.01)), own=exact(trust=Measurement(0.0, 0.01)), is_regression=False)
    assert words in " ".join(words_of(made))
    assert "The exact model is as sure as it should be" in " ".join(words_of(made))


def test_kernels_that_were_tried():
    tried = [
        ("rbf", 0.5, 0.0, 0.0),
        ("rq", 0.51, 0.01, 0.01),
        ("linear", 0.9, 0.4, 0.1),
        ("matern:0.5", math.inf, math.inf, 0.0),
    ]
    made = facts(kernels=tuple(KernelScore(*record) for record in tried))
    (words,) = [reason for reason in said(made).advice if "was chosen" in reason]
    assert words == (
        "The kernel rbf was chosen of 4, by an NLPD of 0.5 of left-out rows; rq is not worse by more than the standard "
        "error explains."
    )


def test_advice_that_does_not_belong():
    reasons = " ".join(words_of(facts()))
    assert "affordable" not in reasons and "GiB" not in reasons and "take more features" not in reasons


@pytest.mark.parametrize(
    ("values", "rows", "mean", "error"),
    [
        ([1.0, 3.0], (), 2.0, 1.0),
        ([1.0, 3.0], [2.0, 2.0], 2.0, math.sqrt(5.0)),
        ([2.0], [0.5], 2.0, 0.5),
        ([2.0], [math.nan], 2.0, 0.0),
        ([math.inf, 1.0], (), math.inf, 0.0),
    ],
)
def test_standard_errors_over_seeds_and_rows(values, rows, mean, error):
    found = Measurement.of(values, rows)
    assert found.mean == mean and found.error == pytest.approx(error)

"""Estimators are calibrated, compare themselves with simple models, and take weights of rows and of classes."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
import scipy.stats
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.linear_model import LogisticRegression

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor
from rfgp.sklearn.calibration import choose_power, tempered
from rfgp.sklearn.comparison import LabeledRows, tail_of, warn_of_copies

SMALL = {"num_features": 32, "max_evaluations": 6, "kernel": "matern32", "random_state": 0}
WORSE = "rows that were held out are predicted better by"

pytestmark = pytest.mark.filterwarnings("ignore:.*ends at the.*bound:UserWarning", f"ignore:{WORSE}:UserWarning")


def classes(num_rows, seed=0):
    """Two classes whose log odds are linear."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(num_rows, 8))
    odds = x[:, 0] - 0.5 * x[:, 1]
    return x, np.where(generator.random(num_rows) < 1.0 / (1.0 + np.exp(-odds)), "yes", "no")


def log_loss(model, x, labels):
    codes = np.searchsorted(model.classes_, labels)
    return -np.log(model.predict_proba(x)[np.arange(len(x)), codes]).mean()


def test_rows_without_weight_are_not_there():
    x, y = make_friedman1(120, n_features=5, random_state=0)
    weights = np.where(np.arange(120) < 80, 1.5, 0.0)
    some = RandomFeatureGPRegressor(**SMALL).fit(x[:80], y[:80], weights[:80])
    every = RandomFeatureGPRegressor(**SMALL).fit(x, y, weights)
    np.testing.assert_allclose(every.predict(x), some.predict(x), rtol=1e-9)
    labels = np.where(np.arange(120) < 80, np.where(y > 14.0, "high", "low"), "absent")
    model = RandomFeatureGPClassifier(**SMALL).fit(x, labels, weights)
    assert model.classes_.tolist() == ["high", "low"]


@pytest.mark.parametrize("num_outputs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_wrong_rows_of_small_weight_do_not_matter(num_outputs):
    x, y = make_friedman1(150, n_features=5, random_state=0)
    y = np.column_stack([y, -y])[:, :num_outputs]
    is_wrong = np.arange(150) % 5 == 0
    wrong, weights = np.where(is_wrong[:, None], y + 20.0, y), np.where(is_wrong, 1e-5, 1.0)
    model = RandomFeatureGPRegressor(**SMALL).fit(x, wrong, weights)
    assert model.score(x, y) > 0.95 > RandomFeatureGPRegressor(**SMALL).fit(x, wrong).score(x, y)
    before = model.predict(x)
    model.partial_fit(x[:3], y[:3] + 20.0, sample_weight=[1e-5, 1e-5, 1e-5])
    np.testing.assert_allclose(model.predict(x), before, rtol=3e-2)
    left = RandomFeatureGPRegressor(**SMALL).fit(x, wrong, weights).cross_val_predict(x, wrong, sample_weight=weights)
    assert np.abs(left - y)[is_wrong].mean() < 3.0


def test_class_weights_are_weights_of_rows():
    x, labels = classes(200)
    by_class = {"yes": 3.0, "no": 0.5}
    one = RandomFeatureGPClassifier(class_weight=by_class, **SMALL).fit(x, labels)
    other = RandomFeatureGPClassifier(**SMALL).fit(x, labels, np.where(labels == "yes", 3.0, 0.5))
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))
    rare = np.where(x[:, 2] > 1.2, "rare", "usual")
    shares = [
        np.mean(RandomFeatureGPClassifier(class_weight=weight, **SMALL).fit(x, rare).predict_proba(x)[:, 0])
        for weight in (None, "balanced")
    ]
    assert shares[1] > shares[0]
    with pytest.raises(ValueError, match='expected "balanced", a dict or None'):
        RandomFeatureGPClassifier(class_weight="even").fit(x, labels)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_the_temperature_is_that_of_the_labels(power):
    generator = np.random.default_rng(0)
    logs = tempered(generator.normal(size=(4000, 3)), 1.0)
    codes = (np.exp(tempered(logs, power)).cumsum(-1) > generator.random((4000, 1))).argmax(-1)
    weights = generator.uniform(0.5, 2.0, size=4000)
    assert abs(np.log(choose_power(LabeledRows(logs, codes, None), logs) / power)) < 0.12
    assert abs(np.log(choose_power(LabeledRows(logs, codes, weights), logs) / power)) < 0.15
    assert abs(np.log(choose_power(LabeledRows(logs, codes, None).take(np.arange(3)), logs[:3]))) < 0.3


def test_probabilities_have_the_temperature():
    x, labels = classes(300)
    model = RandomFeatureGPClassifier(**SMALL).fit(x, labels)
    calibrated = model.predict_proba(x)
    assert abs(model.temperature_ - 1.0) > 1e-3
    np.testing.assert_allclose(np.exp(tempered(np.log(_raw(model, x)), 1.0 / model.temperature_)), calibrated)


def _raw(model, x):
    model = copy.copy(model)
    model.temperature_ = 1.0
    return model.predict_proba(x)


@pytest.mark.parametrize("num_rows", [300, pytest.param(1200, marks=pytest.mark.long)])
def test_comparisons_are_those_of_other_rows(num_rows):
    x, labels = classes(num_rows + 2000)
    model = RandomFeatureGPClassifier(**SMALL).fit(x[:num_rows], labels[:num_rows])
    linear = LogisticRegression().fit(x[:num_rows], labels[:num_rows])
    found = model.comparison_
    assert sorted(found) == (["boosting"] if num_rows > 1000 else []) + ["frequencies", "linear", "model"]
    error = 4.0 * 0.5 / np.sqrt(max(50, 0.1 * num_rows))
    assert abs(found["linear"] - log_loss(linear, x[num_rows:], labels[num_rows:])) < error
    assert abs(found["model"] - log_loss(model, x[num_rows:], labels[num_rows:])) < error
    assert abs(found["frequencies"] - np.log(2.0)) < 0.03


def test_a_better_linear_model_is_named_or_taken():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 12))
    y = x @ np.arange(12.0) + generator.normal(size=200)
    settings = SMALL | {"kernel": "matern12", "max_evaluations": 2}
    with pytest.warns(UserWarning, match=f"{WORSE} linear .*; set fallback=True to take it, or try kernel=.linear."):
        model = RandomFeatureGPRegressor(**settings).fit(x[:100], y[:100])
    assert model.fallback_ is None and model.comparison_["linear"] < model.comparison_["model"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safe = RandomFeatureGPRegressor(fallback=True, **settings).fit(x[:100], y[:100])
    assert safe.score(x[100:], y[100:]) > model.score(x[100:], y[100:])
    mean, std = safe.predict(x[100:], return_std=True)
    assert 0.8 < np.std((y[100:] - mean) / std) < 1.25
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(safe)).predict(x), safe.predict(x))
    assert safe.sample_y(x[:4], 3).shape == (4, 3)


def test_no_class_is_predicted_better_by_its_frequency():
    generator = np.random.default_rng(0)
    x, labels = generator.normal(size=(600, 20)), generator.choice(3, size=600, p=[0.9, 0.06, 0.04])
    model = RandomFeatureGPClassifier(fallback=True, **SMALL).fit(x[:300], labels[:300])
    frequencies = np.bincount(labels[:300]) / 300.0
    assert log_loss(model, x[300:], labels[300:]) < -np.log(frequencies[labels[300:]]).mean() + 0.05


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_outliers_and_student_noise(num_outputs):
    x, truth = make_friedman1(200, n_features=5, random_state=0)
    truth = np.column_stack([truth, -truth])[:, :num_outputs]
    generator = np.random.default_rng(0)
    y = np.where(generator.random(truth.shape) < 0.08, 60.0, truth + 0.1 * generator.normal(size=truth.shape))
    settings = SMALL | {"num_features": 80, "max_evaluations": 8}
    robust = clone(RandomFeatureGPRegressor(noise="student", **settings)).fit(x[:150], y[:150])
    normal = RandomFeatureGPRegressor(**settings).fit(x[:150], y[:150])
    error = np.abs(robust.predict(x[150:]) - truth[150:]).mean()
    assert error < 0.6 * np.abs(normal.predict(x[150:]) - truth[150:]).mean()
    mean, std = robust.predict(x[:5], return_std=True)
    cov = robust.predict(x[:5], return_cov=True)[1]
    np.testing.assert_allclose(std, np.sqrt(np.diagonal(cov).T), rtol=1e-6)
    assert np.isfinite(robust.log_marginal_likelihood_value_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(robust)).predict(x[:5]), mean)
    for refused in (lambda: robust.cross_val_predict(x[:150], y[:150]), lambda: robust.fit(x, y, np.ones(200))):
        with pytest.raises(ValueError, match='noise="normal"'):
            refused()


def test_a_bar_names_the_phases(capsys):
    x, labels = classes(60)
    RandomFeatureGPClassifier(verbose=True, **SMALL).fit(x, labels)
    shown = capsys.readouterr().err
    assert "calibration" in shown and "3/3" in shown
    RandomFeatureGPRegressor(**SMALL).fit(x, x[:, 0])
    assert not capsys.readouterr().err


def test_a_target_that_is_known_once_and_one_that_is_not_known():
    x, y = make_friedman1(60, n_features=5, random_state=0)
    several = np.column_stack([y, np.full(60, np.nan)])
    with pytest.raises(ValueError, match="expected a known value of every target, got none of target 1"):
        RandomFeatureGPRegressor(**SMALL).fit(x, several)
    several[3, 1] = 2.0
    mean, std = RandomFeatureGPRegressor(**SMALL).fit(x, several).predict(x, return_std=True)
    assert np.isfinite(mean).all() and (std > 0.0).all()


@pytest.mark.parametrize("name", ["fallback", "verbose"])
def test_flags_are_checked(name):
    x, y = make_friedman1(20, n_features=5, random_state=0)
    for kind, targets in ((RandomFeatureGPRegressor, y), (RandomFeatureGPClassifier, y > 14.0)):
        with pytest.raises(ValueError, match=name):
            kind(**{name: "sometimes"}, **SMALL).fit(x, targets)


@pytest.mark.parametrize("kind", [RandomFeatureGPRegressor, RandomFeatureGPClassifier])
@pytest.mark.filterwarnings("ignore:rows that were held out")
def test_a_constant_is_compared_in_any_time(kind):
    x = np.random.default_rng(0).normal(size=(1100, 3))
    model = kind("matern32", random_state=0, time_limit=1e-3).fit(x, (x[:, 0] > 0.0) * 1)
    assert set(model.comparison_) == {"model", "constant" if kind is RandomFeatureGPRegressor else "frequencies"}


def test_a_classifier_says_that_a_linear_model_is_better_where_few_rows_are_held_out():
    generator = np.random.default_rng(2)
    x = generator.normal(size=(300, 20))
    scores = 1.5 * x @ generator.normal(size=(20, 6))
    labels = (scores + generator.gumbel(size=scores.shape)).argmax(-1)
    with pytest.warns(UserWarning, match="predicted better by linear"):
        model = RandomFeatureGPClassifier("matern32", random_state=0, max_evaluations=10).fit(x, labels)
    assert model.comparison_["linear"] < model.comparison_["model"] < model.comparison_["frequencies"]


def test_a_classifier_says_that_boosting_is_better_or_takes_it():
    """Of labels by thresholds of two inputs among many, boosting finds the two."""
    x = np.random.default_rng(0).normal(size=(2000, 20))
    labels = np.where((x[:, 3] > 0.3) ^ (x[:, 7] > 0.1), "in", "out")
    settings = SMALL | {"max_evaluations": 1}
    with pytest.warns(UserWarning, match=f"{WORSE} boosting .* model [0-9.]+, .*matern12.* or more num_features"):
        model = RandomFeatureGPClassifier(**settings).fit(x[:1200], labels[:1200])
    assert model.fallback_ is None and list(model.comparison_) == ["model", "frequencies", "linear", "boosting"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safe = RandomFeatureGPClassifier(fallback=True, **settings).fit(x[:1200], labels[:1200])
    held, new = safe.comparison_["boosting"], log_loss(safe, x[1200:], labels[1200:])
    assert held < model.comparison_["model"] - 0.1 and new < log_loss(model, x[1200:], labels[1200:]) - 0.1


def test_boosting_is_compared_with_for_few_classes_of_many_rows():
    x = np.random.default_rng(0).normal(size=(1100, 2))
    for num_rows, num_classes in ((900, 2), (1100, 6)):
        labels = np.digitize(x[:num_rows, 0], np.linspace(-1.0, 1.0, num_classes - 1))
        model = RandomFeatureGPClassifier(**SMALL | {"max_evaluations": 1}).fit(x[:num_rows], labels)
        assert list(model.comparison_) == ["model", "frequencies", "linear"]


@pytest.mark.parametrize(("degrees", "size"), [(np.inf, 1.0), (np.inf, 0.7), (np.inf, 1.5), (2.0, 1.5)])
def test_intervals_are_as_wide_as_unseen_rows_need_them(degrees, size):
    """Errors of one target have tails or not, and are as large as a model says or larger; another one is constant."""
    standard = scipy.stats.norm() if np.isinf(degrees) else scipy.stats.t(degrees)
    errors = size * 1.96 / standard.ppf(0.975) * standard.rvs(4000, random_state=0)
    seen, new = np.split(errors, 2)
    rows = LabeledRows(np.zeros((2000, 1)), np.stack([seen, np.ones(2000)], axis=1), None)
    tail = tail_of(rows, np.stack([np.zeros((2000, 2)), np.ones((2000, 2))], axis=1))
    assert tail.degrees.tolist() == [degrees, np.inf]
    assert tail.widths[1] == 1.0 and (tail.widths[0] == 1.0) == (size == 1.0)
    covered = np.mean(np.abs(new) < 1.96 * float(tail.widths[0]))
    assert abs(covered - 0.95) < 4.0 * (2.0 * 0.95 * 0.05 / 2000) ** 0.5


@pytest.mark.parametrize("deviation", [1.0, 1e-3])
def test_intervals_of_small_errors_keep_their_width(deviation):
    """Of errors as large as a model says, also where these are tiny; of none at all it halves."""
    errors = deviation * np.stack([np.random.default_rng(0).normal(size=400), 1e-12 * np.arange(400)], axis=1)
    moments = np.stack([np.zeros_like(errors), np.full_like(errors, deviation**2)], axis=1)
    assert tail_of(LabeledRows(np.zeros((400, 1)), errors, None), moments).widths.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("copies", [1, 3])
def test_copies_of_rows_are_told(copies):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 2))
    y = x[:, 0] + 0.5 * generator.normal(size=40)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        RandomFeatureGPRegressor(random_state=0).fit(np.tile(x, (copies, 1)), np.tile(y, copies))
    messages = [str(one.message) for one in told if "are copies of other rows" in str(one.message)]
    assert len(messages) == (copies > 1)
    assert all(message.startswith("80 of 120 rows") for message in messages)


def test_rows_of_few_values_agree_by_chance():
    generator = np.random.default_rng(0)
    x, rounded = generator.integers(0, 3, size=(200, 2)), generator.integers(0, 2, size=200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_copies(x.astype(float), rounded[:, None].astype(float))
        warn_of_copies(np.repeat(generator.normal(size=(50, 2)), 4, axis=0), generator.normal(size=(200, 1)))

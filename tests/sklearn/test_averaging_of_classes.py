"""Classes of few rows by averages over parameters: probabilities, left-out rows, updates and refusals."""

import copy
import pickle

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import check_estimator

from rfgp.averaging import AveragedGPClassifier
from rfgp.sklearn import RandomFeatureGPClassifier, classifier

ROWS, NEW = 60, 40


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.random((ROWS + NEW, 3)) * [1.0, 1e3, 1e-3]
    score = np.sin(3.0 * x[:, 0]) + x[:, 1] / 1e3 + 0.1 * random.normal(size=len(x))
    return x, np.array(["low", "middle", "top"])[np.searchsorted(np.quantile(score, [0.3, 0.7]), score)]


X, Y = rows()
BINARY = Y == "top"


@pytest.fixture(scope="module")
def fitted():
    return RandomFeatureGPClassifier().fit(X[:ROWS], Y[:ROWS])


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


def mean_loss(model, x, y):
    return -np.log(model.predict_proba(x)[np.arange(len(y)), np.searchsorted(model.classes_, y)]).mean()


def test_probabilities_are_those_of_the_average(model):
    found = model.predict_proba(X[ROWS:])
    assert isinstance(model.model_, AveragedGPClassifier) and model.temperature_ == 1.0 and model.fallback_ is None
    np.testing.assert_allclose(found, model.model_.predictive(model._inputs(X[ROWS:])[0]).probs)
    np.testing.assert_array_equal(model.predict(X[ROWS:]), model.classes_[found.argmax(-1)])
    assert mean_loss(model, X[ROWS:], Y[ROWS:]) < 0.75 * model.comparison_["frequencies"]


def test_left_out_rows_are_about_as_probable_as_new_ones(model):
    alone = model.cross_val_predict(X[:ROWS], Y[:ROWS], method="predict_proba")
    of_truth = -np.log(alone[np.arange(ROWS), np.searchsorted(model.classes_, Y[:ROWS])])
    assert model.comparison_["model"] == pytest.approx(of_truth.mean())
    new = -np.log(model.predict_proba(X[ROWS:])[np.arange(NEW), np.searchsorted(model.classes_, Y[ROWS:])])
    error = (of_truth.var(ddof=1) / ROWS + new.var(ddof=1) / NEW) ** 0.5
    assert abs(of_truth.mean() - new.mean()) < 3.0 * error
    assert model.comparison_["model"] < min(model.comparison_["linear"], model.comparison_["frequencies"])


def test_folds_are_predicted_without_their_labels(model):
    folds = KFold(6, shuffle=True, random_state=0)
    found = model.cross_val_predict(X[:ROWS], Y[:ROWS], cv=folds, method="predict_proba")
    groups = np.zeros(ROWS, dtype=int)
    for number, (_, test) in enumerate(folds.split(X[:ROWS])):
        groups[test] = number
    x, codes = model._model_rows(X[:ROWS], Y[:ROWS])
    np.testing.assert_allclose(found, model.model_.leave_group_out(x, codes, codes.new_tensor(groups)).probs)
    assert (model.cross_val_predict(X[:ROWS], Y[:ROWS], cv=5) == Y[:ROWS]).mean() > 0.75
    assert model.cross_validate(X[:ROWS], Y[:ROWS], cv=5)["test_score"].shape == (5,)
    with pytest.raises(ValueError, match="expected the rows that were fitted"):
        model.cross_val_predict(X[ROWS:], Y[ROWS:])


def test_more_rows(model):
    before = mean_loss(model, X[ROWS:], Y[ROWS:])
    model.partial_fit(X[ROWS:], Y[ROWS:])
    assert mean_loss(model, X[ROWS:], Y[ROWS:]) < before
    assert len(model.model_.y) == ROWS + NEW
    with pytest.raises(ValueError, match="expected labels among the classes"):
        model.partial_fit(X[:1], ["other"])


@pytest.mark.parametrize("weights", [None, 2.0 * np.ones(NEW)])
def test_rows_that_are_too_many_or_have_weights_are_learned_with_one_set_of_parameters(
    small_defaults, model, monkeypatch, weights
):
    monkeypatch.setattr(classifier, "MOST_LABELS", 3 * (ROWS + NEW) - (weights is None))
    model.set_params(random_state=0)
    strict = copy.deepcopy(model).set_params(average=True)
    with pytest.raises(ValueError, match=r"expected at most .* and no sample_weight for average=True"):
        strict.partial_fit(X[ROWS:], Y[ROWS:], sample_weight=weights)
    assert len(strict.model_.y) == ROWS
    model.partial_fit(X[ROWS:], Y[ROWS:], sample_weight=weights)
    assert not isinstance(model.model_, AveragedGPClassifier)
    assert model.score(X, Y) > 0.75


def test_streams_have_one_set_of_parameters(small_defaults):
    stream = RandomFeatureGPClassifier(random_state=0).partial_fit(X[:ROWS], BINARY[:ROWS], classes=[False, True])
    assert not isinstance(stream.model_, AveragedGPClassifier)
    wanted = RandomFeatureGPClassifier(average=True).partial_fit(X[:ROWS], BINARY[:ROWS])
    assert isinstance(wanted.model_, AveragedGPClassifier)


def test_copies_predict_the_same(model):
    written = pickle.dumps(model)
    assert len(written) < 200_000  # rows, draws and their slopes, and no matrices (N, N)
    np.testing.assert_array_equal(pickle.loads(written).predict_proba(X), model.predict_proba(X))
    assert clone(model).average == "auto" and np.isfinite(model.log_marginal_likelihood_value_)


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({"kernel": "rbf"}, None),
        ({"average": "yes"}, None),
        ({"time_limit": 5.0}, None),
        ({"class_weight": "balanced"}, None),
        ({}, np.ones(ROWS)),
    ],
)
def test_what_is_not_averaged_is_refused(settings, weights):
    with pytest.raises(ValueError, match=r"expected .* got"):
        RandomFeatureGPClassifier(**{"average": True, **settings}).fit(X[:ROWS], Y[:ROWS], weights)


def test_too_many_labels_and_classes_without_rows_are_refused(small_defaults, monkeypatch):
    with pytest.raises(ValueError, match="rows of every class"):
        RandomFeatureGPClassifier(average=True).partial_fit(X[:ROWS], BINARY[:ROWS], classes=[False, True, 2])
    monkeypatch.setattr(classifier, "MOST_LABELS", 3 * ROWS - 1)
    with pytest.raises(ValueError, match="rows times classes"):
        RandomFeatureGPClassifier(average=True).fit(X[:ROWS], Y[:ROWS])


def test_what_is_set_for_one_set_of_parameters_is_taken(small_defaults, monkeypatch):
    settings = ({"average": False}, {"kernel": "rbf"}, {"time_limit": 5.0}, {"class_weight": "balanced"})
    for setting in settings:
        model = RandomFeatureGPClassifier(**setting, random_state=0).fit(X[:ROWS], BINARY[:ROWS])
        assert not isinstance(model.model_, AveragedGPClassifier)
    for name, value in (("AUTO_ROWS", ROWS - 1), ("AUTO_LABELS", 3 * ROWS - 1)):
        with monkeypatch.context() as patched:
            patched.setattr(classifier, name, value)
            model = RandomFeatureGPClassifier(random_state=0).fit(X[:ROWS], BINARY[:ROWS])
        assert not isinstance(model.model_, AveragedGPClassifier)


def test_pixels_are_not_averaged(small_defaults):
    pixels = np.random.default_rng(0).integers(0, 16, size=(ROWS, 64))
    model = RandomFeatureGPClassifier(random_state=0).fit(pixels, pixels[:, 0] > 7)
    assert not isinstance(model.model_, AveragedGPClassifier)


def test_frames_are_averaged_where_levels_and_gaps_are_few(small_defaults):
    frame = pandas.DataFrame({"size": X[:ROWS, 0], "kind": ["a", "b"] * (ROWS // 2), "day": range(ROWS)})
    plain = RandomFeatureGPClassifier()
    assert plain.averages(frame, BINARY[:ROWS]) and not hasattr(plain, "x_scaler_")
    assert isinstance(plain.fit(frame, BINARY[:ROWS]).model_, AveragedGPClassifier)
    frame["kind"] = [f"level {number % 12}" for number in range(ROWS)]
    model = RandomFeatureGPClassifier(random_state=0)
    assert not model.averages(frame, BINARY[:ROWS])
    assert not isinstance(model.fit(frame, BINARY[:ROWS]).model_, AveragedGPClassifier)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long("every check of scikit-learn fits some averages: a minute")
def test_scikit_learn_contract_of_averages():
    """Weights are for one set of parameters, whose evidence of weights is not that of equal rows."""
    expected = {"check_sample_weight_equivalence_on_dense_data": "the evidence of weights is not that of equal rows"}
    results = check_estimator(RandomFeatureGPClassifier(random_state=0), expected_failed_checks=expected)
    assert sum(result["status"] == "passed" for result in results) > 40

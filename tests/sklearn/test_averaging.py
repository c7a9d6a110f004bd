"""Regression of few rows by averages over parameters: predictions, intervals, draws, updates and refusals."""

import copy
import pickle

import numpy as np
import pandas
import pytest
import scipy.stats
from sklearn.base import clone

from rfgp.averaging import AveragedGP
from rfgp.averaging.trees import Trees
from rfgp.sklearn import RandomFeatureGPRegressor, regressor

ROWS, NEW = 50, 40


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.random((ROWS + NEW, 3)) * [1.0, 1e3, 1e-3]
    y = np.exp(np.sin(3.0 * x[:, 0]) + x[:, 1] / 1e3) + 0.1 * random.normal(size=len(x))
    return x, 1e4 * y


X, Y = rows()


@pytest.fixture(scope="module")
def fitted():
    return RandomFeatureGPRegressor(random_state=0).fit(X[:ROWS], Y[:ROWS])


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


def test_predictions_are_in_the_units_of_the_targets(model):
    mean, std = model.predict(X[ROWS:], return_std=True)
    inside = model.model_.predictive(model._inputs(X[ROWS:])[0])
    np.testing.assert_allclose(mean, model.y_scaler_.mean_[0] + model.y_scaler_.scale_[0] * inside.mean.numpy())
    np.testing.assert_allclose(std, model.y_scaler_.scale_[0] * inside.stddev.numpy())
    assert isinstance(model.model_, AveragedGP) and model.fallback_ is None
    assert np.mean((mean - Y[ROWS:]) ** 2) < 0.05 * Y[ROWS:].var()


def test_intervals_and_quantiles_are_those_of_the_mixture(model):
    quantiles = model.predict_quantiles(X[ROWS:], [0.025, 0.5, 0.975])
    np.testing.assert_allclose(model.predict_interval(X[ROWS:]), quantiles[:, [0, 2]])
    assert quantiles.shape == (NEW, 3) and (np.diff(quantiles) > 0.0).all()
    wide = model.predict_interval(X[ROWS:], level=0.5)
    assert ((quantiles[:, 0] < wide[:, 0]) & (wide[:, 1] < quantiles[:, 2])).all()
    inside = (quantiles[:, 0] < Y[ROWS:]) & (Y[ROWS:] < quantiles[:, 2])
    assert abs(inside.mean() - 0.95) < 4.0 * (0.95 * 0.05 / NEW) ** 0.5


def test_one_set_of_parameters_has_the_tails_of_rows_that_it_has_not_seen():
    """Noise of Student's t with three degrees of freedom beside a normal one."""
    random = np.random.default_rng(0)
    x = random.uniform(-2.0, 2.0, (1600, 1))
    noise = np.stack([random.standard_t(3.0, 1600), random.normal(size=1600)], axis=1)
    y, new = np.sin(2.0 * x) + 0.3 * noise, np.arange(1200, 1600)
    model = RandomFeatureGPRegressor("rbf", num_features=32, block_size=None, max_evaluations=15, random_state=0)
    model.fit(x[:1200], y[:1200])
    assert model.tail_degrees_[0] < 10.0 and np.isinf(model.tail_degrees_[1])
    mean, std = model.predict(x[new], return_std=True)
    steps = scipy.stats.t(model.tail_degrees_[0])
    unit = std[:, 0] / steps.std()
    quantiles = model.predict_quantiles(x[new], [0.001, 0.025, 0.999])
    np.testing.assert_allclose(quantiles[:, 0, 0], mean[:, 0] + unit * steps.ppf(0.001), rtol=1e-6)
    np.testing.assert_allclose(quantiles[:, 2, 1], mean[:, 1] + std[:, 1] * scipy.stats.norm.ppf(0.999), rtol=1e-6)
    plain = scipy.stats.norm.logpdf(y[new, 0], mean[:, 0], std[:, 0])
    gain = np.minimum(scipy.stats.t.logpdf(y[new, 0], steps.args[0], mean[:, 0], unit) - plain, 5.0)
    assert gain.mean() > 2.0 * gain.std() / len(gain) ** 0.5
    inside = np.abs(y[new, 0] - mean[:, 0]) < mean[:, 0] - quantiles[:, 1, 0]
    assert abs(inside.mean() - 0.95) < 4.0 * (0.95 * 0.05 / len(new)) ** 0.5
    logs = model.log_density(x[new], y[new])
    np.testing.assert_allclose(logs[:, 0], scipy.stats.t.logpdf(y[new, 0], steps.args[0], mean[:, 0], unit), rtol=1e-6)
    np.testing.assert_allclose(logs[:, 1], scipy.stats.norm.logpdf(y[new, 1], mean[:, 1], std[:, 1]), rtol=1e-6)
    draws = model.sample_y(x[new[:2]], n_samples=20_000)
    ranks = (draws < quantiles[:2, 1, :, None]).mean(-1)
    assert (np.abs(ranks - 0.025) < 4.0 * (0.025 * 0.975 / 20_000) ** 0.5).all()
    covariance = model.predict(x[new[:2]], return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(covariance[[0, 1], [0, 1]]), std[:2], rtol=1e-9)


def test_log_densities_are_derivatives_of_the_levels_of_quantiles(model, several):
    for fitted, x in ((model, X[ROWS:]), (several[0], several[1][ROWS:])):
        ends, middle = (fitted.predict_quantiles(x, levels) for levels in ([0.599, 0.601], [0.6]))
        expected = np.log(0.002 / (ends[:, 1] - ends[:, 0]))
        np.testing.assert_allclose(fitted.log_density(x, middle[:, 0]), expected, atol=1e-3)
    missing = fitted.log_density(x, np.where(np.arange(2) == 0, np.nan, middle[:, 0]))
    assert np.isnan(missing[:, 0]).all() and np.isfinite(missing[:, 1]).all()
    with pytest.raises(ValueError, match="expected y of shape"):
        model.log_density(X[ROWS:], Y[:2])
    for value, message in ((np.inf, "infinity"), ("a", "expected numbers for y, got 'a'")):
        with pytest.raises(ValueError, match=message):
            model.log_density(X[:1], [value])


@pytest.mark.parametrize("outputs", [1, 2])
def test_intervals_of_one_set_of_parameters_are_those_of_a_normal(outputs):
    y = np.stack([Y, -Y], axis=1)[:ROWS, :outputs].squeeze()
    model = RandomFeatureGPRegressor("rbf", max_evaluations=5, random_state=0).fit(X[:ROWS], y)
    mean, std = model.predict(X[ROWS:], return_std=True)
    ends = np.stack([mean - 1.959964 * std, mean + 1.959964 * std], axis=1)
    np.testing.assert_allclose(model.predict_interval(X[ROWS:]), ends, rtol=1e-6)


def test_covariances_and_draws_belong_together(model):
    mean, covariance = model.predict(X[ROWS:], return_cov=True)
    std = model.predict(X[ROWS:], return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std)
    draws = model.sample_y(X[ROWS:], n_samples=2000)
    assert draws.shape == (NEW, 2000)
    assert (np.abs(draws.mean(1) - mean) < 4.0 * std / 2000**0.5).all()
    assert np.abs(np.corrcoef(draws) - covariance / np.outer(std, std)).max() < 0.15


@pytest.fixture(scope="module")
def several():
    """Two targets in units of their own, whose noise is the same."""
    random = np.random.default_rng(1)
    x, noise = random.random((ROWS + NEW, 2)), 0.2 * random.normal(size=(ROWS + NEW, 1))
    y = (np.stack([np.sin(4.0 * x[:, 0]), x[:, 1] ** 2], axis=1) + noise) * [1.0, 1e4] + [0.0, 1e5]
    return RandomFeatureGPRegressor(random_state=0).fit(x[:ROWS], y[:ROWS]), x, y


def test_several_targets_are_predicted_in_their_units(several):
    model, x, y = several
    mean, std = model.predict(x[ROWS:], return_std=True)
    assert isinstance(model.model_, AveragedGP) and mean.shape == std.shape == (NEW, 2)
    assert model.score(x[ROWS:], y[ROWS:]) > 0.7
    assert (np.abs((y[ROWS:] - mean) / std).mean(0) < 1.3).all()
    ends = model.predict_interval(x[ROWS:])
    inside = (ends[:, 0] < y[ROWS:]) & (y[ROWS:] < ends[:, 1])
    assert ends.shape == (NEW, 2, 2) and abs(inside.mean() - 0.95) < 4.0 * (0.95 * 0.05 / NEW) ** 0.5


def test_covariances_and_draws_of_several_targets_belong_together(several):
    model, new = several[0], several[1][-20:]
    mean, covariance = model.predict(new, return_cov=True)
    std = model.predict(new, return_std=True)[1]
    assert covariance.shape == (20, 20, 2)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)).T, std)
    draws = model.sample_y(new, n_samples=2000)
    assert draws.shape == (20, 2, 2000)
    assert (np.abs(draws.mean(-1) - mean) < 4.5 * std / 2000**0.5).all()
    between = np.mean([np.corrcoef(of_row)[0, 1] for of_row in draws])
    assert between > 0.5  # the noise is the same


def test_left_out_rows_updates_and_copies_of_several_targets(several):
    model, x, y = copy.deepcopy(several[0]), *several[1:]
    alone, std = model.cross_val_predict(x[:ROWS], y[:ROWS], return_std=True)
    assert 0.85 < np.mean(np.abs(alone - y[:ROWS]) < 1.96 * std) <= 1.0
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))
    model.partial_fit(x[ROWS:-5], y[ROWS:-5])
    assert len(model.model_.y) == ROWS + NEW - 5
    y = y.copy()
    y[-5:, 1] = np.nan
    model.partial_fit(x[-5:], y[-5:])
    assert isinstance(model.model_, AveragedGP) and np.isfinite(model.predict(x)).all()


def test_targets_with_gaps_are_averaged_over_draws_of_what_is_missing(several):
    _, x, y = several
    known = np.where(np.random.default_rng(2).random((ROWS, 2)) < 0.2, np.nan, y[:ROWS])
    model = RandomFeatureGPRegressor(random_state=0).fit(x[:ROWS], known)
    assert isinstance(model.model_, AveragedGP) and model.score(x[ROWS:], y[ROWS:]) > 0.6
    ends = model.predict_interval(x[ROWS:])
    inside = (ends[:, 0] < y[ROWS:]) & (y[ROWS:] < ends[:, 1])
    assert abs(inside.mean() - 0.95) < 4.0 * (0.95 * 0.05 / NEW) ** 0.5
    assert np.isfinite(list(model.comparison_.values())).all()
    assert model.cross_val_predict(x[:ROWS], known).shape == (ROWS, 2)


def test_left_out_rows_and_folds(model):
    alone, std = model.cross_val_predict(X[:ROWS], Y[:ROWS], return_std=True)
    assert 0.8 < np.mean(np.abs(alone - Y[:ROWS]) < 1.96 * std) <= 1.0
    assert model.cross_validate(X[:ROWS], Y[:ROWS], cv=5)["test_score"].min() > 0.7
    assert model.comparison_["model"] < model.comparison_["linear"] < model.comparison_["constant"]
    with pytest.raises(ValueError, match="expected the rows that were fitted"):
        model.cross_val_predict(X[ROWS:], Y[ROWS:])


def test_more_rows(model):
    before = model.predict(X[ROWS:], return_std=True)[1]
    model.partial_fit(X[ROWS:], Y[ROWS:])
    assert (model.predict(X[ROWS:], return_std=True)[1] < before).mean() > 0.9
    assert len(model.model_.y) == ROWS + NEW


@pytest.mark.parametrize("weights", [None, 2.0 * np.ones(NEW)])
def test_rows_that_are_too_many_or_have_weights_are_learned_with_one_set_of_parameters(
    small_defaults, model, monkeypatch, weights
):
    monkeypatch.setattr(regressor, "MOST_AVERAGED", ROWS + NEW - (weights is None))
    strict = copy.deepcopy(model).set_params(average=True)
    with pytest.raises(ValueError, match=r"expected at most .* no sample_weight for average=True"):
        strict.partial_fit(X[ROWS:], Y[ROWS:], weights)
    assert len(strict.model_.y) == ROWS
    model.partial_fit(X[ROWS:], Y[ROWS:], weights)
    assert not isinstance(model.model_, AveragedGP) and model.model_.conditioned.sums.num_rows == ROWS + NEW
    assert model.score(X[ROWS:], Y[ROWS:]) > 0.9


def test_streams_have_one_set_of_parameters(small_defaults):
    stream = RandomFeatureGPRegressor(random_state=0).partial_fit(X[:ROWS], Y[:ROWS])
    assert not isinstance(stream.model_, AveragedGP)
    few = RandomFeatureGPRegressor(random_state=0).partial_fit(X[:5], Y[:5]).partial_fit(X[5:ROWS], Y[5:ROWS])
    assert not isinstance(few.model_, AveragedGP)


def test_copies_predict_the_same(model):
    written = pickle.dumps(model)
    assert len(written) < 400_000  # most of it the trees of the forest
    forest = model.model_.members.pop().baseline
    assert isinstance(forest, Trees)
    assert len(pickle.dumps(model)) < 60_000  # rows and draws, and no matrices (N, N)
    model.model_ = pickle.loads(written).model_
    read = pickle.loads(written)
    np.testing.assert_array_equal(read.predict(X[ROWS:]), model.predict(X[ROWS:]))
    assert clone(model).average == "auto" and np.isfinite(model.log_marginal_likelihood_value_)


def test_few_or_equal_targets_wait_for_more(model):
    few = RandomFeatureGPRegressor(average=True, random_state=0).fit(X[:2], Y[:2])
    assert not isinstance(few.model_, AveragedGP)
    assert isinstance(few.partial_fit(X[2:ROWS], Y[2:ROWS]).model_, AveragedGP)
    np.testing.assert_allclose(few.predict(X[ROWS:]), model.predict(X[ROWS:]), rtol=1e-6)


@pytest.mark.parametrize("levels", [[], None, [0.5, 1.0], ["a"], 95])
def test_levels_are_between_zero_and_one(model, levels):
    with pytest.raises(ValueError, match=r"expected .* got"):
        model.predict_quantiles(X[ROWS:], levels)


@pytest.mark.parametrize(
    ("settings", "weights", "targets"),
    [
        ({"kernel": "rbf"}, None, Y[:ROWS]),
        ({"noise": "student"}, None, Y[:ROWS]),
        ({"average": "yes"}, None, Y[:ROWS]),
        ({"time_limit": 5.0}, None, Y[:ROWS]),
        ({}, np.ones(ROWS), Y[:ROWS]),
    ],
)
def test_what_is_not_averaged_is_refused(settings, weights, targets):
    with pytest.raises(ValueError, match=r"expected .* got"):
        RandomFeatureGPRegressor(**{"average": True, **settings}).fit(X[:ROWS], targets, weights)


def test_what_is_set_for_one_set_of_parameters_is_taken(small_defaults):
    for settings in ({"average": False}, {"kernel": "rbf"}, {"time_limit": 5.0}, {"num_features": 20}):
        model = RandomFeatureGPRegressor(**settings, random_state=0).fit(X[:ROWS], Y[:ROWS])
        assert not isinstance(model.model_, AveragedGP)
    gaps = np.stack([Y, np.where(np.arange(len(Y)) < 9, Y, np.nan)], axis=1)[:ROWS]
    sparse = RandomFeatureGPRegressor(random_state=0).fit(X[:ROWS], gaps)
    weighted = RandomFeatureGPRegressor(random_state=0).fit(X[:ROWS], Y[:ROWS], np.ones(ROWS))
    assert not isinstance(sparse.model_, AveragedGP) and not isinstance(weighted.model_, AveragedGP)


def test_frames_are_averaged_where_levels_and_gaps_are_few(small_defaults):
    frame = pandas.DataFrame({"size": X[:ROWS, 0], "kind": ["a", "b"] * (ROWS // 2), "day": range(ROWS)})
    plain = RandomFeatureGPRegressor()
    assert plain.averages(frame, Y[:ROWS]) and not hasattr(plain, "x_scaler_")
    assert isinstance(plain.fit(frame, Y[:ROWS]).model_, AveragedGP)
    frame["kind"] = [f"level {number % 12}" for number in range(ROWS)]
    model = RandomFeatureGPRegressor(random_state=0)
    assert not model.averages(frame, Y[:ROWS])
    assert not isinstance(model.fit(frame, Y[:ROWS]).model_, AveragedGP)
    assert model.set_params(average=True).averages(frame, Y[:ROWS])

"""The estimators keep scikit-learn's contract, and say what the models inside them say."""

from __future__ import annotations

import copy
import itertools
import pickle

import gpytorch
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from rounded_counts import RoundedCounts
from sklearn.base import clone
from sklearn.datasets import load_wine, make_friedman1
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from rfgp.inference.local import SharedRows
from rfgp.sklearn import (
    RandomFeatureGPClassifier,
    RandomFeatureGPRegressor,
    RandomFeatures,
    TableEncoder,
)
from rfgp.sklearn.model_size import ModelSize
from rfgp.sklearn.near_predictions import OwnRows
from rfgp.training import timing

SMALL = {"num_features": 64, "max_evaluations": 12, "kernel": "matern32", "random_state": 0}
QUICK = SMALL | {"num_features": 16, "max_evaluations": 1, "num_neighbors": 8}


EACH = [
    RandomFeatureGPRegressor(**QUICK),
    RoundedCounts("matern32", num_features=16, max_evaluations=12, random_state=0),
    RandomFeatureGPClassifier(**QUICK),
    RandomFeatures(num_features=16),
    TableEncoder(),
]

pytestmark = pytest.mark.filterwarnings("ignore:.*ends at the.*bound:UserWarning")


def expected_failures(estimator):
    """A weight divides noise: the evidence, from which parameters come, is not that of equal rows."""
    name = "check_sample_weight_equivalence_on_dense_data"
    return (
        {}
        if isinstance(estimator, RandomFeatures | RoundedCounts | TableEncoder)
        else {name: "the evidence of weights is not that of equal rows"}
    )


def contract():
    """The checks of scikit-learn, but for that of array libraries, which skips itself outside of its own test suite."""
    mark = parametrize_with_checks(EACH, expected_failed_checks=expected_failures).mark
    cases = [case for case in mark.args[1] if "array_api" not in mark.kwargs["ids"](getattr(case, "values", case)[1])]
    return pytest.mark.parametrize(mark.args[0], cases, **mark.kwargs)


@pytest.mark.filterwarnings("ignore")
@contract()
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def regression(num_rows=150, noise=0.3, seed=0):
    return make_friedman1(num_rows, n_features=5, noise=noise, random_state=seed)


def several_targets(num_rows=120):
    x, y = regression(num_rows)
    noise = 0.05 * np.random.default_rng(1).normal(size=(num_rows, 2))
    return x, np.column_stack([y, 3.0 - 0.5 * y]) + noise


def regressor(**changes):
    return RandomFeatureGPRegressor(**{**SMALL, **changes})


def test_error_bars_are_those_of_observations():
    x, y = regression(400)
    model = regressor(num_features="auto", max_evaluations=60).fit(x[:200], y[:200])
    mean, std = model.predict(x[200:], return_std=True)
    within = np.mean(np.abs(y[200:] - mean) < 1.96 * std)
    assert abs(within - 0.95) < 4.0 * np.sqrt(0.95 * 0.05 / 200)
    assert 0.2 < std.min() < 0.5  # never below the noise of .3, about
    np.testing.assert_array_equal(model.predict(x[200:]), mean)


def test_predictions_are_those_of_the_model_inside():
    x, y = regression()
    model = regressor().fit(x, y)
    inputs = torch.from_numpy(model.x_scaler_.transform(x[:7]))
    with torch.no_grad():
        observed = model.model_.likelihood(model.model_.posterior(inputs))
    scale, shift = model.y_scaler_.scale_[0], model.y_scaler_.mean_[0]
    mean, cov = model.predict(x[:7], return_cov=True)
    np.testing.assert_allclose(mean, observed.mean.numpy() * scale + shift, rtol=1e-12)
    degrees = model.tail_degrees_[0]
    wider = (
        1.0 if np.isinf(degrees) else scipy.stats.t(degrees, scale=1.959964 / scipy.stats.t.ppf(0.975, degrees)).var()
    )
    np.testing.assert_allclose(cov, observed.covariance_matrix.numpy() * scale**2 * wider, rtol=1e-6)
    np.testing.assert_allclose(model.predict(x[:7], return_std=True)[1], np.sqrt(cov.diagonal()), rtol=1e-9)
    with pytest.raises(ValueError, match="at most one of return_std and return_cov"):
        model.predict(x, return_std=True, return_cov=True)


def test_evidence_is_that_of_targets_in_their_units():
    x, y = regression()
    model, millis = regressor().fit(x, y), regressor().fit(x, 1000.0 * y)
    with torch.no_grad():
        inside = float(model.model_.log_marginal_likelihood())
    expected = inside - len(y) * np.log(np.std(y))
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, rel=1e-12)
    difference = model.log_marginal_likelihood_value_ - millis.log_marginal_likelihood_value_
    assert difference == pytest.approx(len(y) * np.log(1000.0), rel=1e-6)


def test_units_do_not_matter():
    x, y = regression()
    plain = regressor().fit(x, y)
    other = regressor().fit(1e6 * x + 1e7, y + 1e8)
    mean, std = plain.predict(x[:20], return_std=True)
    far_mean, far_std = other.predict(1e6 * x[:20] + 1e7, return_std=True)
    np.testing.assert_allclose(far_mean - 1e8, mean, atol=1e-3 * y.std())
    np.testing.assert_allclose(far_std, std, rtol=1e-3)


def test_single_precision_tables_are_computed_in_double():
    x, y = regression()
    single = x.astype(np.float32)
    model = regressor().fit(single, y.astype(np.float32))
    expected = regressor().fit(single.astype(float), y.astype(np.float32).astype(float)).predict(x)
    np.testing.assert_array_equal(model.predict(x), expected)


@pytest.mark.parametrize("num_rows", [2, 7, 30])
def test_few_rows(num_rows):
    x, y = regression(num_rows)
    mean, std = regressor(num_features="auto").fit(x, y).predict(x, return_std=True)
    assert np.isfinite(mean).all() and (std > 0.0).all()


def test_one_column_and_constant_columns():
    x = np.linspace(0.0, 6.0, 80)
    y = np.sin(x)
    alone = regressor().fit(x[:, None], y)
    beside = regressor().fit(np.column_stack([np.full(80, 1e8), x]), y)
    assert np.abs(alone.predict(x[:, None]) - y).max() < 0.05
    assert np.abs(beside.predict(np.column_stack([np.full(80, 1e8), x])) - y).max() < 0.05


@pytest.mark.parametrize("shape", [(40,), (40, 2)])
@pytest.mark.parametrize("level", [0.0, 7.5, 1e8])
def test_constant_targets_are_predicted(level, shape):
    x, _ = regression(40)
    mean, std = regressor().fit(x, np.full(shape, level)).predict(x, return_std=True)
    assert mean.shape == shape
    np.testing.assert_allclose(mean, level, rtol=1e-9, atol=1e-6)
    assert np.isfinite(std).all()


def test_pandas_names_are_kept_and_checked():
    x, y = regression()
    table = pd.DataFrame(x, columns=["area", "rooms", "age", "floor", "distance"])
    model = regressor().fit(table, pd.Series(y, name="price"))
    assert model.feature_names_in_.tolist() == list(table) and model.n_features_in_ == 5
    np.testing.assert_array_equal(model.predict(table), regressor().fit(x, y).predict(x))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["rooms", "area", "age", "floor", "distance"]])


def test_several_targets_share_information():
    x, y = several_targets()
    model = regressor().fit(x, y)
    mean, std = model.predict(x[:9], return_std=True)
    _, cov = model.predict(x[:9], return_cov=True)
    assert mean.shape == std.shape == (9, 2) and cov.shape == (9, 9, 2)
    np.testing.assert_allclose(std, np.sqrt(np.diagonal(cov).T), rtol=1e-9)
    draws = model.sample_y(x[:9], n_samples=4000, random_state=1)
    assert draws.shape == (9, 2, 4000)
    assert (np.abs(draws.mean(-1) - mean) < 5.0 * std / np.sqrt(4000)).all()
    np.testing.assert_allclose(draws.std(-1), std, rtol=5.0 / np.sqrt(2 * 4000))


def test_missing_targets_are_filled_in_from_the_others():
    x, y = several_targets()
    missing = y.copy()
    missing[::2, 1] = np.nan
    model = regressor().fit(x, missing)
    errors = (model.predict(x) - y)[::2, 1]
    assert np.sqrt(np.mean(errors**2)) < 0.35 * y[:, 1].std()
    with torch.no_grad():
        inside = float(model.model_.log_marginal_likelihood())
    units = np.sum(np.sum(~np.isnan(missing), 0) * np.log(np.nanstd(missing, 0)))
    assert model.log_marginal_likelihood_value_ == pytest.approx(inside - units, rel=1e-12)


def test_targets_that_depend_on_each_other():
    x, y = regression(60)
    _, std = regressor().fit(x, np.column_stack([y, 2.0 * y])).predict(x[:3], return_std=True)
    np.testing.assert_allclose(std[:, 1], 2.0 * std[:, 0], rtol=1e-3)


def test_blocks_of_near_rows_are_those_of_the_model():
    x, y = regression(300)
    sharp = regressor(num_features=20, block_size=50, num_neighbors=30).fit(x[:200], y[:200])
    assert sharp.model_.block_size == 50 and sharp.model_.num_neighbors == 30
    blunt = regressor(num_features=20, block_size=None).fit(x[:200], y[:200])
    assert blunt.model_.block_size is None
    assert sharp.score(x[200:], y[200:]) > blunt.score(x[200:], y[200:])
    again = copy.deepcopy(sharp).partial_fit(x[200:250], y[200:250])
    assert again.score(x[250:], y[250:]) != sharp.score(x[250:], y[250:])


def test_sizes_by_default():
    x, y = regression(1100)
    small, large = regressor(num_features="auto", max_evaluations=1), regressor(max_evaluations=1)
    assert small.fit(x[:90], y[:90]).model_.covar_module.num_scalar_features == 90
    assert small.model_.block_size is None
    assert large.fit(x, y).model_.covar_module.num_scalar_features == 64
    assert large.model_.block_size == 256


@pytest.mark.parametrize(
    ("kernel", "block_size", "expected"),
    [("matern32", "auto", 512), ("matern32", None, 1024), ("matern52", "auto", 1024)],
)
def test_blocks_of_rough_kernels_take_fewer_landmarks(kernel, block_size, expected):
    x, y = regression(1200)
    model = regressor(kernel=kernel, block_size=block_size, num_features="auto", max_evaluations=1).fit(x, y)
    assert model.model_.covar_module.num_scalar_features == expected


@pytest.mark.long("whole trainings")
def test_more_time_makes_wider_models():
    x, y = regression(3000)
    short = regressor(num_features="auto", max_evaluations=1, time_limit=0.01).fit(x, y)
    long = regressor(num_features="auto", max_evaluations=1, time_limit=10.0)
    plan = long.fit(x[:1200], y[:1200]).model_
    assert short.model_.covar_module.num_scalar_features == 128 and short.model_.block_size == 128
    assert plan.covar_module.num_scalar_features > 128


@pytest.mark.parametrize("limit", [5.0, 10.0])
def test_a_time_limit_may_end_anywhere(limit, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(timing, "clock", lambda: float(next(clock)))
    x, y = regression(400)
    model = regressor(kernel="auto", num_features="auto", max_evaluations=3, time_limit=limit).fit(x, y)
    assert np.isfinite(model.predict(x[:3])).all()


def test_a_column_of_targets_comes_back_as_a_column():
    x, y = regression(60)
    flat, column = regressor().fit(x, y), regressor().fit(x, y[:, None])
    mean, std = column.predict(x, return_std=True)
    np.testing.assert_array_equal(mean, flat.predict(x)[:, None])
    assert std.shape == (60, 1) and column.sample_y(x[:3], 2).shape == (3, 1, 2)
    assert column.predict(x[:3], return_cov=True)[1].shape == (3, 3, 1)


def test_draws_have_the_covariance_of_predictions():
    x, y = regression(60)
    model = regressor().fit(x, y)
    mean, cov = model.predict(x[:4], return_cov=True)
    draws = model.sample_y(x[:4], n_samples=20_000, random_state=3)
    scale = np.sqrt(cov.diagonal())
    assert draws.shape == (4, 20_000)
    assert (np.abs(draws.mean(-1) - mean) < 5.0 * scale / np.sqrt(20_000)).all()
    assert np.abs((np.cov(draws) - cov) / np.outer(scale, scale)).max() < 5.0 * np.sqrt(2.0 / 20_000)
    np.testing.assert_array_equal(draws, model.sample_y(x[:4], n_samples=20_000, random_state=3))


@pytest.mark.parametrize("targets", ["one", "two"])
def test_partial_fit_is_a_fit_to_all_rows(targets):
    x, y = regression(90) if targets == "one" else several_targets(90)
    model = regressor().partial_fit(x[:50], y[:50])
    before = model.predict(x)
    all_at_once = copy.deepcopy(model.model_)
    model.partial_fit(x[50:70], y[50:70]).partial_fit(x[70:], y[70:])
    with torch.no_grad():
        scaled = torch.from_numpy(model.y_scaler_.transform(y.reshape(90, -1)))
        all_at_once.condition(torch.from_numpy(model.x_scaler_.transform(x)), scaled.squeeze(-1))
        posterior = all_at_once.posterior(torch.from_numpy(model.x_scaler_.transform(x)))
        expected = model.y_scaler_.inverse_transform(posterior.mean.reshape(90, -1)).reshape(y.shape)
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-9)
    assert np.abs(model.predict(x) - before).max() > 1e-3
    with pytest.raises(ValueError, match="targets as in the first call"):
        model.partial_fit(x, np.column_stack([y, y]))


def test_partial_fit_has_the_evidence_of_all_rows_in_units_of_the_target():
    x, y = regression(60)
    y = 50.0 * y + 3.0
    y[3] = np.nan
    model = regressor(num_features=200, kernel="rbf").fit(x[:40], y[:40]).partial_fit(x[40:], y[40:])
    known = ~np.isnan(y)
    inputs = torch.from_numpy(model.x_scaler_.transform(x[known]))
    with torch.no_grad():
        features = model.model_.covar_module.features(inputs)
        covariance = features @ features.mT + model.model_.likelihood.noise * torch.eye(59)
        mean = model.y_scaler_.mean_[0] + model.y_scaler_.scale_[0] * float(model.model_.mean_module.constant)
        prior = torch.distributions.MultivariateNormal(
            torch.full((59,), mean), model.y_scaler_.scale_[0] ** 2 * covariance
        )
        expected = float(prior.log_prob(torch.from_numpy(y[known])))
    assert abs(model.log_marginal_likelihood_value_ - expected) < 1e-6 * abs(expected)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_scales_follow_where_the_first_rows_tell_none(num_targets):
    x, y = regression(60)
    y = np.column_stack([1e3 * y, y])[:, :num_targets] + 3.0
    model = regressor().fit(x[:1], y[:1])
    for part in ([1], [2, 3], np.arange(4, 60)):
        model.partial_fit(x[part], y[part], sample_weight=np.ones(len(part)))
    expected = regressor().fit(x, y, np.ones(60)).predict(x)
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-9, atol=1e-9 * np.abs(y).max())


def test_intervals_of_a_few_rows():
    """Of four rows of lines and waves, 95 % intervals of one set of parameters cover two thirds of the others."""
    covered = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(54, 2))
        for function, noise in ((x[:, 0] - x[:, 1], 0.3), (np.sin(2.0 * x[:, 0]) + x[:, 1], 0.1)):
            y = function + noise * rng.normal(size=54)
            lower, upper = RandomFeatureGPRegressor(random_state=0).fit(x[:4], y[:4]).predict_interval(x[4:]).T
            covered.append(((lower < y[4:]) & (y[4:] < upper)).mean())
    error = np.std(covered) / len(covered) ** 0.5
    assert np.mean(covered) + 3.0 * error > 0.95 and np.mean(covered) > 0.9
    with pytest.warns(UserWarning, match="fewer than 3 known values do not tell how far the targets vary"):
        RandomFeatureGPRegressor().fit(x[:2], y[:2])
    several = np.column_stack([y, np.where(np.arange(54) < 2, y, np.nan), y])
    with pytest.warns(UserWarning, match="fewer than 3 known values do not tell how far targets 1 vary"):
        regressor().fit(x, several)


def test_parameters_of_few_first_rows_are_not_kept():
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = np.sin(2.0 * x[:, 0]) + x[:, 1] + 0.1 * np.random.default_rng(1).normal(size=200)
    model = RandomFeatureGPRegressor(random_state=0)
    for rows in np.split(np.arange(200), 20):
        model.partial_fit(x[rows], y[rows])
    once = RandomFeatureGPRegressor(random_state=0).partial_fit(x[:160], y[:160]).partial_fit(x[160:], y[160:])
    np.testing.assert_allclose(model.predict(x), once.predict(x), rtol=1e-6, atol=1e-6)


def test_first_rows_are_kept_where_a_buffer_has_the_next_ones():
    """Also where later targets are a column."""
    x, y = np.random.default_rng(0).normal(size=(40, 2)), np.random.default_rng(1).normal(size=40)
    buffer, target = x[:10].copy(), y[:10].copy()
    model = RandomFeatureGPRegressor(random_state=0).partial_fit(buffer, target)
    buffer[:], target[:] = x[10:20], y[10:20]
    model.partial_fit(buffer, target).partial_fit(x[20:], y[20:, None])
    expected = RandomFeatureGPRegressor(random_state=0).partial_fit(x, y)
    np.testing.assert_allclose(model.predict(x), expected.predict(x), rtol=1e-9, atol=1e-9)


def test_probabilities_of_few_first_rows_are_not_kept():
    """Parameters of the first ten rows have a log loss of 0.61, of which noise is 0.36."""
    losses = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(300, 2))
        labels = rng.uniform(size=300) < 1.0 / (1.0 + np.exp(-3.0 * x[:, 0]))
        model = RandomFeatureGPClassifier(random_state=0)
        for rows in np.split(np.arange(200), 20):
            model.partial_fit(x[rows], labels[rows], classes=[False, True])
        losses.append(log_loss(labels[200:], model.predict_proba(x[200:])))
    assert np.mean(losses) + 3.0 * np.std(losses) / 2.0 < 0.55


@pytest.mark.parametrize("noise", ["normal", "student"])
@pytest.mark.parametrize("shape", [(20,), (20, 1), (20, 2)])
def test_rows_without_a_target_change_nothing(noise, shape):
    x = np.random.default_rng(0).normal(size=(20, 2))
    y = np.sin(x) if shape == (20, 2) else np.sin(x[:, 0]).reshape(shape)
    model = regressor(**QUICK, noise=noise).fit(x, y)
    before, unknown = model.predict(x, return_std=True), np.full_like(y[:3], np.nan)
    np.testing.assert_array_equal(model.partial_fit(x[:3], unknown).predict(x, return_std=True), before)
    with pytest.raises(ValueError, match="X has 1 features"):
        model.partial_fit(x[:3, :1], unknown)
    with pytest.raises(ValueError, match="targets as in the first call"):
        model.partial_fit(x[:3], np.full((3, 4), np.nan))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_labels_of_any_kind(num_classes):
    x, codes = load_wine(return_X_y=True)
    x, codes = x[codes < num_classes], codes[codes < num_classes]
    names = np.array(["barolo", "grignolino", "barbera"])[codes]
    model = RandomFeatureGPClassifier(**SMALL).fit(x[::2], names[::2])
    probabilities = model.predict_proba(x[1::2])
    assert model.classes_.tolist() == sorted(set(names)) and probabilities.shape == (len(x[1::2]), num_classes)
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(x[1::2]), model.classes_[probabilities.argmax(-1)])
    assert model.score(x[1::2], names[1::2]) > 0.9 and np.isfinite(model.log_marginal_likelihood_value_)


def test_probabilities_know_where_there_are_no_rows():
    x = np.random.default_rng(0).normal(size=(300, 2))
    model = RandomFeatureGPClassifier(**{**SMALL, "kernel": "rbf"}).fit(x, x[:, 0] * x[:, 1] > 0.0)
    near, far = model.predict_proba([[1.0, 1.0], [60.0, 60.0]])
    assert near[1] > 0.9 and abs(far[1] - 0.5) < 0.1


def test_labels_added_one_class_at_a_time():
    x, codes = load_wine(return_X_y=True)
    order = np.argsort(codes, kind="stable")
    first, rest = order[:100], order[100:]
    model = RandomFeatureGPClassifier(**SMALL).partial_fit(x[first], codes[first], classes=[0, 1, 2])
    assert model.predict_proba(x).shape == (len(x), 3)
    assert model.partial_fit(x[rest], codes[rest]).score(x, codes) > 0.9
    with pytest.raises(ValueError, match="among the classes"):
        model.partial_fit(x[:2], [0, 7])


def test_a_kernel_is_copied():
    x, y = regression(60)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=5))
    before = copy.deepcopy(kernel.state_dict())
    model = clone(regressor(kernel=kernel)).fit(x, y)
    assert all(torch.equal(value, kernel.state_dict()[name]) for name, value in before.items())
    assert model.kernel is not kernel and isinstance(model.get_params()["kernel"], ScaleKernel)
    fixed = ScaleKernel(MaternKernel(nu=1.5).requires_grad_(False))
    fixed.base_kernel.lengthscale = 3.0
    learnt = regressor(kernel=fixed).fit(x, y).model_.covar_module.exact_kernel
    assert float(learnt.base_kernel.lengthscale) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="matern32"):
        regressor(kernel="matern").fit(x, y)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "rq", "linear", "polynomial"])
def test_kernels_by_name(name):
    x, y = regression(120)
    assert regressor(kernel=name).fit(x, y).score(x, y) > 0.6
    assert np.isfinite(RandomFeatures(name, num_features=32, random_state=0).fit_transform(x)).all()


def test_pipelines_and_grids():
    x, y = regression(120)
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), regressor(max_evaluations=5))
    grid = {"randomfeaturegpregressor__kernel": ["rbf", "linear"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(x, y)
    assert search.best_params_["randomfeaturegpregressor__kernel"] == "rbf"
    features = make_pipeline(RandomFeatures(num_features=256, random_state=0), Ridge(1e-2))
    assert cross_val_score(features, x, y, cv=3).mean() > cross_val_score(Ridge(1e-2), x, y, cv=3).mean()


def test_files(tmp_path):
    x, y = regression(60)
    for model in (regressor().fit(x, y), RandomFeatureGPClassifier(**SMALL).fit(x, y > y.mean())):
        joblib.dump(model, tmp_path / "model")
        for copied in (joblib.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            np.testing.assert_array_equal(copied.predict(x), model.predict(x))


def test_features_are_those_of_the_kernel():
    x, _ = regression(50)
    transformer = RandomFeatures("rbf", lengthscale=1.5, num_features=4096, random_state=0)
    features = transformer.fit_transform(x)
    scaled = torch.from_numpy((x - x.mean(0)) / x.std(0))
    exact = gpytorch.kernels.RBFKernel().double()
    exact.lengthscale = 1.5
    error = features @ features.T - exact(scaled).to_dense().detach().numpy()
    assert np.sqrt(np.mean(error**2)) < 3.0 / np.sqrt(4096)
    assert transformer.get_feature_names_out().tolist()[:2] == ["randomfeatures0", "randomfeatures1"]
    assert RandomFeatures(num_features=8).set_output(transform="pandas").fit_transform(x).shape == (50, 8)
    with pytest.raises(ValueError, match="positive lengthscale"):
        RandomFeatures(lengthscale=0.0).fit(x)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_features": 0}, "num_features"),
        ({"num_features": "many"}, "num_features"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"block_size": "large"}, "block_size"),
        ({"block_size": 0}, "block_size"),
        ({"num_neighbors": 0, "block_size": 10}, "num_neighbors"),
        ({"method": "no_such"}, "method"),
    ],
)
def test_bad_parameters_are_refused_at_fit(changes, match):
    x, y = regression(30)
    model = regressor(**changes)
    with pytest.raises(ValueError, match=match):
        model.fit(x, y)
    assert not hasattr(model, "model_")


@pytest.mark.parametrize("kind", [RandomFeatureGPRegressor, RandomFeatureGPClassifier])
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(kind):
    x, y = regression(60)
    codes = (y > y.mean()).astype(int)
    model = kind("rbf", random_state=0, max_evaluations=3).fit(x, codes)
    before, attributes = model.predict(x), set(vars(model))
    model.set_params(kernel="typo")
    with pytest.raises(ValueError, match="typo"):
        model.fit(1e3 * x[:, :2], 7 * codes)
    np.testing.assert_array_equal(model.predict(x), before)
    assert set(vars(model)) == attributes


@pytest.mark.parametrize("is_weighted", [False, True])
def test_leaving_out_in_the_formats_of_scikit_learn(is_weighted):
    x, y = regression(80)
    folds = KFold(4, shuffle=True, random_state=0)
    weights = np.linspace(0.2, 3.0, 80) if is_weighted else None
    model = regressor().fit(x, y, weights)
    mean, std = model.cross_val_predict(x, y, folds, return_std=True, sample_weight=weights)
    scores = model.cross_validate(x, y, folds, sample_weight=weights)["test_score"]
    for number, (train, test) in enumerate(folds.split(x)):
        left = copy.deepcopy(model)
        with torch.no_grad():
            own = torch.from_numpy(weights[train]) if is_weighted else None
            left.model_.condition(*model._model_rows(x[train], y[train]), weights=own)
        wanted, deviation = left.predict(x[test], return_std=True)
        np.testing.assert_allclose(mean[test], wanted, rtol=1e-8)
        np.testing.assert_allclose(std[test], deviation, rtol=1e-8)
        assert scores[number] == pytest.approx(left.score(x[test], y[test]))
    assert model.cross_val_predict(x, y, sample_weight=weights).shape == (80,)
    several, targets = several_targets(60)
    assert regressor().fit(several, targets).cross_val_predict(several, targets, 3).shape == targets.shape
    with pytest.raises(ValueError, match="every row once"):
        model.cross_val_predict(x, y, ShuffleSplit(2, test_size=0.5, random_state=0))


def test_leaving_out_labels_in_the_formats_of_scikit_learn():
    x, y = load_wine(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = RandomFeatureGPClassifier(**SMALL).fit(x, names)
    probabilities = model.cross_val_predict(x, names, 5, method="predict_proba")
    np.testing.assert_allclose(probabilities.sum(-1), 1.0)
    found = model.cross_val_predict(x, names, 5)
    assert (found == model.classes_[probabilities.argmax(-1)]).all()
    scores = model.cross_validate(x, names, 5)["test_score"]
    assert scores.shape == (5,) and scores.mean() > 0.9
    assert scores.mean() == pytest.approx(np.mean(found == names), abs=0.01)


def test_the_kernel_of_smooth_functions_is_chosen():
    x = np.random.default_rng(0).uniform(-3.0, 3.0, size=(120, 1))
    model = regressor(kernel="auto").fit(x, np.sin(2.0 * x[:, 0]))
    exact = model.model_.covar_module.exact_kernel.base_kernel
    assert getattr(exact, "nu", np.inf) > 2.0


@pytest.mark.parametrize("y", [["a", "b", "c"], np.array(["1.5", "b", "2"], dtype=object)])
def test_words_are_no_targets_of_a_regression(y):
    with pytest.raises(ValueError, match="expected numbers for y"):
        RandomFeatureGPRegressor().fit(np.eye(3), y)


@pytest.mark.parametrize("as_target", [pd.Series, pd.DatetimeIndex.to_numpy, lambda days: days.date, pd.DataFrame])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_and_durations_are_no_targets_of_a_regression(as_target, zone):
    days = pd.date_range("2024-01-01", periods=3, tz=zone)
    with pytest.raises(ValueError, match="expected numbers for y, got dates; convert them to numbers in a unit"):
        RandomFeatureGPRegressor().fit(np.eye(3), as_target(days))
    with pytest.raises(ValueError, match="expected numbers for y, got durations; convert them to numbers in a unit"):
        RandomFeatureGPRegressor().fit(np.eye(3), days - days[0])
    with pytest.raises(ValueError, match="expected numbers for y, got dates"):
        RandomFeatureGPRegressor().fit(np.eye(3), pd.DataFrame({"day": days, "size": [1.0, 2.0, 3.0]}))


@pytest.mark.parametrize("estimator", [RandomFeatures(num_features=8), TableEncoder()])
def test_a_transformer_that_fails_keeps_the_fit_before(estimator):
    x, y = regression(20)
    estimator = clone(estimator).fit(x, y)
    before, attributes = estimator.transform(x), estimator.__dict__.copy()
    with pytest.raises(ValueError, match=r"kernel|can be an input"):
        if isinstance(estimator, RandomFeatures):
            estimator.set_params(kernel="typo").fit(x[:, :2])
        else:
            estimator.fit(np.ones((5, 2)))
    estimator.__dict__ = attributes | {"kernel": "rbf"}
    np.testing.assert_array_equal(estimator.transform(x), before)


@pytest.mark.parametrize("estimator", EACH, ids=lambda estimator: type(estimator).__name__)
def test_masks_are_refused(estimator):
    x, y = regression(20)
    hidden = np.ma.masked_array(x, mask=np.arange(100).reshape(20, 5) == 7)
    codes = np.ma.masked_array((y > y.mean()).astype(int), mask=np.arange(20) == 3)
    with pytest.raises(ValueError, match="X without a mask, got 1"):
        clone(estimator).fit(hidden, codes.data)
    fitted = clone(estimator).fit(np.ma.masked_array(x), codes.data)
    with pytest.raises(ValueError, match="X without a mask, got 1"):
        getattr(fitted, "predict", getattr(fitted, "transform", None))(hidden)
    if hasattr(estimator, "predict"):
        with pytest.raises(ValueError, match="y without a mask, got 1"):
            clone(estimator).fit(x, codes)
        with pytest.raises(ValueError, match=r"(sample_weight|exposure) without a mask"):
            clone(estimator).fit(x, codes.data, np.ma.masked_array(np.ones(20), mask=np.arange(20) == 3))


@pytest.mark.filterwarnings("ignore:rows that were held out")
def test_fits_leave_the_global_generators_as_they_are(small_defaults):
    x, y = regression(100)
    drawn = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model = RandomFeatureGPClassifier(random_state=0, max_evaluations=8).fit(x, y > y.mean())
        drawn.append(model.predict_proba(x))
        assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(*drawn)


def rough(count):
    x = np.random.default_rng(0).uniform(-3.0, 3.0, size=(count, 3))
    y = (
        np.sin(4.0 * x[:, 0]) * np.cos(3.0 * x[:, 1])
        + np.abs(x[:, 2])
        + 0.02 * np.random.default_rng(1).normal(size=count)
    )
    return x, y


@pytest.mark.parametrize(("gain", "limit"), [(-10.0, None), (10.0, 60.0)])
def test_near_rows_predict_where_features_lack_more(monkeypatch, gain, limit):
    """They are shared where they gain something by that, and else each new row has its own; in a limited time too."""
    monkeypatch.setattr("rfgp.sklearn.base.default_size", lambda *_: ModelSize(64, 256))
    monkeypatch.setattr("rfgp.sklearn.regressor._NEGLIGIBLE_GAIN", gain)
    x, y = rough(1300)
    settings = {"max_evaluations": 30, "average": False, "random_state": 0, "time_limit": limit}
    model = RandomFeatureGPRegressor(**settings).fit(x[:1200], y[:1200])
    assert isinstance(model.near_, OwnRows if gain > 0 else SharedRows)
    before = model.predict(x[1200:], return_std=True)
    copied = pickle.loads(pickle.dumps(model))
    features = model.model_.posterior(torch.from_numpy(model.x_scaler_.transform(x[1200:])))
    after = model.predict(x[1200:], return_std=True)
    for first, *others in zip(before, after, copied.predict(x[1200:], return_std=True), strict=True):
        for other in others:
            np.testing.assert_allclose(first, other, rtol=1e-9)
    of_features = features.mean.detach().numpy() * model.y_scaler_.scale_ + model.y_scaler_.mean_
    errors = [np.sqrt(np.mean((mean - y[1200:]) ** 2)) for mean in (before[0], of_features)]
    assert gain > 0 or errors[0] < errors[1]
    assert 0.88 < np.mean(np.abs(before[0] - y[1200:]) < 1.96 * before[1]) <= 1.0
    mean, std = copied.cross_val_predict(x[:1200], y[:1200], return_std=True)
    assert 0.9 < np.mean(np.abs(mean - y[:1200]) < 1.96 * std) <= 1.0
    folds = copied.cross_val_predict(x[:1200], y[:1200], 100)
    assert errors[0] / 2.0 < np.sqrt(np.mean((mean - y[:1200]) ** 2)) < errors[0] * 2.0
    assert np.sqrt(np.mean((mean - folds) ** 2)) < 0.5 * errors[0]
    with pytest.raises(ValueError, match="expected the rows that were fitted"):
        copied.cross_val_predict(x[1199::-1], y[1199::-1])
    more = (copied if gain > 0 else model).partial_fit(x[1200:], y[1200:]).predict(x[1200:])
    assert np.sqrt(np.mean((more - y[1200:]) ** 2)) < errors[0]

"""Data frames of any cells: as a step of pipelines, and in estimators."""

from __future__ import annotations

import datetime
import decimal
import json
import subprocess
import sys
import warnings
from dataclasses import asdict

import numpy as np
import pandas
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from rfgp.sklearn import (
    RandomFeatureGPClassifier,
    RandomFeatureGPCountRegressor,
    RandomFeatureGPRegressor,
    RandomFeatures,
    TableEncoder,
    gap_noise,
)
from rfgp.sklearn.choice import Parts
from rfgp.sklearn.frames.columns import most_levels
from rfgp.sklearn.frames.donors import Donors
from rfgp.study.tables import TableModel, read

ROWS = 60


def frame():
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "note": [f"text {number}" for number in range(ROWS)],
            "price": [f"${value:,.2f}" for value in rng.uniform(1.0, 3000.0, ROWS)],
            "size": pandas.Categorical(rng.choice(["s", "m", "l"], ROWS)),
            "day": pandas.date_range("2024-01-30", periods=ROWS),
            "rooms": pandas.array([*rng.integers(1, 5, ROWS - 12), *[None] * 12], dtype="Int64"),
            "shop": [f"S{number}" for number in rng.integers(30, size=ROWS)],
        }
    )


def target():
    return np.arange(ROWS) % 7 + 0.1 * np.arange(ROWS)


def test_names_and_numbers():
    table = frame()
    encoder = TableEncoder(max_categories=10).fit(table, target())
    names = encoder.get_feature_names_out().tolist()
    assert names[:4] == ["price", "size=l", "size=m", "size=s"] and encoder.dropped_ == ["note"]
    assert names[-4:] == ["rooms", "rooms is missing", "shop: mean of target", "shop: log rows"]
    numbers = encoder.transform(table)
    assert np.allclose(numbers[:, 0], table["price"].str.replace("[$,]", "", regex=True).astype(float))
    assert np.isfinite(numbers).all() and numbers.shape == (ROWS, len(names))
    crossed = encoder.fit_transform(table, target())[:, -2]
    assert not np.allclose(crossed, numbers[:, -2])  # no row sees its own target
    assert encoder.unseen(table.assign(size="xl"))[0] == "size=xl"
    with pytest.raises(ValueError, match="expected at most 10 different values in a column of text without a target"):
        TableEncoder(max_categories=10).fit(table)


def test_types_of_arrow_are_those_of_numpy():
    table = frame()
    arrow = table.astype({"rooms": "int64[pyarrow]", "day": "timestamp[us][pyarrow]", "note": "string[pyarrow]"})
    assert np.allclose(TableEncoder().fit_transform(arrow), TableEncoder().fit_transform(table))


def test_text_of_some_values_has_means_of_targets_where_rows_are_many(monkeypatch):
    assert most_levels(100_000) == 60 and most_levels(100_001) == 10
    monkeypatch.setattr("rfgp.sklearn.frames.columns._MANY_ROWS", ROWS - 1)
    model = RandomFeatureGPRegressor("rbf", random_state=0, average=False, max_evaluations=2).fit(frame(), target())
    assert model.encoder_.get_feature_names_out().tolist()[-2:] == ["shop: mean of target", "shop: log rows"]


@pytest.mark.filterwarnings("ignore:.*predicted better by")
def test_estimators_take_frames():
    table, y = frame(), target()
    model = RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=5).fit(table, y)
    numbers = TableEncoder().fit_transform(table)
    assert model.n_features_in_ == 6 and list(model.feature_names_in_) == list(table)
    assert np.isfinite(model.predict(table)).all() and model.x_scaler_.n_features_in_ == numbers.shape[1]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.drop(columns="price"))
    labels = RandomFeatureGPClassifier("rbf", random_state=0, max_evaluations=5).fit(table, y > 4.0)
    assert labels.predict_proba(table).shape == (ROWS, 2)
    assert np.isfinite(cross_val_score(make_pipeline(TableEncoder(), Ridge()), table, y)).all()


def test_a_missing_target_leaves_out_its_row():
    x, y = np.random.default_rng(0).uniform(size=(40, 2)), np.arange(40.0)
    y[3] = np.nan
    found = RandomFeatureGPRegressor("matern:1.5", random_state=0, max_evaluations=5).fit(x, y)
    same = RandomFeatureGPRegressor("matern32", random_state=0, max_evaluations=5).fit(
        np.delete(x, 3, 0), np.delete(y, 3)
    )
    assert np.allclose(found.predict(x), same.predict(x))


def test_arrays_are_refused_after_data_frames():
    table = frame()[["price", "size"]]
    model = RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=1).fit(table, target())
    places = table.set_axis([0, 1], axis=1)
    for fitted, predict in (
        (TableEncoder().fit(table), "transform"),
        (TableEncoder().fit(places), "transform"),
        (model, "predict"),
    ):
        for rows in (table.to_numpy(), table.to_numpy().tolist()):
            with pytest.raises(ValueError, match="expected a data frame with the columns of the fit"):
                getattr(fitted, predict)(rows)
    with pytest.raises(ValueError, match="expected a data frame with the columns of the fit"):
        model.partial_fit(table.to_numpy(), target())
    with pytest.raises(ValueError, match="expected an array, as in the fit, got a data frame"):
        TableEncoder().fit(table.to_numpy()).transform(table)


@pytest.mark.parametrize(
    "estimator", [RandomFeatureGPRegressor, RandomFeatureGPClassifier, RandomFeatures, TableEncoder]
)
@pytest.mark.parametrize("columns", [["price", "size"], ["price", "rooms"]])
def test_columns_of_one_name_are_refused(estimator, columns):
    table, y = frame()[columns].set_axis(["a", "a"], axis=1), target() > 4.0
    with pytest.raises(ValueError, match="expected different names of columns, got several named 'a'; rename them"):
        estimator().fit(table, y)


def test_columns_of_one_name_are_refused_after_a_fit():
    table = frame()[["price", "size"]]
    encoder = TableEncoder().fit(table)
    with pytest.raises(ValueError, match="expected different names of columns"):
        encoder.transform(table.set_axis(["price", "price"], axis=1))
    model = RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=1).fit(table, target())
    with pytest.raises(ValueError, match="expected different names of columns"):
        model.predict(table.set_axis(["price", "price"], axis=1))
    with pytest.raises(ValueError, match="expected different names of columns"):
        RandomFeatureGPRegressor().fit(np.eye(3), pandas.DataFrame(np.eye(3)[:, :2], columns=["y", "y"]))


def gappy(num_rows):
    """A table with gaps in the column that tells the target."""
    generator = np.random.default_rng(0)
    table = pandas.DataFrame({"area": generator.uniform(size=num_rows), "town": ["a", "b"] * (num_rows // 2)})
    y = np.sin(6.0 * table.area.to_numpy()) + 0.05 * generator.normal(size=num_rows)
    return table, table.assign(area=table.area.where(generator.uniform(size=num_rows) > 0.2)), y


def test_rows_with_missing_cells_have_a_noise_of_their_own():
    _, gaps, y = gappy(600)
    is_gap = gaps.area.isna().to_numpy()
    model = RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=20).fit(gaps[:300], y[:300])
    mean, std = model.predict(gaps[300:], return_std=True)
    covariance = model.predict(gaps[300:], return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), std, rtol=1e-6)
    z = (y[300:] - mean) / std
    for part, spread in ((~is_gap[300:], 0.05), (is_gap[300:], 0.7)):
        assert abs(np.mean(np.abs(z[part]) < 1.96) - 0.95) < 4.0 * np.sqrt(0.95 * 0.05 / part.sum())
        assert 0.5 * spread < std[part].mean() < 2.0 * spread
    left, own = model.cross_val_predict(gaps[:300], y[:300], return_std=True)
    errors = np.abs(y[:300] - left)[~is_gap[:300]]
    assert np.mean(errors) < 0.1 and 0.025 < own[~is_gap[:300]].mean() < 0.1
    before = model.predict(gaps[300:][~is_gap[300:]])
    model.partial_fit(gaps[:50].assign(area=np.nan), y[:50] + 3.0)
    assert np.abs(model.predict(gaps[300:][~is_gap[300:]]) - before).max() < 0.2


@pytest.mark.parametrize(("gained", "ratio"), [(5.1, 1.0), (12.0, 128.0)])
def test_a_second_noise_is_compared_to_one_noise_with_parameters_of_its_own(monkeypatch, gained, ratio):
    """In a table of sales the kernel of a ratio gained 131 nats by this ratio, and five on the kernel of one noise."""
    evidences = iter([{1.0: -304.4, 128.0: -302.3}, {1.0: -304.0}, {1.0: -431.2, 128.0: -304.0 + gained}])
    monkeypatch.setattr(gap_noise, "_evidences", lambda *args: next(evidences))
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = Parts(RBFKernel().double(), GaussianLikelihood().double(), ConstantMean().double(), 0)
    assert gap_noise.noise_ratio(parts, x, x[:, 0], torch.arange(40) < 20, None) == ratio


def related(num_rows, seed, share):
    """A table whose second column tells much of the first, of which a share is missing, and two targets."""
    generator = np.random.default_rng(seed)
    a = generator.normal(size=num_rows)
    b = a + 0.3 * generator.normal(size=num_rows)
    y = 3.0 * a + np.sin(2.0 * b) + 0.05 * generator.normal(size=num_rows)
    frame = pandas.DataFrame({"a": a, "b": b, "side": np.where(a > 0.0, "right", "left")})
    frame.loc[generator.random(num_rows) < share, ["a", "side"]] = None
    return frame, np.column_stack([y, np.sin(a + b)])


@pytest.mark.parametrize(
    ("share", "settings"), [(0.02, {"average": False}), (0.2, {}), (0.2, {"fallback": True, "kernel": "linear"})]
)
def test_intervals_of_rows_with_missing_cells_cover_what_may_be_in_them(share, settings):
    """Filled in with the median, and not widened, a quarter of them were covered."""
    frame, y = related(200, 0, share)
    model = RandomFeatureGPRegressor(random_state=0, **settings).fit(frame, y[:, 0])
    new, truth = related(250, 1, 0.4)
    is_gap, truth = new.a.isna().to_numpy(), truth[:, 0]
    low, high = model.predict_interval(new).T
    is_inside = (low < truth) & (truth < high)
    for rows in (is_gap, ~is_gap):
        assert is_inside[rows].mean() > 0.95 - 4.0 * (0.95 * 0.05 / rows.sum()) ** 0.5
    mean, std = model.predict(new, return_std=True)
    assert std[is_gap].mean() > 2.0 * std[~is_gap].mean()
    joint = model.predict(new, return_cov=True)
    np.testing.assert_allclose(joint[0], mean, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(np.sqrt(joint[1].diagonal())[is_gap], std[is_gap], rtol=0.1)
    draws = model.sample_y(new[:30], 500)
    np.testing.assert_allclose(draws.mean(1), mean[:30], atol=5.0 * std[:30].max() / 500**0.5)
    ratios = draws.std(1)[is_gap[:30]] / std[:30][is_gap[:30]]
    assert 0.3 < ratios.min() < ratios.max() < 1.2, "ten rows vary less than what they tell of others"
    assert model.log_density(new, truth)[is_gap].mean() > -np.log(6.0), "that of a uniform density is -log(6 std)"


def test_what_is_missing_is_told_by_the_rows_that_are_near_in_the_other_columns():
    frame, y = related(200, 0, 0.0)
    model = RandomFeatureGPRegressor("rbf", random_state=0).fit(frame, y)
    new, truth = related(200, 1, 0.5)
    mean = model.predict(new)
    assert (np.abs(mean - truth).mean(0) < 0.35 * truth.std(0)).all()
    filled = model.encoder_.encoding_.inputs(model.encoder_.cells(new))
    sides = np.where(filled[:, 0] > 0.0, 1.0, 0.0)
    assert np.mean(filled[:, 2] == sides) > 0.95, "text is what most of them have"
    np.testing.assert_allclose(model.predict(new[:3]), mean[:3], rtol=1e-9)


def test_new_rows_of_numbers_may_have_missing_cells_where_no_training_row_has():
    frame, y = related(200, 0, 0.0)
    model = RandomFeatureGPRegressor(random_state=0, average=False).fit(frame[["a", "b"]], y[:, 0])
    new, truth = related(300, 1, 0.3)
    low, high = model.predict_interval(new[["a", "b"]]).T
    is_gap, is_inside = new.a.isna().to_numpy(), (low < truth[:, 0]) & (truth[:, 0] < high)
    assert is_inside[is_gap].mean() > 0.95 - 4.0 * (0.95 * 0.05 / is_gap.sum()) ** 0.5
    assert (high - low)[is_gap].min() > 2.0 * np.median((high - low)[~is_gap])
    assert np.isfinite(model.predict(new[["a", "b"]].assign(a=np.nan, b=np.nan)[:2])).all()
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(new[["a", "b"]].to_numpy())
    with pytest.raises(ValueError, match="contains infinity"):
        model.predict(new[["a", "b"]].fillna(np.inf))


def test_gaps_that_go_with_more_noise_widen_intervals():
    """What rows with missing cells have learned counts where imputations differ little: a third were covered."""
    generator = np.random.default_rng(5)
    a, b = generator.normal(size=(2, 800))
    is_gap = generator.uniform(size=800) < 0.3
    y = np.sin(a) + 0.3 * b + np.where(is_gap, 1.5, 0.1) * generator.normal(size=800)
    frame = pandas.DataFrame({"a": a, "b": np.where(is_gap, np.nan, b)})
    model = RandomFeatureGPRegressor(random_state=0, max_evaluations=30).fit(frame[:400], y[:400])
    of_table = TableModel.fit(read(frame[:400].assign(y=y[:400]), "y")).predict(frame[400:])
    for low, high in (model.predict_interval(frame[400:]).T, of_table[["y_lower", "y_upper"]].to_numpy().T):
        is_inside = ((low < y[400:]) & (y[400:] < high))[is_gap[400:]]
        assert is_inside.mean() > 0.95 - 4.0 * (0.95 * 0.05 / len(is_inside)) ** 0.5
    assert model.gap_noise_ > 8.0
    model.fit(frame[["a"]], y)
    assert model.gap_noise_ == 1.0 and not model.marks_, "a table of numbers has no marks of another one"


def test_draws_of_counts_have_the_mean_of_rows_with_marks():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(2, 300))
    is_gap = generator.uniform(size=300) < 0.3
    frame = pandas.DataFrame({"a": a, "b": np.where(is_gap, np.nan, b)})
    model = RandomFeatureGPCountRegressor(random_state=0)
    model.fit(frame, generator.poisson(np.exp(1.0 + 0.3 * a + 1.5 * is_gap)))
    draws = model.sample_y(frame, 200)[is_gap]
    assert abs(draws.mean() / model.predict(frame)[is_gap].mean() - 1.0) < 0.2


def test_few_draws_are_of_any_imputation():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(200, 2))
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = RandomFeatureGPRegressor(random_state=0, average=False, max_evaluations=20).fit(frame, 3.0 * x[:, 0])
    new = frame[:2].assign(a=np.nan)
    draws = np.concatenate([model.sample_y(new, 1, random_state=seed) for seed in range(40)], axis=1)
    assert (draws.std(1) > 0.4 * model.predict(new, return_std=True)[1]).all()


def test_equal_distances_are_equal_in_any_batch():
    generator = np.random.default_rng(0)
    x = generator.integers(0, 3, size=(300, 5)).astype(float)
    is_missing = generator.uniform(size=x.shape) < 0.1
    donors = Donors.of(x, is_missing, [[place] for place in range(5)])
    whole = donors.imputations(x, is_missing)
    alone = [donors.imputations(x[row : row + 1], is_missing[row : row + 1]) for row in range(300)]
    np.testing.assert_array_equal(np.concatenate(alone, axis=1), whole)


def test_donors_have_what_is_missing():
    """Of those the nearest ones, as far as columns are known of both; columns count the same in any unit."""
    x = np.column_stack([np.arange(40.0), 1e6 * np.arange(40.0) + 1e9, np.zeros(40)])
    is_missing = np.zeros(x.shape, dtype=bool)
    is_missing[5, 0] = is_missing[7, 1] = True
    donors = Donors.of(x, is_missing, [[0], [1], [2]])
    assert Donors.from_json(json.loads(json.dumps(asdict(donors)))) == donors
    new = np.array([[np.nan, 1e9 + 5e6, 0.0], [20.0, np.nan, 1.0], [np.nan, np.nan, 2.0]])
    found = donors.imputations(np.nan_to_num(new), np.isnan(new))
    assert 5.0 not in found[:, 0, 0] and np.abs(found[:, 0, 0] - 5.0).max() < 7.0
    np.testing.assert_allclose(np.sort((found[:, 1, 1] - 1e9) / 1e6), np.arange(15.0, 25.0), atol=1.0)
    assert len(np.unique(found[:, 2, 0])) == 10 and np.allclose((found[:, 2, 1] - 1e9) / 1e6, found[:, 2, 0])
    np.testing.assert_array_equal(found[:, :, 2], np.tile([0.0, 1.0, 2.0], (10, 1)))
    apart = np.zeros(x.shape, dtype=bool)
    apart[:20, 0] = apart[20:, 1] = True
    found = Donors.of(x, apart, [[0], [1], [2]]).imputations(np.zeros((1, 3)), np.array([[True, True, False]]))
    assert len(np.unique(found[:, 0, 0])) == len(np.unique(found[:, 0, 1])) == 10, "each has donors of its own"
    few = Donors.of(x[:1], is_missing[:1], [[0], [1]]).imputations(np.nan_to_num(new), np.isnan(new))
    np.testing.assert_array_equal(few[:, 0, 0], [0.0])


def test_classes_and_counts_of_rows_with_missing_cells():
    frame, y = related(150, 0, 0.0)
    new, truth = related(400, 1, 0.5)
    is_gap = new.a.isna().to_numpy()
    classes = RandomFeatureGPClassifier(random_state=0).fit(frame, y[:, 0] > 0.0)
    chances = classes.predict_proba(new)[:, 1]
    right = np.where(truth[:, 0] > 0.0, chances, 1.0 - chances)
    assert -np.log(right[is_gap]).mean() < 0.35 and 0.05 < chances[is_gap & (np.abs(new.b) < 0.2)].mean() < 0.95
    generator = np.random.default_rng(2)
    counts = RandomFeatureGPCountRegressor(random_state=0).fit(frame, generator.poisson(np.exp(0.5 * y[:, 0])))
    of_new = generator.poisson(np.exp(0.5 * truth[:, 0]))
    low, high = counts.predict_interval(new).T
    is_inside = (low <= of_new) & (of_new <= high)
    assert is_inside[is_gap].mean() > 0.95 - 4.0 * (0.95 * 0.05 / is_gap.sum()) ** 0.5
    draws = counts.sample_y(new[:50], 4000)
    np.testing.assert_allclose(draws.mean(1), counts.predict(new[:50]), rtol=0.5, atol=0.5)


LIBRARIES = ("polars", "pyarrow")


def columns():
    """Columns of every type of cells, as lists, with gaps."""
    rng = np.random.default_rng(0)
    day = datetime.datetime(2024, 1, 30)
    kinds = rng.choice(["s", "m", "l"], ROWS).tolist()
    return {
        "area": [None, *rng.uniform(size=ROWS - 1).tolist()],
        "rooms": [*rng.integers(1, 5, ROWS - 12).tolist(), *[None] * 12],
        "heated": [None, *(rng.uniform(size=ROWS - 1) > 0.5).tolist()],
        "price": [f"${value:,.2f}" for value in rng.uniform(1.0, 3000.0, ROWS)],
        "size": [*kinds[:-1], None],
        "day": [day + datetime.timedelta(hours=7 * hour) for hour in range(ROWS)],
        "date": [(day + datetime.timedelta(days=number)).date() for number in range(ROWS)],
        "tax": [decimal.Decimal(number) / 8 for number in range(ROWS)],
    }


def frames(library, cells, of_categories=()):
    """A frame of another library, and the same of pandas."""
    known = pandas.DataFrame(cells).astype(dict.fromkeys(of_categories, "category"))
    if library == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame(cells, schema_overrides=dict.fromkeys(of_categories, polars.Categorical)), known
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(cells)
    for name in of_categories:
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).dictionary_encode())
    return table, known


@pytest.mark.parametrize("names", [["area", "rooms", "heated"], ["price", "size"], ["day", "date", "tax"]])
@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_other_libraries_are_those_of_pandas(library, names):
    cells = {name: columns()[name] for name in names}
    other, known = frames(library, cells, [name for name in names if name == "size"])
    encoder, y = TableEncoder().fit(known), target()
    np.testing.assert_array_equal(TableEncoder().fit_transform(other), encoder.transform(known))
    np.testing.assert_array_equal(encoder.transform(other), encoder.transform(known))
    assert list(TableEncoder().fit(other).feature_names_in_) == names
    made = {"kernel": "rbf", "random_state": 0, "max_evaluations": 2}
    models = [RandomFeatureGPRegressor(**made).fit(frame, y) for frame in (other, known)]
    predicted = [model.predict(frame) for model in models for frame in (other, known)]
    for mean in predicted[1:]:
        np.testing.assert_array_equal(mean, predicted[0])
    for model, frame in zip(models, (other, known), strict=True):
        model.partial_fit(frame, y + 1.0)
        assert list(model.feature_names_in_) == names
    np.testing.assert_array_equal(models[0].predict(known), models[1].predict(known))
    with pytest.raises(ValueError, match="feature names"):
        models[0].predict(frames(library, {name: cells[name] for name in names[1:]})[0])


@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_of_other_libraries_have_names(library):
    rng = np.random.default_rng(0)
    cells = {"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)}
    other, known = frames(library, cells)
    labels = np.where(cells["a"] > 0.0, "u", "v")
    for make in (RandomFeatures(num_features=8, random_state=0), RandomFeatureGPClassifier("rbf", random_state=0)):
        models = [clone(make).fit(frame, labels) for frame in (other, known)]
        outcome = "transform" if hasattr(make, "transform") else "predict_proba"
        np.testing.assert_array_equal(getattr(models[0], outcome)(other), getattr(models[1], outcome)(known))
        assert list(models[0].feature_names_in_) == ["a", "b"]
    targets = frames(library, {"y": target(), "z": cells["a"]})
    several = [RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=2).fit(known, y) for y in targets]
    np.testing.assert_array_equal(several[0].predict(known), several[1].predict(known))
    left = [RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=2).fit(known, target()) for _ in range(2)]
    np.testing.assert_array_equal(
        left[0].cross_val_predict(other, target(), 5), left[1].cross_val_predict(known, target(), 5)
    )


def test_frames_of_numbers_need_no_pandas():
    pytest.importorskip("polars")
    code = """
import sys

class Without:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "pandas":
            raise ImportError(name)

import polars
sys.meta_path.insert(0, Without)
from rfgp.sklearn import RandomFeatureGPRegressor
numbers = polars.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1, 3, 2, 0]})
model = RandomFeatureGPRegressor("rbf", max_evaluations=1, random_state=0).fit(numbers, [1.0, 2.0, 0.0, 1.0])
assert model.predict(numbers).shape == (4,) and list(model.feature_names_in_) == ["a", "b"]
try:
    model.fit(numbers.with_columns(c=polars.Series(["u", "v", "u", "v"])), [1.0, 2.0, 0.0, 1.0])
except ImportError as error:
    assert "install the extra study" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_frames_that_are_not_computed_are_refused():
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [1.0, 2.0], "b": ["u", "v"]})
    for estimator in (RandomFeatureGPRegressor(), TableEncoder(), RandomFeatures()):
        with pytest.raises(ValueError, match=r"expected rows in memory, got a LazyFrame; pass X.collect\(\)"):
            estimator.fit(lazy, [1.0, 2.0])


def test_frames_and_files_are_encoded_alike(tmp_path):
    rng = np.random.default_rng(0)
    table = frame().assign(zip=rng.choice([10115, 20095, 50667], ROWS), y=rng.normal(size=ROWS)).drop(columns="note")
    table["share"] = [f"{value} %" for value in rng.integers(0, 40, ROWS)]
    table.to_csv(tmp_path / "table.csv", index=False)
    found = read(tmp_path / "table.csv", "y")
    encoder = TableEncoder().fit(table.drop(columns="y"), table["y"])
    assert encoder.get_feature_names_out().tolist() == list(found.input_names)
    np.testing.assert_array_equal(encoder.transform(table.drop(columns="y")), found.x.numpy())
    assert encoder.encoding_.encode(table).equal(found.x) and "zip=10115" in found.input_names


def test_codes_of_many_categories_warn_of_nothing():
    """Folds of codes are given in the way that the scikit-learn at hand wants."""
    frame = pandas.DataFrame({"city": [f"city {number % 70}" for number in range(140)]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TableEncoder().fit_transform(frame, np.arange(140.0)).shape == (140, 2)


def test_cells_that_are_filled_in_without_a_mark_are_told():
    frame = pandas.DataFrame({"a": np.arange(20.0), "b": ["x", "y"] * 10})
    encoder = TableEncoder().fit(frame)
    frame.loc[3, "a"] = None
    with pytest.warns(UserWarning, match="cells are missing in 'a', where the fit had too few"):
        encoder.transform(frame)
    marked = TableEncoder().fit(frame.assign(a=frame.a.where(frame.index % 2 == 0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        marked.transform(frame)


@pytest.mark.parametrize("model", [TableEncoder(), RandomFeatureGPRegressor(num_features=8)], ids=["encoder", "model"])
def test_cells_of_another_kind_are_told(model):
    """ "high" among numbers, and dates that cannot be read, of tables that are learned from and of new ones."""
    days = pandas.date_range("2024-01-01", periods=20).astype(str)
    frame = pandas.DataFrame({"a": np.arange(20.0), "day": days, "b": ["x", "y"] * 10})
    y = np.arange(20.0) ** 0.5
    fitted = model.fit(frame, y)
    apply = fitted.transform if isinstance(fitted, TableEncoder) else fitted.predict
    with pytest.warns(UserWarning, match=r"cells of 20 of 20 rows are of another kind, .* 20 in a \('high' in row 1, "):
        apply(frame.assign(a="high"))
    with pytest.warns(UserWarning, match=r"2 in a \(.*'inf' in row 4\), 1 in day \('soon' in row 3\)"):
        fitted.fit(frame.assign(a=[0.0, 1.0, "high", np.inf, *range(16)], day=["2024-01-01", "", "soon", *days[3:]]), y)

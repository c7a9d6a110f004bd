"""A model of a table: through the command line and back, in its units, for one target, several ones and classes."""

from __future__ import annotations

import io

import numpy as np
import pandas
import pytest
import torch

import rfgp
from rfgp.__main__ import main
from rfgp.averaging import AveragedGP, AveragedGPClassifier
from rfgp.linalg.column_scales import standardized
from rfgp.sklearn import RandomFeatureGPRegressor, regressor
from rfgp.sklearn.model_size import ModelSize
from rfgp.sklearn.near_predictions import OwnRows
from rfgp.study.tables import TableModel, choices, predictive, read
from rfgp.study.tables import model as tables_model

ROWS, SMALLEST_NOISE = 120, 1e-6
"""Noise variances of averages, over that of the kernel, are not smaller: condition numbers are a row for each."""


def houses():
    rng = np.random.default_rng(0)
    rooms, color = rng.integers(1, 9, size=ROWS), np.array(["red", "blue"])[rng.integers(2, size=ROWS)]
    area = rng.uniform(40.0, 200.0, size=ROWS).round(1)
    price = 1000.0 * area + 5e4 * (color == "red") + 2000.0 * rng.normal(size=ROWS)
    return pandas.DataFrame(
        {"id": [f"H{i}" for i in range(ROWS)], "rooms": rooms, "area": area, "color": color, "price": price.round(1)}
    )


@pytest.fixture(scope="module", autouse=True)
def few_evaluations():
    """Tables of so few rows are learned in few evaluations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choices, "_EVALUATIONS", 15)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, a model of it, and what the command has printed."""
    path = tmp_path_factory.mktemp("houses")
    houses().to_csv(path / "houses.csv", index=False, sep=";", decimal=",")
    return path


@pytest.fixture(scope="module")
def model_file(folder):
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", printed)
        assert main(["fit", str(folder / "houses.csv"), "--target", "price", "--out", str(folder / "model.pt")]) == 0
    return folder / "model.pt", printed.getvalue()


def test_fit_reports_the_columns_first_and_the_scores_last(model_file):
    _, printed = model_file
    texts = "decimal comma): 120 rows", "id: is a row identifier", "24 held-out rows"
    places = [printed.index(text) for text in texts]
    assert places == sorted(places) and "learned in " in printed and "coverage  " in printed


def test_fit_tells_how_long_it_will_take_before_it_begins(folder, tmp_path, monkeypatch, capsys):
    def stop(*arguments, **settings):
        raise ValueError("the fit has begun")

    monkeypatch.setattr(TableModel, "fit", stop)
    for name, more in (("a", []), ("b", ["--time-limit", "0.125"])):
        options = ["--target", "price", "--out", str(tmp_path / f"{name}.pt"), *more]
        assert main(["fit", str(folder / "houses.csv"), *options]) != 0
        told = capsys.readouterr().err
        assert told.index("the fit takes about ") < told.index("the fit has begun")


def test_the_time_of_a_table_is_estimated_without_a_fit():
    table = read(houses(), "price")
    seconds = TableModel.estimated_seconds(table)
    assert 0.0 < TableModel.estimated_seconds(table, time_limit=0.1) < seconds
    colors = read(houses(), "color")
    assert TableModel.estimated_seconds(colors, kernel="rbf", num_features=16) > 0.0
    with pytest.raises(ValueError, match="expected a table"):
        TableModel.estimated_seconds(houses())


def test_predictions_in_the_units_of_the_table(folder, model_file, capsys):
    path, _ = model_file
    new = houses()[["color", "id", "area", "rooms"]].assign(more=0)
    new.to_csv(folder / "new.csv", index=False)
    out = folder / "predictions.csv"
    assert main(["predict", str(path), str(folder / "new.csv"), "--out", str(out), "--level", "0.9"]) == 0
    found = pandas.read_csv(out)
    assert list(found.columns) == ["id", "price", "price_sd", "price_lower", "price_upper", "unseen"]
    assert found["id"].tolist() == new["id"].tolist()
    errors = found["price"] - houses()["price"]
    assert errors.std() < 4000.0
    inside = (found["price_lower"] <= houses()["price"]) & (houses()["price"] <= found["price_upper"])
    assert abs(inside.mean() - 0.9) < 3.0 * np.sqrt(0.09 / ROWS)
    loaded = rfgp.load(path)
    assert isinstance(loaded, TableModel) and np.allclose(loaded.predict(new)["price"], found["price"], rtol=1e-8)
    assert loaded.predict(new).index.equals(new.index) and loaded.target_names == ("price",)
    capsys.readouterr()
    assert main(["predict", str(path), str(folder / "new.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "id,price,price_sd,price_lower,price_upper,unseen"


def test_cells_of_predictions_are_no_formulas(tmp_path):
    names = ["=1+1", "-2.5", "+1 a", "@sum", "\tx", "plain", "-x", "7", "+3e2", "a=b"]
    frame = pandas.DataFrame({"id": names, "=a": [*range(9), -1], "y": np.arange(10.0)})
    table = read(frame.assign(y=["=u", "v"] * 5), "y")
    TableModel.fit(table, num_features=4).save(tmp_path / "model.pt")
    frame.to_parquet(tmp_path / "new.parquet")
    assert (
        main(["predict", str(tmp_path / "model.pt"), str(tmp_path / "new.parquet"), "--out", str(tmp_path / "p.csv")])
        == 0
    )
    found = pandas.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert found["id"].tolist() == ["'=1+1", "-2.5", "'+1 a", "'@sum", "'\tx", "plain", "'-x", "7", "+3e2", "a=b"]
    assert set(found["y"]) <= {"'=u", "v"} and list(found.columns)[2:4] == ["probability_=u", "probability_v"]


def test_few_rows_are_averaged_over_parameters(model_file):
    """Scores and predictions are those of the mixture, in the units of the table, and all rows are in the model."""
    model, table = TableModel.load(model_file[0]), read(houses(), "price")
    assert isinstance(model.model, AveragedGP) and len(model.model.y) == ROWS and not model.transforms
    assert "note: averaged over parameters" in model.report()
    data = table.split()
    estimator = RandomFeatureGPRegressor(random_state=0).fit(data.x_train.numpy(), data.y_train.numpy())
    assert isinstance(estimator.model_, AveragedGP)
    x = torch.from_numpy(estimator.x_scaler_.transform(data.x_test.numpy()))
    center, scale = (torch.tensor(float(part[0])) for part in (estimator.y_scaler_.mean_, estimator.y_scaler_.scale_))
    nlpd = scale.log() - estimator.model_.predictive(x).log_prob((data.y_test - center) / scale)
    assert model.scores.nlpd[0] == pytest.approx(float(nlpd.mean()), rel=1e-6)
    error = estimator.predict(data.x_test.numpy()) - data.y_test.numpy()
    assert model.scores.error[0] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    found, estimator = model.distribution(data.x_test), estimator.partial_fit(data.x_test.numpy(), data.y_test.numpy())
    mean, std = estimator.predict(data.x_test.numpy(), return_std=True)
    ends = estimator.predict_interval(data.x_test.numpy())
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found.stddev, std, rtol=1e-6)
    np.testing.assert_allclose(torch.stack([found.icdf(0.025), found.icdf(0.975)], dim=-1), ends, rtol=1e-6)
    below = found.cdf(torch.from_numpy(ends[:, 0]))
    np.testing.assert_allclose(below, 0.025, rtol=1e-4)


@pytest.mark.parametrize("column", ["a class in held-out rows alone", "rows"])
def test_what_is_not_averaged(column, monkeypatch):
    """Estimators do not average all rows, and a class that training rows lack is in the model."""
    monkeypatch.setattr(regressor, "AUTO_ROWS", 59 if column == "rows" else 60)
    frame, target = houses()[:60].drop(columns="id"), "price"
    if column == "a class in held-out rows alone":
        frame, target = frame.assign(kind=np.where(np.arange(60) % 2, "u", "v")), "kind"
        held = np.flatnonzero((read(frame, target).split().x_test[:, None] == read(frame, target).x).all(-1).any(0))
        frame.loc[held[0], "kind"] = "w"
    model = TableModel.fit(read(frame, target))
    assert not isinstance(model.model, AveragedGP | AveragedGPClassifier) and "averaged" not in model.report()
    x = model.encoding.encode(frame)
    whole = model.distribution(x)
    monkeypatch.setattr(predictive, "_CHUNK", 7)
    parts = model.distribution(x)
    pair = (parts, whole) if isinstance(whole, torch.Tensor) else (parts.stddev, whole.stddev)
    torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-8)


def test_rows_do_not_depend_on_the_others(model_file):
    model = TableModel.load(model_file[0])
    whole = model.predict(houses())
    for rows in (slice(0, 1), slice(1, 30)):
        found = model.predict(houses()[rows]).iloc[:, 1:-1]
        assert np.allclose(found, whole.iloc[rows, 1:-1], rtol=ROWS / SMALLEST_NOISE * np.finfo(float).eps)


def test_rows_with_missing_cells(folder, model_file, capsys):
    path, _ = model_file
    houses().assign(area=[""] * 2 + ["80"] * (ROWS - 2)).to_csv(folder / "holes.csv", index=False)
    command = ["predict", str(path), str(folder / "holes.csv")]
    assert main([*command, "--missing", "raise"]) == 2
    assert "got 2 cells without one in 1 column: 'area': 2 missing" in capsys.readouterr().err
    assert main([*command, "--missing", "drop"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:3] == ["H0,,,,,", "H1,,,,,"]
    assert printed.err == "rfgp: 2 of 120 rows have missing cells, and no prediction\n"
    assert main(command) == 0
    printed = capsys.readouterr()
    assert ",,\n" not in printed.out
    assert printed.err == "rfgp: cells of 2 of 120 rows are empty or of another kind, and are filled in: 2 in area\n"


def test_new_files_are_read_as_the_first_one(tmp_path):
    """The separator, the decimal comma and the header of a file in which they could be others."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"2019": rng.integers(1000, 9999, size=30) / 1000.0, "y": rng.normal(size=30).round(3)})
    frame.to_csv(tmp_path / "first.csv", index=False, sep="~", decimal=",")
    table = read(tmp_path / "first.csv", "y", separator="~", decimal=",")
    TableModel.fit(table, num_features=4).save(tmp_path / "model.pt")
    frame[["2019"]].to_csv(tmp_path / "new.csv", index=False, sep="~", decimal=",")
    frame.to_csv(tmp_path / "again.csv", index=False, sep="~", decimal=",")
    model = TableModel.load(tmp_path / "model.pt")
    known = model.predict(frame)
    for name in ("new.csv", "again.csv"):
        assert model.predict(tmp_path / name).equals(known)


@pytest.mark.parametrize(
    ("targets", "change", "name"),
    [
        ("price,price_lower", {"price_lower": houses()["price"] - 1.5}, "price_lower"),
        ("probability_u", {"probability_u": ["u", "v"] * 60}, "probability_u"),
    ],
)
def test_columns_of_predictions_with_one_name_are_refused(targets, change, name):
    table = read(houses().assign(**change), targets)
    with pytest.raises(ValueError, match=f"of the columns of predictions, got two of '{name}'"):
        TableModel.fit(table)


def test_files_that_are_there_stay(folder, model_file, capsys):
    path, _ = model_file
    (folder / "kept.csv").write_text("mine", encoding="utf-8")
    fit = ["fit", str(folder / "houses.csv"), "--target", "price", "--out", str(path)]
    predict = ["predict", str(path), str(folder / "houses.csv"), "--out", str(folder / "kept.csv")]
    for command in (fit, predict):
        assert main(command) == 2
        assert "which is there; pass --force to write over it" in capsys.readouterr().err
    assert (folder / "kept.csv").read_text(encoding="utf-8") == "mine"
    assert main([*predict, "--force"]) == 0
    assert len(pandas.read_csv(folder / "kept.csv")) == ROWS


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["fit", "houses.csv", "--target", "cost", "--out", "new.pt"], "(id, rooms, area, color, price) or its index"),
        (["fit", "houses.csv", "--target", "price", "--out", "none/new.pt"], "expected a folder for --out, got none"),
        (["fit", "houses.csv", "--target", "price", "--out", "."], "expected a file for --out, got the folder '.'"),
        (["fit", "houses.csv", "--target", "price", "--out", "new.pt", "--test-share", "2"], "expected a test_share"),
        (
            ["fit", "houses.csv", "--target", "price", "--out", "new.pt", "--kernel", "cubic"],
            "one of auto, rbf, matern12",
        ),
        (["predict", "model.pt", "houses.csv", "--level", "95"], "expected a level between 0 and 1, got 95"),
        (["predict", "model.pt", "houses.csv", "--out", "a.parquet"], "expected a file of text for --out"),
        (["predict", "houses.csv", "houses.csv"], "expected a file that rfgp.save wrote"),
        (["predict", "houses.csv", "model.pt"], "write rfgp predict model.pt houses.csv"),
        (["predict", "none.pt", "houses.csv"], "expected an existing file, got 'none.pt'"),
    ],
)
def test_what_is_refused(folder, model_file, monkeypatch, capsys, command, message):
    monkeypatch.chdir(folder)
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rfgp: error: expected") and message in line


def test_models_of_other_things_are_no_models_of_tables(tmp_path):
    kernel = rfgp.approximate(rfgp.kernels.ExponentialDotProductKernel(), 8, input_dim=2)
    rfgp.save(kernel, tmp_path / "kernel.pt")
    with pytest.raises(ValueError, match=r"expected a model of a table in '.*kernel\.pt', got a \w+; use rfgp\.load"):
        TableModel.load(tmp_path / "kernel.pt")


def test_classes(small_defaults, tmp_path):
    frame = houses().assign(kind=np.where(houses()["area"] > 120.0, "large", "small")).drop(columns="price")
    model = TableModel.fit(read(frame, "kind"))
    assert isinstance(model.model, AveragedGPClassifier)
    model.save(tmp_path / "model.pt")
    found = TableModel.load(tmp_path / "model.pt").predict(frame)
    assert list(found.columns) == ["id", "kind", "probability_large", "probability_small", "unseen"]
    assert (found["kind"] == frame["kind"]).mean() > 0.9 and np.allclose(found.iloc[:, 2:4].sum(axis=1), 1.0)
    assert model.scores.error[0] < model.scores.trivial_error[0] and model.scores.nlpd < model.scores.trivial_nlpd
    assert model.report().splitlines()[2].startswith("error rate")


@pytest.mark.parametrize("settings", [{}, {"kernel": "matern32", "num_features": 16}])
def test_several_targets(small_defaults, settings):
    frame = houses()[:60].assign(rent=lambda known: 0.004 * known["price"] + 10.0 * known["rooms"])
    holes = frame.assign(rent=frame["rent"].where(np.arange(60) % 3 > 0))
    model = TableModel.fit(read(holes, "price,rent"), **settings, seed=1)
    assert isinstance(model.model, AveragedGP) != bool(settings)
    found = model.predict(frame, level=0.5)
    ends = ("", "_sd", "_lower", "_upper")
    assert list(found.columns)[1:-1] == [f"{target}{end}" for target in ("price", "rent") for end in ends]
    assert np.corrcoef(found["rent"], frame["rent"])[0, 1] > 0.95
    assert len(model.scores.error) == 2 and "RMSE of rent" in model.report()


def test_scores_are_those_of_the_predictions():
    table = read(houses(), "price")
    data = table.split()
    rows = slice(None)
    made = rfgp.study.tables.Scores.of(
        data, torch.distributions.Normal(data.y_test[rows] + 3.0, torch.full((24,), 2.0))
    )
    assert np.isclose(made.error[0], 3.0) and made.coverage == (1.0,)
    assert np.isclose(made.nlpd[0], 0.5 * 9.0 / 4.0 + np.log(2.0 * np.sqrt(2.0 * np.pi)))
    trivial = (data.y_test - data.y_train.mean()).square().mean().sqrt()
    assert np.isclose(made.trivial_error[0], float(trivial))


def rough(count):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.uniform(-3.0, 3.0, size=(count, 2)), columns=["east", "north"])
    height = 2.0 * np.sin(3.0 * frame["east"]) * np.cos(3.0 * frame["north"])
    return frame.assign(height=height + 0.02 * rng.normal(size=count), kind=height.round().astype(int).astype(str))


@pytest.mark.parametrize("target", ["height", "kind"])
def test_near_rows_predict_large_tables(target, monkeypatch, tmp_path):
    """A file has them, and they are all rows: also those whose errors have told whether noise depends on inputs."""
    monkeypatch.setattr("rfgp.sklearn.base.default_size", lambda *_: ModelSize(64, 256))
    monkeypatch.setattr("rfgp.study.tables.spread._MANY_ROWS", 1000)
    monkeypatch.setattr("rfgp.study.tables.spread._MOST_ROWS", 300)
    data = rough(2200)
    table, new = data[["east", "north", target]][:2000], data[2000:]
    monkeypatch.setattr("rfgp.sklearn.choice.KERNELS", ("matern52", "matern32"))
    model = TableModel.fit(read(table, target), time_limit=10.0)
    assert model.near is not None and model.model.conditioned is None
    rows = model.near.shared.x if isinstance(model.near, OwnRows) else model.near.x
    assert len(rows) == 2000
    model.save(tmp_path / "model.pt")
    found, again = (one.predict(new) for one in (model, TableModel.load(tmp_path / "model.pt")))
    pandas.testing.assert_frame_equal(found, again)
    if target == "kind":
        assert (found["kind"] == new["kind"]).mean() > 0.85
        return
    inside = (new["height"] > found["height_lower"]) & (new["height"] < found["height_upper"])
    assert np.mean((found["height"] - new["height"]) ** 2) < 0.02 and 0.88 < inside.mean() <= 1.0


def test_of_many_rows_few_are_held_out_and_points_are_predicted_without_their_joint_distribution(monkeypatch):
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.normal(size=(1100, 3)), columns=list("abc"))
    frame["y"] = np.sin(frame.a) + 0.5 * generator.normal(size=1100)
    monkeypatch.setattr(tables_model, "_MOST_TESTED", 60)
    monkeypatch.setattr(tables_model, "learned_spreads", lambda *args, **options: [])
    made = TableModel.fit(read(frame, target="y"), kernel="rbf", num_features=32)
    assert made.scores.num_rows == 60
    assert made.model.block_size is not None
    x = torch.from_numpy(frame[["a", "b", "c"]].to_numpy()[:100])
    joint = made.model.likelihood(made.model.posterior(standardized(x, made.x_scales)))
    (center,), (scale,) = made.y_scales
    monkeypatch.setattr(type(made.model), "posterior", None)
    found = made.distribution(x)
    torch.testing.assert_close(found.mean, joint.mean * scale + center, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.stddev, joint.stddev * scale, rtol=1e-6, atol=1e-6)


def with_gaps(count, seed, share):
    generator = np.random.default_rng(seed)
    a, b = generator.normal(size=(2, count))
    frame = pandas.DataFrame({"a": a, "b": b, "kind": np.where(a > 0.0, "high", "low")})
    y = 3.0 * a + np.sin(2.0 * b) + 0.1 * generator.normal(size=count)
    frame.loc[generator.random(count) < share, ["a", "kind"]] = None
    return frame, y


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_intervals_of_rows_with_missing_cells_cover_what_may_be_in_them(share):
    """Filled in with the median, as many as a tenth were covered."""
    frame, y = with_gaps(250, 0, share)
    model = TableModel.fit(rfgp.study.tables.read(frame.assign(y=y), "y"))
    new, truth = with_gaps(400, 1, 0.5)
    with pytest.warns(UserWarning, match="are filled in"):
        found = model.predict(new)
    is_inside, is_gap = (found.y_lower < truth) & (truth < found.y_upper), new.a.isna()
    for rows in (is_gap, ~is_gap):
        assert is_inside[rows].mean() > 0.95 - 5.0 * (0.95 * 0.05 / rows.sum()) ** 0.5
    whole = model.predict(new[~is_gap])
    pandas.testing.assert_frame_equal(whole, found[~is_gap])


def test_classes_of_rows_with_missing_cells_have_means_of_their_probabilities():
    frame, y = with_gaps(150, 0, 0.0)
    model = TableModel.fit(rfgp.study.tables.read(frame.assign(y=np.where(y > 0.0, "up", "down")), "y"))
    new, truth = with_gaps(400, 1, 0.5)
    with pytest.warns(UserWarning, match="are filled in"):
        found = model.predict(new)[new.a.isna()]
    is_up = (truth > 0.0)[new.a.isna()]
    right = np.where(is_up, found["probability_up"], found["probability_down"])
    assert -np.log(right).mean() < 0.75  # as often as not is .69

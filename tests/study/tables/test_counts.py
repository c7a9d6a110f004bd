"""Counts of a table: through the command line and back, with exposures and without, beside rates of other models."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.preprocessing import StandardScaler
from torch.distributions import Poisson

import rfgp
from rfgp.__main__ import main
from rfgp.sklearn import RandomFeatureGPCountRegressor
from rfgp.sklearn.baselines import rate_baselines
from rfgp.study.datasets import Dataset
from rfgp.study.tables import Scores, TableModel, read

ROWS = 80
FIT = ("fit", "policies.csv", "--target", "claims", "--counts", "--exposure", "years", "--kernel", "rbf")


def policies():
    random = np.random.default_rng(0)
    age, years = random.uniform(18.0, 80.0, size=ROWS).round(1), random.uniform(0.2, 3.0, size=ROWS).round(2)
    region = np.where(random.uniform(size=ROWS) < 0.5, "north", "south")
    rate = np.exp(np.where(region == "south", 1.0, 0.0) + np.sin(age / 10.0))
    columns = {"age": age, "region": region, "years": years, "claims": random.poisson(years * rate)}
    return pandas.DataFrame({"id": [f"P{row}" for row in range(ROWS)], **columns})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a table."""
    policies().to_csv(tmp_path / "policies.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def table():
    return read(policies(), "claims", task="counts", exposure="years")


@pytest.fixture(scope="module")
def model(table):
    return TableModel.fit(table, kernel="rbf")


def test_the_commands_learn_and_predict_counts(small_defaults, folder, capsys):
    frame = policies().assign(age=lambda known: known["age"].where(np.arange(ROWS) % 7 > 0))
    frame.to_csv(folder / "policies.csv", index=False)
    assert main([*FIT, "--out", "model.pt"]) == 0
    printed = capsys.readouterr().out
    for text in ("counts of claims", "exposure\n", "deviance ", "D2 ", "NLPD ", "of at least 95", "no inputs"):
        assert text in printed
    assert main(["predict", "model.pt", "policies.csv", "--out", "found.csv"]) == 0
    found = pandas.read_csv(folder / "found.csv")
    assert list(found.columns) == ["id", "claims", "claims_sd", "claims_lower", "claims_upper", "unseen"]
    ends = found[["claims_lower", "claims_upper"]].to_numpy()
    assert (ends == np.floor(ends)).all() and (ends[:, 0] <= ends[:, 1]).all()
    inside = (ends[:, 0] <= frame["claims"]) & (frame["claims"] <= ends[:, 1])
    assert inside.mean() > 0.95 - 3.0 * (0.95 * 0.05 / ROWS) ** 0.5
    loaded = TableModel.load(folder / "model.pt")
    columns = ["claims", "claims_sd", "claims_lower", "claims_upper"]
    with pytest.warns(UserWarning, match="are filled in: 12 in age"):
        again = loaded.predict(frame)
    np.testing.assert_allclose(again[columns], found[columns], rtol=1e-8)


def test_predictions_of_a_file_are_those_of_the_model(model, tmp_path):
    model.save(tmp_path / "model.pt")
    loaded, new = TableModel.load(tmp_path / "model.pt"), policies()[["years", "region", "age"]]
    pandas.testing.assert_frame_equal(loaded.predict(new), model.predict(new))
    assert loaded.task == "counts" and loaded.report() == model.report()


def test_the_model_is_that_of_the_estimator_and_knows_all_rows(table, model):
    data = table.split()
    estimator = RandomFeatureGPCountRegressor("rbf", random_state=0)
    estimator.fit(data.x_train.numpy(), data.y_train.numpy(), data.exposure_train.numpy())
    new = data.x_test.numpy(), data.y_test.numpy(), data.exposure_test.numpy()
    losses = -estimator.log_density(*new)
    assert model.scores.nlpd[0] == pytest.approx(losses.mean(), rel=1e-6)
    deviance = mean_poisson_deviance(new[1], estimator.predict(new[0], new[2]))
    assert model.scores.error[0] == pytest.approx(deviance, rel=1e-6)
    rows = torch.from_numpy(estimator.x_scaler_.transform(table.x.numpy()))
    with torch.no_grad():
        estimator.model_.condition(rows, table.y, exposure=table.exposure * estimator.rate_)
    found = model.distribution(table.x, table.exposure)
    expected = estimator.predict(table.x.numpy(), table.exposure.numpy(), return_std=True)
    for own, other in zip((found.mean, found.stddev), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_counts_are_proportional_to_exposures(model):
    new = policies()
    once, twice = (model.predict(new.assign(years=times * new["years"]))["claims"] for times in (1.0, 2.0))
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-9)
    rates = model.distribution(model.encoding.encode(new)).mean
    np.testing.assert_allclose(once, rates.numpy() * new["years"], rtol=1e-9)


def test_without_exposures_a_column_of_them_is_an_input(small_defaults):
    table = read(policies(), "claims", task="counts")
    assert "years" in table.input_names and table.exposure is None
    model = TableModel.fit(table, kernel="rbf")
    assert model.predict(policies()).shape == (ROWS, 6)
    assert 0.0 < TableModel.estimated_seconds(table, time_limit=0.1) < TableModel.estimated_seconds(table)


def test_text_of_many_values_has_random_effects(small_defaults):
    names = np.array([f"shop {number}" for number in range(12)])[np.arange(ROWS) % 12]
    model = TableModel.fit(read(policies().assign(shop=names), "claims", task="counts", exposure="years"))
    assert "note: shop has a random effect for each of its 12 values" in model.report()


def test_rows_without_a_count_or_an_exposure(model):
    frame = policies().astype({"claims": float})
    frame.loc[:3, "claims"], frame.loc[[2, 9], "years"] = np.nan, np.nan
    table = read(frame, "claims", task="counts", exposure="years")
    assert len(table.x) == len(table.exposure) == ROWS - 5
    assert table.notes[:2] == ("4 rows without a target left out", "1 row without an exposure left out")
    with pytest.raises(ValueError, match="got 6 cells without one in 2 columns"):
        read(frame, "claims", task="counts", exposure="years", missing="raise")
    found = model.predict(frame)["claims"]
    assert np.flatnonzero(found.isna()).tolist() == [2, 9]
    with pytest.raises(ValueError, match="got 2 cells without one in 1 column: 'years'"):
        model.predict(frame, missing="raise")
    with pytest.raises(ValueError, match="expected an exposure in some rows"):
        read(
            frame.assign(years=np.where(frame["claims"].isna(), 1.0, np.nan)), "claims", task="counts", exposure="years"
        )


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"claims": -2}, (), "expected whole numbers of at least 0 for target 'claims' of policies.csv, got -2"),
        ({"claims": 0.5}, (), "expected whole numbers of at least 0 for target 'claims' of policies.csv, got 0.5"),
        ({"years": 0}, (), "expected positive exposures in 'years', got 0"),
        ({"years": -1.5}, (), "expected positive exposures in 'years', got -1.5 in row 4"),
        ({}, ("--exposure", "region"), "expected numbers as exposures, got 'region' (text)"),
        ({}, ("--exposure", "claims"), "expected a target that is no exposure, got 'claims' as both"),
        ({}, ("--exposure", "year"), "as the exposure, got 'year'; did you mean 'years'?"),
        ({}, ("--exposure", "years,age"), "expected one column as the exposure"),
        ({}, ("--drop", "years"), "expected an exposure that is not dropped, got 'years' as both"),
        ({}, ("--target", "claims,age"), "expected one target for counts"),
        ({}, ("--target", "region"), "expected counts in target 'region' of policies.csv, got"),
        ({}, ("--task", "regression"), "argument --task: not allowed with argument --counts"),
    ],
)
def test_what_is_refused_leaves_files_as_they_were(folder, capsys, change, options, message):
    frame = policies().astype({"claims": object, "years": object})
    for name, value in change.items():
        frame.loc[3, name] = value
    frame.to_csv("policies.csv", index=False)
    (folder / "model.pt").write_text("mine", encoding="utf-8")
    assert main([*FIT, "--out", "model.pt", "--force", *options]) == 2
    assert message in capsys.readouterr().err
    assert (folder / "model.pt").read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["model.pt", "policies.csv"]


def test_zeros_alone_and_exposures_of_other_targets_are_refused():
    zeros = read(policies().assign(claims=0), "claims", task="counts", exposure="years")
    with pytest.raises(ValueError, match="that vary over the training rows, got 0 in all of them"):
        TableModel.fit(zeros)
    with pytest.raises(ValueError, match=r'expected task="counts" \(--counts\) beside an exposure, got None'):
        read(policies(), "claims", exposure="years")
    with pytest.raises(ValueError, match="expected classes or numbers to study, got counts"):
        rfgp.study.run(read(policies(), "claims", task="counts"))


def test_new_tables_have_to_have_the_exposures(folder, model, capsys):
    model.save("model.pt")
    policies().drop(columns="years").to_csv("new.csv", index=False)
    (folder / "found.csv").write_text("mine", encoding="utf-8")
    assert main(["predict", "model.pt", "new.csv", "--out", "found.csv", "--force"]) == 2
    assert "got none for 'years'; add it" in capsys.readouterr().err
    policies().assign(years=[0.0, *[1.0] * (ROWS - 1)]).to_csv("new.csv", index=False)
    assert main(["predict", "model.pt", "new.csv", "--out", "found.csv", "--force"]) == 2
    assert "expected positive exposures in 'years', got 0.0 in row 1" in capsys.readouterr().err
    assert (folder / "found.csv").read_text(encoding="utf-8") == "mine"


def test_rates_of_other_models_are_those_of_scikit_learn(small_defaults):
    table = read(policies(), "claims", task="counts", exposure="years")
    data = table.split()
    parts = data.x_train, data.y_train, data.exposure_train, data.x_test, data.exposure_test
    found = rate_baselines(*parts)
    x, y, exposure, new, of_new = (part.numpy() for part in parts)
    np.testing.assert_allclose(found["trivial"].mean, of_new * y.sum() / exposure.sum())
    scaler = StandardScaler().fit(x)
    expected = exposure * y.sum() / exposure.sum()
    linear = PoissonRegressor(alpha=1.0 / expected.sum())
    linear.fit(scaler.transform(x), y / expected, sample_weight=expected)
    rates = linear.predict(scaler.transform(new)) * y.sum() / exposure.sum()
    np.testing.assert_allclose(found["linear"].mean, of_new * rates, rtol=1e-6)
    assert list(found) == ["linear", "boosting", "trivial"]
    model = TableModel.fit(table, kernel="rbf")
    scores = Scores.of(data, model.distribution(data.x_test, data.exposure_test))
    assert scores.trivial_error[0] == pytest.approx(mean_poisson_deviance(data.y_test, found["trivial"].mean))
    nlpd = -Poisson(found["trivial"].mean).log_prob(data.y_test).mean()
    assert scores.trivial_nlpd[0] == pytest.approx(float(nlpd))


def test_data_sets_of_counts_are_checked():
    x, y = torch.arange(8.0, dtype=torch.float64).unsqueeze(-1), torch.tensor([0.0, 1.0] * 4, dtype=torch.float64)

    def made(task="counts", y=y, **exposures):
        return Dataset("toy", x, y, x, y, task, None, "here", "none", **exposures)

    assert torch.equal(made().exposure_test, torch.ones_like(y))
    for bad in (y - 1.0, y + 0.5):
        with pytest.raises(ValueError, match="expected whole numbers of at least 0 for y_train"):
            made(y=bad)
    for bad in (y, torch.ones(3, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"expected (positive exposure|exposure_train of the shape)"):
            made(exposure_train=bad)
    with pytest.raises(ValueError, match="expected no exposure_train for regression"):
        made("regression", exposure_train=y + 1.0)
    with pytest.raises(ValueError, match=r"expected counts \(N,\) in y_train"):
        made(y=torch.stack([y, y], dim=-1))

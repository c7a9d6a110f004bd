"""What reports of tables say of other models, of noise and of columns, and transformed targets in any precision."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler
from torch.distributions import Normal

from rfgp.sklearn.baselines import baselines
from rfgp.study.datasets import Dataset
from rfgp.study.tables import TableModel
from rfgp.study.tables.scores import Scores
from rfgp.study.tables.table import _column
from rfgp.study.tables.target_transform import Logarithm, TransformedNormal


@pytest.mark.parametrize("num_targets", [1, 2])
def test_other_models_are_fitted_to_every_target_where_it_is_known(num_targets):
    generator = np.random.default_rng(0)
    x, noise = generator.normal(size=(60, 3)), 0.1 * generator.normal(size=(60, 2))
    y = np.stack([x[:, 0], x[:, 1] - x[:, 2]], axis=-1) + noise
    y[::5, 1], y[1::7, 0] = np.nan, np.nan
    y = y[:, 0] if num_targets == 1 else y
    found = baselines(*map(torch.from_numpy, (x[:40], y[:40], x[40:])), None)
    assert list(found) == ["linear", "boosting", "trivial"]
    means = found["linear"][0].mean.reshape(20, -1).numpy()
    scaler = StandardScaler().fit(x[:40])
    for column, mean in zip(y.reshape(60, -1).T, means.T, strict=True):
        known = ~np.isnan(column[:40])
        penalties = 10.0 ** np.arange(-3.0, 6.0)
        linear = RidgeCV(penalties).fit(scaler.transform(x[:40])[known], column[:40][known])
        np.testing.assert_allclose(mean, linear.predict(scaler.transform(x[40:])))
    assert all(predicted.stddev.shape == y[40:].shape for predicted, _ in found.values())


def linear_rows(num_classes):
    """A target, or two classes, of which a linear model knows most."""
    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.normal(size=(400, 3)))
    y = x[:, 0] + 0.1 * torch.from_numpy(generator.normal(size=400))
    parts = [
        part[rows] for rows in (slice(200), slice(200, None)) for part in (x, (y > 0.0).long() if num_classes else y)
    ]
    return Dataset("rows", *parts, "classification" if num_classes else "regression", num_classes, "drawn", "none")


@pytest.mark.parametrize("num_classes", [None, 2])
def test_better_models_are_named_with_a_remedy_where_chance_does_not_explain_it(num_classes):
    data = linear_rows(num_classes)
    y, of_linear = data.y_test, "a linear model and boosting predict these rows better"
    bad, by = Normal(y.double().mean().expand(len(y)), 1.0), ""
    good = Normal(data.x_test[:, 0], 0.1)
    if num_classes:
        sure = torch.nn.functional.one_hot(y, 2).double()
        bad, good, by = 0.5 + 0.02 * (sure - 0.5), 0.02 + 0.96 * sure, ", by log loss"
    scores = [Scores.of(data, predicted) for predicted in (bad, good)]
    assert scores[0].better == ("linear", "boosting") and scores[1].better == ()
    assert f"note: {of_linear}{by}; try --kernel linear" in scores[0].table(("height",))
    assert "note: " not in scores[1].table(("height",))


def test_labels_that_are_right_with_bad_probabilities_are_beaten_by_log_loss():
    """The error rate of a model without doubt is that of a linear model, and its log loss is larger."""
    data = linear_rows(2)
    wrong = torch.arange(len(data.y_test)) % 20 == 0
    codes = torch.where(wrong, 1 - data.y_test, data.y_test)
    sure = 1e-6 + (1.0 - 2e-6) * torch.nn.functional.one_hot(codes, 2).double()
    assert "linear" in Scores.of(data, sure).better


def test_noise_that_depends_on_the_inputs_is_told():
    made = SimpleNamespace(
        scores=SimpleNamespace(table=lambda names: f"scores of {', '.join(names)}"),
        encoding=SimpleNamespace(columns=[], input_names=[], levels=[]),
        model=None,
        spreads={1: None},
        target_names=("price", "rent"),
        transforms=(),
    )
    assert TableModel.report(made).split("\n") == [
        "scores of price, rent",
        "note: the noise of rent depends on the inputs",
    ]


@pytest.mark.parametrize(("count", "end"), [(20, "column 19"), (21, "column 19, ...")])
def test_twenty_columns_are_named(count, end):
    names = [f"column {i}" for i in range(count)]
    with pytest.raises(ValueError, match=rf"column 18, {end}\) or its index as a target, got"):
        _column(SimpleNamespace(name="runs.csv", repeated=set()), names, "absent", "a target")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moments_of_transformed_targets_are_those_of_log_normals_in_their_precision(dtype):
    latent = Normal(torch.tensor([0.1, -0.3], dtype=dtype), torch.tensor([0.2, 0.4], dtype=dtype))
    made = TransformedNormal(latent, [Logarithm()])
    assert made.mean.dtype == made.stddev.dtype == dtype
    mean = torch.exp(latent.mean + 0.5 * latent.variance)
    torch.testing.assert_close(made.mean, mean, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(made.stddev, mean * latent.variance.expm1().sqrt(), rtol=1e-5, atol=0.0)

"""What reports of tables say of other models, of noise and of columns, and transformed targets in any precision."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from torch.distributions import Normal

from rfgp.study.tables.model import TableModel
from rfgp.study.tables.scores import _others
from rfgp.study.tables.table import _column
from rfgp.study.tables.target_transform import TargetTransform, TransformedNormal


@pytest.mark.parametrize("num_targets", [1, 2])
def test_other_models_are_fitted_to_every_target_where_it_is_known(num_targets):
    generator = np.random.default_rng(0)
    x, noise = generator.normal(size=(60, 3)), 0.1 * generator.normal(size=(60, 2))
    y = np.stack([x[:, 0], x[:, 1] - x[:, 2]], axis=-1) + noise
    y[::5, 1], y[1::7, 0] = np.nan, np.nan
    y = y[:, 0] if num_targets == 1 else y
    tables = {"x_train": x[:40], "x_test": x[40:], "y_train": y[:40], "y_test": y[40:]}
    found = _others(
        SimpleNamespace(num_classes=None, **{name: torch.from_numpy(part) for name, part in tables.items()})
    )
    assert [other.name for other in found] == ["linear", "boosting"]
    wanted, columns = [], y.reshape(60, -1).T
    for column in columns:
        known = ~np.isnan(column)
        train, test = known & (np.arange(60) < 40), known & (np.arange(60) >= 40)
        scaler = StandardScaler().fit(x[train])
        predicted = Ridge().fit(scaler.transform(x[train]), column[train]).predict(scaler.transform(x[test]))
        wanted.append(np.sqrt(np.mean((predicted - column[test]) ** 2)))
    assert found[0].error == pytest.approx(wanted) and found[0].nlpd == ()
    assert len(found[1].error) == num_targets


def test_noise_that_depends_on_the_inputs_is_told():
    made = SimpleNamespace(
        scores=SimpleNamespace(table=lambda names: f"scores of {', '.join(names)}"),
        encoding=SimpleNamespace(columns=[], input_names=[], levels=[]),
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
    made = TransformedNormal(latent, [TargetTransform("log")])
    assert made.mean.dtype == made.stddev.dtype == dtype
    mean = torch.exp(latent.mean + 0.5 * latent.variance)
    torch.testing.assert_close(made.mean, mean, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(made.stddev, mean * latent.variance.expm1().sqrt(), rtol=1e-5, atol=0.0)

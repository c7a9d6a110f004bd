"""What reports of tables say of other models, of noise and of columns, and transformed targets in any precision."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler
from torch.distributions import Normal

from rfgp.sklearn.baselines import baselines
from rfgp.study.tables import TableModel
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

"""Fits do not depend on units, and finite columns of any size and with any tails are fitted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

from rfgp.diagnostics.sensitivity.sources import source_of
from rfgp.linalg.column_scales import in_units, standardized
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor, RandomFeatures
from rfgp.sklearn.scaling import ColumnScaler
from rfgp.training.stationary import covariance

SMALL = {"kernel": "matern32", "max_evaluations": 12, "random_state": 0}


def heavy(num_rows=300, largest=4e11):
    """A column whose logarithm tells the target, and whose largest value is far from all others."""
    z = np.random.default_rng(0).normal(size=(num_rows, 2))
    x = np.exp(0.5 * z)
    x[7, 0], x[8, 0] = largest, -largest
    return x, np.sin(2.0 * z[:, 0]) + 0.1 * z[:, 1]


@pytest.mark.parametrize("largest", [4e11, 1e300])
def test_heavy_tails_leave_the_bulk_of_a_column_its_spread(largest):
    x, y = heavy(largest=largest)
    model = RandomFeatureGPRegressor(**SMALL).fit(x[:200], y[:200])
    assert model.score(x[200:], y[200:]) > 0.9
    assert RandomFeatureGPClassifier(**SMALL).fit(x[:200], y[:200] > 0).score(x[200:], y[200:] > 0) > 0.9
    assert np.isfinite(RandomFeatures(num_features=16).fit_transform(x)).all()
    source, inputs = source_of(model), torch.from_numpy(x[200:])
    np.testing.assert_allclose(source.moments(inputs)[0].detach().numpy(), model.predict(x[200:]), rtol=1e-6)
    assert (source.bounds[1].numpy() >= x[:200].max(0) * (1.0 - 1e-9)).all()


@pytest.mark.parametrize("of_targets", [False, True])
@pytest.mark.parametrize("unit", [1e-200, 1e6, 1e300])
def test_units_change_nothing(unit, of_targets):
    x, y = heavy(60, 30.0)
    if of_targets:
        x_unit, y_unit = 1.0, unit
    else:
        x_unit, y_unit = unit, 1.0
    (mean, std), (other, spread) = (
        RandomFeatureGPRegressor(**SMALL).fit(x * a, y * b).predict(x * a, return_std=True)
        for a, b in ((1.0, 1.0), (x_unit, y_unit))
    )
    np.testing.assert_allclose(other / y_unit, mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(spread / y_unit, std, rtol=1e-3)


def test_a_scaler_is_that_of_scikit_learn_where_tails_are_light():
    x = np.random.default_rng(0).gamma(1.0, size=(500, 3)) * [1.0, 1e-5, 1e7]
    scaler = ColumnScaler(compresses=True).fit(x)
    np.testing.assert_allclose(scaler.transform(x), (x - x.mean(0)) / x.std(0), rtol=1e-12, atol=1e-12)
    x[0, 0], x[1, 2] = 1e9, -1e12
    scaler = ColumnScaler(compresses=True).fit(x)
    assert np.isfinite(scaler.limit_).tolist() == [True, False, True]
    z = scaler.transform(x)
    assert (np.abs(z).max(0) < 100.0).all() and (np.quantile(np.abs(z), 0.5, axis=0) > 0.1).all()
    np.testing.assert_allclose(scaler.inverse_transform(z), x, rtol=1e-9)
    own = standardized(torch.from_numpy(x), scaler.scales)
    np.testing.assert_allclose(own.numpy(), z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(in_units(own, scaler.scales).numpy(), x, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_constant_targets_have_a_spread_in_their_unit(unit):
    x, _ = heavy(40, 30.0)
    mean, std = RandomFeatureGPRegressor(**SMALL).fit(x, np.full(40, 3.0 * unit)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 3.0 * unit)
    np.testing.assert_allclose(std, 3.0 * unit * np.sqrt(1.001e-6), rtol=1e-3)


def test_distances_of_far_rows_keep_their_digits():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0], x[1] = 1e8, -3e8
    for nu in (0.5, 2.5):
        kernel = MaternKernel(nu).double()
        scaled = (2.0 * nu) ** 0.5 * (x.unsqueeze(-2) - x.unsqueeze(-3)).norm(dim=-1) / kernel.lengthscale
        expected = scaled.neg().exp() * (1.0 if nu < 1.0 else 1.0 + scaled + scaled.square() / 3.0)
        torch.testing.assert_close(covariance(kernel, x), expected, rtol=0.0, atol=1e-6)

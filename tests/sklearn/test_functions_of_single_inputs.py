"""Functions of single inputs beside the kernel: where a table gets them, and what they change."""

import copy
import functools
import pickle

import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean

import rfgp
import rfgp.sklearn.base
from rfgp.inference.sums.additive_mean import AdditiveMean
from rfgp.sklearn import RandomFeatureGPRegressor
from rfgp.sklearn.choice import with_additive_mean
from rfgp.sklearn.latent import latent_moments
from rfgp.sklearn.near_predictions import FittedRows, rows_of
from rfgp.training import timing
from rfgp.training.starts import random_rows

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")


def table(kind, num_rows=500, seed=0):
    """Inputs, and targets: a wave of every input with something local, or one wave across all of them."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1.7, 1.7, size=(num_rows, 4))
    local, across = 0.6 * np.sin(2.0 * x[:, 0] * x[:, 1]), 2.0 * np.sin(x.sum(1) + 0.3)
    y = np.sin(3.0 * x).sum(1) + local if kind == "waves" else across
    return x, y + 0.1 * random.normal(size=num_rows)


@functools.cache
def fitted(kind="waves"):
    return RandomFeatureGPRegressor(random_state=0, average=False, max_evaluations=5).fit(*table(kind))


def tuned_parts(x, y):
    estimator = RandomFeatureGPRegressor("matern32", random_state=0)
    return estimator._parts(x.shape[-1], y, torch.Generator(), "matern32")._replace(is_tuned=True)


def log_density(model, x, y):
    mean, std = model.predict(x, return_std=True)
    return float(np.mean(-0.5 * ((y - mean) / std) ** 2 - np.log(std)))


def test_a_sum_of_effects_and_something_local_is_predicted_better_by_functions_of_single_inputs(monkeypatch):
    model = fitted()
    monkeypatch.setattr(rfgp.sklearn.base, "with_additive_mean", lambda parts, *_: parts)
    without = fitted.__wrapped__()
    new = table("waves", 500, 1)
    assert isinstance(model.model_.mean_module, AdditiveMean)
    assert type(without.model_.mean_module) is ConstantMean
    assert log_density(model, *new) > log_density(without, *new) + 0.2


def test_a_function_of_all_inputs_together_gets_none():
    assert type(fitted("across").model_.mean_module) is ConstantMean


@pytest.mark.parametrize("kind", ["one column", "few rows", "no time", "a kernel that is given"])
def test_where_none_are_tried(kind, monkeypatch):
    monkeypatch.setattr(AdditiveMean, "_learn", lambda *_: pytest.fail("nothing is learned"))
    x, y = (torch.from_numpy(part) for part in table("waves", 400))
    x = x[:, :1] if kind == "one column" else x
    rows = 300 if kind == "few rows" else 400
    parts = tuned_parts(x, y)._replace(is_tuned=kind != "a kernel that is given")
    deadline = timing.Deadline(timing.clock()) if kind == "no time" else timing.NEVER
    assert with_additive_mean(parts, x[:rows], y[:rows], deadline) is parts


def test_rows_that_judge_have_not_taught_the_functions(monkeypatch):
    taught, held, learn = [], [], AdditiveMean._learn
    monkeypatch.setattr(AdditiveMean, "_learn", lambda self, x, y: taught.append(x) or learn(self, x, y))
    monkeypatch.setattr(rfgp.sklearn.choice, "neighbor_score", lambda *_, num_rows: held.append(num_rows) or 0.0)
    x, y = (torch.from_numpy(part) for part in table("waves", 400))
    parts = tuned_parts(x, y)
    assert with_additive_mean(parts, x, y, timing.NEVER) is parts and len(taught) == 1
    judges = {tuple(row) for row in x[random_rows(len(x), held[0])].tolist()}
    assert len(judges) == 80 and not judges & {tuple(row) for row in taught[0].tolist()}


def test_weights_of_rows_leave_them_out():
    model = RandomFeatureGPRegressor(random_state=0, max_evaluations=5).fit(*table("waves"), np.full(500, 2.0))
    assert type(model.model_.mean_module) is ConstantMean


def test_far_from_all_rows_observations_are_about_as_wide_as_all():
    x, y = table("waves")
    mean, std = fitted().predict(np.full((1, 4), 1e4), return_std=True)
    assert 0.7 * y.std() < std[0] < 2.5 * y.std() and abs(mean[0] - y.mean()) < y.std()
    assert std[0] > 3.0 * fitted().predict(x[:1], return_std=True)[1]


def test_error_bars_have_what_near_rows_leave_of_the_variance_of_the_functions():
    x, y = table("waves")
    model = copy.deepcopy(fitted())
    model.tail_degrees_, model.tail_widths_ = np.full(1, np.inf), np.ones(1)
    mean_module, scaled = model.model_.mean_module, torch.from_numpy(model.x_scaler_.transform(x[:50]))
    of_functions = mean_module.variance(scaled).numpy() * model.y_scaler_.scale_**2
    with torch.no_grad():
        prior = model.model_.covar_module.exact_kernel(scaled[:1], diag=True)
        z = torch.from_numpy(model.y_scaler_.transform(y[:, None])[:, 0])
        left_out = model.model_.leave_one_out(torch.from_numpy(model.x_scaler_.transform(x)), z).latent_variance[:50]
        shares = [(each / prior).numpy() for each in (model.model_.posterior(scaled).variance, left_out)]

    def variances():
        _, std = model.predict(x[:50], return_std=True)
        _, covariance = model.predict(x[:50], return_cov=True)
        _, left_out = model.cross_val_predict(x, y, return_std=True)
        draws = model.sample_y(x[:2], 20_000)
        return std**2, covariance.diagonal(), left_out[:50] ** 2, draws.var(1)

    having = variances()
    mean_module.prior_variance.zero_()
    mean_module.root.zero_()
    for more, less, share in zip(having[:3], variances()[:3], (shares[0], *shares), strict=True):
        assert share.max() < 1.0
        np.testing.assert_allclose(more - less, share * of_functions, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(having[3], having[1][:2], rtol=0.05)


def test_copies_files_and_new_rows_keep_the_functions(tmp_path):
    x, y = table("waves")
    model, new = fitted(), table("waves", 40, 2)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(new[0]), model.predict(new[0]))
    rfgp.save(model.model_, tmp_path / "model.zip")
    loaded, scaled = rfgp.load(tmp_path / "model.zip"), torch.from_numpy(model.x_scaler_.transform(new[0]))
    with torch.no_grad():
        torch.testing.assert_close(loaded.posterior(scaled).mean, model.model_.posterior(scaled).mean)
    updated = copy.deepcopy(model).partial_fit(*new)
    z = torch.from_numpy(model.y_scaler_.transform(np.r_[y, new[1]][:, None])[:, 0])
    rows = torch.from_numpy(model.x_scaler_.transform(np.r_[x, new[0]]))
    with torch.no_grad():
        expected = copy.deepcopy(model.model_).condition(rows, z).posterior(scaled).mean
        torch.testing.assert_close(updated.model_.posterior(scaled).mean, expected)
    assert np.abs(updated.predict(new[0]) - new[1]).mean() < np.abs(model.predict(new[0]) - new[1]).mean()


def test_near_rows_predict_what_the_functions_leave_over():
    x, y = (torch.from_numpy(part) for part in table("waves"))
    model, scaled = fitted().model_, torch.from_numpy(fitted().x_scaler_.transform(x.numpy()))
    z, new = torch.from_numpy(fitted().y_scaler_.transform(y.numpy()[:, None])[:, 0]), scaled[:5] + 0.05
    mean, variance = latent_moments(model, new, rows=rows_of(model, FittedRows(scaled, z)))
    exact, noise = model.covar_module.exact_kernel, model.likelihood.noise.detach() * torch.eye(len(z))
    with torch.no_grad():
        cross, matrix = exact(new, scaled).to_dense(), exact(scaled).to_dense() + noise
        expected = model.mean_module(new) + cross @ torch.linalg.solve(matrix, z - model.mean_module(scaled))
        left = exact(new, diag=True) - (cross * torch.linalg.solve(matrix, cross.mT).mT).sum(-1)
    torch.testing.assert_close(mean.squeeze(-1), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(variance.squeeze(-1), left, rtol=0, atol=1e-4)

"""What estimators choose by themselves: kernels of few rows, evaluations, shares of the time, and no advice."""

import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean

import rfgp.sklearn.base
import rfgp.sklearn.model_size
from rfgp.sklearn import RandomFeatureGPRegressor, choice
from rfgp.sklearn.choice import KERNELS, chosen_parts
from rfgp.sklearn.comparison import BaselineComparison
from rfgp.sklearn.scaling import ColumnScaler
from rfgp.sklearn.student import StudentModels
from rfgp.training import timing

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.column_stack([X[:, 0], np.sin(X[:, 1])])


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", ["few rows", "missing targets", "no time"])
def test_kernels_are_not_compared_without_rows_or_time(kind):
    y = torch.from_numpy(Y[:, 0].copy())
    if kind == "missing targets":
        y[3] = torch.nan
    x, y = (part.repeat_interleave(100, 0)[: 10 if kind == "few rows" else None] for part in (torch.from_numpy(X), y))
    deadline = timing.Deadline(timing.clock()) if kind == "no time" else timing.NEVER
    assert chosen_parts(lambda name: name, "auto", x, y, deadline) == KERNELS[0]


def test_a_kernel_is_chosen_by_some_of_many_rows_and_trained_by_all(monkeypatch):
    sizes = []

    def chosen(make, kernel, x, y, deadline):
        sizes.append(len(x))
        return make(KERNELS[0])._replace(is_tuned=True)

    def counted(parts, x, y, *_):
        sizes.append(len(y))
        return parts if len(_) else 64

    monkeypatch.setattr(rfgp.sklearn.base, "_MOST_CHOICE_ROWS", 900)
    for name, function in (("chosen_parts", chosen), ("with_additive_mean", counted), ("chosen_neighbors", counted)):
        monkeypatch.setattr(rfgp.sklearn.base, name, function)
    x = np.random.default_rng(0).normal(size=(1600, 2))
    model = RandomFeatureGPRegressor(random_state=0, max_evaluations=2).fit(x, np.sin(x[:, 0]))
    assert sizes == [900, 900, 900] and model.model_.statistics.num_rows == 1600


@pytest.mark.parametrize(("is_missing", "most"), [(False, 77), (True, 50)])
def test_few_cells_take_fewer_evaluations(is_missing, most, monkeypatch):
    def stop(*_, max_evaluations, **__):
        raise Stop(max_evaluations)

    monkeypatch.setattr(rfgp.sklearn.base, "fit", stop)
    y = Y.copy()
    y[::7, 1] = np.nan if is_missing else 0.0
    with pytest.raises(Stop, match=f"^{most}$"):
        RandomFeatureGPRegressor("matern32", num_features=16, max_evaluations=77, random_state=0).fit(X, y)


def test_a_normal_model_has_half_of_the_time_of_a_target_with_student_noise(monkeypatch):
    monkeypatch.setattr(timing, "clock", lambda: 100.0)
    shares = []

    def trained(self, parts, x, y, weights, num_rows, deadline, *_):
        shares.append(deadline.left)
        raise Stop

    monkeypatch.setattr(RandomFeatureGPRegressor, "_trained", trained)
    estimator = RandomFeatureGPRegressor("matern32", noise="student", random_state=0)
    estimator.x_scaler_ = ColumnScaler().fit(X)
    rows = torch.from_numpy(X), torch.from_numpy(Y), torch.Generator()
    with pytest.raises(Stop):
        estimator._student_models(*rows, timing.Deadline(112.0))
    assert shares[-1] == pytest.approx(0.5 * 12.0 / 2)


def test_weights_beside_student_noise_are_refused_in_updates():
    with pytest.raises(ValueError, match="expected no sample_weight beside noise="):
        StudentModels([]).update(torch.from_numpy(X), torch.from_numpy(Y), torch.ones(60))


def test_no_better_model_is_no_advice():
    comparison = BaselineComparison(None, {"linear": None})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for losses in ({}, {"linear": np.array([1.0, 1.2])}, {"linear": np.array([0.995, 0.999])}):
            comparison.by_row = {"model": np.array([1.0, 1.0])} | losses
            assert comparison.better is None
            comparison.warn()
    comparison.by_row = {"model": np.array([1.0, 1.0]), "linear": np.array([0.5, 0.6])}
    with pytest.warns(UserWarning, match="predicted better by linear"):
        comparison.warn()


@pytest.mark.parametrize(("seed", "function"), [(1, lambda x: x @ [1.0, 2.0, 3.0]), (3, lambda x: (x**2).sum(1))])
def test_a_function_without_noise_is_predicted_almost_exactly(seed, function):
    """With a variance of 1e6 times the target's, blocks have no Cholesky factor: a fit began elsewhere, or failed."""
    x = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(2500, 3))
    y = function(x)
    model = RandomFeatureGPRegressor(random_state=0, average=False).fit(x[:1800], y[:1800])
    assert np.abs(model.predict(x[2000:]) - y[2000:]).max() < 0.01


def test_exact_models_learn_from_subsets_of_rows_also_above_the_bound(monkeypatch):
    """Between the rows that are all landmarks by default and the largest number of landmarks: it took a minute."""
    monkeypatch.setattr(rfgp.sklearn.base, "NUM_EXACT_ROWS", 30)
    monkeypatch.setattr(rfgp.sklearn.model_size, "NUM_EXACT_ROWS", 30)
    model = RandomFeatureGPRegressor("rbf", random_state=0, max_evaluations=5, average=False).fit(X, Y[:, 0])
    assert model.model_.block_size is None and model.model_.covar_module.num_scalar_features == len(X)
    assert "subset" in str(model.fit_summary_)


def test_maps_are_not_compared_where_they_would_take_more_than_half_of_the_time(monkeypatch):
    """They take as long as the kernels before, which have taken three of five seconds here."""
    now, compared = [0.0], []

    def best(options, x, y, deadline, is_tuned=False):
        now[0] += 3.0
        compared.append(is_tuned)
        return next(iter(options)), dict.fromkeys(options, 0.0)

    monkeypatch.setattr(timing, "clock", lambda: now[0])
    monkeypatch.setattr(choice, "_best", best)
    monkeypatch.setattr(choice, "_with_map", lambda parts, x: parts)
    x, y = torch.from_numpy(X), torch.from_numpy(Y[:, 0])
    parts = choice.Parts(RBFKernel(), GaussianLikelihood(), ZeroMean(), 0)
    for limit, wanted in ((5.0, [False]), (20.0, [False, True])):
        now[0], compared[:] = 0.0, []
        assert chosen_parts(lambda name: parts, "auto", x, y, timing.Deadline.after(limit)).is_tuned
        assert compared == wanted

"""Stages of a training: their limits and starts, and what they say."""

import warnings
from types import SimpleNamespace

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, PoissonLikelihood

import rfgp
from rfgp.models import WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.training import grid
from rfgp.training.ascent import Maximizer, NoValueError
from rfgp.training.coordinates import Coordinates
from rfgp.training.missing_cells import covariance_of_pairs
from rfgp.training.moments import data_moments
from rfgp.training.run import parts_of

pytestmark = pytest.mark.usefixtures("float64_default")

X = torch.linspace(-1.0, 1.0, 40, dtype=torch.float64).unsqueeze(-1)
Y = torch.sin(4.0 * X[:, 0])


def model():
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 12, input_dim=1, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.ConstantMean())


@pytest.mark.parametrize(("used", "wanted"), [(0, [8]), (4, [6]), (10, [])])
def test_few_rows_take_the_evaluations_that_are_left(used, wanted, monkeypatch):
    limits = []
    monkeypatch.setattr(grid, "exact_regression", lambda objective: SimpleNamespace(x=X))
    monkeypatch.setattr(grid, "BlockObjective", lambda *_: None)
    training = SimpleNamespace(
        objective=SimpleNamespace(moments=None, regrid=lambda: None),
        limit=10,
        used=used,
        deadline=None,
        ascend=lambda name, rows, objective, limit, *_, **__: limits.append(limit),
    )
    assert grid.learn_from_few(training, 5, 8) and limits == wanted


@pytest.mark.parametrize("failing", [0, 1])
def test_a_start_without_a_value_leaves_the_others(failing, monkeypatch):
    """The first of four trials has none; the fit follows after them."""
    run, calls = Maximizer.run, []

    def counted(self, *starts):
        calls.append(starts)
        if len(calls) == failing:
            raise NoValueError
        return run(self, *starts)

    monkeypatch.setattr(Maximizer, "run", counted)
    summary = rfgp.fit(model(), X, Y, strategy="evidence", max_evaluations=40, progress=False)
    assert summary.log_marginal_likelihood > 0.0
    assert len(calls) == 5


def test_weights_alone_have_a_bound_in_nats_per_row():
    kernel = rfgp.approximate(RBFKernel(), 8, input_dim=1, seed=0)
    variational = WeightSpaceVariationalGP(kernel, PoissonLikelihood()).requires_grad_(False)
    variational.variational_strategy.requires_grad_(True)
    summary = rfgp.fit(variational, X, torch.arange(40.0) % 3, progress=False)
    (stage,) = summary.stages
    assert stage.name == "weights"
    assert stage.value == pytest.approx(summary.log_marginal_likelihood / 40)


def test_bounds_at_zero_are_no_ends():
    made = model()
    coordinates = Coordinates(parts_of(made), data_moments(X, Y.unsqueeze(-1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert coordinates.at_bounds(coordinates.values()) == []
    made.likelihood.noise = 1e-4  # the lower bound of GPyTorch
    coordinates = Coordinates(parts_of(made), data_moments(X, Y.unsqueeze(-1)))
    ((_, side, value),) = coordinates.at_bounds(coordinates.values())
    assert side == "lower" and value == pytest.approx(1e-4)


def test_covariances_of_pairs_are_means_over_the_rows_that_have_both():
    nan = torch.nan
    residual = torch.tensor([[1.0, nan, 3.0], [nan, 2.0, nan], [4.0, nan, nan], [5.0, 6.0, nan]])
    wanted = [[42.0 / 3.0, 30.0, 3.0], [30.0, 20.0, 0.0], [3.0, 0.0, 9.0]]
    torch.testing.assert_close(covariance_of_pairs(residual), torch.tensor(wanted))

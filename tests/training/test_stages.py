"""Stages of a training: their limits and starts, and what they say."""

import warnings

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, PoissonLikelihood

import rfgp
from rfgp.models import WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.training import Stage, Strategy
from rfgp.training.ascent import Maximizer, NoValueError
from rfgp.training.coordinates import Coordinates
from rfgp.training.moments import data_moments
from rfgp.training.parts import parts_of

pytestmark = pytest.mark.usefixtures("float64_default")

X = torch.linspace(-1.0, 1.0, 40, dtype=torch.float64).unsqueeze(-1)
Y = torch.sin(4.0 * X[:, 0])


def model():
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 12, input_dim=1, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.ConstantMean())


@pytest.mark.parametrize(("limit", "wanted"), [(4, [4]), (20, [8, 8, 4]), (40, [8, 8, 8])])
def test_stages_take_the_evaluations_that_are_left(limit, wanted):
    class Thrice(Strategy):
        def stages(self, training):
            return [Stage(training.objective, name, evaluations=8) for name in "abc"]

    summary = rfgp.fit(model(), X, Y + 0.3 * X[:, 0].round(decimals=1), strategy=Thrice(), max_evaluations=limit)
    assert [stage.evaluations for stage in summary.stages] == wanted


@pytest.mark.parametrize("limit", [6, 70])
def test_the_limit_of_evaluations_holds_on_a_grid(limit):
    kernel = rfgp.approximate(RBFKernel(), 21, method="fourier_grid", train_inputs=X)
    on_grid = WeightSpaceGP(kernel, GaussianLikelihood())
    assert rfgp.fit(on_grid, X, Y, max_evaluations=limit, progress=False).evaluations <= limit


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

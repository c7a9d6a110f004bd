"""Targets without spread have units too: noises are bounded from below, and scales start at what is to be explained."""

import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean, MultitaskMean, ZeroMean
from problems import ExactModel

import rfgp
from rfgp.models import LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.models.target_moments import target_moments
from rfgp.sklearn import RandomFeatureGPRegressor

X = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
NEARLY = 1.0 + 1e-6 * torch.sin(30 * X[:, 0])


def scaled(seed=0):
    return rfgp.approximate(ScaleKernel(RBFKernel()).double(), 8, input_dim=1, seed=seed)


def gaussian(mean=ZeroMean, constraint=None):
    return WeightSpaceGP(scaled(), GaussianLikelihood(noise_constraint=constraint).double(), mean().double())


def exact():
    return ExactModel(X, X[:, 0], GaussianLikelihood(), ScaleKernel(RBFKernel()), ZeroMean()).double()


def fixed():
    likelihood = FixedNoiseGaussianLikelihood(torch.full((20,), 1e-6).double(), learn_additional_noise=True)
    return WeightSpaceGP(scaled(), likelihood.double(), ZeroMean())


MODELS = {
    "gaussian": gaussian,
    "exact": exact,
    "fixed noise": fixed,
    "Student's t": lambda: LaplaceGP(scaled(), StudentTLikelihood().double(), ZeroMean()),
    "variational": lambda: WeightSpaceVariationalGP(scaled(), GaussianLikelihood().double(), ZeroMean()),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_constant_is_predicted_without_a_mean_function(kind):
    """The evidence is at least that of noise of the least default variance, 1e-4, and a constant function."""
    model = MODELS[kind]()
    noise = {"noise": torch.full((20,), 1e-6).double()} if kind == "fixed noise" else {}
    summary = rfgp.fit(model, X, NEARLY, max_evaluations=11, progress=False, **noise)
    known = torch.distributions.MultivariateNormal(0 * NEARLY, 1.0 + 1.02e-4 * torch.eye(20).double())
    assert summary.log_marginal_likelihood > float(known.log_prob(NEARLY)) - 1.0
    predicted = (model(X) if kind in ("exact", "variational") else model.posterior(X)).mean
    assert (predicted - 1.0).abs().max() < 0.01


def test_a_constant_task_among_others():
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2).double(), 8, input_dim=1, seed=0)
    model = WeightSpaceGP(
        kernel, MultitaskGaussianLikelihood(num_tasks=2).double(), MultitaskMean(ZeroMean(), num_tasks=2)
    )
    with pytest.warns(UserWarning, match="lower bound"):
        rfgp.fit(model, X, torch.stack([torch.ones(20), torch.sin(6 * X[:, 0])], -1).double(), max_evaluations=30)
    assert (model.posterior(X).mean[:, 0] - 1.0).abs().max() < 0.05


@pytest.mark.parametrize(("y", "mean"), [(NEARLY.round(), ConstantMean), (0.0 * NEARLY, ZeroMean)])
def test_noise_ends_where_regression_can_be_computed(y, mean):
    """No bound of the constraint keeps it: the units of the targets do."""
    model = gaussian(mean, Positive())
    summary = rfgp.fit(model, X, y, max_evaluations=100, progress=False)
    least = float(target_moments(y.unsqueeze(-1), model.mean_module, X).least_noise)
    assert model.likelihood.noise.item() == pytest.approx(least, rel=1e-2)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    assert float((model.posterior(X).mean - y).abs().max()) < 1e-6


def test_constant_means_start_with_all_digits():
    model = gaussian(ConstantMean)
    y = 1e8 + 0.1 + 1e-3 * X[:, 0]
    rfgp.fit(model, X, y, max_evaluations=1, progress=False)
    assert float(model.mean_module.constant) == pytest.approx(1e8 + 0.1, abs=1e-6)


def test_the_regressor_predicts_a_constant():
    mean, std = RandomFeatureGPRegressor(num_features=8, random_state=0).fit(X, 3.0 + 0 * X[:, 0]).predict(X, True)
    assert abs(mean - 3.0).max() < 1e-6 and 0.0 < std.max() < 0.1

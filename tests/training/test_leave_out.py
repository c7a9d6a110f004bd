"""Leave-out densities as the objective of training: values, gradients, and what they are for."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from problems import ExactModel, model_for, regression_rows, rows_for

import rfgp
from rfgp.models import WeightSpaceGP
from rfgp.training import LeaveOut
from rfgp.training.leave_out import ExactLeaveOneOutObjective, LeaveOutObjective

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]


def landmarks(x):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 6, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, GaussianLikelihood())


@pytest.mark.parametrize("kind", ["gaussian", "fixed+learned", "landmarks"])
@pytest.mark.parametrize("groups", [None, 4])
def test_values_are_those_of_leaving_out_and_gradients_those_of_differences(kind, groups):
    x, y, noise = rows_for("gaussian" if kind == "landmarks" else kind, 40)
    model = landmarks(x) if kind == "landmarks" else model_for(kind, "real")
    objective = LeaveOutObjective(model, x, y, noise, groups)
    value = objective.evidence()
    value.backward()
    found = model.condition(x, y, noise)
    found = found.leave_one_out(x, y, noise) if groups is None else found.leave_group_out(x, y, groups, noise)
    torch.testing.assert_close(value.detach(), (found.log_prob if groups is None else found.group_log_prob).sum())
    for name, parameter in model.named_parameters():
        if parameter.grad is None or "offset" in name:
            continue
        sides = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter += step
                sides.append(float(objective.evidence()))
                parameter -= step
        slope = (sides[0] - sides[1]) / 2e-5
        assert float(parameter.grad.sum()) == pytest.approx(slope, rel=1e-6, abs=1e-6), name


def test_groups_whose_covariances_do_not_fit_in_memory_are_refused():
    x, y = torch.rand(200_000, 3), torch.rand(200_000)
    with pytest.raises(ValueError, match="covariances of 2 groups of up to 100,000 rows to fit"):
        LeaveOutObjective(model_for("gaussian", "real"), x, y, None, 2)


def test_an_exact_model_has_the_same_values():
    x, y = regression_rows(40)
    model = ExactModel(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()))
    objective = ExactLeaveOneOutObjective(model, None, None)
    covariance = model.likelihood(model(x)).covariance_matrix
    inverse = torch.linalg.inv(covariance)
    weights = inverse @ (y - model.mean_module(x))
    variance = 1.0 / inverse.diagonal()
    expected = torch.distributions.Normal(y - weights * variance, variance.sqrt()).log_prob(y).sum()
    torch.testing.assert_close(objective.evidence(), expected)
    assert "leave" not in rfgp.fit(model, strategy="leave_one_out", max_evaluations=3, progress=False).message


@pytest.mark.parametrize("groups", [None, 5])
def test_training_increases_the_density_of_what_is_left_out(groups):
    x, y = regression_rows(60)
    model = model_for("gaussian", "real")
    summary = rfgp.fit(model, x, y, strategy=LeaveOut(groups), max_evaluations=30, progress=False)
    found = model.leave_one_out(x, y) if groups is None else model.leave_group_out(x, y, groups)
    density = float((found.log_prob if groups is None else found.group_log_prob).sum())
    assert density == pytest.approx(summary.log_marginal_likelihood, rel=1e-9)
    assert density > summary.initial_log_marginal_likelihood
    assert str(summary).startswith("log density of what is left out")


def test_what_has_no_such_objective_is_refused():
    x, y = regression_rows(40)
    model = model_for("gaussian", "real")
    exact = ExactModel(x, y, GaussianLikelihood(), RBFKernel())
    with pytest.raises(ValueError, match="one output"):
        rfgp.fit(model_for("dirichlet"), x, rows_for("dirichlet", 40)[1], strategy="leave_one_out")
    with pytest.raises(ValueError, match="single rows"):
        rfgp.fit(exact, strategy=LeaveOut(4))
    with pytest.raises(ValueError, match="strategy"):
        rfgp.fit(model, x, y, strategy="leave_two_out")

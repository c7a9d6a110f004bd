"""Posteriors of blocks and neighbors do not depend on how many points and rows are taken at a time."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.inference.latent import class_prediction
from rfgp.inference.local import prediction, regression
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

SETTINGS = {"blocks": {"block_size": 20, "num_neighbors": None}, "neighbors": {"block_size": 20, "num_neighbors": 8}}


def fitted(setting, outputs=1):
    x = 4.0 * torch.rand(60, 2, generator=torch.Generator().manual_seed(1))
    y = torch.sin(3.0 * x[:, 0]) * x[:, 1]
    kernel = MaternKernel(nu=1.5, ard_num_dims=2)
    exact = MultitaskKernel(kernel, num_tasks=2, rank=1) if outputs > 1 else ScaleKernel(kernel)
    features = rfgp.approximate(exact, 10, method="landmarks", train_inputs=x, seed=0)
    likelihood = MultitaskGaussianLikelihood(2) if outputs > 1 else GaussianLikelihood()
    targets = torch.stack([y, 1.0 - y.square()], dim=-1) if outputs > 1 else y
    model = WeightSpaceGP(
        features, likelihood, None if outputs > 1 else gpytorch.means.ConstantMean(), **SETTINGS[setting]
    )
    return model.condition(x, targets)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_posteriors_are_the_same_in_small_chunks(setting, outputs, monkeypatch):
    model = fitted(setting, outputs)
    points = 4.0 * torch.rand(13, 2, generator=torch.Generator().manual_seed(2))

    def moments():
        posterior = model.posterior(points)
        return posterior.mean, posterior.variance, posterior.covariance_matrix

    wanted = moments()
    monkeypatch.setattr(regression, "_BYTES", 400)
    monkeypatch.setattr(class_prediction, "_BYTES", 400)
    for name in ("_BYTES", "_ENTRIES"):
        monkeypatch.setattr(prediction, name, 400)
    for found, value in zip(moments(), wanted, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-9)


def test_states_have_memory_of_their_own():
    local = fitted("neighbors").conditioned.sums.local
    state = local.state_dict()
    kept = {name: value.clone() for name, value in state.items()}
    for part in local.tensors:
        part.add_(1.0)
    assert all(torch.equal(state[name], value) for name, value in kept.items())


@pytest.mark.parametrize("outputs", [1, 2, "classes"])
def test_prior_variances_at_points_are_those_of_the_kernel(outputs):
    if outputs == "classes":
        x = 4.0 * torch.rand(60, 2, generator=torch.Generator().manual_seed(1))
        kernel = rfgp.approximate(ScaleKernel(MaternKernel(nu=1.5)), 10, method="landmarks", train_inputs=x, seed=0)
        labels = torch.arange(60) % 3
        model = WeightSpaceGP(kernel, DirichletClassificationLikelihood(labels), None, **SETTINGS["neighbors"])
        model.condition(x, labels)
    else:
        model = fitted("neighbors", outputs)
    points = 4.0 * torch.rand(5, 2, generator=torch.Generator().manual_seed(2))
    found = model.predictor.points(model, torch.float64).prior_variance(points)
    wanted = model.covar_module.exact_kernel(points, diag=True).reshape(5, -1)
    torch.testing.assert_close(found, wanted.detach().expand(-1, 3) if outputs == "classes" else wanted.detach())

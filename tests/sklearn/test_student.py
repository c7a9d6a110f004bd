"""Models of outputs whose noise is Student's t: where Newton's method fails, and rows that are added."""

from __future__ import annotations

import math

import gpytorch
import numpy as np
import pytest
import scipy
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, StudentTLikelihood

import rfgp
from rfgp.inference.latent import newton
from rfgp.models import LaplaceGP
from rfgp.sklearn.student import StudentModels, noise_variance, student_model
from rfgp.training.timing import Deadline


def spiky(num_rows):
    x = torch.linspace(0.0, 6.0, num_rows, dtype=torch.float64).unsqueeze(-1)
    y = x[:, 0].sin()
    y[::9] += 30.0
    return x, (y - y.mean()) / y.std()


def kernel(x, num_features):
    exact = ScaleKernel(MaternKernel(nu=1.5)).double()
    exact.base_kernel.lengthscale = 0.3
    return rfgp.approximate(exact, num_features, method="landmarks", train_inputs=x, seed=0)


@pytest.mark.filterwarnings("ignore:.*evaluations:UserWarning")
def test_noise_rises_where_newtons_method_does_not_converge(monkeypatch):
    monkeypatch.setattr(newton, "MAX_ITERATIONS", 8)
    x, y = spiky(60)
    likelihood = GaussianLikelihood().double()
    likelihood.noise = 1e-3
    normal = rfgp.WeightSpaceGP(kernel(x, 60), likelihood, gpytorch.means.ConstantMean().double()).condition(x, y)
    model = student_model(normal, x, y, Deadline(math.inf), 1)
    assert model.likelihood.noise > 0.05


@pytest.mark.parametrize("block_size", [None, 16])
def test_rows_that_are_added_count_as_if_they_had_been_there(block_size):
    x, y = spiky(60)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]

    def models():
        features = kernel(x[:50], 12)
        own = LaplaceGP(features, StudentTLikelihood().double(), gpytorch.means.ZeroMean(), block_size=block_size)
        return StudentModels([own])

    added, whole = models().condition(x[:50], y[:50]).update(x[50:], y[50:]), models().condition(x, y)
    assert [len(rows[0]) for rows in added.rows] == [60]
    tolerance = 1e-6 if block_size is None else 0.03  # blocks are parted otherwise
    torch.testing.assert_close(added.posterior(x).mean, whole.posterior(x).mean, rtol=0.0, atol=tolerance)


def test_covariances_of_several_outputs_are_those_of_their_models():
    x, y = spiky(40)
    own = [LaplaceGP(kernel(x, count), StudentTLikelihood().double(), gpytorch.means.ZeroMean()) for count in (3, 12)]
    models = StudentModels(own).condition(x, torch.stack([y, -y], dim=-1))
    points = torch.linspace(0.0, 20.0, 7, dtype=torch.float64).unsqueeze(-1)
    observed = models.likelihood(models.posterior(points))
    joint = observed.covariance_matrix.reshape(7, 2, 7, 2)
    for place, model in enumerate(own):
        alone = model.posterior(points)
        expected = alone.covariance_matrix + noise_variance(model) * torch.eye(7)
        torch.testing.assert_close(joint[:, place, :, place], expected)
        torch.testing.assert_close(observed.variance[:, place], expected.diagonal())
        torch.testing.assert_close(observed.mean[:, place], alone.mean)
    assert not joint[:, 0, :, 1].any()


@pytest.mark.parametrize("block_size", [None, 16])
def test_an_update_changes_only_the_models_of_its_targets_and_none_where_it_fails(block_size, monkeypatch):
    x, y = spiky(60)
    own = [
        LaplaceGP(kernel(x, 12), StudentTLikelihood().double(), gpytorch.means.ZeroMean(), block_size=block_size)
        for _ in range(2)
    ]
    models = StudentModels(own).condition(x[:50], torch.stack([y, -y], dim=-1)[:50])
    noise = [model.likelihood.noise.item() for model in models.models]
    unknown = torch.stack([y, torch.full_like(y, math.nan)], dim=-1)[50:]
    before = models.posterior(x).mean
    after = models.update(x[50:], unknown).posterior(x).mean
    torch.testing.assert_close(after[:, 1], before[:, 1], rtol=0.0, atol=0.0)
    assert not torch.equal(after[:, 0], before[:, 0])
    assert [model.likelihood.noise.item() for model in models.models] == noise
    assert [len(rows[0]) for rows in models.rows] == [60, 50]
    monkeypatch.setattr(newton, "MAX_ITERATIONS", 1)
    with pytest.raises(ValueError, match="Newton"):
        models.update(x[:5], 9.0 + unknown[:5])
    monkeypatch.undo()
    torch.testing.assert_close(models.posterior(x).mean, after, rtol=0.0, atol=0.0)
    assert [len(rows[0]) for rows in models.rows] == [60, 50]


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_draws_have_the_tails_of_their_noise(num_outputs):
    x, y = spiky(40)
    models = StudentModels(
        [LaplaceGP(kernel(x, 12), StudentTLikelihood().double(), gpytorch.means.ZeroMean()) for _ in range(num_outputs)]
    )
    for model in models.models:
        model.likelihood.deg_free, model.likelihood.noise = 3.0, 4.0
    models.condition(x, torch.stack([y] * num_outputs, dim=-1).squeeze(-1))
    draws = models.draws(x[:2], 20_000, np.random.RandomState(0))
    assert draws.shape == (2, num_outputs, 20_000)
    latent = models.models[0].posterior(x[:2])
    share = np.mean(np.abs(draws[0, 0] - float(latent.mean[0])) > 20.0)
    expected = 2.0 * scipy.stats.t.sf(20.0 / 2.0, 3.0)  # a normal of this variance has none
    assert float(latent.variance[0]) < 1.0 and abs(share - expected) < 5.0 * np.sqrt(expected / 20_000)

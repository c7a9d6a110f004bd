"""Parameters of a LaplaceGP from few rows: what is maximized, what is chosen, and that all rows are taken once."""

import dense_laplace as dense
import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood
from gpytorch.means import ConstantMean

import rfgp
from rfgp.likelihoods import PoissonLikelihood
from rfgp.models import LaplaceGP
from rfgp.training import CompositeLikelihood, few_rows
from rfgp.training.coordinates import Coordinates
from rfgp.training.laplace import LaplaceObjective
from rfgp.training.latent_rows import LatentRows, latent_rows
from rfgp.training.moments import data_moments
from rfgp.training.parts import parts_of

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS = 360


def data(rows=ROWS):
    generator = torch.Generator().manual_seed(0)
    x = 2.0 * torch.rand(rows, 3, generator=generator)
    p = 0.1 + 0.8 * (torch.sin(3.0 * x[:, 0]) + x[:, 1] > 1.0)
    return x, (torch.rand(rows, generator=generator) < p).double()


def model_of(x, likelihood=None, **settings):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel(ard_num_dims=3)), 12, method="landmarks", train_inputs=x, seed=0)
    return LaplaceGP(kernel, likelihood or BernoulliLikelihood(), ConstantMean(), **{"block_size": 40, **settings})


@pytest.fixture
def few(monkeypatch):
    """Few enough rows for a test."""
    for name, value in {"_FEW": 50, "_MORE": 100, "_HELD_OUT": 100}.items():
        monkeypatch.setattr(few_rows, name, value)
    monkeypatch.setattr(LatentRows, "trial_size", 30)


def test_evidence_and_loss_are_those_of_the_exact_kernel():
    x, y = data(60)
    model = model_of(x)
    chosen, others = torch.arange(40), torch.arange(40, 60)
    observations = latent_rows(LaplaceObjective(model, x, y))
    subset = CompositeLikelihood(observations, chosen.unsqueeze(0))
    with torch.no_grad():
        matrix = model.covar_module.exact_kernel(x).to_dense().numpy()
    zeros = np.zeros(60)
    expected = dense.laplace(
        lambda f: dense.probit(f, y[chosen].numpy()),
        matrix[:40, :40],
        zeros[:40],
        matrix[40:, :40],
        matrix[40:, 40:],
        zeros[40:],
    )
    np.testing.assert_allclose(subset.evidence().item(), expected.evidence, rtol=1e-10)
    scale = np.sqrt(1.0 + np.diag(expected.covariance))
    density = dense.probit(expected.mean / scale, y[others].numpy()).log_density
    held_out = CompositeLikelihood(observations, torch.arange(60).unsqueeze(0), targets=20)
    with torch.no_grad():
        np.testing.assert_allclose(held_out.evidence().item(), density.sum(), rtol=1e-6)


def test_tied_lengthscales_keep_their_ratios():
    x, y = data(20)
    model = model_of(x)
    lengths = torch.tensor([[0.5, 1.0, 4.0]])
    model.covar_module.base_kernel.lengthscale = lengths
    coordinates = Coordinates(parts_of(model), data_moments(x, y.unsqueeze(-1)), is_tied=True)
    values = coordinates.values()
    assert len(values) == 3  # scale, lengthscales and mean
    index = next(k for k, member in enumerate(coordinates.members) if member.name.endswith("lengthscale"))
    values[index] += np.log(2.0)
    coordinates.assign(values)
    torch.testing.assert_close(model.covar_module.base_kernel.lengthscale.detach(), 2.0 * lengths)


@pytest.mark.parametrize("strategy", ["auto", "subset"])
def test_all_rows_are_taken_once_and_the_parameters_predict(few, monkeypatch, strategy):
    x, y = data()
    model, find_mode, calls = model_of(x), LaplaceGP.find_mode, []

    def counted(self, rows, *start):
        calls.append((len(rows.x), torch.is_grad_enabled()))
        return find_mode(self, rows, *start)

    monkeypatch.setattr(LaplaceGP, "find_mode", counted)
    summary = rfgp.fit(model, x, y, strategy=strategy, progress=False)
    assert calls == [(ROWS, False)]
    assert "subset" in summary.message and np.isfinite(summary.log_marginal_likelihood)
    test_x, test_y = data(1000)
    p = model.likelihood(model.posterior(test_x)).probs.detach()
    loss = -(test_y * p.log() + (1.0 - test_y) * (1.0 - p).log()).mean()
    rate = test_y.mean()
    frequencies = -(rate * rate.log() + (1.0 - rate) * (1.0 - rate).log())
    assert loss < 0.8 * frequencies


def test_parameters_that_predict_worse_are_not_kept(few, monkeypatch):
    x, y = data()
    losses = iter([0.3, 0.4])
    monkeypatch.setattr(CompositeLikelihood, "score_or_worst", lambda likelihood: -next(losses))
    model = model_of(x)
    model.covar_module.base_kernel.lengthscale = 1.0
    rfgp.fit(model, x, y, strategy=rfgp.training.Subset(initialize=False), progress=False)
    lengths = model.covar_module.base_kernel.lengthscale.detach().flatten()
    torch.testing.assert_close(lengths, lengths.mean().expand(3))


@pytest.mark.filterwarnings("ignore:likelihood.deg_free")
def test_noise_of_students_t_is_learned_and_classes_take_few_rows(few):
    x, _ = data()
    torch.manual_seed(1)
    y = torch.sin(3.0 * x[:, 0]) + 0.1 * torch.randn(ROWS) + 3.0 * (torch.rand(ROWS) < 0.05)
    model = model_of(x, gpytorch.likelihoods.StudentTLikelihood())
    rfgp.fit(model, x, y, progress=False, max_evaluations=12)
    assert 0.002 < float(model.likelihood.noise.detach()) < 0.05
    for block_size in (None, 40):
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(2, 2, mixing_weights=False)
        classes = model_of(x, likelihood, block_size=block_size)
        summary = rfgp.fit(classes, x, (y > 0).long(), strategy="subset", progress=False, max_evaluations=4)
        assert summary.stages[0].name == "subset" and summary.evaluations <= 4


def test_counts_of_tasks_with_missing_cells(few):
    x, _ = data(120)
    f = torch.stack([torch.sin(3.0 * x[:, 0]), 1.0 - torch.sin(3.0 * x[:, 0])], dim=-1)
    y = torch.poisson((1.0 + f).exp(), generator=torch.Generator().manual_seed(0))
    y[::5, 0] = float("nan")
    exact = MultitaskKernel(RBFKernel(ard_num_dims=3), num_tasks=2, rank=1)
    kernel = rfgp.approximate(exact, 12, method="landmarks", train_inputs=x, seed=0)
    model = LaplaceGP(kernel, PoissonLikelihood(), ConstantMean(), block_size=40)
    rfgp.fit(model, x, y, progress=False, max_evaluations=20)
    error = (model.posterior(x).mean.detach() - (1.0 + f)).square().mean().sqrt()
    assert error < 0.6 * f.std()

"""LaplaceGP with correlated tasks and missing cells against dense algebra of all cells, and finite differences."""

import copy
import io
import pickle
from functools import partial

import dense_laplace as dense
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.means import ConstantMean, MultitaskMean, ZeroMean

import rfgp
from rfgp.inference.local import LocalRows
from rfgp.likelihoods import MultitaskMultivariateNormal, PoissonLikelihood
from rfgp.models import LaplaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, TASKS, NAN = 30, 3, float("nan")


TARGETS = {
    "Poisson": lambda f: torch.poisson(f.exp()),
    "probit": lambda f: (f > 0).double(),
    "Student's t": lambda f: f + 4.0 * (torch.rand_like(f) < 0.2),
}


def data(name):
    generator = torch.Generator().manual_seed(1)
    x = 2.0 * torch.rand(ROWS, 2, generator=generator)
    f = torch.sin(3.0 * x.sum(-1, keepdim=True)) * torch.tensor([1.0, -1.0, 0.5])
    torch.manual_seed(2)
    y = TARGETS[name](f + 0.3 * torch.randn(ROWS, TASKS, generator=generator))
    y[torch.rand(ROWS, TASKS, generator=generator) < 0.2] = NAN
    return x, y


def model_of(name, method="fourier:real", mean=None, **settings):
    torch.manual_seed(3)
    exact = MultitaskKernel(RBFKernel() if "fourier" in method else MaternKernel(), num_tasks=TASKS, rank=1)
    x = data(name)[0]
    kernel = rfgp.approximate(exact, 12, input_dim=2, method=method, train_inputs=x, seed=0)
    if mean is None:
        mean = MultitaskMean([ConstantMean(), ConstantMean(), ZeroMean()], TASKS)
        mean.base_means[0].initialize(constant=0.3)
    return LaplaceGP(kernel, dense.LIKELIHOODS[name].make(), mean, **settings)


def dense_result(name, model, x, y, test):
    """The dense approximation of the observed cells, and of all cells of test points."""
    points = torch.cat([x, test])
    with torch.no_grad():
        features = model.covar_module.features(points)
        covariance, mean = (features @ features.mT).numpy(), model.mean_module(points)
        mean = (mean if mean.dim() == 2 else mean.unsqueeze(-1).expand(-1, TASKS)).reshape(-1).numpy()
        lacking = model.covar_module.residual_covariance(test)
    cells = y.numel()
    old = np.flatnonzero(~torch.isnan(y.reshape(-1)).numpy())
    new = np.arange(cells, len(mean))
    prior = covariance[np.ix_(new, new)] + (0.0 if lacking is None else torch.block_diag(*lacking.dense()).numpy())
    parts = covariance[np.ix_(old, old)], mean[old], covariance[np.ix_(new, old)], prior, mean[new]
    return dense.laplace(partial(dense.LIKELIHOODS[name].derivatives, y=y.reshape(-1).numpy()[old]), *parts)


@pytest.mark.parametrize("method", ["fourier:real", "landmarks"])
@pytest.mark.parametrize("name", TARGETS)
def test_evidence_and_predictions_equal_dense_algebra(name, method):
    x, y = data(name)
    test = 2.0 * torch.rand(6, 2)
    model = model_of(name, method, ConstantMean() if method == "landmarks" else None).condition(x, y)
    expected, found = dense_result(name, model, x, y, test), model.posterior(test)
    assert isinstance(found, MultitaskMultivariateNormal) and found.mean.shape == (6, TASKS)
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-10)
    np.testing.assert_allclose(found.mean.detach().reshape(-1), expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance_matrix.detach(), expected.covariance, atol=1e-8)
    np.testing.assert_allclose(found.variance.detach().reshape(-1), np.diag(expected.covariance), atol=1e-8)


def assert_gradients(model, x, y):
    """One entry of every parameter against differences of the evidence; with gradients the blocks stay."""
    model.condition(x, y).log_marginal_likelihood().backward()
    for parameter in model.parameters():
        value, ends = float(parameter.data.view(-1)[0]), []
        for sign in (1.0, -1.0):
            parameter.data.view(-1)[0] = value + 1e-5 * sign
            ends.append(model.condition(x, y).log_marginal_likelihood().item())
        parameter.data.view(-1)[0] = value
        slope = (ends[0] - ends[1]) / 2e-5
        assert abs(float(parameter.grad.view(-1)[0]) - slope) <= 1e-6 * max(abs(slope), 0.1)


@pytest.mark.parametrize("name", TARGETS)
def test_gradients_follow_the_mode(name):
    assert_gradients(model_of(name), *data(name))


@pytest.mark.parametrize("name", TARGETS)
def test_blocks_of_cells_equal_dense_algebra(name):
    x, y = data(name)
    test = 2.0 * torch.rand(5, 2)
    model = model_of(name, "landmarks", block_size=24, num_neighbors=None).condition(x, y)
    state = {k.removeprefix("laplace.rows."): v for k, v in model.state_dict().items() if "laplace.rows." in k}
    local, points = LocalRows.from_state_dict(state), torch.cat([x, test])
    assert len(local.partition.blocks) > 2
    inputs = torch.cat([points, torch.zeros(len(points), TASKS)], dim=-1)
    places = local.partition.place(local.points(inputs)).repeat_interleave(TASKS)
    kernel = model.covar_module
    with torch.no_grad():
        low_rank = kernel.features(points) @ kernel.features(points).mT
        exact = kernel.exact_kernel(points).to_dense()
        covariance = (low_rank + (places[:, None] == places) * (exact - low_rank)).numpy()
        mean = model.mean_module(points).reshape(-1).numpy()
    old, new = np.flatnonzero(~torch.isnan(y.reshape(-1)).numpy()), np.arange(y.numel(), len(mean))
    parts = covariance[np.ix_(old, old)], mean[old], covariance[np.ix_(new, old)], covariance[np.ix_(new, new)]
    expected = dense.laplace(
        partial(dense.LIKELIHOODS[name].derivatives, y=y.reshape(-1).numpy()[old]), *parts, mean[new]
    )
    found = model.posterior(test)
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-10)
    np.testing.assert_allclose(found.mean.detach().reshape(-1), expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance_matrix.detach(), expected.covariance, atol=1e-8)
    assert_gradients(model, x, y)
    near = model_of(name, "landmarks", block_size=24, num_neighbors=9).condition(x, y).update(x[:2] + 0.1, y[:2])
    assert near.posterior(test).variance.shape == (5, TASKS)


@pytest.mark.parametrize("name", ["Poisson", "probit"])
def test_neighbors_of_all_cells_are_the_exact_residual(name):
    x, y = data(name)
    test = 2.0 * torch.rand(5, 2)
    one, by_rows = (model_of(name, "landmarks", block_size=y.numel(), num_neighbors=n) for n in (None, y.numel()))
    expected, found = (model.condition(x, y).posterior(test) for model in (one, by_rows))
    np.testing.assert_allclose(found.covariance_matrix.detach(), expected.covariance_matrix.detach(), atol=1e-8)


def test_batches_states_and_copies_predict_alike():
    x, y = data("Poisson")
    model = model_of("Poisson").condition(x, y)
    expected, state = model.posterior(x), io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    loaded = model_of("Poisson")
    loaded.load_state_dict(torch.load(state))
    batches = model_of("Poisson").condition([(x[:10], y[:10]), (x[10:], y[10:])])
    for other in (loaded, batches, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found = other.posterior(x)
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.variance, expected.variance, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(other.log_marginal_likelihood(), model.log_marginal_likelihood())
    assert model.likelihood(expected).mean.shape == (ROWS, TASKS)


def test_a_task_borrows_from_another():
    """Training finds the correlation of tasks, and cells that are missing follow from those that are there."""
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0.0, 3.0, 80).unsqueeze(-1)
    rate = 1.5 + torch.sin(4.0 * x)
    y = torch.poisson(torch.cat([rate, rate], -1).exp(), generator=generator)
    y[40:, 1] = NAN
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 24, input_dim=1, seed=0)
    model = LaplaceGP(kernel, PoissonLikelihood(), ConstantMean())
    summary = rfgp.fit(model, x, y, progress=False, max_evaluations=40)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    error = (model.posterior(x[40:]).mean.detach()[:, 1] - rate[40:, 0]).square().mean().sqrt()
    assert error < 0.5 * rate.std()


def test_bad_calls_change_nothing():
    x, y = data("Poisson")
    model = model_of("Poisson").condition(x, y)
    before = model.posterior(x)
    kernel, scalar = model.covar_module, rfgp.approximate(RBFKernel(), 8, input_dim=2)
    calls = (
        (lambda: model.condition(x, y[:, :2]), "column for every task"),
        (lambda: model.condition(x, y - 9.0), "can have"),
        (lambda: model.condition(x, y * float("inf")), "infinite|can have"),
        (lambda: model.posterior(x.unsqueeze(0)), "flatten"),
        (lambda: LaplaceGP(kernel, SoftmaxLikelihood(TASKS, TASKS, mixing_weights=False)), "one latent function"),
        (lambda: LaplaceGP(kernel, PoissonLikelihood(), MultitaskMean([ZeroMean()] * 2, 2)), "mean"),
        (lambda: LaplaceGP(kernel, PoissonLikelihood(), block_size=8), "landmarks"),
        (lambda: LaplaceGP(scalar, PoissonLikelihood(), MultitaskMean([ZeroMean()] * 2, 2)), "mean"),
    )
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert torch.equal(model.posterior(x).mean, before.mean)

"""A thousand separable outputs: nothing is made that is larger than the data, the weights or a T x T matrix."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import IndexKernel, MultitaskKernel, RBFKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from tensor_sizes import Largest

import rfgp
from rfgp.inference import OutputFactor
from rfgp.inference.posterior import kronecker
from rfgp.kernels.task_covariance import covariance_root
from rfgp.models import WeightSpaceGP

OUTPUTS, ROWS, WIDTH = 150, 400, 32


def model_and_data(rank, outputs=OUTPUTS, width=WIDTH):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(ROWS, outputs, dtype=torch.float64, generator=generator) + x.sum(-1, keepdim=True)
    torch.manual_seed(0)
    exact = MultitaskKernel(RBFKernel(), num_tasks=outputs, rank=2)
    kernel = rfgp.approximate(exact, width, input_dim=3, seed=0)
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=outputs)
    return WeightSpaceGP(kernel, MultitaskGaussianLikelihood(outputs, rank=rank), mean).double(), x, y


@pytest.mark.parametrize("rank", [0, 3])
def test_no_tensor_has_the_weights_of_every_pair_of_outputs(rank):
    model, x, y = model_and_data(rank)
    with Largest() as seen:
        model.condition(x, y).log_marginal_likelihood().backward()
        with torch.no_grad():
            latent = model.condition(x, y).posterior(x[:50])
            assert torch.isfinite(latent.mean).all() and torch.isfinite(latent.variance).all()
            model.likelihood(latent).variance  # noqa: B018
            model.sample_functions(2)(x[:50])
            found = model.leave_one_out(x, y)
    assert found.mean.shape == y.shape
    assert seen.numbers <= 2 * ROWS * (OUTPUTS + 10) and seen.numbers < WIDTH * OUTPUTS**2 / 4


@pytest.mark.parametrize("rank", [0, 3])
def test_left_out_rows_of_a_separable_kernel_are_those_of_the_rows_alone(rank):
    model, x, y = model_and_data(rank, 4)
    with torch.no_grad():
        found = model.condition(x, y).leave_one_out(x, y)
        for row in (0, 77, ROWS - 1):
            rest = torch.arange(ROWS) != row
            observed = model.likelihood(model.condition(x[rest], y[rest]).posterior(x[row : row + 1]))
            torch.testing.assert_close(found.mean[row], observed.mean[0], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(found.variance[row], observed.variance[0], rtol=1e-9, atol=1e-9)
            dense = torch.distributions.MultivariateNormal(observed.mean[0], observed.covariance_matrix)
            torch.testing.assert_close(found.log_prob[row], dense.log_prob(y[row]), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("rank", [0, 3])
def test_missing_targets_of_too_many_weights_equal_dense_algebra(rank):
    outputs, width = 33, 256
    model, x, y = model_and_data(rank, outputs, width)
    if rank == 0:
        model.likelihood.task_noises = torch.linspace(0.1, 2.0, outputs, dtype=torch.float64)
    x, y, points = x[:20], y[:20], x[-3:]
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = torch.nan
    weights, seen = torch.linspace(0.5, 2.0, len(x), dtype=torch.float64), ~torch.isnan(y).flatten()
    with torch.no_grad():
        found = model.condition(x, y, weights=weights).posterior(points).mean
        scalar, covariance = model.covar_module.separated()
        prior = torch.kron(scalar(torch.cat([x, points])).to_dense(), covariance)
        task_noise = model.noise.covariance()
        rows = (prior[: y.numel(), : y.numel()] + torch.kron(torch.diag(1.0 / weights), task_noise))[seen][:, seen]
        residual = (y - model.mean_module(x)).flatten()[seen]
        wanted = prior[y.numel() :, : y.numel()][:, seen] @ torch.linalg.solve(rows, residual)
    torch.testing.assert_close(found, wanted.view_as(found) + model.mean_module(points).detach(), rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
def test_steps_that_fill_missing_targets_make_no_factors(monkeypatch):
    model, x, y = model_and_data(0, 33, 256)
    y[:20][torch.rand(20, 33, generator=torch.Generator().manual_seed(1)) < 0.2] = torch.nan
    made, spectrum = [], kronecker.spectrum
    monkeypatch.setattr(kronecker, "spectrum", lambda matrix: made.append(1) or spectrum(matrix))
    model.condition(x[:20], y[:20])
    assert len(made) == 2  # of the Gram matrix and of the outputs


def test_a_kronecker_factor_is_that_of_its_coefficients():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(2, 3, 2, dtype=torch.float64, generator=generator)
    lazy = OutputFactor.kronecker(matrix, 5)
    plain = OutputFactor(lazy.index, lazy.coefficient, 5, matrix)
    scale = torch.tensor([2.0, 3.0], dtype=torch.float64)
    for first, second in ((lazy, plain), (lazy.scaled(scale), plain.scaled(scale)), (lazy[1], plain[1])):
        names = ("num_terms", "num_columns", "num_outputs", "batch_shape", "num_scalar", "device")
        assert all(getattr(first, name) == getattr(second, name) for name in names)
        assert torch.equal(first.index, second.index) and torch.equal(first.coefficient, second.coefficient)
        scalar = torch.randn(*first.batch_shape, 4, 5, dtype=torch.float64, generator=generator)
        torch.testing.assert_close(first.features(scalar), second.features(scalar))


def test_the_factor_of_many_outputs_is_made_once_until_a_value_is_another():
    torch.manual_seed(0)
    module = IndexKernel(num_tasks=64, rank=2).double()
    with torch.no_grad():
        first = covariance_root(module)
        assert covariance_root(module) is first
        module.covar_factor.data[3] += 1.0  # which no counter of versions sees
        second = covariance_root(module)
    assert second is not first
    torch.testing.assert_close(second @ second.mT, module.covar_matrix.to_dense().detach())
    covariance_root(module).sum().backward()
    assert float(module.covar_factor.grad.abs().max()) > 0.0
    few = IndexKernel(num_tasks=2, rank=1)
    with torch.no_grad():
        assert covariance_root(few) is not covariance_root(few)

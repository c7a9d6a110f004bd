"""Units of training: moments of the data, gradients in coordinates, and parameters that stay or learn."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean

import rfgp
from rfgp.models.spectral_evidence import learn_from_statistics
from rfgp.training.coordinates import LinearMeanCoordinate
from rfgp.training.moments import data_moments
from rfgp.training.stationary import covariance


def rows():
    generator = torch.Generator().manual_seed(0)
    x = 5.0 + 3.0 * torch.randn(30, 2, generator=generator, dtype=torch.float64)
    return x, 7.0 + 2.0 * torch.randn(30, generator=generator, dtype=torch.float64)


def test_moments_are_those_of_the_rows():
    x, y = rows()
    known = data_moments(1e7 + x, y[:, None])
    torch.testing.assert_close(known.input_mean - 1e7, x.mean(0), rtol=0, atol=1e-7)
    torch.testing.assert_close(known.input_scale, x.std(0, correction=0), rtol=1e-7, atol=0)
    torch.testing.assert_close(known.of_output(0), (y.mean(), y.std(correction=0)))


@pytest.mark.parametrize("bias", [False, True])
def test_gradient_of_a_linear_mean_is_that_in_its_coordinates(bias):
    x, y = rows()
    mean = LinearMean(2, bias=bias).double()
    coordinate = LinearMeanCoordinate("mean", mean, data_moments(x, y[:, None], mean))

    def value(point):
        coordinate.assign(point)
        return (mean(x).sin() * y).sum()

    start = coordinate.values() + torch.tensor([0.3, -0.2, 0.5][: 2 + bias], dtype=torch.float64)
    value(start).backward()
    found, steps = coordinate.gradient(), 1e-6 * torch.eye(len(start), dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([(value(start + step) - value(start - step)) / 2e-6 for step in steps])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    coordinate.assign(start)
    torch.testing.assert_close(coordinate.values(), start)


@pytest.mark.parametrize("kernel", [RBFKernel(), MaternKernel(0.5), MaternKernel(1.5), MaternKernel(2.5)])
def test_gradients_of_covariances_are_those_of_gpytorch_where_rows_are_equal_too(kernel):
    x = rows()[0][[0, 0, 1, 2, 3]]
    kernel = ScaleKernel(kernel.double()).double()
    weights = torch.arange(25.0, dtype=torch.float64).reshape(5, 5)
    weights = weights + weights.mT  # as the gradients of an evidence are
    parameters = list(kernel.parameters())
    found = torch.autograd.grad((weights * covariance(kernel, x)).sum(), parameters)
    expected = torch.autograd.grad((weights * kernel(x).to_dense()).sum(), parameters)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_learning_from_sums_leaves_who_learns_as_it_was():
    x, y = rows()
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood().double()).condition(x, y)
    before = [parameter.requires_grad for parameter in model.parameters()]
    assert all(before) and learn_from_statistics(model)
    assert [parameter.requires_grad for parameter in model.parameters()] == before


def test_a_fit_that_ends_at_its_limit_has_not_converged():
    x, y = rows()
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 16, input_dim=2, seed=0)
    for limit in (1, 3):
        model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood().double())
        assert not rfgp.fit(model, x, y, max_evaluations=limit, progress=False).converged

"""Kernels from any matrix-valued spectral density: the trace measure, features and quadrature."""

import copy
import math
import pickle

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel

import rfgp
from rfgp.features import RandomFourier, TraceMeasure
from rfgp.functionals import Partial
from rfgp.kernels import CurlFreeKernel, SpectralDensityKernel
from rfgp.models import WeightSpaceGP

DELAY = 0.7
pytestmark = pytest.mark.usefixtures("float64_default")


def normal(w, scale=1.0):
    """The density of independent normal coordinates."""
    dim = w.shape[-1]
    return torch.exp(-0.5 * (w / scale).square().sum(-1)) / (scale * math.sqrt(2.0 * math.pi)) ** dim


def delayed(w):
    """Two outputs of which the second is the first one, later: a complex density of rank one."""
    phase = torch.exp(-1j * DELAY * w[:, 0])
    b = torch.stack([torch.ones_like(phase), phase], dim=-1)
    return normal(w)[:, None, None] * b[:, :, None] * b[:, None, :].conj()


def curl_free(w):
    """The density of the curl-free field of a Gaussian kernel of unit lengthscale."""
    return w[:, :, None] * w[:, None, :] * normal(w)[:, None, None]


def two_scales(w):
    """Two independent outputs with different lengthscales: a sum of kernels by one measure."""
    return torch.diag_embed(torch.stack([normal(w, 0.5), normal(w, 2.0)], dim=-1))


def at_unit_lengthscale(kernel):
    kernel.lengthscale = 1.0
    return kernel


def test_the_quadrature_gives_the_delayed_kernel():
    kernel = at_unit_lengthscale(SpectralDensityKernel(delayed, 1, proposal_scale=1.5))
    x = torch.randn(6, 1, generator=torch.Generator().manual_seed(0))
    tau = x - x.mT
    values = kernel(x).to_dense()
    assert torch.allclose(values[::2, ::2], torch.exp(-0.5 * tau**2), atol=1e-6)
    assert torch.allclose(values[::2, 1::2], torch.exp(-0.5 * (tau + DELAY) ** 2), atol=1e-6)
    assert torch.allclose(kernel(x, diag=True), values.diagonal(), atol=1e-12)


def test_the_quadrature_gives_the_curl_free_kernel():
    kernel = at_unit_lengthscale(SpectralDensityKernel(curl_free, 3, proposal_scale=1.5))
    exact = CurlFreeKernel(at_unit_lengthscale(RBFKernel()))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(kernel(x).to_dense(), exact(x).to_dense(), atol=2e-3)


@pytest.mark.parametrize(("density", "dim", "proposal"), [(delayed, 1, 1.5), (curl_free, 2, 1.5), (two_scales, 2, 2.5)])
def test_features_are_unbiased(density, dim, proposal):
    kernel = SpectralDensityKernel(density, dim, proposal)
    x = torch.randn(3, dim, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        exact = kernel(x).to_dense()
        draws = torch.stack([rfgp.approximate(kernel, 64, input_dim=dim, seed=s)(x).to_dense() for s in range(200)])
    error = draws.std(0) / math.sqrt(len(draws))
    assert bool(((draws.mean(0) - exact).abs() < 4.5 * error + 2e-3 * exact.abs().max()).all())
    assert float(draws.std(0).max()) > 0.01


def test_frequencies_follow_the_trace():
    measure = TraceMeasure(curl_free, 2, 1.5)
    draws = measure.draw(20_000, 2, torch.Generator().manual_seed(0))
    square = draws["weight"].square().sum(-1)  # ||w||^2 is chi-squared with four degrees of freedom
    assert abs(float(square.mean()) - 4.0) < 4.5 * math.sqrt(8.0 / len(square))
    trace = (draws["amplitude"] ** 2).mean()
    assert abs(float(trace) - 2.0) < 0.02
    assert abs(measure.at_zero() - 2.0) < 0.01


def test_an_envelope_that_is_too_low_does_not_bias():
    """Proposals too narrow for the density: amplitudes make up for frequencies that are drawn too seldom."""
    measure = TraceMeasure(two_scales, 1, 1.2)
    draws = measure.draw(200_000, 1, torch.Generator().manual_seed(0))
    weight, square = draws["weight"].squeeze(-1), draws["amplitude"].square()
    inside = (weight.abs() < 1.0).double() * square
    expected = math.erf(1.0 / (0.5 * math.sqrt(2.0))) + math.erf(1.0 / (2.0 * math.sqrt(2.0)))
    assert abs(float(inside.mean()) - expected) < 4.5 * float(inside.std()) / math.sqrt(len(inside)) + 0.03


def test_features_are_bounded():
    kernel = SpectralDensityKernel(curl_free, 2, 1.5)
    b = kernel.factor(torch.randn(50, 2))
    assert torch.allclose(b.square().sum((-2, -1)), torch.ones(50))
    features = rfgp.approximate(kernel, 32, input_dim=2, seed=0).features(torch.randn(4, 2))
    assert torch.allclose(features.square().sum(-1).reshape(4, 2).sum(-1), torch.full((4,), 2.0), atol=0.02)


def test_a_model_learns_with_it():
    generator = torch.Generator().manual_seed(0)
    x = 6.0 * torch.rand(200, 1, generator=generator)
    y = torch.stack([torch.sin(2.0 * x[:, 0]), torch.sin(2.0 * (x[:, 0] - DELAY))], dim=-1)
    y = y + 0.05 * torch.randn(y.shape, generator=generator)
    y[x[:, 0] > 3.0, 1] = float("nan")
    kernel = rfgp.approximate(SpectralDensityKernel(delayed, 1, 1.5), 64, input_dim=1, seed=0)
    model = WeightSpaceGP(kernel, gpytorch.likelihoods.MultitaskGaussianLikelihood(2))
    summary = rfgp.fit(model, x, y, max_evaluations=30)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    test = torch.linspace(3.2, 5.5, 40).unsqueeze(-1)
    error = model.posterior(test).mean[:, 1] - torch.sin(2.0 * (test[:, 0] - DELAY))
    assert float(error.detach().square().mean().sqrt()) < 0.1


def test_operators_act_on_its_features():
    kernel = rfgp.approximate(SpectralDensityKernel(delayed, 1, 1.5), 32, input_dim=1, seed=0)
    x = torch.randn(1, 1, requires_grad=True)
    weights = torch.randn(kernel.output_factor().num_columns)
    value = kernel.features(x) @ weights
    slopes = [torch.autograd.grad(v, x, retain_graph=True)[0].squeeze() for v in value]
    derivative = kernel.output_factor(Partial(0)).features(kernel.scalar_features(x)) @ weights
    assert torch.allclose(torch.stack(slopes), derivative)


def test_copies_and_pickles():
    kernel = rfgp.approximate(SpectralDensityKernel(delayed, 1, 1.5), 16, input_dim=1, seed=0)
    x = torch.randn(3, 1)
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(twin(x).to_dense(), kernel(x).to_dense())


@pytest.mark.parametrize(
    ("density", "dim", "scale", "message"),
    [
        (lambda w: normal(w), 1, 1.0, "shape"),
        (lambda w: -torch.ones(len(w), 1, 1), 1, 1.0, "positive semidefinite"),
        (lambda w: torch.randn(len(w), 2, 2), 1, 1.0, "Hermitian"),
        (lambda w: torch.full((len(w), 1, 1), math.inf), 1, 1.0, "finite"),
        (curl_free, 3, 40.0, "proposals"),
    ],
)
def test_bad_densities_raise(density, dim, scale, message):
    with pytest.raises(ValueError, match=message):
        SpectralDensityKernel(density, dim, scale)


def test_other_maps_and_dimensions_raise():
    kernel = SpectralDensityKernel(curl_free, 2)
    with pytest.raises(ValueError, match="measure"):
        rfgp.approximate(kernel, 8, method=RandomFourier(2, 8))
    with pytest.raises(ValueError, match="2 columns"):
        kernel(torch.randn(3, 3)).to_dense()
    with pytest.raises(ValueError, match="2 columns"):
        rfgp.approximate(kernel, 8, input_dim=3)
    with pytest.raises(ValueError, match="operators"):
        kernel.covariance(2)

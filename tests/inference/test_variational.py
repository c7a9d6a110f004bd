"""Distributions of weights that are learned: against dense algebra, automatic gradients and GPyTorch's own."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)

from rfgp.inference.latent.variational import (
    GaussianWeights,
    expected_log_likelihood,
    is_deterministic,
    learned_weights,
)

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, WIDTH, SETS = 7, 4, 3
LIKELIHOODS = {
    "gaussian": (GaussianLikelihood, lambda y: y),
    "bernoulli": (BernoulliLikelihood, lambda y: (y > 0.0).double()),
    "student": (StudentTLikelihood, lambda y: y),
    "laplace": (LaplaceLikelihood, lambda y: y),
    "beta": (BetaLikelihood, lambda y: torch.sigmoid(y)),
}


def weights(shape=(), is_diagonal=False):
    mean = torch.randn(*shape, WIDTH)
    root = torch.randn(*shape, WIDTH, WIDTH)
    precision = torch.rand(*shape, WIDTH) + 0.5 if is_diagonal else root @ root.mT + torch.eye(WIDTH)
    linear = precision * mean if is_diagonal else (precision @ mean.unsqueeze(-1)).squeeze(-1)
    return GaussianWeights(linear, precision)


def covariance_of(q):
    return torch.diag_embed(q.precision.reciprocal()) if q.is_diagonal else q.precision.inverse()


CASES = pytest.mark.parametrize("is_diagonal", [False, True], ids=["full", "diagonal"])
SHAPES = pytest.mark.parametrize("shape", [(), (SETS,)], ids=["one", "several"])


@CASES
@SHAPES
@pytest.mark.parametrize("is_shared", [True, False])
def test_moments_equal_dense_algebra(is_diagonal, shape, is_shared):
    q = weights(shape, is_diagonal)
    features = torch.randn(*(() if is_shared else shape), ROWS, WIDTH)
    mean, variance = q.moments(features)
    dense = features @ covariance_of(q) @ features.mT
    torch.testing.assert_close(mean, (features @ q.mean.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(variance, dense.diagonal(dim1=-1, dim2=-2))


@CASES
@SHAPES
def test_divergence_and_distribution_are_those_of_torch(is_diagonal, shape):
    q = weights(shape, is_diagonal)
    normal = torch.distributions.MultivariateNormal
    dense = normal(q.mean, covariance_of(q))
    prior = normal(torch.zeros(WIDTH), torch.eye(WIDTH))
    torch.testing.assert_close(q.kl_divergence, torch.distributions.kl_divergence(dense, prior))
    torch.testing.assert_close(q.distribution().covariance_matrix, covariance_of(q))
    again = GaussianWeights.of(q.distribution())
    assert again.is_diagonal == is_diagonal
    torch.testing.assert_close(again.linear, q.linear)
    torch.testing.assert_close(again.precision, q.precision)


@CASES
@SHAPES
@pytest.mark.parametrize("is_shared", [True, False])
def test_gradient_in_the_features_is_that_of_automatic_differentiation(is_diagonal, shape, is_shared):
    q = weights(shape, is_diagonal)
    features = torch.randn(*(() if is_shared else shape), ROWS, WIDTH, requires_grad=True)
    in_mean, in_variance = torch.randn(*shape, ROWS), torch.randn(*shape, ROWS)
    mean = (features @ q.mean.unsqueeze(-1)).squeeze(-1)
    variance = (features @ covariance_of(q) * features).sum(-1)
    (expected,) = torch.autograd.grad((mean * in_mean).sum() + (variance * in_variance).sum(), features)
    torch.testing.assert_close(q.feature_gradient(features, in_mean, in_variance), expected)


@CASES
@SHAPES
def test_a_step_is_one_in_the_natural_gradient(is_diagonal, shape):
    """In natural parameters it is the gradient in the expectations of w and of w w^T."""
    q = weights(shape, is_diagonal)
    features, in_mean, in_variance = torch.randn(ROWS, WIDTH), torch.randn(*shape, ROWS), -torch.rand(*shape, ROWS)
    first = q.mean.clone().requires_grad_(True)
    outer = q.mean.unsqueeze(-1) * q.mean.unsqueeze(-2) + covariance_of(q)
    second = (outer.diagonal(dim1=-1, dim2=-2) if is_diagonal else outer).detach().requires_grad_(True)
    if is_diagonal:
        covariance = torch.diag_embed(second - first.square())
    else:
        covariance = second - first.unsqueeze(-1) * first.unsqueeze(-2)
    mean = (features @ first.unsqueeze(-1)).squeeze(-1)
    variance = (features @ covariance * features).sum(-1)
    divergence = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(first, covariance),
        torch.distributions.MultivariateNormal(torch.zeros(WIDTH), torch.eye(WIDTH)),
    )
    bound = (mean * in_mean).sum() + (variance * in_variance).sum() - divergence.sum()
    in_first, in_second = torch.autograd.grad(bound, (first, second))
    new = q.stepped(q.target(features, in_mean, in_variance), 0.3)
    torch.testing.assert_close(new.linear, q.linear + 0.3 * in_first)
    torch.testing.assert_close(-0.5 * new.precision, -0.5 * q.precision + 0.3 * in_second)


def test_a_step_is_halved_until_the_covariance_is_positive():
    q = weights()
    target = torch.zeros(WIDTH), -4.0 * q.precision
    assert torch.equal(q.stepped(target, 1.0).precision, torch.lerp(q.precision, target[1], 0.125))


@CASES
@SHAPES
def test_weights_predict_as_their_distribution_says(is_diagonal, shape):
    q = weights(shape, is_diagonal)
    found = learned_weights(q.distribution())
    assert found.batch_shape == torch.Size(shape)
    dense = found.root.unsqueeze(-1) * torch.eye(WIDTH) if is_diagonal else found.root
    torch.testing.assert_close(dense @ dense.mT, covariance_of(q))
    draws = found.deviations(4000)
    spread = (draws @ draws.mT / 4000 - covariance_of(q)).abs()
    variances = covariance_of(q).diagonal(dim1=-1, dim2=-2)
    errors = (2.0 * variances.unsqueeze(-1) * variances.unsqueeze(-2) / 4000).sqrt()
    assert bool((spread < 5.0 * errors).all())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_expected_log_likelihood(name):
    make, targets = LIKELIHOODS[name]
    likelihood, y = make(), targets(torch.randn(ROWS))
    mean, variance = torch.randn(ROWS), torch.rand(ROWS) + 0.1
    found = expected_log_likelihood(likelihood, y, mean, variance)
    assert is_deterministic(likelihood)
    step = 1e-5
    for index, gradient in enumerate(found[1:]):
        moved = []
        for sign in (1.0, -1.0):
            moments = [mean.clone(), variance.clone()]
            moments[index][0] += sign * step
            moved.append(expected_log_likelihood(likelihood, y, *moments).value)
        numeric = (moved[0] - moved[1]) / (2.0 * step)
        # GPyTorch's log normal cdf is an approximation, whose gradient is not exactly that of its value
        tolerance = 1e-3 if name == "bernoulli" else 1e-7
        torch.testing.assert_close(gradient[0], numeric.detach(), rtol=tolerance, atol=tolerance)


def test_expectation_under_a_laplace_likelihood_is_that_of_fine_integration():
    likelihood = LaplaceLikelihood()
    likelihood.noise = 0.3
    y, mean, variance = torch.tensor([0.4, -2.0]), torch.tensor([0.1, 1.0]), torch.tensor([0.5, 1e-4])
    grid = torch.linspace(-12.0, 12.0, 200_001)
    f = mean[:, None] + variance.sqrt()[:, None] * grid
    density = (-0.5 * grid.square()).exp() / (2.0 * torch.pi) ** 0.5
    log_probabilities = likelihood(f.mT).log_prob(y).mT
    expected = torch.trapezoid(log_probabilities * density, grid).sum()
    found = expected_log_likelihood(likelihood, y, mean, variance).value
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0.0)


@pytest.mark.parametrize("has_mixing_weights", [False, True])
def test_gradients_under_a_softmax_likelihood_are_those_of_many_draws(has_mixing_weights):
    likelihood = SoftmaxLikelihood(
        num_features=SETS, num_classes=4 if has_mixing_weights else SETS, mixing_weights=has_mixing_weights
    )
    y = torch.tensor([0, 2, 1, 1])
    mean, variance = torch.randn(SETS, 4), torch.rand(SETS, 4) + 0.2
    leaves = mean.clone().requires_grad_(True), variance.clone().requires_grad_(True)
    count = 40_000
    noise = torch.randn(count, SETS, 4)
    terms = likelihood((leaves[0] + leaves[1].sqrt() * noise).mT).log_prob(y).mean(0).sum()
    expected = torch.autograd.grad(terms, leaves)
    with gpytorch.settings.num_likelihood_samples(count):
        found = expected_log_likelihood(likelihood, y, mean, variance)
    # scores are at most of size max|W|, and those in the variances times |noise| / (2 root of variance)
    size = 1.0 if likelihood.mixing_weights is None else 2.0 * float(likelihood.mixing_weights.detach().abs().max())
    torch.testing.assert_close(found.d_mean, expected[0], rtol=0.0, atol=10.0 * size / count**0.5)
    bound = 10.0 * size / (2.0 * variance.min().sqrt()) / count**0.5
    torch.testing.assert_close(found.d_variance, expected[1], rtol=0.0, atol=float(bound))
    assert bool((found.d_variance <= 0.0).all())


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected a precision of shape"):
        GaussianWeights(torch.zeros(3), torch.eye(2))
    with pytest.raises(ValueError, match="expected a positive definite precision"):
        GaussianWeights(torch.zeros(2), torch.tensor([1.0, -1.0]))

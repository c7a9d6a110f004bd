"""ComplexNormal against the real normal distribution of real and imaginary parts, and against Monte Carlo."""

import math

import pytest
import torch
from torch.distributions import Distribution, MultivariateNormal, kl_divergence

from rfgp.distributions import ComplexNormal

pytestmark = pytest.mark.usefixtures("float64_default")

SIZE = 4
BATCHES = {"no batch": (), "batch": (3,), "two batches": (2, 3)}
batches = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)


def random_complex(*shape):
    return torch.randn(*shape, dtype=torch.complex128)


def random_normal(batch=(), form="dense"):
    """A distribution with a covariance that is not diagonal."""
    loc, root = random_complex(*batch, SIZE), random_complex(*batch, SIZE, 2 * SIZE)
    if form == "dense":
        return ComplexNormal(loc, root @ root.mH)
    diagonal = 0.5 + torch.rand(*batch, 1 if form == "root + constant" else SIZE)
    return ComplexNormal(loc, covariance_root=root[..., :2], diagonal=diagonal)


def embedded(distribution):
    """The normal distribution of [real parts, imaginary parts]."""
    covariance = distribution.covariance_matrix
    top = torch.cat([covariance.real, -covariance.imag], dim=-1)
    bottom = torch.cat([covariance.imag, covariance.real], dim=-1)
    return MultivariateNormal(parts(distribution.mean), 0.5 * torch.cat([top, bottom], dim=-2))


def parts(value):
    return torch.cat([value.real, value.imag], dim=-1)


FORMS = ("dense", "root + diagonal", "root + constant")
forms = pytest.mark.parametrize("form", FORMS)


@batches
@forms
def test_log_density_is_that_of_the_real_embedding(form, batch):
    distribution = random_normal(batch, form)
    for value in (random_complex(*batch, SIZE), random_complex(5, *batch, SIZE)):
        density = distribution.log_prob(value)
        assert density.shape == value.shape[:-1] and not density.is_complex()
        torch.testing.assert_close(density, embedded(distribution).log_prob(parts(value)))


def test_log_density_of_one_variable():
    distribution = ComplexNormal(torch.tensor([1.0 + 2.0j]), torch.tensor([[3.0 + 0.0j]]))
    value = torch.tensor([2.0 + 4.0j])
    expected = -math.log(3.0 * math.pi) - 5.0 / 3.0
    assert float(distribution.log_prob(value)) == pytest.approx(expected, rel=1e-14)


@batches
@forms
def test_divergence_is_that_of_the_real_embedding(form, batch):
    p, q = random_normal(batch, form), random_normal(batch)
    for a, b in ((p, q), (q, p)):
        divergence = kl_divergence(a, b)
        assert divergence.shape == batch and (divergence > 0).all()
        torch.testing.assert_close(divergence, kl_divergence(embedded(a), embedded(b)))
    torch.testing.assert_close(kl_divergence(p, p), torch.zeros(batch), rtol=0.0, atol=1e-12)


def test_divergence_is_within_five_standard_errors_of_monte_carlo():
    p, q = random_normal(), random_normal()
    draws = p.sample(torch.Size([100_000]))
    ratios = p.log_prob(draws) - q.log_prob(draws)
    assert abs(ratios.mean() - kl_divergence(p, q)) <= 5.0 * ratios.std() / len(draws) ** 0.5


@forms
def test_draws_have_the_moments(form):
    distribution = random_normal((), form)
    count = 100_000
    draws = distribution.rsample(torch.Size([count]))
    covariance = distribution.covariance_matrix
    scales = covariance.diagonal().real
    centered = draws - distribution.mean
    assert (centered.mean(0).abs() <= 5.0 * (scales / count).sqrt()).all()
    spread = scales[:, None] * scales
    assert ((centered.mT @ centered.conj() / count - covariance).abs() <= 5.0 * (spread / count).sqrt()).all()
    spread = spread + covariance.abs().square()
    assert ((centered.mT @ centered / count).abs() <= 5.0 * (spread / count).sqrt()).all()


@batches
@forms
def test_shapes_of_draws(form, batch):
    distribution = random_normal(batch, form)
    assert distribution.batch_shape == batch and distribution.event_shape == (SIZE,)
    for sample_shape in ((), (7,), (7, 5)):
        draws = distribution.rsample(torch.Size(sample_shape))
        assert draws.shape == (*sample_shape, *batch, SIZE) and draws.dtype == torch.complex128
    flat = distribution.sample(torch.Size([50])).reshape(50, -1)
    assert torch.linalg.matrix_rank(flat.mT @ flat.conj()) == flat.shape[1]


@forms
def test_draws_are_reparametrized(form):
    root, loc = random_complex(SIZE, 2 * SIZE).requires_grad_(), random_complex(SIZE).requires_grad_()
    diagonal = torch.rand(SIZE).requires_grad_()
    distribution = (
        ComplexNormal(loc, root @ root.mH)
        if form == "dense"
        else ComplexNormal(loc, covariance_root=root, diagonal=diagonal)
    )
    leaves = [loc, root] if form == "dense" else [loc, root, diagonal]
    draws = distribution.rsample(torch.Size([3]))
    assert all(g.abs().max() > 0 for g in torch.autograd.grad(draws.abs().square().sum(), leaves))
    assert not distribution.sample().requires_grad


@batches
@pytest.mark.parametrize("form", ["root + diagonal", "root + constant"])
def test_root_and_diagonal_are_the_dense_form(form, batch):
    low_rank = random_normal(batch, form)
    root, diagonal = low_rank.covariance_root, low_rank.diagonal
    covariance = root @ root.mH + torch.diag_embed(diagonal.expand(*batch, SIZE)).to(root.dtype)
    dense = ComplexNormal(low_rank.loc, covariance)
    value = random_complex(*batch, SIZE)
    torch.testing.assert_close(low_rank.covariance_matrix, covariance)
    torch.testing.assert_close(low_rank.mean, dense.mean)
    torch.testing.assert_close(low_rank.variance, dense.variance)
    torch.testing.assert_close(low_rank.log_prob(value), dense.log_prob(value))
    torch.testing.assert_close(kl_divergence(low_rank, dense), torch.zeros(batch), rtol=0.0, atol=1e-10)
    assert low_rank.variance.dtype == torch.float64 and low_rank.variance.shape == (*batch, SIZE)


@batches
@forms
def test_added_noise(form, batch):
    distribution = random_normal(batch, form)
    for noise in (torch.full((*batch, 1), 0.3), 0.1 + torch.rand(*batch, SIZE), torch.tensor([0.3])):
        noisy = distribution.plus_noise(noise)
        added = torch.diag_embed(noise.expand(*batch, SIZE)).to(torch.complex128)
        torch.testing.assert_close(noisy.covariance_matrix, distribution.covariance_matrix + added)
        torch.testing.assert_close(noisy.variance, distribution.variance + noise)
        reference = ComplexNormal(distribution.loc, distribution.covariance_matrix + added)
        value = random_complex(*batch, SIZE)
        torch.testing.assert_close(noisy.log_prob(value), reference.log_prob(value))
        assert noisy.rsample(torch.Size([2])).shape == (2, *batch, SIZE)


def test_single_precision():
    root = random_complex(SIZE, SIZE)
    distribution = ComplexNormal(random_complex(SIZE).to(torch.complex64), covariance_root=root)
    assert distribution.rsample().dtype == torch.complex64
    assert distribution.variance.dtype == torch.float32
    assert distribution.log_prob(distribution.loc).dtype == torch.float32


def test_it_is_a_distribution():
    distribution = random_normal()
    assert isinstance(distribution, Distribution) and distribution.has_rsample
    assert torch.equal(distribution.mean, distribution.loc)


def test_errors():
    loc, covariance = random_complex(SIZE), torch.eye(SIZE, dtype=torch.complex128)
    with pytest.raises(ValueError, match="expected a complex mean"):
        ComplexNormal(torch.zeros(SIZE), covariance)
    with pytest.raises(ValueError, match="expected one of"):
        ComplexNormal(loc)
    with pytest.raises(ValueError, match="expected one of"):
        ComplexNormal(loc, covariance, covariance_root=covariance)
    singular = ComplexNormal(loc, covariance_root=random_complex(SIZE, 1))
    indefinite = ComplexNormal(loc, -covariance)
    for distribution in (singular, indefinite):
        with pytest.raises(ValueError, match="expected a positive definite matrix"):
            distribution.log_prob(loc)
        with pytest.raises(ValueError, match="expected a positive definite matrix"):
            kl_divergence(ComplexNormal(loc, covariance), distribution)

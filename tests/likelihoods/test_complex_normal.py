"""ComplexNormal against the real normal distribution of real and imaginary parts, and against Monte Carlo."""

import math
import re

import pytest
import torch
from embedding import embedded, embedded_covariance, parts
from torch.distributions import Distribution, kl_divergence

from rfgp.likelihoods import ComplexNormal

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
    if form == "improper":
        root = torch.cat([root, random_complex(*batch, SIZE, SIZE)], dim=-1)
        return ComplexNormal(loc, root @ root.mH, pseudo_covariance=root @ root.mT)
    diagonal = 0.5 + torch.rand(*batch, 1 if form == "root + constant" else SIZE)
    root = root[..., :2]
    if form == "real weights":
        return ComplexNormal(loc, covariance_root=root, has_real_weights=True, diagonal=diagonal)
    if form == "improper noise":
        pseudo = 0.9 * diagonal * torch.polar(torch.rand(*batch, SIZE), 6.0 * torch.rand(*batch, SIZE))
        return ComplexNormal(loc, covariance_root=root, diagonal=diagonal, pseudo_diagonal=pseudo)
    return ComplexNormal(loc, covariance_root=root, diagonal=diagonal)


PROPER = ("dense", "root + diagonal", "root + constant")
FORMS = (*PROPER, "improper", "real weights", "improper noise")
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
    p, q, improper = random_normal(batch, form), random_normal(batch), random_normal(batch, "improper")
    for a, b in ((p, q), (q, p), (p, improper), (improper, p)):
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
    pseudo = distribution.pseudo_covariance
    assert ((centered.mT @ centered / count - pseudo).abs() <= 5.0 * (spread / count).sqrt()).all()


@batches
@forms
def test_shapes_of_draws(form, batch):
    distribution = random_normal(batch, form)
    assert distribution.batch_shape == batch and distribution.event_shape == (SIZE,)
    for sample_shape in ((), (7,), (7, 5)):
        draws = distribution.rsample(torch.Size(sample_shape))
        assert draws.shape == (*sample_shape, *batch, SIZE) and draws.dtype == torch.complex128
    flat = parts(distribution.sample(torch.Size([100])).reshape(100, -1))
    assert torch.linalg.matrix_rank(flat) == flat.shape[1]


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
def test_moments_of_the_forms(form, batch):
    distribution = random_normal(batch, form)
    covariance, pseudo = distribution.covariance_matrix, distribution.pseudo_covariance
    torch.testing.assert_close(covariance, covariance.mH)
    torch.testing.assert_close(pseudo, pseudo.mT)
    assert covariance.shape == pseudo.shape == (*batch, SIZE, SIZE)
    torch.testing.assert_close(distribution.variance, covariance.diagonal(dim1=-2, dim2=-1).real)
    torch.testing.assert_close(distribution.pseudo_variance, pseudo.diagonal(dim1=-2, dim2=-1))
    assert distribution.is_proper == (form in PROPER) == bool((pseudo == 0).all())
    torch.testing.assert_close(distribution.embedded_covariance, embedded_covariance(covariance, pseudo))


@batches
@forms
def test_entropy_is_that_of_the_real_embedding(form, batch):
    distribution = random_normal(batch, form)
    entropy = distribution.entropy()
    assert entropy.shape == batch and not entropy.is_complex()
    torch.testing.assert_close(entropy, embedded(distribution).entropy())


def test_a_pseudo_covariance_of_zero_changes_nothing():
    proper = random_normal()
    same = ComplexNormal(proper.loc, proper.covariance_matrix, pseudo_covariance=torch.zeros(SIZE, SIZE))
    value = random_complex(SIZE)
    torch.testing.assert_close(same.log_prob(value), proper.log_prob(value))
    torch.testing.assert_close(same.entropy(), proper.entropy())
    torch.testing.assert_close(same.mahalanobis(value), proper.mahalanobis(value))
    torch.testing.assert_close(kl_divergence(same, proper), torch.zeros(()), rtol=0.0, atol=1e-12)


@batches
@forms
def test_distances_of_marginals_are_those_of_two_real_variables(form, batch):
    distribution, value = random_normal(batch, form), random_complex(5, *batch, SIZE)
    variance, pseudo = distribution.variance, distribution.pseudo_variance
    covariance = embedded_covariance(variance[..., None, None] + 0j, pseudo[..., None, None])
    difference = parts((value - distribution.mean).unsqueeze(-1))
    solved = torch.linalg.solve(covariance, difference.unsqueeze(-1)).squeeze(-1)
    expected = (difference * solved).sum(-1)
    torch.testing.assert_close(distribution.mahalanobis(value), expected)


@forms
def test_regions_have_their_probability(form):
    distribution, count = random_normal((), form), 20_000
    draws = distribution.sample(torch.Size([count]))
    for level in (0.5, 0.9, 0.95):
        share = distribution.in_region(draws, level).double().mean(0)
        assert share.shape == (SIZE,)
        assert ((share - level).abs() <= 5.0 * (level * (1.0 - level) / count) ** 0.5).all()


@pytest.mark.parametrize("form", ["improper", "real weights", "improper noise"])
def test_gradients_of_improper_ones(form):
    base = random_normal((), form)
    leaves = [
        part.detach().requires_grad_()
        for part in (base.loc, base.covariance_root, base.diagonal, base.pseudo_diagonal)
        if part is not None
    ]
    value = random_complex(SIZE)

    def made(loc, *others):
        if form == "improper":
            return ComplexNormal(loc, base.covariance_matrix, pseudo_covariance=base.pseudo_covariance)
        root, diagonal, *pseudo = others
        options = {"pseudo_diagonal": pseudo[0]} if pseudo else {"has_real_weights": True}
        return ComplexNormal(loc, covariance_root=root, diagonal=diagonal, **options)

    other = random_normal((), "improper")
    for of in (
        lambda d: d.log_prob(value),
        lambda d: kl_divergence(d, other),
        lambda d: d.mahalanobis(value).sum(),
        lambda d: d.entropy() + d.loc.abs().sum(),
    ):
        assert torch.autograd.gradcheck(lambda *t, of=of: of(made(*t)), leaves)


@batches
@forms
def test_added_noise(form, batch):
    distribution = random_normal(batch, form)
    for noise in (torch.full((*batch, 1), 0.3), 0.1 + torch.rand(*batch, SIZE), torch.tensor([0.3])):
        noisy = distribution.plus_noise(noise)
        added = torch.diag_embed(noise.expand(*batch, SIZE)).to(torch.complex128)
        torch.testing.assert_close(noisy.covariance_matrix, distribution.covariance_matrix + added)
        torch.testing.assert_close(noisy.variance, distribution.variance + noise)
        pseudo = None if distribution.is_proper else distribution.pseudo_covariance
        reference = ComplexNormal(distribution.loc, distribution.covariance_matrix + added, pseudo_covariance=pseudo)
        value = random_complex(*batch, SIZE)
        torch.testing.assert_close(noisy.log_prob(value), reference.log_prob(value))
        assert noisy.rsample(torch.Size([2])).shape == (2, *batch, SIZE)


@batches
@forms
def test_added_improper_noise(form, batch):
    distribution, noise = random_normal(batch, form), 0.1 + torch.rand(SIZE)
    pseudo = 0.5j * noise
    noisy = distribution.plus_noise(noise, pseudo)
    torch.testing.assert_close(noisy.variance, distribution.variance + noise)
    torch.testing.assert_close(noisy.pseudo_variance, distribution.pseudo_variance + pseudo)
    torch.testing.assert_close(noisy.pseudo_covariance, distribution.pseudo_covariance + torch.diag(pseudo))
    value = random_complex(*batch, SIZE)
    torch.testing.assert_close(noisy.log_prob(value), embedded(noisy).log_prob(parts(value)))


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
    with pytest.raises(ValueError, match="expected pseudo_covariance beside covariance_matrix"):
        ComplexNormal(loc, covariance_root=covariance, pseudo_covariance=covariance)
    with pytest.raises(ValueError, match="expected pseudo_covariance of shape"):
        ComplexNormal(loc, covariance, pseudo_covariance=covariance[:2])
    with pytest.raises(ValueError, match="expected covariance_root for has_real_weights"):
        ComplexNormal(loc, covariance, has_real_weights=True)
    for diagonal in (None, torch.full((SIZE,), 0.9)):
        with pytest.raises(ValueError, match="of a modulus of at most the variances"):
            ComplexNormal(loc, covariance, diagonal=diagonal, pseudo_diagonal=torch.full((SIZE,), 1.0j))
    for shape in ((), (SIZE + 1,)):
        with pytest.raises(
            ValueError, match=rf"expected diagonal of shape \(..., {SIZE}\), got {re.escape(str(shape))}"
        ):
            ComplexNormal(torch.zeros(SIZE) + 0j, covariance_root=torch.eye(SIZE) + 0j, diagonal=torch.ones(shape))
    with pytest.raises(ValueError, match="expected pseudo_diagonal of shape"):
        ComplexNormal(loc, covariance, diagonal=torch.ones(1), pseudo_diagonal=torch.zeros(3))
    for level in (0.0, 1.0, "high", math.nan):
        with pytest.raises(ValueError, match="expected a level between 0 and 1"):
            ComplexNormal(loc, covariance).in_region(loc, level)
    singular = ComplexNormal(loc, covariance_root=random_complex(SIZE, 1))
    indefinite = ComplexNormal(loc, -covariance)
    too_improper = ComplexNormal(loc, covariance, pseudo_covariance=2.0 * covariance)
    for distribution in (singular, indefinite, too_improper):
        with pytest.raises(ValueError, match="expected a positive definite matrix"):
            distribution.log_prob(loc)
        with pytest.raises(ValueError, match="expected a positive definite matrix"):
            kl_divergence(ComplexNormal(loc, covariance), distribution)

"""Leave-group-out predictions equal those of a fit to all other groups, for every noise, form and kind of model."""

import math
import os

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from output_problems import LOWEST, output_kernel, output_likelihood, output_mean, output_rows
from problems import KINDS, model_for, regression_rows, rows_for

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP, folds

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
    pytest.mark.filterwarnings("ignore:.*circular"),
]

SIZES = (1, 1, 3, 3, 5, 13, 14)
"""Of groups of 40 rows, of which some have more rows than there are features."""


def groups_of(sizes, seed=0):
    """Labels, with gaps between their values, of rows in random order."""
    labels = 7 + 3 * torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def close(actual, expected, tolerance=1e-8):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def rows_without(values, is_out):
    return None if values is None else values[~is_out]


def noise_covariance(model, y, noise, is_out):
    """The noise covariance of the values of a group, (C, m, m) or (m T, m T), as the likelihood has it."""
    likelihood, count = model.likelihood, int(is_out.sum())
    if isinstance(likelihood, DirichletClassificationLikelihood):
        known = DirichletClassificationLikelihood(y, dtype=torch.float64).noise_covar.noise
        return torch.diag_embed(known[:, is_out])
    if noise is not None:
        second = likelihood.second_noise_covar
        added = 0.0 if second is None else second.noise.detach().squeeze()
        return torch.diag((noise[is_out] + added).flatten())
    if y.dim() == 1:
        return float(likelihood.noise.detach()) * torch.eye(count)
    zero = rfgp.likelihoods.MultitaskMultivariateNormal(
        torch.zeros(count, y.shape[1]), 1e-300 * torch.eye(count * y.shape[1])
    )
    return likelihood(zero).covariance_matrix.detach()


def density(error, covariance, is_complex):
    seen = ~error.isnan()
    factor = torch.linalg.cholesky(covariance[seen][:, seen])
    white = torch.linalg.solve_triangular(factor.to(error.dtype), error[seen].unsqueeze(-1), upper=False)
    share, circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
    log_det = 2.0 * factor.diagonal().real.log().sum()
    return -share * (white.abs().square().sum() + log_det + int(seen.sum()) * math.log(circle))


def check(model, x, y, groups, noise=None):
    """Means, variances and densities, of rows and groups, against refits without each group."""
    found = model.condition(x, y, noise).leave_group_out(x, y, groups, noise)
    labels = groups.unique()
    assert torch.equal(found.labels, labels) and not found.mean.requires_grad
    is_classes = model.noise.is_batched
    target = DirichletClassificationLikelihood(y, dtype=x.dtype).transformed_targets if is_classes else y
    for label, joint in zip(labels.tolist(), found.group_log_prob, strict=True):
        is_out = groups == label
        latent = model.condition(*(rows_without(values, is_out) for values in (x, y, noise))).posterior(x[is_out])
        own = (Ellipsis, is_out) if is_classes else is_out
        values = target[own]
        missing = values.isnan() if values.dim() == 2 else torch.zeros(values.shape, dtype=torch.bool)
        mean, variance = (part.detach().masked_fill(missing, math.nan) for part in (latent.mean, latent.variance))
        close(found.mean[own], mean)
        close(found.latent_variance[own], variance)
        covariance = latent.covariance_matrix.detach()
        added = noise_covariance(model, y, noise, is_out)
        variances = (covariance + added).diagonal(dim1=-2, dim2=-1).real.reshape(mean.shape)
        close(found.variance[own], variances.masked_fill(mean.isnan(), math.nan))
        errors = (values - mean).reshape(len(added), -1) if is_classes else (values - mean).reshape(1, -1)
        whole = (covariance + added).reshape(-1, *added.shape[-2:])
        pairs = list(zip(errors, whole, strict=True))
        close(joint, torch.stack([density(*pair, model.noise.is_complex) for pair in pairs]).sum())
        size = values.shape[-1] if values.dim() == 2 and not is_classes else 1
        for number, row in enumerate(is_out.nonzero().squeeze(-1).tolist()):
            part = slice(number * size, (number + 1) * size)
            single = [density(e[part], c[part, part], model.noise.is_complex) for e, c in pairs]
            close(found.log_prob[row], torch.stack(single).sum())
    return found


@pytest.mark.parametrize("form", ["real", "complex"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_output(kind, form):
    x, y, noise = rows_for(kind, 40)
    model = model_for(kind, form)
    if form == "complex" and kind != "complex":
        found = model.condition(x, y, noise).leave_group_out(x, y, groups_of(SIZES), noise)
        is_out = groups_of(SIZES) == 22
        latent = model.condition(*(rows_without(values, is_out) for values in (x, y, noise))).posterior(x[is_out])
        close(found.mean[..., is_out], latent.mean.detach())
        close(found.latent_variance[..., is_out], latent.variance.detach())
        return
    check(model, x, y, groups_of(SIZES), noise)


OUTPUTS = [
    ("multitask", "per task", "none"),
    ("multitask", "full", "random"),
    ("curl-free", "fixed+learned", "random"),
    ("mixed sum", "one", "an output"),
]


@pytest.mark.parametrize(("name", "noise", "pattern"), OUTPUTS)
def test_several_outputs(name, noise, pattern):
    x, y = output_rows(name, 40, pattern)
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise), output_mean(name))
    known = model.likelihood.noise_covar.noise if noise.startswith("fixed") else None
    if known is not None:
        known = 0.1 + torch.rand(y.shape, generator=torch.Generator().manual_seed(3))
    check(model, x, y, groups_of((1, 1, 2, 2, 3, 11, 20)), known)


def test_improper_complex_targets():
    x, y, _ = rows_for("complex", 40)
    y[4] = complex(math.nan, 0.0)
    likelihood = rfgp.likelihoods.ComplexGaussianLikelihood(has_pseudo_noise=True)
    likelihood.raw_circularity.data.copy_(torch.tensor([[0.8, -0.5]]))
    model = WeightSpaceGP(rfgp.approximate(ScaleKernel(RBFKernel()), 12, input_dim=3, seed=0), likelihood)
    groups = groups_of(SIZES)
    found = model.condition(x, y).leave_group_out(x, y, groups)
    for label in (7, 13, 25):
        is_out = groups == label
        latent = model.condition(x[~is_out], y[~is_out]).posterior(x[is_out])
        seen = ~y[is_out].isnan()
        close(found.mean[is_out][seen], latent.mean.detach()[seen])
        close(found.variance[is_out][seen], likelihood(latent).variance.detach()[seen])
        if bool(seen.all()):
            close(found.group_log_prob[(found.labels == label)][0], likelihood(latent).log_prob(y[is_out]).detach())
    assert bool(found.mean[4].isnan())


def test_many_classes_share_a_spectrum():
    x, _ = regression_rows(40)
    y = torch.arange(40)
    likelihood = DirichletClassificationLikelihood(num_classes=40)
    model = WeightSpaceGP(rfgp.approximate(ScaleKernel(RBFKernel()), 10, input_dim=3, seed=0), likelihood)
    check(model, x, y, groups_of((1, 2, 17, 20)))


@pytest.mark.parametrize("residual", ["none", "vfe", "fitc"])
def test_landmarks_with_the_variance_that_they_lack(residual):
    x, y, _ = rows_for("gaussian", 40)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 6, method="landmarks", train_inputs=x, seed=0)
    check(WeightSpaceGP(kernel, GaussianLikelihood(), residual=residual), x, y, groups_of(SIZES))


def test_a_mixture_of_draws():
    x, y, _ = rows_for("gaussian", 40)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 10, input_dim=3, seed=0)
    check(WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=3), x, y, groups_of(SIZES))


def blocks(x, num_neighbors, has_known_noise=False, noise=None):
    likelihood = FixedNoiseGaussianLikelihood(torch.ones(1)) if has_known_noise else GaussianLikelihood()
    if noise is not None:
        likelihood = GaussianLikelihood(noise_constraint=LOWEST)
        likelihood.noise = noise
    exact, mean = ScaleKernel(RBFKernel()), ConstantMean()
    mean.constant = 0.4
    exact.base_kernel.lengthscale = 0.8
    kernel = rfgp.approximate(exact, 6, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, likelihood, mean, block_size=8, num_neighbors=num_neighbors)


def block_refit(model, x, y, noise, is_out):
    """The mean and the covariance at rows given all others, in the blocks that they were in."""
    local = model.conditioned.sums.local
    places = local.partition.place(local.points(x))
    features = model.covar_module.features(x).detach()
    if model.num_neighbors is not None:
        left = model.downdate(x[is_out], y[is_out], None if noise is None else noise[is_out])
        mean, weights = left.posterior(x[is_out]).mean.detach(), left.weight_posterior()
        model.condition(x, y, noise)
        residual = model.covar_module.exact_kernel(x).to_dense().detach() - features @ features.mT
        noises = model.likelihood.noise.detach().expand(len(x)) if noise is None else noise
        residual = residual + torch.diag(torch.where(is_out, 0.0, noises))
        apart = torch.cdist(x[is_out], x).masked_fill(is_out, math.inf)
        unknown = torch.eye(len(x))[is_out]
        for combination, rows, out in zip(
            unknown, apart.topk(model.num_neighbors, largest=False).indices, is_out.nonzero().squeeze(-1), strict=True
        ):
            combination[rows] = -torch.linalg.solve(residual[rows][:, rows], residual[rows, out])
        own = (places[is_out][:, None] == places[is_out]) * (unknown @ residual @ unknown.mT)
        root = weights.covariance_root(unknown @ features)
        return mean, own + root @ root.mT
    low_rank, exact = features @ features.mT, model.covar_module.exact_kernel(x).to_dense().detach()
    covariance = torch.where(places[:, None] == places, exact, low_rank)
    added = torch.diag(model.likelihood.noise.detach().expand(len(x)) if noise is None else noise)
    others = (covariance + added)[~is_out][:, ~is_out]
    weights = torch.linalg.solve(others, covariance[~is_out][:, is_out]).mT
    mean = 0.4 + weights @ (y[~is_out] - 0.4)
    return mean, covariance[is_out][:, is_out] - weights @ covariance[~is_out][:, is_out]


@pytest.mark.parametrize("has_known_noise", [False, True])
@pytest.mark.parametrize("num_neighbors", [5, None])
def test_groups_that_cut_across_blocks(num_neighbors, has_known_noise):
    x, y = regression_rows(40)
    noise = 0.1 + x[:, 1] ** 2 if has_known_noise else None
    model, groups = blocks(x, num_neighbors, has_known_noise), groups_of(SIZES)
    found = model.condition(x, y, noise).leave_group_out(x, y, groups, noise)
    for label, joint in zip(found.labels.tolist(), found.group_log_prob, strict=True):
        is_out = groups == label
        mean, latent = block_refit(model, x, y, noise, is_out)
        covariance = latent + noise_covariance(model, y, noise, is_out)
        close(found.mean[is_out], mean)
        close(found.latent_variance[is_out], latent.diagonal())
        close(found.variance[is_out], covariance.diagonal())
        close(joint, density(y[is_out] - mean, covariance, False))


@pytest.mark.parametrize("num_neighbors", [5, None])
@pytest.mark.parametrize("noise", [None, 1e-8])
def test_single_rows_of_blocks(num_neighbors, noise):
    x, y = regression_rows(40)
    model = blocks(x, num_neighbors, noise=noise)
    found = model.condition(x, y).leave_one_out(x, y)
    for row in (0, 11, 30):
        is_out = torch.arange(40) == row
        mean, latent = block_refit(model, x, y, None, is_out)
        close(found.mean[row], mean[0], 1e-8 if noise is None else 1e-5)
        close(found.latent_variance[row], latent[0, 0], 1e-8 if noise is None else 1e-6)


@pytest.mark.parametrize("num_neighbors", [5, None])
def test_a_block_out(num_neighbors):
    x, y = regression_rows(40)
    model = blocks(x, num_neighbors).condition(x, y)
    groups = model.conditioned.sums.local.partition.place(model.conditioned.sums.local.points(x))
    found = model.leave_group_out(x, y, groups)
    for label in (0, 3):
        mean, latent = block_refit(model, x, y, None, groups == label)
        close(found.mean[groups == label], mean)
        close(found.latent_variance[groups == label], latent.diagonal())


def test_more_groups_than_are_held_and_rows_of_no_large_group():
    x, y, _ = rows_for("gaussian", 300)
    kernel = rfgp.approximate(RBFKernel(), 6, input_dim=3, seed=0)
    groups = groups_of((1, 2) + (11,) * 27)
    found = WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, y).leave_group_out(x, y, groups)
    model = WeightSpaceGP(kernel, GaussianLikelihood())
    for label in found.labels[[0, 1, 2, 15, 28]].tolist():
        is_out = groups == label
        close(found.mean[is_out], model.condition(x[~is_out], y[~is_out]).posterior(x[is_out]).mean.detach())


@pytest.mark.parametrize("sizes", [(5,) * 8, (20, 20)])
def test_tiny_noise_keeps_digits(sizes):
    x, y, _ = rows_for("gaussian", 40)
    likelihood = GaussianLikelihood(noise_constraint=LOWEST)
    likelihood.noise = 1e-8
    model = WeightSpaceGP(rfgp.approximate(RBFKernel(), 12, input_dim=3, seed=0), likelihood)
    groups = groups_of(sizes)
    found = model.condition(x, y).leave_group_out(x, y, groups)
    for label in found.labels[:2].tolist():
        is_out = groups == label
        features = model.covar_module.features(x).detach()
        known, own = features[~is_out], features[is_out]
        # the posterior by the singular values of the features, which does not square them
        u, s, v = torch.linalg.svd(known, full_matrices=False)
        mean = own @ (v.mT * (s / (s.square() + 1e-8))) @ (u.mT @ y[~is_out])
        variance = (own @ v.mT * (1e-8 / (s.square() + 1e-8)).sqrt()).square().sum(-1)
        close(found.mean[is_out], mean, 1e-6)
        close(found.latent_variance[is_out] / variance, torch.ones_like(variance), 1e-5)


def test_groups_of_one_row_are_leave_one_out_and_folds_are_random():
    x, y, _ = rows_for("gaussian", 40)
    model = model_for("gaussian").condition(x, y)
    single, alone = model.leave_one_out(x, y), model.leave_group_out(x, y, torch.arange(40))
    for a, b in zip(single, alone[:4], strict=True):
        close(a, b, 1e-12)
    close(alone.group_log_prob, alone.log_prob, 0.0)
    by_number, by_label = model.leave_group_out(x, y, 7, seed=3), model.leave_group_out(x, y, folds(40, 7, 3))
    assert torch.equal(by_number.mean, by_label.mean)
    assert folds(40, 7, 3).bincount().tolist() == [6, 6, 6, 6, 6, 5, 5]
    assert not torch.equal(folds(40, 7, 3), folds(40, 7, 4))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.arange(39), "each of 40 rows"),
        (torch.zeros(40, dtype=torch.long), "two groups"),
        (torch.rand(40), "integer labels"),
        (1, "two folds"),
        (41, "from 1 to 40"),
    ],
)
def test_groups_of_another_kind_are_refused(groups, message):
    x, y, _ = rows_for("gaussian", 40)
    model = model_for("gaussian").condition(x, y)
    with pytest.raises(ValueError, match=message):
        model.leave_group_out(x, y, groups)


def test_groups_of_blocks_whose_covariances_do_not_fit_in_memory_are_refused(monkeypatch):
    x, y = regression_rows(200)
    model = blocks(x, 16).condition(x, y)
    monkeypatch.setattr(os, "sysconf", lambda name: 700)
    with pytest.raises(ValueError, match="covariances of the 150 values of a group to fit"):
        model.leave_group_out(x, y, (torch.arange(200) < 150).long())
    assert model.leave_group_out(x, y, 20).mean.shape == (200,)


def test_rows_that_blocks_do_not_have_are_refused():
    x, y = regression_rows(40)
    model = blocks(x, 5).condition(x, y)
    for other in ((x[1:], y[1:]), (x + 1.0, y)):
        with pytest.raises(ValueError, match="rows"):
            model.leave_one_out(*other)

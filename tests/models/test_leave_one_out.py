"""Leave-one-out predictions equal those of a fit to all other rows, for every noise, form and pattern."""

import math

import mpmath
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from output_problems import LOWEST, OUTPUT_KERNELS, output_kernel, output_likelihood, output_mean, output_rows
from problems import KINDS, model_for, rows_for

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
    pytest.mark.filterwarnings("ignore:.*circular"),
]


def without(values, row):
    return None if values is None else torch.cat([values[:row], values[row + 1 :]])


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def noise_of_row(likelihood, noise, row, is_batched):
    """The noise variances at one row, as a fit knows them."""
    if noise is not None:
        second = likelihood.second_noise_covar
        return noise[row] + (0.0 if second is None else second.noise.detach().squeeze())
    return None if is_batched else likelihood.noise.detach().squeeze()


def check(model, x, y, noise=None, chosen=(0, 3, 17)):
    """Means and variances of functions and observations against refits."""
    found = model.condition(x, y, noise).leave_one_out(x, y, noise)
    assert not any(part.requires_grad for part in found)
    axis = 1 if model.noise.is_batched else 0
    for row in chosen:
        latent = model.condition(*(without(values, row) for values in (x, y, noise))).posterior(x[row : row + 1])
        missing = torch.isnan(y[row]) if y.dim() == 2 else torch.tensor(False)
        mean, _, variance = (part.select(axis, row) for part in (found.mean, found.variance, found.latent_variance))
        for actual, expected in ((mean, latent.mean), (variance, latent.variance)):
            close(actual, expected.detach().reshape(actual.shape).masked_fill(missing, math.nan))
    return found


@pytest.mark.parametrize("form", ["real", "ctr", "complex"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_output(kind, form):
    x, y, noise = rows_for(kind, 40)
    model = model_for(kind, form)
    found = check(model, x, y, noise)
    added = found.variance - found.latent_variance
    if kind != "dirichlet":
        close(added, noise_of_row(model.likelihood, noise, slice(None), False).expand(40))
        target = y
    else:
        labeled = DirichletClassificationLikelihood(y, dtype=x.dtype)
        target = labeled.transformed_targets
        close(added, labeled.noise_covar.noise)
    error = (target - found.mean).abs().square()
    share, circle = (1.0, math.pi) if kind == "complex" else (0.5, 2.0 * math.pi)
    density = -share * (error / found.variance + found.variance.log() + math.log(circle))
    close(found.log_prob, density.sum(0) if kind == "dirichlet" else density)


@pytest.mark.parametrize("kind", ["noise", "known noise", "function"])
def test_improper_complex_targets(kind):
    x, y, _ = rows_for("complex", 30)
    y[4] = complex(math.nan, 0.0)
    noise = 0.1 + torch.rand(30, generator=torch.Generator().manual_seed(0)) if kind == "known noise" else None
    if noise is None:
        likelihood = rfgp.likelihoods.ComplexGaussianLikelihood(has_pseudo_noise=kind == "noise")
    else:
        likelihood = rfgp.likelihoods.FixedNoiseComplexGaussianLikelihood(noise, has_pseudo_noise=True)
    if kind != "function":
        likelihood.raw_circularity.data.copy_(torch.tensor([[0.8, -0.5]]))
    exact = MultitaskKernel(RBFKernel(), num_tasks=2, rank=2) if kind == "function" else ScaleKernel(RBFKernel())
    model = WeightSpaceGP(rfgp.approximate(exact, 20, input_dim=3, seed=0), likelihood)
    found = check(model, x, y, noise)
    for row in (0, 7):
        latent = model.condition(*(without(values, row) for values in (x, y, noise))).posterior(x[row : row + 1])
        given = {} if noise is None else {"noise": noise[row : row + 1]}
        close(found.log_prob[row], likelihood(latent, **given).log_prob(y[row : row + 1]).detach().squeeze())
        close(found.variance[row], likelihood(latent, **given).variance.detach().squeeze())
    assert bool(found.mean[4].isnan()) and bool(found.variance[4].isnan())


OUTPUTS = [
    ("multitask", "per task", "rows"),
    ("curl-free", "fixed+learned", "random"),
    ("helmholtz", "full", "random"),
    ("mixed sum", "one", "an output"),
    ("laplacian", "one", "random"),
]


@pytest.mark.parametrize(("name", "noise", "pattern"), OUTPUTS)
def test_several_outputs(name, noise, pattern):
    x, y = output_rows(name, 20, pattern)
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise), output_mean(name))
    known = model.likelihood.noise_covar.noise if noise.startswith("fixed") else None
    found = check(model, x, y, known, chosen=(0, 1, 17))
    assert found.mean.shape == y.shape and found.log_prob.shape == (20,)
    if OUTPUT_KERNELS[name][1] > 1:
        close(found.log_prob, log_densities(model, x, y, known))


def log_densities(model, x, y, noise):
    """The log density of what is observed of each row, from a fit to the others and the noise of the likelihood."""
    densities = []
    for row in range(len(x)):
        latent = model.condition(*(without(values, row) for values in (x, y, noise))).posterior(x[row : row + 1])
        seen = ~torch.isnan(y[row])
        if noise is None:
            covariance = model.likelihood(latent).covariance_matrix.detach()
        else:
            added = model.likelihood.second_noise_covar.noise.detach() + noise[row]
            covariance = latent.covariance_matrix.detach() + torch.diag(added)
        own = torch.distributions.MultivariateNormal(latent.mean.detach()[0, seen], covariance[seen][:, seen])
        densities.append(own.log_prob(y[row, seen]) if bool(seen.any()) else torch.zeros(()))
    return torch.stack(densities)


def test_a_mixture_of_draws():
    x, y, _ = rows_for("gaussian", 30)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 10, input_dim=3, seed=0)
    check(WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=3), x, y)


def exact_moments(features, noise, y):
    """Means and variances (N, T) without each row of T outputs, from the inverse covariance with 60 digits."""
    outputs, seen = y.shape[-1], ~torch.isnan(y)
    row_of = torch.arange(len(y)).repeat_interleave(outputs)[seen.flatten()].tolist()
    mean, variance = (torch.full_like(y, math.nan) for _ in range(2))
    with mpmath.workdps(60):
        known = mpmath.matrix(features[seen.flatten()].tolist())
        inverse = (known * known.T + mpmath.mpf(noise) * mpmath.eye(len(row_of))) ** -1
        weights = inverse * mpmath.matrix(y[seen].tolist())
        for row in set(row_of):
            own = [i for i, other in enumerate(row_of) if other == row]
            covariance = mpmath.matrix([[inverse[i, j] for j in own] for i in own]) ** -1
            error = covariance * mpmath.matrix([weights[i] for i in own])
            mean[row, seen[row]] = y[row, seen[row]] - torch.tensor([float(e) for e in error])
            variance[row, seen[row]] = torch.tensor([float(covariance[i, i]) for i in range(len(own))])
    return mean, variance


def check_digits(model, x, y, noise):
    """The digits that are left where rows are nearly interpolated, with the first one far from the others."""
    x = torch.cat([x[:1], 1e-3 * x[1:]])
    found = model.condition(x, y).leave_one_out(x, y)
    features = model.covar_module.features(x).detach()
    mean, variance = exact_moments(features, noise, y if y.dim() == 2 else y.unsqueeze(-1))
    assert float(variance.nan_to_num(0.0).max()) > 1e6 * noise
    close(found.variance.reshape(variance.shape) / variance, torch.where(variance.isnan(), math.nan, 1.0), 1e-7)
    close(found.mean.reshape(mean.shape), mean, 1e-5)


@pytest.mark.parametrize("width", [12, 60])
def test_noise_of_1e_minus_8_with_rows_that_are_nearly_interpolated(width):
    x, y, _ = rows_for("gaussian", 24)
    likelihood = GaussianLikelihood(noise_constraint=LOWEST)
    likelihood.noise = 1e-8
    kernel = rfgp.approximate(RBFKernel(), width, input_dim=3, seed=0)
    check_digits(WeightSpaceGP(kernel, likelihood), x, y, float(likelihood.noise.detach()))


@pytest.mark.parametrize(("name", "pattern"), [("multitask", "none"), ("curl-free", "random")])
def test_noise_of_1e_minus_8_with_several_outputs(name, pattern):
    x, y = output_rows(name, 14, pattern)
    likelihood = output_likelihood(name, "one")
    likelihood.noise = 1e-8
    check_digits(WeightSpaceGP(output_kernel(name), likelihood), x, y, float(likelihood.noise.detach()))


def test_float32_stays_float32_and_is_near():
    x, y, _ = rows_for("gaussian", 60)
    results = []
    for dtype in (torch.float32, torch.float64):
        kernel = rfgp.approximate(RBFKernel().to(dtype), 20, input_dim=3, seed=0)
        model = WeightSpaceGP(kernel, GaussianLikelihood().to(dtype)).condition(x.to(dtype), y.to(dtype))
        results.append(model.leave_one_out(x.to(dtype), y.to(dtype)))
    assert results[0].mean.dtype == results[0].variance.dtype == torch.float32
    close(results[0].mean.double(), results[1].mean, 1e-4)
    close(results[0].variance.double(), results[1].variance, 1e-4)


def test_many_rows_in_chunks_and_in_any_order():
    x, y, noise = rows_for("fixed", 12_000)
    model = model_for("fixed").condition(x, y, noise)
    found = model.leave_one_out(x, y, noise)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    for part, same in zip(found, model.leave_one_out(x[order], y[order], noise[order]), strict=True):
        close(part[order], same)


def test_rows_that_were_not_fitted_are_refused():
    x, y, _ = rows_for("gaussian", 40)
    model = model_for("gaussian")
    with pytest.raises(ValueError, match="fitted model"):
        model.leave_one_out(x, y)
    model.condition(x, y)
    before = model.posterior(x[:2]).mean
    for other in ((x[1:], y[1:]), (x, y.flip(0)), (x + 1.0, y)):
        with pytest.raises(ValueError, match="rows of the fit"):
            model.leave_one_out(*other)
    assert torch.equal(model.posterior(x[:2]).mean, before)


def test_a_call_is_the_posterior():
    x, y, _ = rows_for("gaussian", 40)
    model = model_for("gaussian")
    with pytest.raises(ValueError, match="fitted model"):
        model(x)
    model.condition(x, y)
    assert torch.equal(model(x).mean, model.posterior(x).mean)
    assert torch.equal(model.likelihood(model(x)).variance, model.likelihood(model.posterior(x)).variance)

"""Complex targets: missing ones, known noise, improper noise and priors, in every way of a model."""

import copy
import math
import warnings

import gpytorch
import pytest
import torch
from embedding import parts
from gpytorch.kernels import IndexKernel, MultitaskKernel, RBFKernel, ScaleKernel

import rfgp
from rfgp.diagnostics import exact_posterior, kl_to_exact
from rfgp.likelihoods import ComplexGaussianLikelihood, ComplexNormal, FixedNoiseComplexGaussianLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

NAN = complex(math.nan, 0.0)
METHODS = {"real": "fourier", "complex": "fourier:complex", "two outputs": None, "landmarks": "landmarks"}
NOISES = ("circular", "improper", "fixed", "fixed improper", "fixed + learned")


def kernel_of(form, width=16):
    if form == "two outputs":
        torch.manual_seed(2)
        exact = MultitaskKernel(RBFKernel(), num_tasks=2, rank=2)
        return rfgp.approximate(exact, width, input_dim=2, seed=0)
    if form == "landmarks":
        exact = ScaleKernel(RBFKernel())
        return rfgp.approximate(exact, 8, method="landmarks", train_inputs=rows()[0], seed=0)
    exact = ScaleKernel(RBFKernel())
    exact.outputscale = 1.5
    return rfgp.approximate(exact, width, method=METHODS[form], input_dim=2, seed=0)


def likelihood_of(noise, known):
    is_improper = "improper" in noise
    if noise.startswith("fixed"):
        return FixedNoiseComplexGaussianLikelihood(known, "learned" in noise, is_improper)
    made = ComplexGaussianLikelihood(has_pseudo_noise=is_improper)
    made.noise = 0.3
    if is_improper:
        made.circularity = 0.3 + 0.6j
    return made


def rows(num_rows=50, missing=0):
    torch.manual_seed(1)
    x = torch.randn(num_rows, 2)
    y = torch.complex(x.sin().sum(-1), 0.5 * x[:, 0]) + 0.3 * torch.randn(num_rows, dtype=torch.complex128)
    y[5 : 5 + missing] = NAN
    if missing > 1:
        y[6] = complex(1.0, math.nan)
    return x, y, 0.1 + torch.rand(num_rows)


def model_of(form, noise, **options):
    return WeightSpaceGP(kernel_of(form), likelihood_of(noise, rows()[2]), **options)


def given(noise, known):
    return known if noise.startswith("fixed") else None


def same(a, b, tolerance=1e-9):
    for name in ("mean", "covariance_matrix", "pseudo_covariance"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance)


cases = pytest.mark.parametrize(("form", "noise"), [(f, n) for f in METHODS for n in NOISES])


@cases
def test_rows_whose_targets_are_missing_are_left_out(form, noise):
    x, y, known = rows(missing=4)
    observed = ~torch.isnan(y)
    assert observed.sum() == 46
    model, short = model_of(form, noise), model_of(form, noise)
    known_here = given(noise, known)
    some = None if known_here is None else known.masked_fill(~observed, math.nan)
    values = []
    for each, data in ((model, (x, y, some)), (short, (x[observed], y[observed], given(noise, known[observed])))):
        values.append(each.condition(*data).log_marginal_likelihood())
    torch.testing.assert_close(*values, rtol=1e-12, atol=0.0)
    same(model.posterior(x[:4]), short.posterior(x[:4]))
    assert model.statistics.num_rows == 46


def test_all_targets_missing_raise():
    x, y, _ = rows(10)
    for noise in ("circular", "improper"):
        model = model_of("real", noise)
        with pytest.raises(ValueError, match="expected at least one observed target"):
            model.condition(x, torch.full_like(y, NAN))
        y[0] = complex(math.inf, 0.0)
        with pytest.raises(ValueError, match="finite"):
            model.condition(x, y)


@cases
@torch.no_grad()
def test_batches_updates_and_states(form, noise):
    x, y, known = rows(missing=3)
    model, known_here = model_of(form, noise), given(noise, known)
    model.condition(x, y, known_here)
    evidence, points = model.log_marginal_likelihood(), torch.randn(4, 2)
    halves = [(x[p], y[p]) if known_here is None else (x[p], y[p], known[p]) for p in (slice(0, 20), slice(20, None))]
    others = [
        model_of(form, noise).condition(halves),
        model_of(form, noise).update(*halves[0]).update(*halves[1]),
        copy.deepcopy(model),
        model_of(form, noise).load_statistics(model.statistics),
    ]
    loaded = model_of(form, noise)
    loaded.load_state_dict(model.state_dict())
    shards = [model_of(form, noise).condition(*half).statistics for half in halves]
    others += [loaded, model_of(form, noise).load_statistics(shards[0].merge(shards[1]))]
    for other in others:
        torch.testing.assert_close(other.log_marginal_likelihood(), evidence, rtol=1e-10, atol=0.0)
        same(other.posterior(points), model.posterior(points))


@pytest.mark.parametrize("noise", ["improper", "fixed improper"])
@pytest.mark.parametrize("form", METHODS)
def test_statistics_of_another_model_are_refused(form, noise):
    x, y, known = rows()
    model = model_of(form, noise).condition(x, y, given(noise, known))
    proper = model_of("real", "circular").condition(x, y)
    with pytest.raises(ValueError, match="expected"):
        model.load_statistics(proper.statistics)
    with pytest.raises(ValueError, match="expected"):
        model.load_state_dict(proper.state_dict())
    assert model.posterior(x[:2]).mean.isfinite().all()


@cases
@torch.no_grad()
def test_functions_that_are_drawn_have_the_moments(form, noise):
    if form == "landmarks":
        return
    x, y, known = rows()
    model, points, count = model_of(form, noise).condition(x, y, given(noise, known)), torch.randn(3, 2), 500
    posterior = model.posterior(points)
    draws = torch.stack([function(points) for function in model.sample_functions(count)])
    assert draws.shape == (count, 3) and draws.is_complex()
    for values in (draws, posterior.sample((count,))):
        centered = values - posterior.mean
        spread = posterior.variance
        assert (centered.mean(0).abs() <= 5.0 * (spread / count).sqrt()).all()
        bound = 5.0 * (2.0 * spread[:, None] * spread / count).sqrt()
        assert ((centered.mT @ centered.conj() / count - posterior.covariance_matrix).abs() <= bound).all()
        assert ((centered.mT @ centered / count - posterior.pseudo_covariance).abs() <= bound).all()


@pytest.mark.parametrize("form", ["real", "complex", "two outputs"])
def test_training_learns_the_circularity(form):
    torch.manual_seed(0)
    x = torch.rand(400, 2)
    noise = torch.complex(0.5 * torch.randn(400), 0.1 * torch.randn(400)) * torch.polar(torch.ones(1), torch.ones(1))
    y = torch.complex((3.0 * x[:, 0]).sin(), x[:, 1]) + noise
    model = WeightSpaceGP(kernel_of(form, 64), ComplexGaussianLikelihood(has_pseudo_noise=True))
    start = model.condition(x, y).log_marginal_likelihood().detach()
    summary = rfgp.fit(model, x, y, max_evaluations=60, progress=False)
    truth = (0.25 - 0.01) / (0.25 + 0.01) * torch.polar(torch.ones(()), torch.tensor(2.0))
    assert summary is not None and model.log_marginal_likelihood() > start
    assert (model.likelihood.circularity.detach() - truth).abs().max() < 0.1
    assert abs(float(model.likelihood.noise.detach()) - 0.26) < 0.06
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.posterior(x[:3])


def test_real_data_as_complex_ones_end_at_the_boundary_without_error():
    x, y, _ = rows(200)
    model = WeightSpaceGP(kernel_of("real", 32), ComplexGaussianLikelihood(has_pseudo_noise=True))
    rfgp.fit(model, x, y.real.to(torch.complex128), max_evaluations=30, progress=False)
    assert model.likelihood.circularity.abs() < 1.0


@cases
def test_single_precision(form, noise):
    x, y, known = rows()
    model = model_of(form, noise).to(torch.float32)
    single = [
        None if part is None else part.to(t)
        for part, t in zip((x, y, given(noise, known)), (torch.float32, torch.complex64, torch.float32), strict=True)
    ]
    posterior = model.condition(*single).posterior(single[0][:4])
    assert posterior.mean.dtype == torch.complex64 and posterior.variance.isfinite().all()
    exact = model_of(form, noise).condition(x, y, given(noise, known)).posterior(x[:4])
    assert (posterior.mean - exact.mean).abs().max() < 1e-3


@pytest.mark.parametrize("form", METHODS)
def test_several_draws(form):
    if form == "landmarks":
        return
    x, y, _ = rows()
    model = model_of(form, "improper", num_draws=3).condition(x, y)
    posterior = model.posterior(x[:4])
    singles = [model.unconditioned(model.covar_module).condition(x, y), *model.further_draws.of(model)]
    each = [single.posterior(x[:4]) for single in singles]
    means = torch.stack([part.mean for part in each])
    centered = means - means.mean(0)
    torch.testing.assert_close(posterior.mean, means.mean(0))
    pseudo = torch.stack([part.pseudo_covariance for part in each]).mean(0) + centered.mT @ centered / 3
    covariance = torch.stack([part.covariance_matrix for part in each]).mean(0) + centered.mT @ centered.conj() / 3
    torch.testing.assert_close(posterior.pseudo_covariance, pseudo)
    torch.testing.assert_close(posterior.covariance_matrix, covariance)
    assert model.sample_functions(2)[0](x[:4]).is_complex()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("form", ["real", "two outputs"])
def test_the_exact_reference_is_what_many_features_tend_to(form, noise):
    x, y, known = rows(30, missing=3)
    if form == "two outputs":
        torch.manual_seed(2)
        exact = MultitaskKernel(gpytorch.kernels.LinearKernel(), num_tasks=2, rank=2)
    else:
        exact = gpytorch.kernels.LinearKernel()
    kernel = rfgp.approximate(exact, 2, method="linear", input_dim=2)
    model = WeightSpaceGP(kernel, likelihood_of(noise, known), keep_data=True).condition(x, y, given(noise, known))
    points = torch.randn(5, 2)
    latent = exact_posterior(kernel, model.likelihood, x, y, points, noise=given(noise, known))
    posterior = model.posterior(points)
    for name in ("mean", "variance", "pseudo_variance"):
        torch.testing.assert_close(getattr(latent, name), getattr(posterior, name), rtol=1e-9, atol=1e-10)
    assert abs(kl_to_exact(model, points)) < 1e-9
    if not noise.startswith("fixed"):
        assert abs(kl_to_exact(model, points, noisy=True)) < 1e-9


def test_divergences_of_improper_marginals_are_those_of_two_real_variables():
    torch.manual_seed(0)
    roots = [torch.randn(4, 3, dtype=torch.complex128) for _ in range(2)]
    p, q = (
        ComplexNormal(torch.randn(4, dtype=torch.complex128), covariance_root=r, has_real_weights=True) for r in roots
    )
    total = 0.0
    for i in range(4):
        pair = []
        for d in (p, q):
            v, s = d.variance[i], d.pseudo_variance[i]
            matrix = 0.5 * torch.stack([torch.stack([v + s.real, s.imag]), torch.stack([s.imag, v - s.real])])
            pair.append(torch.distributions.MultivariateNormal(parts(d.mean[i : i + 1]), matrix))
        total = total + torch.distributions.kl_divergence(*pair)
    torch.testing.assert_close(rfgp.diagnostics.kl_divergence(p, q), total)
    noisy = [d.plus_noise(torch.ones(1)) for d in (p, q)]
    joint = rfgp.diagnostics.kl_divergence(*noisy, joint=True)
    torch.testing.assert_close(joint, torch.distributions.kl_divergence(*noisy))


def test_what_features_lack_is_circular():
    x, y, _ = rows()
    model = model_of("landmarks", "improper").condition(x, y)
    posterior = model.posterior(x[:4])
    features = ComplexNormal(posterior.mean, covariance_root=posterior.covariance_root, has_real_weights=True)
    added = posterior.covariance_matrix - features.covariance_matrix
    torch.testing.assert_close(added.diagonal().real, model.covar_module.residual_variance(x[:4]))
    torch.testing.assert_close(posterior.pseudo_covariance, features.pseudo_covariance)


def test_errors():
    x, y, known = rows(20)
    three = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=3), 8, input_dim=2)
    with pytest.raises(ValueError, match="or one of two outputs"):
        WeightSpaceGP(three, ComplexGaussianLikelihood()).condition(x, y)
    for form in ("real", "two outputs"):
        with pytest.raises(ValueError, match="expected complex targets"):
            model_of(form, "improper").condition(x, y.real)
        with pytest.raises(ValueError, match="expected no noise"):
            model_of(form, "improper").condition(x, y, known)
        with pytest.raises(ValueError, match="expected the noise of 20 rows"):
            model_of(form, "fixed improper").update(x, y)
        with pytest.raises(ValueError, match="of shape"):
            model_of(form, "improper").condition(x, y[:5])
    landmarks = rfgp.approximate(RBFKernel(), 8, method="landmarks", train_inputs=x)
    for options in ({"block_size": 10}, {"residual": "vfe"}):
        with pytest.raises(ValueError, match=r"expected (one output|real targets)"):
            WeightSpaceGP(landmarks, likelihood_of("improper", None), **options)
    batch = ComplexGaussianLikelihood(batch_shape=(2,), has_pseudo_noise=True)
    with pytest.raises(ValueError, match="one noise variance"):
        WeightSpaceGP(kernel_of("real"), batch)


@pytest.mark.parametrize("form", METHODS)
@torch.no_grad()
def test_batches_of_inputs(form):
    x, y, _ = rows()
    model, points = model_of(form, "improper").condition(x, y), torch.randn(3, 4, 2)
    posterior, function = model.posterior(points), model.sample_functions(1)[0]
    assert posterior.mean.shape == (3, 4) and function(points).shape == (3, 4)
    for index in range(3):
        one = model.posterior(points[index])
        torch.testing.assert_close(posterior.mean[index], one.mean)
        torch.testing.assert_close(posterior.covariance_matrix[index], one.covariance_matrix)
        torch.testing.assert_close(posterior.pseudo_covariance[index], one.pseudo_covariance)


@pytest.mark.parametrize("has_pseudo_noise", [False, True])
@torch.no_grad()
def test_circular_noise_around_an_improper_function_warns_where_it_is_not(has_pseudo_noise):
    torch.manual_seed(0)
    x = torch.rand(400, 2)
    y = torch.complex(x[:, 0].sin(), x[:, 1]) + torch.complex(0.5 * torch.randn(400), 0.1 * torch.randn(400))
    likelihood = ComplexGaussianLikelihood(has_pseudo_noise=has_pseudo_noise)
    likelihood.noise = 0.26
    model = WeightSpaceGP(kernel_of("two outputs"), likelihood)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.condition(x, y).posterior(x[:3])
    assert any("has_pseudo_noise=True" in str(warning.message) for warning in caught) != has_pseudo_noise


def test_an_operator_of_a_complex_field_is_real():
    x, y, _ = rows()
    exact = rfgp.kernels.HelmholtzKernel(RBFKernel(), RBFKernel())
    kernel = rfgp.approximate(exact, 16, input_dim=2, seed=0)
    likelihood = ComplexGaussianLikelihood()
    model = WeightSpaceGP(kernel, likelihood).condition(x, y)
    two = gpytorch.likelihoods.MultitaskGaussianLikelihood(2, has_task_noise=False)
    two.noise = likelihood.noise.detach() / 2.0
    real = WeightSpaceGP(kernel, two).condition(x, torch.view_as_real(y))
    for operator in (rfgp.functionals.Divergence(), rfgp.functionals.CurlFreePart()):
        ours, theirs = (each.posterior(x[:3], operator) for each in (model, real))
        torch.testing.assert_close(ours.mean, theirs.mean)
        torch.testing.assert_close(ours.covariance_matrix, theirs.covariance_matrix)


def test_a_prior_of_two_tasks_is_an_improper_one():
    kernel = MultitaskKernel(RBFKernel(), num_tasks=2, rank=2)
    tasks: IndexKernel = kernel.task_covar_module
    x, y, _ = rows()
    model = WeightSpaceGP(rfgp.approximate(kernel, 256, input_dim=2, seed=0), ComplexGaussianLikelihood()).condition(
        x, y
    )
    far = model.posterior(1e3 * torch.ones(1, 2))
    b = tasks.covar_matrix.to_dense().detach()
    torch.testing.assert_close(far.variance, (b[0, 0] + b[1, 1]).reshape(1), rtol=0.2, atol=0.0)
    expected = torch.complex(b[0, 0] - b[1, 1], 2.0 * b[0, 1]).reshape(1)
    assert (far.pseudo_variance - expected).abs() < 0.2 * far.variance

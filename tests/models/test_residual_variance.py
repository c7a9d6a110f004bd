"""Predictions with features of a truncated series add the prior variance that these lack, on the diagonal alone."""

import copy

import gpytorch
import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from output_problems import ExactOutputModel
from problems import ExactModel

import rfgp
from rfgp.approximation import FeatureKernel, with_features
from rfgp.diagnostics import exact_posterior
from rfgp.inference.posterior.covariance import CovariancePlusResidual
from rfgp.kernels import DotProductKernel, ExponentialDotProductKernel
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

COLUMNS = 3


def inputs(num_rows=40, seed=0, size=1.5):
    return size * torch.randn(num_rows, COLUMNS, generator=torch.Generator().manual_seed(seed))


def maclaurin(kernel, method="optimized_maclaurin:ctr", num_features=30, seed=0):
    """Features of a truncated series, for inputs of a narrow range."""
    return rfgp.approximate(kernel, num_features, method=method, train_inputs=inputs(seed=9, size=0.5), seed=seed)


def scaled(kernel, outputscale=2.0, **options):
    kernel = ScaleKernel(kernel, **options)
    kernel.outputscale = outputscale
    return kernel


def missing(kernel, x):
    """By the definition, for a kernel whose features are all truncated."""
    exact = kernel.exact_kernel(x, diag=True)
    return (exact - kernel.features(x).abs().square().sum(-1)).clamp_min(0.0)


SINGLE = {
    "rbf": lambda: maclaurin(RBFKernel()),
    "rbf, real": lambda: maclaurin(RBFKernel(), "optimized_maclaurin:real"),
    "rbf, complex": lambda: maclaurin(RBFKernel(), "optimized_maclaurin:complex"),
    "rbf, random degrees": lambda: maclaurin(RBFKernel(), "random_maclaurin:real"),
    "rbf of some columns": lambda: maclaurin(RBFKernel(active_dims=[0, 2])),
    "exponential": lambda: maclaurin(ExponentialDotProductKernel()),
    "scaled": lambda: maclaurin(scaled(RBFKernel())),
    "scaled, of some columns": lambda: maclaurin(scaled(RBFKernel(active_dims=[0, 2]))),
}


@pytest.mark.parametrize("name", SINGLE)
def test_residual_is_what_the_features_lack_of_the_kernel(name):
    kernel, x = SINGLE[name](), inputs()
    with torch.no_grad():
        residual, expected = kernel.residual_variance(x), missing(kernel, x)
    assert float(expected.max()) > 0.1
    torch.testing.assert_close(residual, expected)


def test_batched_scales_have_a_residual_each():
    kernel, x = maclaurin(scaled(RBFKernel(), torch.tensor([0.5, 2.0]), batch_shape=torch.Size([2]))), inputs()
    with torch.no_grad():
        base = parts(kernel)[0].residual_variance(x)
        torch.testing.assert_close(kernel.residual_variance(x), torch.stack([0.5 * base, 2.0 * base]))


def test_a_sum_adds_the_residuals_of_its_truncated_parts():
    first, second = maclaurin(scaled(RBFKernel(active_dims=[0])), seed=1), maclaurin(ExponentialDotProductKernel())
    fourier = rfgp.approximate(MaternKernel(nu=1.5), 10, input_dim=COLUMNS)
    kernel, x = with_features(AdditiveKernel(first, fourier, second)), inputs()
    with torch.no_grad():
        torch.testing.assert_close(kernel.residual_variance(x), missing(first, x) + missing(second, x))


def test_a_product_has_the_prior_variance_of_its_parts():
    first, second = maclaurin(scaled(RBFKernel()), seed=1), maclaurin(ExponentialDotProductKernel(), num_features=8)
    linear = rfgp.approximate(LinearKernel(), COLUMNS, input_dim=COLUMNS)
    x = inputs()
    with torch.no_grad():
        for parts in ((first, second), (first, linear), (linear, second)):
            kernel = with_features(ProductKernel(*parts))
            own = [part.features(x).square().sum(-1) for part in parts]
            lacking = [torch.zeros(len(x)) if part is linear else missing(part, x) for part in parts]
            expected = (own[0] + lacking[0]) * (own[1] + lacking[1]) - own[0] * own[1]
            torch.testing.assert_close(kernel.residual_variance(x), expected)


def test_tasks_have_the_residual_times_their_variances():
    exact = MultitaskKernel(scaled(RBFKernel()), num_tasks=2)
    kernel, x = maclaurin(exact), inputs()
    with torch.no_grad():
        variances = exact.task_covar_module.covar_matrix.to_dense().diagonal()
        expected = (missing(parts(kernel)[0], x)[:, None] * variances).flatten()
        torch.testing.assert_close(kernel.residual_variance(x), expected)


def test_a_dot_product_kernel_has_one_where_its_series_is_cut():
    coefficients, x = torch.tensor([0.5, 1.0, 0.0, 0.3]), inputs()
    whole = maclaurin(DotProductKernel(coefficients))
    cut = FeatureKernel(DotProductKernel(torch.cat([coefficients, torch.ones(1)])), whole.feature_map)
    assert whole.residual_variance(x) is None
    torch.testing.assert_close(cut.residual_variance(x), missing(cut, x))


def test_a_polynomial_kernel_has_one_where_a_degree_is_left_out():
    exact, x = PolynomialKernel(power=4), inputs()
    cut = rfgp.approximate(exact, 12, method="optimized_maclaurin:ctr", train_inputs=inputs(size=0.05), seed=0)
    assert max(cut.feature_map.num_columns) < 4
    with torch.no_grad():
        torch.testing.assert_close(cut.residual_variance(x), missing(cut, x))
    kept = maclaurin(PolynomialKernel(power=2), num_features=60)
    assert set(kept.feature_map.num_columns) == {0, 1, 2} and kept.residual_variance(x) is None


WHOLE = {
    "fourier": lambda: rfgp.approximate(RBFKernel(), 10, input_dim=COLUMNS),
    "scaled": lambda: rfgp.approximate(scaled(MaternKernel(nu=0.5)), 10, input_dim=COLUMNS),
    "sketch": lambda: rfgp.approximate(PolynomialKernel(power=3), 10, input_dim=COLUMNS),
    "linear": lambda: rfgp.approximate(LinearKernel(), COLUMNS, input_dim=COLUMNS),
    "sum": lambda: rfgp.approximate(RBFKernel() + LinearKernel(), 20, input_dim=COLUMNS),
    "product": lambda: rfgp.approximate(RBFKernel() * LinearKernel(), 30, input_dim=COLUMNS),
    "tasks": lambda: rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2), 10, input_dim=COLUMNS),
    "field": lambda: rfgp.approximate(rfgp.kernels.CurlFreeKernel(RBFKernel()), 10, input_dim=COLUMNS),
    "task numbers": lambda: rfgp.approximate(IndexKernel(2, active_dims=[0]), 2, input_dim=COLUMNS),
}


@pytest.mark.parametrize("name", WHOLE)
def test_features_of_the_whole_kernel_have_none(name):
    assert WHOLE[name]().residual_variance(inputs()) is None


def weight_space(kernel, likelihood=None, y=None):
    x = inputs(60, seed=1, size=0.5)
    likelihood = GaussianLikelihood() if likelihood is None else likelihood
    return WeightSpaceGP(kernel, likelihood, keep_data=True).condition(x, x.sum(-1).sin() if y is None else y(x))


def of_features(model, x, scale=1.0):
    """The posterior covariance of the features alone."""
    root = model.weight_posterior().covariance_root(scale * model.covar_module.scalar_features(x))
    return (root @ root.mH).real


@pytest.mark.parametrize("name", SINGLE)
def test_posterior_adds_it_to_the_diagonal_alone(name):
    model, x = weight_space(SINGLE[name]()), inputs()
    scale = model.covar_module.output_factor().item()
    with torch.no_grad():
        latent, added = model.posterior(x), missing(model.covar_module, x)
        expected = of_features(model, x, scale) + torch.diag(added)
        torch.testing.assert_close(latent.covariance_matrix, expected)
        torch.testing.assert_close(latent.variance, expected.diagonal())
        noisy = model.likelihood(latent)
        torch.testing.assert_close(noisy.variance, expected.diagonal() + model.likelihood.noise)
        some = latent[3:7]
        torch.testing.assert_close(some.covariance_matrix, expected[3:7, 3:7])


@pytest.mark.parametrize("name", [name for name in SINGLE if "complex" not in name])
@pytest.mark.parametrize("is_plain_scale", [False, True])
def test_an_exact_gp_predicts_as_the_weight_space_model(name, is_plain_scale):
    reference = weight_space(scaled(SINGLE[name](), 1.5) if is_plain_scale else SINGLE[name]())
    kernel = scaled(copy.deepcopy(SINGLE[name]()), 1.5) if is_plain_scale else reference.covar_module
    (train, y, _), *_ = reference.training_data
    exact = ExactModel(train, y, reference.likelihood, kernel, gpytorch.means.ZeroMean()).eval()
    x = inputs()
    with torch.no_grad():
        latent, expected = exact(x), reference.posterior(x)
        torch.testing.assert_close(latent.mean, expected.mean)
        torch.testing.assert_close(latent.covariance_matrix, expected.covariance_matrix)
        noisy = reference.likelihood(latent)
        dense = torch.distributions.MultivariateNormal(noisy.mean, noisy.covariance_matrix)
        torch.testing.assert_close(noisy.log_prob(x.sum(-1)), dense.log_prob(x.sum(-1)))
        with gpytorch.settings.skip_posterior_variances():
            assert not exact(x).covariance_matrix.any()


def test_class_labels_with_a_scale_for_every_class():
    kernel = maclaurin(scaled(RBFKernel(), torch.tensor([0.5, 1.0, 2.0]), batch_shape=torch.Size([3])))
    model = weight_space(kernel, DirichletClassificationLikelihood(num_classes=3), lambda x: torch.arange(len(x)) % 3)
    x = inputs()
    with torch.no_grad():
        latent = model.posterior(x)
        expected = of_features(model, x, kernel.output_factor()) + torch.diag_embed(kernel.residual_variance(x))
        torch.testing.assert_close(latent.covariance_matrix, expected)
        torch.testing.assert_close(latent.variance, expected.diagonal(dim1=-2, dim2=-1))
        assert latent.rsample(torch.Size([2])).shape == (2, 3, len(x))


def test_complex_targets():
    model = weight_space(
        SINGLE["rbf, complex"](), ComplexGaussianLikelihood(), lambda x: torch.complex(x[:, 0], x[:, 1])
    )
    x = inputs()
    with torch.no_grad():
        expected = of_features(model, x).diagonal() + missing(model.covar_module, x)
        torch.testing.assert_close(model.posterior(x).variance, expected)


def test_several_outputs_in_both_models():
    exact = MultitaskKernel(scaled(RBFKernel()), num_tasks=2)
    reference = weight_space(maclaurin(exact), MultitaskGaussianLikelihood(2), lambda x: x[:, :2])
    (train, y, _), *_ = reference.training_data
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=2)
    model = ExactOutputModel(train, y, reference.likelihood, reference.covar_module, mean).eval()
    x = inputs()
    with torch.no_grad():
        latent = reference.posterior(x)
        factor = reference.covar_module.output_factor()
        root = reference.weight_posterior().function_root(reference.covar_module.scalar_features(x), factor)
        blocks = reference.covar_module.residual_covariance(x).dense()
        expected = root @ root.mT + torch.block_diag(*blocks)
        torch.testing.assert_close(reference.covar_module.residual_variance(x), torch.block_diag(*blocks).diagonal())
        assert float(blocks[:, 0, 1].abs().min()) > 0.0
        for found in (latent, model(x)):
            torch.testing.assert_close(found.covariance_matrix, expected)
            torch.testing.assert_close(found.variance.flatten(), expected.diagonal())
        assert latent.rsample(torch.Size([2])).shape == (2, len(x), 2)


@pytest.mark.parametrize("method", ["optimized_maclaurin:ctr", "optimized_maclaurin:real", "random_maclaurin:real"])
@pytest.mark.parametrize("is_exact_gp", [False, True], ids=["weight space", "ExactGP"])
def test_the_prior_comes_back_far_from_the_data(is_exact_gp, method):
    x = 2.0 * torch.rand(200, 2) - 1.0
    y = 2.0 * torch.sin(3.0 * x[:, 0]) + x[:, 1]
    exact, likelihood = scaled(RBFKernel(), 4.0), GaussianLikelihood()
    likelihood.noise = 1e-2
    kernel = rfgp.approximate(exact, 128, method=method, train_inputs=x, seed=0)
    far = torch.tensor([[3.0, 3.0], [-4.0, 4.0], [100.0, 0.0]])
    with torch.no_grad():
        if is_exact_gp:
            latent = ExactModel(x, y, likelihood, kernel).eval()(far)
        else:
            latent = WeightSpaceGP(kernel, likelihood).condition(x, y).posterior(far)
        reference = exact_posterior(exact, likelihood, x, y, far)
    torch.testing.assert_close(latent.stddev, reference.stddev, rtol=0.05, atol=0.0)


def test_two_standard_deviations_cover_the_function_off_the_data():
    x = 2.0 * torch.rand(200, 2) - 1.0
    exact, likelihood = scaled(RBFKernel(), 4.0), GaussianLikelihood()
    likelihood.noise = 1e-2
    points = 8.0 * torch.rand(300, 2) - 4.0
    off = points[points.abs().max(-1).values > 1.5]
    with torch.no_grad():
        both = torch.cat([x, off])
        root = torch.linalg.cholesky(exact(both).to_dense() + 1e-8 * torch.eye(len(both)))
        draws = root @ torch.randn(len(both), 8)
        covered = []
        for seed, f in enumerate(draws.mT):
            kernel = rfgp.approximate(exact, 64, method="optimized_maclaurin:ctr", train_inputs=x, seed=seed)
            latent = WeightSpaceGP(kernel, likelihood).condition(x, f[:200] + 0.1 * torch.randn(200)).posterior(off)
            covered.append((latent.mean - f[200:]).abs() < 2.0 * latent.stddev)
    assert float(torch.stack(covered).double().mean()) > 0.9


def test_evidence_and_mean_do_not_change():
    model, x = weight_space(SINGLE["scaled"]()), inputs()
    (train, y, _), *_ = model.training_data
    with torch.no_grad():
        features, points = model.covar_module.features(train), model.covar_module.features(x)
        covariance = features @ features.mT + model.likelihood.noise * torch.eye(len(train))
        density = torch.distributions.MultivariateNormal(torch.zeros(len(train)), covariance).log_prob(y)
        mean = points @ features.mT @ torch.linalg.solve(covariance, y)
        torch.testing.assert_close(model.log_marginal_likelihood(), density)
        torch.testing.assert_close(model.posterior(x).mean, mean)


def test_chunks_of_rows_do_not_matter(monkeypatch):
    kernel, x = maclaurin(MultitaskKernel(RBFKernel(), num_tasks=2)), inputs(600)
    with torch.no_grad():
        whole = kernel.residual_variance(x)
        monkeypatch.setattr("rfgp.linalg.chunks._CHUNK_BYTES", 1)
        torch.testing.assert_close(kernel.residual_variance(x), whole)


def test_samples_carry_it_without_the_whole_covariance(monkeypatch):
    model, x = weight_space(SINGLE["rbf"]()), torch.cat([inputs(2, seed=3, size=0.3), torch.full((2, COLUMNS), 4.0)])

    def fail(*args):
        raise AssertionError("expected no dense covariance")

    with torch.no_grad():
        latent = model.posterior(x)
        expected = latent.covariance_matrix
        monkeypatch.setattr(CovariancePlusResidual, "to_dense", fail)
        draws = latent.rsample(torch.Size([20_000])) - latent.mean
        noisy = model.likelihood(latent).rsample(torch.Size([20_000])) - latent.mean
    for found, covariance in ((draws, expected), (noisy, expected + model.likelihood.noise * torch.eye(4))):
        variances = covariance.diagonal()
        standard_error = ((variances[:, None] * variances + covariance.square()) / 20_000).sqrt()
        assert bool(((found.mT @ found / 20_000 - covariance).abs() < 5.0 * standard_error).all())


def test_gradients_are_finite_where_nothing_is_missing_and_right_elsewhere():
    model = weight_space(SINGLE["scaled"]())
    near = model.covar_module.maps.center[None]
    x = torch.cat([near, inputs(5)]).requires_grad_()
    model.posterior(x).rsample(torch.Size([3])).sum().backward()
    assert bool(torch.isfinite(x.grad).all())
    away = 2.0 + inputs(3, seed=5)
    assert bool((missing(model.covar_module, away) > 0.1).all())
    assert torch.autograd.gradcheck(lambda z: model.posterior(z).variance, (away.requires_grad_(),))


def test_a_map_that_is_not_made_is_told():
    kernel = rfgp.approximate(RBFKernel(), 10, method="random_maclaurin")
    with pytest.raises(ValueError, match="call it"):
        kernel.residual_variance(inputs())

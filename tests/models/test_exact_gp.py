"""GPyTorch's ExactGP with an approximated kernel: settings, fantasies, batches, no CG; and the operators behind it."""

import copy
import unittest
import warnings

import gpytorch
import linear_operator
import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.test.model_test_case import BaseModelTestCase
from linear_operator.operators import ConstantDiagLinearOperator, DiagLinearOperator, to_linear_operator
from problems import INPUTS, WIDTH, ExactModel, polynomial, regression_rows

import rfgp
from rfgp.approximation.hooks.feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator
from rfgp.approximation.hooks.noisy_features import NoisyFeaturesLinearOperator

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 40
NAN = float("nan")
wide_is_meant = pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
both_widths = pytest.mark.parametrize("width", [WIDTH, ROWS + 10], ids=["narrow", "wide"])


@pytest.fixture
def no_cg(monkeypatch):
    """Conjugate gradients and Lanczos fail the test."""

    def forbidden(*arguments, **options):
        raise AssertionError("conjugate gradients or Lanczos were called")

    monkeypatch.setattr(linear_operator.utils, "linear_cg", forbidden)
    monkeypatch.setattr(linear_operator.utils.lanczos, "lanczos_tridiag", forbidden)


def points(num_points=5):
    return torch.randn(num_points, INPUTS, generator=torch.Generator().manual_seed(9))


def exact_model(kind="gaussian", width=WIDTH, num_rows=ROWS, **options):
    x, y = regression_rows(num_rows)
    noise = 0.1 + x[:, 1].square()
    likelihood = GaussianLikelihood() if kind == "gaussian" else FixedNoiseGaussianLikelihood(noise)
    return ExactModel(x, y, likelihood, polynomial(width, **options)).eval()


def dense_prediction(model, x, inputs=None, targets=None):
    """Posterior mean and covariance by dense solves, differentiable in everything."""
    inputs = model.train_inputs[0] if inputs is None else inputs
    targets = model.train_targets if targets is None else targets
    features, at_points = model.covar_module.features(inputs), model.covar_module.features(x)
    noise = model.likelihood.noise.expand(len(targets))
    total = features @ features.mT + torch.diag(noise)
    cross = features @ at_points.mT
    mean = model.mean_module(x) + cross.mT @ torch.linalg.solve(total, targets - model.mean_module(inputs))
    return mean, at_points @ at_points.mT - cross.mT @ torch.linalg.solve(total, cross)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@wide_is_meant
@both_widths
@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
def test_gradients_through_the_training_data_where_caches_are_not_detached(kind, width):
    model, x = exact_model(kind, width), points()
    inputs = model.train_inputs[0].clone().requires_grad_()
    targets = model.train_targets.clone().requires_grad_()
    model.set_train_data(inputs, targets)
    leaves = [inputs, targets, *model.parameters()]
    weights = torch.randn(5)

    def gradients(mean, covariance):
        return torch.autograd.grad((weights * mean).sum() + (weights * covariance).sum(), leaves)

    with gpytorch.settings.detach_test_caches(False):
        latent = model(x)
        fast = gradients(latent.mean, latent.covariance_matrix)
    dense = gradients(*dense_prediction(model, x, inputs, targets))
    for a, b in zip(fast, dense, strict=True):
        close(a, b)
    assert all(g.abs().max() > 1e-6 for g in dense)


def test_caches_are_detached_by_default():
    model, x = exact_model(), points().requires_grad_()
    inputs = model.train_inputs[0].clone().requires_grad_()
    model.set_train_data(inputs, model.train_targets)
    latent = model(x)
    by_points, by_inputs = torch.autograd.grad(latent.mean.sum(), [x, inputs], allow_unused=True, retain_graph=True)
    assert not by_inputs.any()
    close(by_points, torch.autograd.grad(dense_prediction(model, x)[0].sum(), x)[0])
    by_points = torch.autograd.grad(latent.variance.sum(), x)[0]
    close(by_points, torch.autograd.grad(dense_prediction(model, x)[1].diagonal().sum(), x)[0])


def test_switching_the_setting_gives_the_other_kind_of_cache():
    model, x = exact_model(), points()
    before = model(x).mean.detach()
    with gpytorch.settings.detach_test_caches(False):
        mean = model(x).mean
        assert torch.autograd.grad(mean.sum(), model.likelihood.noise_covar.raw_noise)[0].abs() > 1e-6
    close(mean.detach(), before)
    assert (
        torch.autograd.grad(model(x).mean.sum(), model.likelihood.noise_covar.raw_noise, allow_unused=True)[0] is None
    )


@wide_is_meant
@both_widths
def test_posterior_variances_can_be_skipped(width):
    model, x = exact_model(width=width), points()
    with torch.no_grad():
        expected = model(x).mean
        with gpytorch.settings.skip_posterior_variances():
            latent = model(x)
            close(latent.mean, expected)
            assert torch.equal(latent.lazy_covariance_matrix.to_dense(), torch.zeros(5, 5))


@wide_is_meant
@both_widths
@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
@pytest.mark.parametrize("policy", ["mask", "fill"])
def test_missing_observations_are_as_good_as_dropped_rows(policy, kind, width):
    model, x = exact_model(kind, width), points()
    missing = torch.zeros(ROWS, dtype=torch.bool)
    missing[[2, 3, 17]] = True
    inputs, targets = model.train_inputs[0], model.train_targets
    dropped = copy.deepcopy(model)
    dropped.set_train_data(inputs[~missing], targets[~missing], strict=False)
    if kind == "fixed":
        dropped.likelihood = FixedNoiseGaussianLikelihood(model.likelihood.noise[~missing])
    model.set_train_data(targets=torch.where(missing, NAN, targets))
    with torch.no_grad():
        mean, covariance = dense_prediction(dropped, x)
        with gpytorch.settings.observation_nan_policy(policy):
            latent = model(x)
        close(latent.mean, mean)
        close(latent.covariance_matrix, covariance)


@wide_is_meant
@both_widths
def test_fast_pred_var_changes_nothing(width):
    x, predictions = points(), []
    for state in (False, True):
        with torch.no_grad(), gpytorch.settings.fast_pred_var(state):
            latent = exact_model(width=width)(x)
            predictions.append((latent.mean, latent.covariance_matrix, latent.variance))
    torch.testing.assert_close(*predictions, rtol=0.0, atol=0.0)


@wide_is_meant
@both_widths
@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
def test_fantasies_equal_a_new_fit(kind, width):
    model, x = exact_model(kind, width), points()
    new_x, new_y, noise = torch.randn(4, INPUTS), torch.randn(4), 0.1 + torch.rand(4)
    options = {"noise": noise} if kind == "fixed" else {}
    with torch.no_grad():
        before = model(x).mean
        fantasy = model.get_fantasy_model(new_x, new_y, **options)
        refitted = copy.deepcopy(model)
        if kind == "fixed":
            refitted.likelihood = FixedNoiseGaussianLikelihood(torch.cat([model.likelihood.noise, noise]))
        inputs, targets = torch.cat([model.train_inputs[0], new_x]), torch.cat([model.train_targets, new_y])
        mean, covariance = dense_prediction(refitted, x, inputs, targets)
        close(fantasy(x).mean, mean)
        close(fantasy(x).covariance_matrix, covariance)
        assert torch.equal(model(x).mean, before)
        twice = fantasy.get_fantasy_model(new_x + 1.0, new_y, **options)
        assert twice(x).mean.shape == (5,) and twice.train_targets.shape == (ROWS + 8,)


def test_a_batch_of_fantasies_at_the_same_points():
    model, x = exact_model(), points()
    new_x, new_y = torch.randn(4, INPUTS), torch.randn(3, 4)
    with torch.no_grad():
        model(x)
        fantasies = model.get_fantasy_model(new_x, new_y)(x)
        assert fantasies.mean.shape == (3, 5)
        for i in range(3):
            single = model.get_fantasy_model(new_x, new_y[i])(x)
            close(fantasies.mean[i], single.mean)
            close(fantasies.covariance_matrix[i], single.covariance_matrix)


@wide_is_meant
@both_widths
@pytest.mark.parametrize("noisy", [False, True], ids=["latent", "noisy"])
def test_samples_have_the_moments_of_the_posterior(noisy, width):
    model, x = exact_model(width=width), points(3)
    count = 40_000
    with torch.no_grad():
        latent = model(x)
        latent = model.likelihood(latent) if noisy else latent
        draws = latent.rsample(torch.Size([count]))
        mean, covariance = dense_prediction(model, x)
        covariance = covariance + (model.likelihood.noise * torch.eye(3) if noisy else 0.0)
    check_moments(draws, mean, covariance)


def check_moments(draws, mean, covariance):
    """Mean and covariance within five standard errors."""
    scales = covariance.diagonal()
    assert ((draws.mean(0) - mean).abs() <= 5.0 * (scales / len(draws)).sqrt()).all()
    centered = draws - mean
    spread = scales[:, None] * scales + covariance.square()
    assert ((centered.mT @ centered / len(draws) - covariance).abs() <= 5.0 * (spread / len(draws)).sqrt()).all()


def batch_model(x, y, noise=None):
    shape = torch.Size([2])
    exact = ScaleKernel(PolynomialKernel(power=2, batch_shape=shape), batch_shape=shape)
    exact.outputscale = torch.tensor([0.5, 2.0])
    exact.base_kernel.offset = torch.tensor([[0.3], [1.5]])
    kernel = rfgp.approximate(exact, WIDTH, input_dim=INPUTS, seed=0)
    likelihood = GaussianLikelihood(batch_shape=shape)
    likelihood.noise = torch.tensor([[0.1], [0.4]])
    return ExactModel(x, y, likelihood, kernel, gpytorch.means.ConstantMean(batch_shape=shape))


@pytest.mark.parametrize("is_shared", [False, True], ids=["own inputs", "shared inputs"])
def test_batches_of_models(is_shared):
    x = torch.randn(ROWS, INPUTS).expand(2, ROWS, INPUTS) if is_shared else torch.randn(2, ROWS, INPUTS)
    y = torch.randn(2, ROWS)
    model, at = batch_model(x, y), points().expand(2, 5, INPUTS)
    evidence = model.likelihood(model.train()(x), x).log_prob(y)
    gradients = torch.autograd.grad(evidence.sum(), list(model.parameters()))
    latent = model.eval()(at)
    assert latent.batch_shape == (2,)
    total = 0.0
    for i in range(2):
        features, at_points = model.covar_module.features(x)[i], model.covar_module.features(at)[i]
        matrix = features @ features.mT + model.likelihood.noise[i] * torch.eye(ROWS)
        cross = features @ at_points.mT
        offset = model.mean_module.constant[i]
        reference = torch.distributions.MultivariateNormal(offset.expand(ROWS), matrix).log_prob(y[i])
        total = total + reference
        close(evidence[i], reference)
        close(latent.mean[i], offset + cross.mT @ torch.linalg.solve(matrix, y[i] - offset))
        close(latent.covariance_matrix[i], at_points @ at_points.mT - cross.mT @ torch.linalg.solve(matrix, cross))
    for fast, dense in zip(gradients, torch.autograd.grad(total, list(model.parameters())), strict=True):
        close(fast, dense)


@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
def test_many_rows_call_no_cg(kind, no_cg):
    num_rows = 1500
    model = exact_model(kind, num_rows=num_rows)
    x, y = model.train_inputs[0], model.train_targets
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    loss = -mll(model(x), y)
    loss.backward()
    with torch.no_grad():
        noise = model.likelihood.noise.expand(num_rows)
        features = model.covar_module.features(x)
        dense = torch.distributions.LowRankMultivariateNormal(torch.zeros(num_rows), features, noise).log_prob(y)
        close(loss.detach(), -dense / num_rows)
        at = points(900)
        latent = model.eval()(at)
        mean, covariance = dense_prediction(model, at)
        close(latent.mean, mean)
        close(latent.variance, covariance.diagonal())
        assert latent.rsample(torch.Size([3])).shape == (3, 900)


def test_many_points_of_a_wide_model_call_no_cg(no_cg):
    num_rows = 900
    with pytest.warns(UserWarning, match="exceed"):
        model = exact_model(width=950, num_rows=num_rows)
        x, y = model.train_inputs[0], model.train_targets
        model.train()
        value = model.likelihood(model(x)).log_prob(y)
        value.backward()
        latent = model.eval()(points())
    with torch.no_grad():
        mean, covariance = dense_prediction(model, points())
        close(latent.mean, mean)
        close(latent.covariance_matrix, covariance)
        features = model.covar_module.features(x)
        noise = model.likelihood.noise * torch.eye(num_rows)
        close(
            value,
            torch.distributions.MultivariateNormal(torch.zeros(num_rows), features @ features.mT + noise).log_prob(y),
        )


def test_leave_one_out_pseudo_likelihood_equals_that_of_the_dense_kernel():
    model = exact_model().train()
    x, y = model.train_inputs[0], model.train_targets
    mll = gpytorch.mlls.LeaveOneOutPseudoLikelihood(model.likelihood, model)
    value = mll(model(x), y)
    features = model.covar_module.features(x)
    dense = gpytorch.distributions.MultivariateNormal(model.mean_module(x), to_linear_operator(features @ features.mT))
    reference = mll(dense, y)
    close(value, reference)
    gradients = [torch.autograd.grad(v, list(model.parameters())) for v in (value, reference)]
    for a, b in zip(*gradients, strict=True):
        close(a, b)


def test_new_training_data_and_parameters_are_noticed():
    model, x = exact_model(), points()
    with torch.no_grad():
        model(x)
        new_x, new_y = regression_rows(30, seed=7)
        model.set_train_data(new_x, new_y, strict=False)
        close(model(x).mean, dense_prediction(model, x)[0])
        model.train()
        model.likelihood.noise = 0.01
        close(model.eval()(x).mean, dense_prediction(model, x)[0])


def test_new_weights_are_noticed():
    model, x = exact_model(), points()
    with torch.no_grad():
        before = model(x).mean
        model.covar_module.resample(torch.Generator().manual_seed(5))
        mean, covariance = dense_prediction(model, x)
        close(model(x).mean, mean)
        close(model(x).covariance_matrix, covariance)
    assert not torch.allclose(mean, before)


def test_more_features_than_rows_warn():
    model = exact_model(width=ROWS + 10)
    with pytest.warns(UserWarning, match=f"{ROWS + 10} features exceed the {ROWS} training rows"):
        model(points())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact_model()(points())


@pytest.mark.parametrize("kind", ["scales", "dirichlet"])
def test_a_batch_of_scales_over_one_kernel_forms_no_dense_matrix(kind, no_cg, monkeypatch):
    num_rows, shape = 1000, torch.Size([3])
    x, _ = regression_rows(num_rows)
    kernel, mean = polynomial(batch_shape=shape), gpytorch.means.ConstantMean(batch_shape=shape)
    kernel.outputscale = torch.tensor([0.5, 1.0, 2.0])
    if kind == "dirichlet":
        likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(torch.arange(num_rows) % 3)
        y, noise = likelihood.transformed_targets, likelihood.noise_covar.noise
    else:
        likelihood, y = GaussianLikelihood(batch_shape=shape), torch.randn(3, num_rows)
        noise = likelihood.noise.detach().expand(3, num_rows)
    model = ExactModel(x, y, likelihood, kernel, mean)
    expand = FeatureLinearOperator.to_dense

    def small(self):
        assert self.shape[-1] < num_rows
        return expand(self)

    monkeypatch.setattr(FeatureLinearOperator, "to_dense", small)
    noisy = likelihood(model.train()(x), x)
    evidence = noisy.log_prob(y)
    evidence.sum().backward()
    latent = model.eval()(points())
    assert isinstance(noisy.lazy_covariance_matrix.evaluate_kernel(), NoisyFeaturesLinearOperator)
    with torch.no_grad():
        features, at_points = parts(kernel)[0].features(x), parts(kernel)[0].features(points())
        for c in range(3):
            root = features * kernel.outputscale[c].sqrt()
            close(
                evidence[c],
                torch.distributions.LowRankMultivariateNormal(torch.zeros(num_rows), root, noise[c]).log_prob(y[c]),
            )
            total, cross = root @ root.mT + torch.diag(noise[c]), kernel.outputscale[c] * features @ at_points.mT
            close(latent.mean[c], cross.mT @ torch.linalg.solve(total, y[c]))
            prior = kernel.outputscale[c] * at_points @ at_points.mT
            close(latent.covariance_matrix[c], prior - cross.mT @ torch.linalg.solve(total, cross))


SHAPES = {
    "narrow": ((), 30, 8),
    "wide": ((), 8, 30),
    "square": ((), 9, 9),
    "batch": ((2,), 30, 8),
    "wide batch": ((2,), 8, 30),
}


def noisy_operator(shape, noise, dtype=torch.float64):
    """A feature matrix, its operator with a diagonal added, and the dense matrix."""
    batch, rows, width = SHAPES[shape]
    root = torch.randn(*batch, rows, width, dtype=dtype)
    if noise == "constant":
        variances = 0.1 + torch.rand(*batch, 1, dtype=dtype)
        diagonal = ConstantDiagLinearOperator(variances, diag_shape=rows)
    else:
        variances = 0.1 + torch.rand(*batch, rows, dtype=dtype)
        diagonal = DiagLinearOperator(variances)
    dense = root @ root.mT + torch.diag_embed(variances.expand(*batch, rows))
    return root, FeatureLinearOperator(root) + diagonal, dense


@pytest.fixture(params=[(shape, noise) for shape in SHAPES for noise in ("constant", "per row")], ids=" ".join)
def noisy(request, float64_default):
    return noisy_operator(*request.param)


def test_noisy_operator_solves(noisy, no_cg):
    _, operator, dense = noisy
    assert isinstance(operator, NoisyFeaturesLinearOperator)
    rhs = torch.randn(*dense.shape[:-1], 3)
    solved = torch.linalg.solve(dense, rhs)
    close(operator.solve(rhs), solved)
    if dense.dim() == 2:
        close(operator.solve(rhs[:, 0]), solved[:, 0])
    close(operator.solve(rhs, rhs.mT), rhs.mT @ solved)
    quadratic = (rhs * solved).sum(-2)
    logdet = torch.logdet(dense)
    close(operator.inv_quad(rhs), quadratic.sum(-1))
    close(operator.inv_quad(rhs, reduce_inv_quad=False), quadratic)
    close(operator.logdet(), logdet)
    for a, b in zip(operator.inv_quad_logdet(rhs, logdet=True), (quadratic.sum(-1), logdet), strict=True):
        close(a, b)
    close(operator.inv_quad_logdet(None, logdet=True)[1], logdet)


def test_noisy_operator_is_the_sum(noisy):
    _, operator, dense = noisy
    rhs = torch.randn(*dense.shape[:-1], 3)
    assert operator.shape == dense.shape and operator.dtype == torch.float64
    close(operator.to_dense(), dense)
    close(operator @ rhs, dense @ rhs)
    close(operator.mT.to_dense(), dense)
    close(operator.diagonal(dim1=-1, dim2=-2), dense.diagonal(dim1=-1, dim2=-2))
    factor = operator.cholesky().to_dense()
    close(factor @ factor.mT, dense)


def test_noisy_operator_stays_structured(noisy, no_cg):
    _, operator, dense = noisy
    rows = dense.shape[-1]
    eye, rhs = torch.eye(rows), torch.randn(*dense.shape[:-1], 2)
    more = 0.1 + torch.rand(*dense.shape[:-1])
    variants = {
        "add_diagonal": (operator.add_diagonal(more), dense + torch.diag_embed(more)),
        "add_diagonal of a scalar": (operator.add_diagonal(torch.tensor(0.3)), dense + 0.3 * eye),
        "add_diagonal of one": (operator.add_diagonal(torch.tensor([0.3])), dense + 0.3 * eye),
        "add_jitter": (operator.add_jitter(0.2), dense + 0.2 * eye),
        "diagonal": (operator + DiagLinearOperator(more), dense + torch.diag_embed(more)),
        "times": (operator * 2.5, dense * 2.5),
        "divided": (operator / 2.0, dense / 2.0),
    }
    for name, (result, expected) in variants.items():
        assert isinstance(result, NoisyFeaturesLinearOperator), name
        close(result.to_dense(), expected)
        close(result.solve(rhs), torch.linalg.solve(expected, rhs))
        close(result.logdet(), torch.logdet(expected))
    close((operator * -1.0).to_dense(), -dense)


@pytest.mark.parametrize("noise", ["constant", "per row"])
@pytest.mark.parametrize("shape", ["narrow", "wide"])
def test_noisy_operator_samples(shape, noise):
    _, operator, dense = noisy_operator(shape, noise)
    draws = operator.zero_mean_mvn_samples(40_000)
    check_moments(draws, torch.zeros(dense.shape[-1]), dense)


@pytest.mark.parametrize("noise", ["constant", "per row"])
@pytest.mark.parametrize("shape", SHAPES)
def test_noisy_operator_gradients(shape, noise):
    root, operator, _ = noisy_operator(shape, noise)
    variances = operator.linear_ops[1].diag_values if noise == "constant" else operator.linear_ops[1]._diag
    rhs = torch.randn(*root.shape[:-1], 2)
    leaves = [value.clone().requires_grad_() for value in (root, variances, rhs)]

    def terms(root, variances, rhs, is_dense):
        rows = root.shape[-2]
        if is_dense:
            total = root @ root.mT + torch.diag_embed(variances.expand(*root.shape[:-2], rows))
            solved = torch.linalg.solve(total, rhs)
            return solved.sin().sum() + (rhs * solved).sum() + torch.logdet(total).sum()
        is_constant = noise == "constant"
        added = ConstantDiagLinearOperator(variances, diag_shape=rows) if is_constant else DiagLinearOperator(variances)
        total = FeatureLinearOperator(root) + added
        quadratic, logdet = total.inv_quad_logdet(rhs, logdet=True)
        return total.solve(rhs).sin().sum() + quadratic.sum() + logdet.sum()

    gradients = [torch.autograd.grad(terms(*leaves, is_dense), leaves) for is_dense in (False, True)]
    for a, b in zip(*gradients, strict=True):
        close(a, b)


def test_noisy_operator_in_float32_works_in_float64():
    root, operator, _ = noisy_operator("narrow", "constant", torch.float32)
    tiny = FeatureLinearOperator(root) + ConstantDiagLinearOperator(torch.tensor([1e-6]), diag_shape=30)
    rhs = torch.randn(30, 2, dtype=torch.float32)
    dense = root.double() @ root.double().mT + 1e-6 * torch.eye(30)
    assert tiny.solve(rhs).dtype == operator.solve(rhs).dtype == torch.float32
    torch.testing.assert_close(tiny.logdet(), torch.logdet(dense.double()).float())
    exact = torch.linalg.solve(dense, rhs.double())
    assert (tiny.solve(rhs) - exact).abs().max() <= 1e-4 * exact.abs().max()


@pytest.mark.parametrize("shape", SHAPES)
def test_feature_operator(shape):
    batch, rows, width = SHAPES[shape]
    root, rhs = torch.randn(*batch, rows, width), torch.randn(*batch, rows, 3)
    operator, dense = FeatureLinearOperator(root), root @ root.mT
    close(operator.to_dense(), dense)
    close(operator @ rhs, dense @ rhs)
    close(operator.diagonal(dim1=-1, dim2=-2), dense.diagonal(dim1=-1, dim2=-2))
    close((operator * -2.0).to_dense(), -2.0 * dense)
    jittered = operator.add_diagonal(torch.tensor(0.2))
    assert isinstance(jittered, NoisyFeaturesLinearOperator)
    close(jittered.to_dense(), dense + 0.2 * torch.eye(rows))
    close((operator + torch.eye(rows)).to_dense(), dense + torch.eye(rows))


def test_a_batch_of_scales_keeps_the_structure():
    root, other = torch.randn(30, 8), torch.randn(7, 8)
    scales = torch.tensor([0.5, 1.0, 3.0])
    scaled = FeatureLinearOperator(root).mul(scales[:, None, None])
    assert isinstance(scaled, FeatureLinearOperator) and scaled.shape == (3, 30, 30)
    close(scaled.to_dense(), scales[:, None, None] * (root @ root.mT))
    cross = FeatureCrossLinearOperator(root, other.mT).mul(scales[:, None, None])
    assert isinstance(cross, FeatureCrossLinearOperator) and cross.shape == (3, 30, 7)
    close(cross.to_dense(), scales[:, None, None] * (root @ other.mT))
    close((FeatureCrossLinearOperator(root, other.mT) * -2.0).to_dense(), -2.0 * root @ other.mT)
    noise = 0.1 + torch.rand(3, 30)
    total = scaled + DiagLinearOperator(noise)
    dense = scales[:, None, None] * (root @ root.mT) + torch.diag_embed(noise)
    rhs = torch.randn(3, 30, 2)
    close(total.solve(rhs), torch.linalg.solve(dense, rhs))
    close(total.logdet(), torch.logdet(dense))


@pytest.mark.filterwarnings("ignore:The input matches the stored training data")
class TestWithGPyTorch(BaseModelTestCase, unittest.TestCase):
    """GPyTorch's own suite for models."""

    def create_model(self, train_x, train_y, likelihood):
        return ExactModel(train_x, train_y, likelihood, polynomial(8, input_dim=1))

    def create_test_data(self):
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self):
        return GaussianLikelihood(), torch.randn(50) + 2.0

    def create_batch_test_data(self, batch_shape=(3,)):
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(self, batch_shape=(3,)):
        return GaussianLikelihood(batch_shape=torch.Size(batch_shape)), torch.randn(*batch_shape, 50) + 2.0

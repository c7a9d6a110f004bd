"""Divergences against torch, exact posteriors against GPyTorch, kernel errors against dense, scores against sklearn."""

import math
import os

import gpytorch
import pytest
import sklearn.metrics
import torch
from feature_parts import parts
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import LinearKernel, PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from problems import CLASSES, FORMS, INPUTS, ExactModel, model_for, polynomial, regression_rows, rows_for
from torch.distributions import Normal

import rfgp
from rfgp.diagnostics import (
    classification_mnll,
    error_rate,
    exact_posterior,
    kl_divergence,
    kl_to_exact,
    regression_mnll,
    relative_frobenius_error,
    rmse,
)
from rfgp.likelihoods import ComplexNormal, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 40
batches = pytest.mark.parametrize("batch", [(), (3,), (2, 3)])


def points(num_points=5):
    return torch.randn(num_points, INPUTS, generator=torch.Generator().manual_seed(9))


def random_joint(batch=(), size=4):
    root = torch.randn(*batch, size, 2 * size)
    return MultivariateNormal(torch.randn(*batch, size), root @ root.mT)


def random_complex(batch=(), size=4):
    root = torch.randn(*batch, size, 2 * size, dtype=torch.complex128)
    return ComplexNormal(torch.randn(*batch, size, dtype=torch.complex128), root @ root.mH)


def marginals(joint):
    return Normal(joint.mean, joint.variance.sqrt())


def torch_joint(joint):
    return torch.distributions.MultivariateNormal(joint.mean, joint.covariance_matrix)


@batches
def test_divergence_of_marginals(batch):
    p, q = random_joint(batch), random_joint(batch)
    expected = torch.distributions.kl_divergence(marginals(p), marginals(q)).sum(-1)
    assert expected.shape == batch and (expected > 0).all()
    for a, b in ((p, q), (marginals(p), q), (p, marginals(q)), (marginals(p), marginals(q))):
        torch.testing.assert_close(kl_divergence(a, b), expected)
    torch.testing.assert_close(
        kl_divergence(q, p), torch.distributions.kl_divergence(marginals(q), marginals(p)).sum(-1)
    )
    torch.testing.assert_close(kl_divergence(p, p), torch.zeros(batch), rtol=0.0, atol=1e-14)


@batches
def test_divergence_of_joint_distributions(batch):
    p, q = random_joint(batch), random_joint(batch)
    for a, b in ((p, q), (q, p)):
        expected = torch.distributions.kl_divergence(torch_joint(a), torch_joint(b))
        assert expected.shape == batch
        torch.testing.assert_close(kl_divergence(a, b, joint=True), expected)
    independent = [kl_divergence(marginals(p), marginals(q), joint=joint) for joint in (False, True)]
    torch.testing.assert_close(*independent)
    torch.testing.assert_close(kl_divergence(p, p, joint=True), torch.zeros(batch), rtol=0.0, atol=1e-12)


@batches
def test_divergence_of_complex_distributions(batch):
    p, q = random_complex(batch), random_complex(batch)
    for a, b in ((p, q), (q, p)):
        torch.testing.assert_close(kl_divergence(a, b, joint=True), torch.distributions.kl_divergence(a, b))
        singles = [
            torch.distributions.kl_divergence(*(ComplexNormal(d.mean[..., i : i + 1], only(d, i)) for d in (a, b)))
            for i in range(4)
        ]
        torch.testing.assert_close(kl_divergence(a, b), torch.stack(singles).sum(0))


def only(distribution, i):
    return distribution.covariance_matrix[..., i : i + 1, i : i + 1]


def test_divergence_works_in_float64():
    p, q = (Normal(torch.randn(50), torch.rand(50) + 0.1) for _ in range(2))
    low = [Normal(d.mean.float(), d.stddev.float()) for d in (p, q)]
    assert kl_divergence(*low).dtype == torch.float64
    exact = [Normal(d.mean.double(), d.stddev.double()) for d in low]
    torch.testing.assert_close(kl_divergence(*low), kl_divergence(*exact), rtol=1e-6, atol=0.0)


def test_divergence_carries_gradients():
    p, q = random_joint(), random_joint()
    mean = p.mean.clone().requires_grad_()
    value = kl_divergence(MultivariateNormal(mean, p.covariance_matrix), q, joint=True)
    (gradient,) = torch.autograd.grad(value, mean)
    torch.testing.assert_close(gradient, torch.linalg.solve(q.covariance_matrix, p.mean - q.mean))


def test_bad_divergences_raise():
    p, q = random_joint(), random_joint(size=5)
    with pytest.raises(ValueError, match="expected distributions of one shape"):
        kl_divergence(p, q)
    with pytest.raises(ValueError, match="expected distributions of one shape"):
        kl_divergence(random_joint((2,)), random_joint((3,)))
    flat = Normal(torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 1.0]), validate_args=False)
    with pytest.raises(ValueError, match="expected positive variances in q"):
        kl_divergence(p, flat)
    with pytest.raises(ValueError, match="expected positive variances in p"):
        kl_divergence(flat, p)
    rank_one = ComplexNormal(torch.zeros(4, dtype=torch.complex128), covariance_root=torch.ones(4, 1))
    with pytest.raises(ValueError, match="expected a positive definite matrix"):
        kl_divergence(random_complex(), rank_one, joint=True)


def exact_kernel(power=2):
    kernel = ScaleKernel(PolynomialKernel(power=power))
    kernel.outputscale = 0.7
    return kernel


def means(batch=()):
    constant = gpytorch.means.ConstantMean(batch_shape=torch.Size(batch))
    constant.constant = torch.arange(math.prod(batch)).reshape(batch) - 0.4
    return {
        "none": None,
        "constant": constant,
        "linear": gpytorch.means.LinearMean(INPUTS, batch_shape=torch.Size(batch)),
    }


LIKELIHOODS = {
    "gaussian": GaussianLikelihood,
    "fixed": lambda: FixedNoiseGaussianLikelihood(0.1 + torch.linspace(0.0, 1.0, ROWS)),
    "fixed+learned": lambda: FixedNoiseGaussianLikelihood(
        0.1 + torch.linspace(0.0, 1.0, ROWS), learn_additional_noise=True
    ),
}


def gpytorch_posterior(x, y, likelihood, kernel, mean, at):
    model = ExactModel(x, y, likelihood, kernel, gpytorch.means.ZeroMean() if mean is None else mean).eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        latent = model(at)
        return latent.mean, latent.variance


@pytest.mark.parametrize("mean", means())
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_exact_posterior_is_that_of_gpytorch(kind, mean):
    (x, y), at = regression_rows(ROWS), points()
    likelihood, mean_module, kernel = LIKELIHOODS[kind](), means()[mean], exact_kernel()
    posterior = exact_posterior(kernel, likelihood, x, y, at, mean_module)
    expected = gpytorch_posterior(x, y, likelihood, kernel, mean_module, at)
    torch.testing.assert_close((posterior.mean, posterior.variance), expected)
    approximated = rfgp.approximate(kernel, 16, input_dim=INPUTS, seed=0)
    again = exact_posterior(approximated, likelihood, x, y, at, mean_module)
    torch.testing.assert_close((again.mean, again.stddev), (posterior.mean, posterior.stddev))
    assert not posterior.mean.requires_grad


@pytest.mark.parametrize("mean", means())
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "fixed+learned"])
@pytest.mark.parametrize("batched_scale", [False, True], ids=["one scale", "scales"])
def test_exact_posterior_of_classes_is_that_of_gpytorch(batched_scale, learned, mean):
    (x, labels, _), at = rows_for("dirichlet", ROWS), points()
    shape = torch.Size([CLASSES])
    likelihood = DirichletClassificationLikelihood(labels, 0.05, learn_additional_noise=learned)
    mean_module = means((CLASSES,))[mean]
    kernel = ScaleKernel(PolynomialKernel(power=2), batch_shape=shape if batched_scale else torch.Size())
    if batched_scale:
        kernel.outputscale = torch.tensor([0.5, 1.0, 2.0])
    posterior = exact_posterior(kernel, likelihood, x, labels, at, mean_module)
    assert posterior.mean.shape == (CLASSES, 5)
    y = likelihood.transformed_targets
    for c in range(CLASSES):
        noise = likelihood.noise_covar.noise[c] + (likelihood.second_noise[c] if learned else 0.0)
        with torch.no_grad():
            single = ScaleKernel(PolynomialKernel(power=2))
            single.outputscale = kernel.outputscale[c] if batched_scale else kernel.outputscale
            offsets = [0.0, 0.0] if mean_module is None else [mean_module(z).expand(CLASSES, -1)[c] for z in (x, at)]
            one = FixedNoiseGaussianLikelihood(noise.detach())
            latent, variance = gpytorch_posterior(x, (y[c] - offsets[0]).detach(), one, single, None, at)
        torch.testing.assert_close(posterior.mean[c], latent + offsets[1])
        torch.testing.assert_close(posterior.variance[c], variance)


def test_exact_posterior_of_float32_data_is_in_float64():
    (x, y), at = regression_rows(ROWS), points()
    kernel, likelihood = exact_kernel().float(), GaussianLikelihood().float()
    posterior = exact_posterior(kernel, likelihood, x.float(), y.float(), at.float())
    assert posterior.mean.dtype == torch.float64
    assert kernel.raw_outputscale.dtype == torch.float32
    reference = exact_posterior(
        exact_kernel(), GaussianLikelihood(), x.float().double(), y.float().double(), at.float().double()
    )
    torch.testing.assert_close(posterior.mean, reference.mean, rtol=1e-5, atol=1e-5)


def test_exact_posterior_takes_the_noise_of_rows_the_likelihood_does_not_know():
    x, y, noise = rows_for("fixed", ROWS)
    known = exact_posterior(exact_kernel(), FixedNoiseGaussianLikelihood(noise), x, y, points())
    given = exact_posterior(exact_kernel(), FixedNoiseGaussianLikelihood(torch.ones(1)), x, y, points(), noise=noise)
    torch.testing.assert_close((given.mean, given.stddev), (known.mean, known.stddev))


def spoil(x):
    x = x.clone()
    x[1, 1] = float("nan")
    return x


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda x, y, at: (spoil(x), y, at),
        lambda x, y, at: (x, y, spoil(at)),
        lambda x, y, at: (x, y, at[:, :2]),
        lambda x, y, at: (x, y[:-1], at),
        lambda x, y, at: (x, y.long(), at),
        lambda x, y, at: (x, torch.complex(y, y), at),
        lambda x, y, at: (x.long(), y, at),
    ],
    ids=["NaN in x", "NaN in points", "columns", "rows", "integers", "complex", "integer x"],
)
def test_bad_data_of_an_exact_posterior_raise(spoilt):
    with pytest.raises(ValueError, match="expected"):
        exact_posterior(exact_kernel(), GaussianLikelihood(), *spoilt(*regression_rows(ROWS), points()))


def test_unknown_noise_of_an_exact_posterior_raises():
    x, y = regression_rows(ROWS)
    with pytest.raises(ValueError, match="expected the noise"):
        exact_posterior(exact_kernel(), FixedNoiseGaussianLikelihood(torch.ones(3)), x, y, points())


def test_what_does_not_fit_in_memory_raises(monkeypatch):
    model = fitted("gaussian")
    monkeypatch.setattr(os, "sysconf", lambda name: 1024 if name == "SC_PAGE_SIZE" else 30)
    for use in (
        lambda: kl_to_exact(model, points()),
        lambda: exact_posterior(exact_kernel(), GaussianLikelihood(), *regression_rows(ROWS), points()),
    ):
        with pytest.raises(ValueError, match=r"expected .*memory.*subset"):
            use()
    few = exact_posterior(exact_kernel(), GaussianLikelihood(), *regression_rows(10), points())
    assert few.mean.isfinite().all()


def fitted(kind, form="ctr", **options):
    with torch.no_grad():
        return model_for(kind, form, **options).condition(*rows_for(kind, ROWS))


def expected_divergence(model, kind, direction, noisy):
    """The divergence by torch, from GPyTorch's posteriors."""
    x, y, noise = rows_for(kind, ROWS)
    latent = model.posterior(points())
    exact = exact_posterior(model.covar_module, model.likelihood, x, y, points(), model.mean_module, noise)
    added = model.likelihood.noise if noisy else 0.0
    pair = [Normal(d.mean, (d.variance + added).sqrt()) for d in (latent, exact)]
    pair = pair if direction == "approximate_from_exact" else pair[::-1]
    return torch.distributions.kl_divergence(*pair).sum(-1).mean()


DIRECTIONS = ("approximate_from_exact", "exact_from_approximate")
directions = pytest.mark.parametrize("direction", DIRECTIONS)


@directions
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("kind", "noisy"),
    [("gaussian", False), ("gaussian", True), ("fixed", False), ("fixed+learned", False), ("dirichlet", False)],
)
def test_divergence_from_the_exact_posterior(kind, noisy, form, direction):
    model = fitted(kind, form)
    value = kl_to_exact(model, points(), direction=direction, noisy=noisy)
    with torch.no_grad():
        torch.testing.assert_close(value, expected_divergence(model, kind, direction, noisy))
    assert value.shape == () and value > 1e-5


def test_the_two_directions_and_the_noise_differ():
    model = fitted("gaussian")
    values = {float(kl_to_exact(model, points(), direction=d, noisy=n)) for d in DIRECTIONS for n in (False, True)}
    assert len(values) == 4


@directions
@pytest.mark.parametrize("noisy", [False, True])
def test_divergence_of_an_exact_gp_is_that_of_the_weight_space_model(noisy, direction):
    x, y = regression_rows(ROWS)
    kernel, likelihood, mean = polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean()
    with torch.no_grad():
        weight_space = WeightSpaceGP(kernel, likelihood, mean, keep_data=True).condition(x, y)
    exact = ExactModel(x, y, likelihood, kernel, mean)
    values = [kl_to_exact(model, points(), direction=direction, noisy=noisy) for model in (weight_space, exact)]
    torch.testing.assert_close(*values)


def test_divergence_of_an_exact_gp_of_classes():
    x, labels, _ = rows_for("dirichlet", ROWS)
    likelihood = DirichletClassificationLikelihood(labels)
    shape = torch.Size([CLASSES])
    kernel, mean = polynomial(batch_shape=shape), gpytorch.means.ConstantMean(batch_shape=shape)
    with torch.no_grad():
        weight_space = WeightSpaceGP(kernel, likelihood, mean, keep_data=True).condition(x, labels)
    exact = ExactModel(x, likelihood.transformed_targets, likelihood, kernel, mean)
    torch.testing.assert_close(*[kl_to_exact(model, points()) for model in (weight_space, exact)])


def test_divergence_averages_over_classes():
    model, (x, labels, _) = fitted("dirichlet"), rows_for("dirichlet", ROWS)
    with torch.no_grad():
        latent = model.posterior(points())
        exact = exact_posterior(model.covar_module, model.likelihood, x, labels, points(), model.mean_module)
    singles = [
        kl_divergence(Normal(latent.mean[c], latent.stddev[c]), Normal(exact.mean[c], exact.stddev[c]))
        for c in range(CLASSES)
    ]
    torch.testing.assert_close(kl_to_exact(model, points()), sum(singles) / CLASSES)


def test_divergence_after_updates_knows_all_rows():
    for kind in ("gaussian", "fixed", "dirichlet"):
        arguments = rows_for(kind, ROWS)
        head, tail = ([a if a is None else a[rows] for a in arguments] for rows in (slice(0, 30), slice(30, ROWS)))
        with torch.no_grad():
            model = model_for(kind).condition(*head).update(*tail)
        torch.testing.assert_close(kl_to_exact(model, points()), kl_to_exact(fitted(kind), points()))


@directions
def test_exact_features_have_no_divergence(direction):
    x, y = regression_rows(ROWS)
    kernel = rfgp.approximate(ScaleKernel(LinearKernel(ard_num_dims=INPUTS)), INPUTS)
    model = WeightSpaceGP(kernel, GaussianLikelihood(), keep_data=True).condition(x, y)
    assert 0.0 <= kl_to_exact(model, points(), direction=direction) <= 1e-10


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
def test_divergence_vanishes_as_features_are_added():
    averages = {direction: [] for direction in DIRECTIONS}
    for width in (16, 128, 1024):
        models = [fitted("gaussian", width=width, seed=seed) for seed in range(5)]
        for direction, values in averages.items():
            values.append(sum(float(kl_to_exact(model, points(), direction=direction)) for model in models) / 5)
    for small, medium, large in averages.values():
        assert small > 3.0 * medium > 9.0 * large


def test_divergence_needs_training_data():
    arguments = rows_for("gaussian", ROWS)
    with torch.no_grad():
        model = model_for("gaussian", keep_data=False).condition([arguments[:2]])
    with pytest.raises(ValueError, match=r"pass train_inputs and train_targets, or .* keep_data=True"):
        kl_to_exact(model, points())
    given = kl_to_exact(model, points(), train_inputs=arguments[0], train_targets=arguments[1])
    torch.testing.assert_close(given, kl_to_exact(fitted("gaussian"), points()))


@pytest.mark.parametrize("direction", ["approximate_from_exact", "exact_from_approximate"])
def test_complex_targets_against_dense_algebra(direction):
    model = fitted("complex")
    x, y, _ = rows_for("complex", ROWS)
    kernel, noise = model.covar_module.exact_kernel, model.likelihood.noise.detach()
    with torch.no_grad():
        matrix, cross = kernel(x, x).to_dense(), kernel(x, points()).to_dense()
        solved = torch.linalg.solve(matrix + noise * torch.eye(len(x)), cross)
        mean = solved.mT.to(y.dtype) @ (y - model.mean_module(x)) + model.mean_module(points())
        variance = kernel(points(), diag=True) - (cross * solved).sum(0)
        latent = model.posterior(points())
        pairs = [(latent.mean, latent.variance), (mean, variance)]
        (m_p, v_p), (m_q, v_q) = pairs if direction == "approximate_from_exact" else pairs[::-1]
        expected = (v_p / v_q - 1 - (v_p / v_q).log() + (m_p - m_q).abs() ** 2 / v_q).sum()
        torch.testing.assert_close(kl_to_exact(model, points(), direction=direction), expected, rtol=1e-6, atol=1e-9)


def test_bad_arguments_of_a_divergence_raise():
    with pytest.raises(ValueError, match="expected one of approximate_from_exact"):
        kl_to_exact(fitted("gaussian"), points(), direction="forwards")
    with pytest.raises(ValueError, match="expected a likelihood with one noise variance"):
        kl_to_exact(fitted("fixed"), points(), noisy=True)
    with pytest.raises(ValueError, match="call condition"):
        kl_to_exact(model_for("gaussian"), points(), train_inputs=points(), train_targets=points()[:, 0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("num_rows", [30, 1030])
def test_kernel_error_is_that_of_dense_matrices(num_rows, other, form):
    x = torch.randn(num_rows, INPUTS)
    y = torch.randn(7, INPUTS) if other else x
    kernel = polynomial(method=FORMS[form])
    with torch.no_grad():
        exact, features = kernel.exact_kernel(x, y).to_dense(), [kernel.features(z) for z in (x, y)]
        estimate = features[0] @ features[1].mH
        estimate = estimate.real if estimate.is_complex() else estimate
        expected = torch.linalg.matrix_norm(estimate - exact) / torch.linalg.matrix_norm(exact)
    torch.testing.assert_close(relative_frobenius_error(kernel, x, y if other else None), expected)


def test_kernel_errors_of_a_batch_of_scales():
    kernel = polynomial(batch_shape=torch.Size([3]))
    kernel.outputscale = torch.tensor([0.5, 1.0, 2.0])
    single = relative_frobenius_error(parts(kernel)[0], points(20))
    torch.testing.assert_close(relative_frobenius_error(kernel, points(20)), single.expand(3))


def test_kernel_error_of_exact_features_vanishes():
    kernel = rfgp.approximate(LinearKernel(), INPUTS, input_dim=INPUTS).float()
    error = relative_frobenius_error(kernel, points(20).float())
    assert error.dtype == torch.float64 and error <= 1e-6


def test_bad_arguments_of_a_kernel_error_raise():
    with pytest.raises(ValueError, match=r"expected a kernel made by rfgp\.approximate"):
        relative_frobenius_error(exact_kernel(), points())
    with pytest.raises(ValueError, match="expected finite values"):
        relative_frobenius_error(polynomial(), spoil(points()))
    with pytest.raises(ValueError, match="expected y with 3 columns"):
        relative_frobenius_error(polynomial(), points(), points()[:, :2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classification_scores_are_those_of_sklearn(dtype):
    probabilities = torch.randint(1, 9, (200, 4)).to(dtype)
    probabilities, labels = probabilities / probabilities.sum(-1, keepdim=True), torch.randint(4, (200,))
    wrong = sklearn.metrics.zero_one_loss(labels.numpy(), probabilities.argmax(-1).numpy())
    mnll = sklearn.metrics.log_loss(labels.numpy(), probabilities.numpy(), labels=range(4))
    assert float(error_rate(probabilities, labels)) == pytest.approx(wrong, rel=1e-12)
    assert float(classification_mnll(probabilities, labels)) == pytest.approx(mnll, rel=1e-6)
    assert error_rate(probabilities, labels).dtype == classification_mnll(probabilities, labels).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_regression_scores(dtype):
    mean, y = torch.randn(200, dtype=dtype), torch.randn(200, dtype=dtype)
    expected = sklearn.metrics.root_mean_squared_error(y.numpy(), mean.numpy())
    assert float(rmse(mean, y)) == pytest.approx(float(expected), rel=1e-6)
    predictive = MultivariateNormal(mean, torch.diag(0.1 + torch.rand(200, dtype=dtype)))
    density = torch.distributions.Normal(mean.double(), predictive.variance.double().sqrt()).log_prob(y.double())
    torch.testing.assert_close(regression_mnll(predictive, y), -density.mean())


def test_certain_mistakes_have_a_finite_score():
    probabilities = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(error_rate(probabilities, torch.tensor([1, 1]))) == 0.5
    value = float(classification_mnll(probabilities, torch.tensor([1, 1])))
    assert value == pytest.approx(-0.5 * math.log(torch.finfo(torch.float64).tiny))


BAD_SCORES = {
    "labels": lambda: error_rate(torch.rand(5, 2), torch.zeros(4, dtype=torch.long)),
    "probabilities": lambda: classification_mnll(torch.rand(5), torch.zeros(5, dtype=torch.long)),
    "means": lambda: rmse(torch.zeros(5), torch.zeros(5, 1)),
    "predictions": lambda: regression_mnll(Normal(torch.zeros(5), torch.ones(5)), torch.zeros(4)),
}


@pytest.mark.parametrize("case", BAD_SCORES)
def test_scores_of_other_shapes_raise(case):
    with pytest.raises(ValueError, match=r"expected .*, got "):
        BAD_SCORES[case]()

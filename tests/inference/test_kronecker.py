"""Structured algebra of several outputs against dense matrices: Kronecker spectra, systems and noisy covariances."""

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    KroneckerProductDiagLinearOperator,
    KroneckerProductLinearOperator,
    to_linear_operator,
)

import rfgp
from rfgp.approximation.hooks.feature_operator import FeatureLinearOperator
from rfgp.approximation.hooks.noisy_features import NoisyFeaturesLinearOperator
from rfgp.approximation.hooks.operator_noise import operator_noise
from rfgp.approximation.hooks.output_features import OutputFeatures
from rfgp.inference import KroneckerPosterior, OutputFactor, WeightPosterior
from rfgp.inference.noise.base import combined
from rfgp.inference.posterior import kronecker
from rfgp.inference.posterior.normal_equations import Group, NormalEquations
from rfgp.linalg import gram

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, COLUMNS, OUTPUTS = 12, 5, 3


def system_of(groups, factor):
    """The regression of groups of rows: precisions, Gram matrices and cross products."""
    pairs = [(Group(precision, scalar), cross) for precision, scalar, cross in groups]
    return NormalEquations(combined(pairs, torch.zeros(()), torch.zeros(())), factor)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def with_spectrum(values):
    """A symmetric matrix with given eigenvalues."""
    vectors = torch.linalg.qr(torch.randn(len(values), len(values)))[0]
    matrix = (vectors * torch.tensor(values)) @ vectors.mT
    return 0.5 * (matrix + matrix.mT)


SPECTRA = {
    "distinct": ([0.3, 1.0, 2.5, 4.0], [0.5, 1.2, 3.0]),
    "repeated": ([2.0, 2.0, 2.0, 0.5], [1.5, 1.5, 1.5]),
    "zeros": ([0.0, 0.0, 1.0, 3.0], [0.0, 2.0, 2.0]),
    "all zero": ([0.0] * 4, [0.0] * 3),
    "wide range": ([1e-3, 1.0, 30.0, 1e3], [1e-2, 1.0, 10.0]),
}


def dense_log_determinant(left, right):
    return torch.linalg.slogdet(torch.eye(len(left) * len(right)) + torch.kron(left, right))[1]


@pytest.mark.parametrize("name", SPECTRA)
def test_log_determinant_and_gradient(name):
    left, right = (with_spectrum(values).requires_grad_() for values in SPECTRA[name])
    value, expected = kronecker.log_determinant(left, right), dense_log_determinant(left, right)
    close(value, expected)
    found, reference = (torch.autograd.grad(3.0 * v, [left, right]) for v in (value, expected))
    for a, b in zip(found, reference, strict=True):
        assert (a - b).abs().max() <= 1e-8 * b.abs().max().clamp_min(1e-300)


@pytest.mark.parametrize("name", ["distinct", "repeated", "zeros"])
def test_gradcheck_of_the_log_determinant(name):
    roots = []
    for values in SPECTRA[name]:
        lam, vectors = torch.linalg.eigh(with_spectrum(values))
        roots.append((vectors * lam.clamp_min(0.0).sqrt()).requires_grad_())

    def value(left, right):
        return kronecker.log_determinant(left @ left.mT, right @ right.mT)

    assert torch.autograd.gradcheck(value, roots)


def test_eigenvalues_below_zero_by_rounding_count_as_zero():
    left, right = with_spectrum([-1e-17, 1.0, 2.0]), with_spectrum([1.0, 1e17])
    assert kronecker.log_determinant(left, right).isfinite()
    posterior = KroneckerPosterior(left, torch.ones(6, 1, dtype=torch.float64), right)
    assert posterior.mean.isfinite().all() and posterior.log_determinant.isfinite()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_matrices_that_are_not_finite_raise(bad):
    left, right = with_spectrum([1.0, 2.0]), with_spectrum([1.0, bad])
    for use in (lambda: kronecker.log_determinant(left, right), lambda: KroneckerPosterior(left, left, right)):
        with pytest.raises(ValueError, match="expected"):
            use()


def check_moments(draws, covariance):
    """Mean zero and covariance of draws (S, M) within five standard errors."""
    scales = covariance.diagonal()
    spread = scales[:, None] * scales + covariance.square()
    assert (draws.mean(0).abs() <= 5.0 * (scales / len(draws)).sqrt()).all()
    assert ((draws.mT @ draws / len(draws) - covariance).abs() <= 5.0 * (spread / len(draws)).sqrt()).all()


@pytest.mark.parametrize("name", ["distinct", "repeated", "zeros"])
def test_posterior(name):
    left, right = (with_spectrum(values) for values in SPECTRA[name])
    cross, scalar, root = torch.randn(4, 3), torch.randn(6, 4), torch.randn(5, 3)
    posterior = KroneckerPosterior(left, cross.reshape(-1, 1), right)
    matrix = torch.eye(12) + torch.kron(left, right)
    close(posterior.mean, torch.linalg.solve(matrix, cross.reshape(-1, 1)))
    close(posterior.log_determinant, torch.linalg.slogdet(matrix)[1])
    features = torch.kron(scalar, root)
    covariance = features @ torch.linalg.solve(matrix, features.mT)
    factor = OutputFactor.kronecker(root, 4)
    close(posterior.function_variance(scalar, factor), covariance.diagonal())
    found = posterior.function_root(scalar, factor)
    close(found @ found.mT, covariance)
    close(factor.features(scalar), features)
    columns = torch.randn(12, 2)
    close(posterior.solve(columns), torch.linalg.solve(matrix, columns))
    check_moments(posterior.deviations(40_000).mT, torch.linalg.inv(matrix))


def test_posterior_at_a_batch_of_points():
    left, right = (with_spectrum(values) for values in SPECTRA["distinct"])
    posterior = KroneckerPosterior(left, torch.randn(12, 1), right)
    factor, scalar = OutputFactor.kronecker(torch.randn(5, 3), 4), torch.randn(2, 6, 4)
    for found in (posterior.function_variance, posterior.function_root):
        close(found(scalar, factor), torch.stack([found(part, factor) for part in scalar]))


def covariance_of(kind):
    """A factor of several outputs on scalar features, separable or not."""
    if kind == "separable":
        return OutputFactor.kronecker(torch.randn(OUTPUTS, 2), COLUMNS)
    if kind == "real":
        return OutputFactor.spectral(torch.randn(COLUMNS, OUTPUTS, 2))
    return OutputFactor.spectral(torch.randn(COLUMNS, OUTPUTS, 2, dtype=torch.complex128))


@pytest.mark.parametrize("noise", ["diagonal", "full"])
def test_separable_systems_equal_those_that_are_not(noise):
    scalar, residual = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, OUTPUTS)
    root = torch.randn(OUTPUTS, OUTPUTS)
    covariance = torch.diag(0.1 + torch.rand(OUTPUTS)) + (root @ root.mT if noise == "full" else 0.0)
    factor = covariance_of("separable")
    plain = OutputFactor(factor.index, factor.coefficient, factor.num_scalar)
    group = torch.linalg.inv(covariance), *gram(scalar, residual)
    fast, slow = system_of([group], factor), system_of([group], plain)
    features = factor.features(scalar)
    precision = torch.kron(torch.eye(ROWS), torch.linalg.inv(covariance).contiguous())
    assert slow.separable() is None and fast.separable() is not None
    for system in (fast, slow):
        close(system.matrix, torch.eye(features.shape[-1]) + features.mT @ precision @ features)
        close(system.cross, features.mT @ precision @ residual.reshape(-1, 1))
        close(system.log_determinant(), torch.linalg.slogdet(system.matrix)[1])
    assert isinstance(fast.posterior(), KroneckerPosterior) and isinstance(slow.posterior(), WeightPosterior)
    assert isinstance(fast.posterior(tracks=True), WeightPosterior)
    close(fast.posterior().mean, slow.posterior().mean)
    close(fast.posterior().log_determinant, slow.posterior().log_determinant)


def test_several_groups_are_not_separable():
    factor, groups, total, cross = covariance_of("separable"), [], torch.eye(2 * COLUMNS), 0.0
    for _ in range(2):
        scalar, residual, root = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, OUTPUTS), torch.randn(OUTPUTS, OUTPUTS)
        groups.append((root @ root.mT, *gram(scalar, residual)))
        features, precision = factor.features(scalar), torch.kron(torch.eye(ROWS), root @ root.mT)
        total = total + features.mT @ precision @ features
        cross = cross + features.mT @ precision @ residual.reshape(-1, 1)
    system = system_of(groups, factor)
    assert system.separable() is None
    close(system.matrix, total)
    close(system.posterior().mean, torch.linalg.solve(total, cross))
    close(system.log_determinant(), torch.linalg.slogdet(total)[1])


def noise_of(kind):
    """An operator for the noise of all rows, interleaved, as likelihoods make it."""
    if kind == "constant":
        return ConstantDiagLinearOperator(torch.tensor([0.3]), ROWS * OUTPUTS)
    if kind == "per observation":
        return DiagLinearOperator(0.1 + torch.rand(ROWS * OUTPUTS))
    eye = ConstantDiagLinearOperator(torch.tensor([1.0]), ROWS)
    if kind == "per task":
        return KroneckerProductDiagLinearOperator(eye, DiagLinearOperator(0.1 + torch.rand(OUTPUTS)))
    if kind == "twice per task":
        two = ConstantDiagLinearOperator(torch.tensor([2.0]), ROWS)
        return KroneckerProductDiagLinearOperator(two, DiagLinearOperator(0.1 + torch.rand(OUTPUTS)))
    root = torch.randn(OUTPUTS, OUTPUTS)
    return KroneckerProductLinearOperator(eye, to_linear_operator(root @ root.mT + 0.1 * torch.eye(OUTPUTS)))


FACTORS = ("separable", "real", "complex")
NOISES = ("constant", "per task", "twice per task", "full", "per observation")


def noisy_operator(factor, noise):
    """The operator, its dense matrix, and its features."""
    known = covariance_of(factor)
    scalar, added = torch.randn(ROWS, known.num_scalar), noise_of(noise)
    features = known.features(scalar)
    operator = FeatureLinearOperator(OutputFeatures.of(scalar, known)) + added
    assert isinstance(operator, NoisyFeaturesLinearOperator)
    return operator, features @ features.mT + added.to_dense(), scalar


@pytest.fixture(params=[(factor, noise) for factor in FACTORS for noise in NOISES], ids=" ".join)
def noisy(request, float64_default):
    return noisy_operator(*request.param)


def test_noisy_operator_is_the_sum(noisy):
    operator, dense, _ = noisy
    rhs = torch.randn(len(dense), 2)
    assert operator.shape == dense.shape and operator.dtype == torch.float64
    close(operator.to_dense(), dense)
    close(operator @ rhs, dense @ rhs)
    close(operator @ rhs[:, 0], dense @ rhs[:, 0])
    close(operator.mT.to_dense(), dense)
    close(operator.diagonal(), dense.diagonal())
    close(operator[3:7, 2:9].to_dense(), dense[3:7, 2:9])
    close(operator[..., 4, :5], dense[4, :5])
    index = torch.tensor([0, 5, 7])
    close(operator[index, index], dense[index, index])
    factor = operator.cholesky().to_dense()
    close(factor @ factor.mT, dense)


def test_noisy_operator_solves_without_a_dense_matrix(noisy, monkeypatch):
    operator, dense, _ = noisy
    rhs = torch.randn(len(dense), 4)
    solved = torch.linalg.solve(dense, rhs)
    quadratic, logdet = (rhs * solved).sum(-2), torch.linalg.slogdet(dense)[1]

    def forbidden(*arguments, **options):
        raise AssertionError("a matrix of all rows and outputs was formed")

    monkeypatch.setattr(OutputFactor, "features", forbidden)
    monkeypatch.setattr(NoisyFeaturesLinearOperator, "to_dense", forbidden)
    close(operator.solve(rhs), solved)
    close(operator.solve(rhs[:, 0]), solved[:, 0])
    close(operator.solve(rhs, rhs.mT), rhs.mT @ solved)
    close(operator.inv_quad(rhs), quadratic.sum())
    close(operator.inv_quad(rhs[:, 0]), quadratic[0])
    close(operator.inv_quad(rhs, reduce_inv_quad=False), quadratic)
    close(operator.logdet(), logdet)
    for reduce in (True, False):
        found = operator.inv_quad_logdet(rhs, logdet=True, reduce_inv_quad=reduce)
        close(found[0], quadratic.sum() if reduce else quadratic)
        close(found[1], logdet)
    close(operator.inv_quad_logdet(None, logdet=True)[1], logdet)
    assert operator.inv_quad_logdet(rhs, logdet=False)[1] == 0.0


def test_noisy_operator_samples(noisy):
    operator, dense, _ = noisy
    check_moments(operator.zero_mean_mvn_samples(20_000), dense)


def test_noisy_operator_with_more_on_the_diagonal(noisy):
    operator, dense, _ = noisy
    more, rhs = 0.1 + torch.rand(len(dense)), torch.randn(len(dense), 2)
    variants = {
        "add_diagonal": (operator.add_diagonal(more), dense + torch.diag(more)),
        "add_diagonal of a scalar": (operator.add_diagonal(torch.tensor(0.3)), dense + 0.3 * torch.eye(len(dense))),
        "add_jitter": (operator.add_jitter(0.2), dense + 0.2 * torch.eye(len(dense))),
        "diagonal": (operator + DiagLinearOperator(more), dense + torch.diag(more)),
        "matrix": (operator + torch.eye(len(dense)), dense + torch.eye(len(dense))),
        "times": (operator * 2.5, dense * 2.5),
        "divided": (operator / 2.0, dense / 2.0),
        "negative": (operator * -1.0, -dense),
    }
    for name, (result, expected) in variants.items():
        torch.testing.assert_close(result.to_dense(), expected, rtol=1e-9, atol=1e-9, msg=name)
        is_sum_of_diagonals = isinstance(operator.linear_ops[1], DiagLinearOperator) and name not in (
            "matrix",
            "negative",
        )
        is_structured = name in ("times", "divided") or is_sum_of_diagonals
        assert isinstance(result, NoisyFeaturesLinearOperator) == is_structured, name
        if name != "negative":
            close(result.solve(rhs), torch.linalg.solve(expected, rhs))
            close(result.logdet(), torch.linalg.slogdet(expected)[1])


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("factor", FACTORS)
def test_noisy_operator_gradients(factor, noise):
    known, added = covariance_of(factor), noise_of(noise)
    leaves = [torch.randn(ROWS, known.num_scalar), known.coefficient, torch.randn(ROWS * OUTPUTS, 2)]
    parts = [leaf.clone().requires_grad_() for leaf in [*leaves, *added.representation()]]
    weights = torch.randn(ROWS * OUTPUTS, 2)

    def terms(scalar, coefficient, rhs, *noise_parts, is_dense=False):
        own = OutputFactor(known.index, coefficient, known.num_scalar)
        with_noise = added.representation_tree()(*noise_parts)
        if is_dense:
            features = own.features(scalar)
            total = features @ features.mT + with_noise.to_dense()
            solved = torch.linalg.solve(total, rhs)
            return (weights * solved).sum(), (rhs * solved).sum(), torch.linalg.slogdet(total)[1]
        total = FeatureLinearOperator(OutputFeatures.of(scalar, own)) + with_noise
        return (weights * total.solve(rhs)).sum(), *total.inv_quad_logdet(rhs, logdet=True)

    for value, expected in zip(terms(*parts), terms(*parts, is_dense=True), strict=True):
        close(value, expected)
        options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
        found, reference = (torch.autograd.grad(v, parts, **options) for v in (value, expected))
        for a, b in zip(found, reference, strict=True):
            is_covariance = a.shape == (OUTPUTS, OUTPUTS)  # of which only the symmetric part matters
            close(*((a + a.mT, b + b.mT) if is_covariance else (a, b)))


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("has_global_noise", [False, True])
def test_the_noise_of_multitask_likelihoods_is_known(rank, has_global_noise):
    likelihood = MultitaskGaussianLikelihood(OUTPUTS, rank=rank, has_global_noise=has_global_noise)
    known = covariance_of("real")
    features = OutputFeatures.of(torch.randn(ROWS, known.num_scalar), known)
    latent = gpytorch.distributions.MultitaskMultivariateNormal(
        torch.zeros(ROWS, OUTPUTS), FeatureLinearOperator(features)
    )
    total = likelihood(latent).lazy_covariance_matrix
    assert isinstance(total, NoisyFeaturesLinearOperator)
    tasks = likelihood.task_noise_covar if rank else torch.diag(likelihood.task_noises)
    tasks = tasks + (likelihood.noise * torch.eye(OUTPUTS) if has_global_noise else 0.0)
    close(total.noise.covariance, tasks)
    dense = features.to_dense() @ features.to_dense().mT + torch.kron(torch.eye(ROWS), tasks)
    rhs = torch.randn(ROWS * OUTPUTS)
    if rank == 0 or has_global_noise or rank == OUTPUTS:  # else the noise is singular
        close(total.solve(rhs), torch.linalg.solve(dense, rhs))


def test_noise_of_other_kinds_is_left_to_gpytorch():
    size = ROWS * OUTPUTS
    by_row = DiagLinearOperator(0.1 + torch.rand(ROWS))
    others = [
        to_linear_operator(torch.eye(size)),
        KroneckerProductLinearOperator(by_row, to_linear_operator(torch.eye(OUTPUTS))),
        KroneckerProductDiagLinearOperator(ConstantDiagLinearOperator(torch.tensor([1.0]), OUTPUTS), by_row),
        DiagLinearOperator(torch.rand(2, size)),
    ]
    known = covariance_of("real")
    features = OutputFeatures.of(torch.randn(ROWS, known.num_scalar), known)
    dense = features.to_dense() @ features.to_dense().mT
    for noise in others:
        total = FeatureLinearOperator(features) + noise
        is_diagonal = isinstance(noise, DiagLinearOperator) and not noise.batch_shape
        assert isinstance(total, NoisyFeaturesLinearOperator) == isinstance(noise, DiagLinearOperator)
        assert (operator_noise(noise, OUTPUTS) is None) != is_diagonal
        close(total.to_dense(), dense + noise.to_dense())


def test_float32_works_in_float64():
    known = covariance_of("real")
    scalar = torch.randn(ROWS, known.num_scalar, dtype=torch.float32)
    features = OutputFeatures.of(scalar, known)
    noise = ConstantDiagLinearOperator(torch.tensor([1e-6]).float(), ROWS * OUTPUTS)
    total = FeatureLinearOperator(features) + noise
    dense = features.to_dense().double() @ features.to_dense().double().mT + 1e-6 * torch.eye(ROWS * OUTPUTS)
    rhs = torch.randn(ROWS * OUTPUTS)
    exact = torch.linalg.solve(dense, rhs)
    assert total.solve(rhs.float()).dtype == total.logdet().dtype == torch.float32
    assert (total.solve(rhs.float()) - exact).abs().max() <= 1e-4 * exact.abs().max()
    torch.testing.assert_close(total.logdet(), torch.linalg.slogdet(dense)[1].float(), rtol=1e-5, atol=1e-5)
    assert rfgp.linalg.product_dtype(torch.float32, 1e-6, lambda: known.largest_square(scalar)) == torch.float64

"""Sums, products and nested kernels: widths, independence, means, variances, gradients, and what they share."""

from __future__ import annotations

import copy
import io
import itertools
import math
import pickle

import gpytorch
import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior
from problems import COMPOSITIONS, INPUTS, ExactModel, composition, constant, dot_product, mixture, randomised, scaled

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.approximation import approximated as door
from rfgp.approximation.selection.ranking import best_of_part
from rfgp.features import FeatureMap, FourierSeries, LinearFeatures, RandomFourier
from rfgp.kernels import OpticalKernel
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

ROUNDING = 1e-10
every_composition = pytest.mark.parametrize("name", COMPOSITIONS)
COMPLEX = ["sum", "product", "product with an exact part", "product of sums", "scaled sum in a product", "nested"]
every_form = pytest.mark.parametrize(
    ("name", "method"), [*((n, "auto") for n in COMPOSITIONS), *((n, "fourier:complex") for n in COMPLEX)]
)


def points(num_rows, seed=0, columns=INPUTS):
    return 0.7 * torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))


def approximated(exact, width=48, method="auto", seed=0, input_dim=INPUTS, **options):
    return rfgp.approximate(exact, width, input_dim=input_dim, method=method, seed=seed, **options)


def dense(kernel, x, y=None):
    with torch.no_grad():
        return kernel(x, y).to_dense()


def product(left, right):
    values = left @ right.mH
    return values.real if values.is_complex() else values


def close(actual, expected, relative=ROUNDING):
    size = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=relative * size)


def leaves(kernel):
    return [leaf.maps for leaf, _ in kernel.family.leaves()]


def widths(kernel):
    return [part.feature_map.num_features for part in leaves(kernel)]


RBF, ROUGH = RBFKernel, lambda **options: MaternKernel(nu=1.5, **options)
CUBIC = lambda: PolynomialKernel(power=3)  # noqa: E731

# The kernel, the method, the number of features that is asked for, and those of the parts.
SUMS = [
    (lambda: RBF() + ROUGH(), "auto", 64, [32, 32]),
    (lambda: RBF() + ROUGH(), "auto", 66, [34, 32]),
    (lambda: RBF() + ROUGH() + RBF(), "auto", 64, [22, 22, 20]),
    (lambda: RBF() + ROUGH() + RBF(), "fourier:complex", 65, [22, 22, 21]),
    (lambda: RBF() + ROUGH(), "auto", 5, [2, 2]),  # cosines come with sines
    (lambda: RBF() + LinearKernel(), "auto", 65, [62, 3]),
    (lambda: RBF() + LinearKernel(), "auto", 64, [60, 3]),
    (lambda: RBF() + LinearKernel(), "fourier:complex", 64, [61, 3]),
    (lambda: LinearKernel() + RBF(), "fourier_hadamard", 65, [3, 62]),
    (lambda: RBF() + LinearKernel() + constant() + CosineKernel(active_dims=[1]), "auto", 66, [60, 3, 1, 2]),
    (lambda: constant() + CosineKernel(active_dims=[2]) + LinearKernel(active_dims=[0, 1]), "auto", 64, [1, 2, 2]),
    (lambda: scaled(RBF()) + scaled(scaled(LinearKernel())), "auto", 65, [62, 3]),
    (lambda: RBF() + (ROUGH() + (RBF() + LinearKernel())), "auto", 63, [20, 20, 20, 3]),
    (lambda: CUBIC() + CUBIC(), "tensor_srht:real", 65, [32, 33]),
    (lambda: CUBIC() + LinearKernel(), "tensor_srht:real", 65, [32, 33]),
    (lambda: CUBIC() + RBF(), "auto", 65, [32, 32]),
    (lambda: OpticalKernel() + RBF(), "auto", 65, [33, 32]),
    (lambda: RBF() + RBF() + OpticalKernel(), "auto", 6, [2, 2, 2]),
    (lambda: RBF() + RBF() + OpticalKernel(), "auto", 5, [2, 2, 1]),
    (lambda: OpticalKernel() + OpticalKernel() + OpticalKernel(), "auto", 4, [1, 1, 2]),
]


@pytest.mark.parametrize(("exact", "method", "width", "expected"), SUMS)
def test_widths_of_the_parts_of_sums(exact, method, width, expected):
    kernel = approximated(exact(), width, method)
    assert widths(kernel) == expected
    assert kernel.features(points(4)).shape == (4, sum(expected)) and sum(expected) <= width
    if method != "auto":  # which would choose
        assert widths(rfgp.approximate(exact(), width, method=method, train_inputs=points(width), seed=0)) == expected


@pytest.mark.parametrize(("name", "width"), [("sum", 21), ("sum with exact parts", 33), ("sum of many", 18)])
def test_sums_with_data_use_all_features_but_one_without_a_partner(name, width):
    kernel = door.approximated(composition(name), width, train_inputs=points(40), seed=0, choose=best_of_part)
    assert width - 1 <= sum(widths(kernel)) == kernel.features(points(4)).shape[-1] <= width


PRODUCTS = [
    (lambda: RBF() * ROUGH(), "auto", 64, [32, 32], 64),
    (lambda: RBF() * ROUGH(), "auto", 65, [32, 32], 64),
    (lambda: RBF() * ROUGH() * CUBIC(), "fourier:complex", 65, [65, 65, 65], 65),
    (lambda: RBF() * LinearKernel(), "auto", 64, [10, 3], 60),
    (lambda: RBF() * LinearKernel(), "fourier:complex", 64, [21, 3], 63),
    (lambda: RBF() * constant(), "auto", 64, [32, 1], 64),
    (lambda: RBF() * CosineKernel(active_dims=[0]) * LinearKernel(active_dims=[1]), "auto", 64, [16, 2, 1], 64),
    (lambda: LinearKernel() * CosineKernel(active_dims=[0]), "auto", 64, [3, 2], 6),
    (lambda: OpticalKernel() * OpticalKernel(), "auto", 65, [65, 65], 65),
    (lambda: PeriodicKernel(active_dims=[0]) * RBF(), "auto", 64, [32, 32], 64),
    (lambda: RBF() * ROUGH(), "fourier_hadamard", 64, [8, 8], 64),
    (lambda: RBF() * LinearKernel(), "fourier_hadamard", 64, [20, 3], 60),
]


@pytest.mark.parametrize(("exact", "method", "width", "expected", "total"), PRODUCTS)
def test_widths_of_the_parts_of_products(exact, method, width, expected, total):
    kernel = approximated(exact(), width, method)
    assert widths(kernel) == expected
    assert kernel.features(points(4)).shape == (4, total) and total <= width


def test_linear_kernels_of_many_columns_are_sketched_in_products():
    kernel = approximated(RBF() * LinearKernel(), 64, input_dim=10)
    assert widths(kernel) == [32, 32] and kernel.features(points(4, columns=10)).shape == (4, 64)


TOO_FEW = [
    (
        lambda: RBF() + ROUGH(),
        "auto",
        3,
        "expected at least 4 features for 2 approximated parts of a sum, .* use 1 more",
    ),
    (lambda: RBF() + LinearKernel(), "auto", 4, "expected at least 2 features for 1 .* got 1; use 1 more"),
    (lambda: RBF() + LinearKernel(), "auto", 2, "expected at least 2 features for 1 .* got -1; use 3 more"),
    (lambda: OpticalKernel() + OpticalKernel(), "auto", 1, "expected at least 2 features for 2 .* got 1; use 1 more"),
    (lambda: RBF() * ROUGH(), "auto", 1, "expected more features for a product of 2 parts, got 1, .*; use more"),
    (lambda: RBF() * LinearKernel(), "auto", 5, "expected more features for a product of 2 parts, got 5, .*; use more"),
    (lambda: RBF() * ROUGH(), "fourier_hadamard", 3, "expected more features for a product of 2 parts, got 3"),
    (lambda: RBF() * LinearKernel() + ROUGH(), "auto", 8, "expected more features for a product of 2 parts, got 4"),
]


@pytest.mark.parametrize(("exact", "method", "width", "message"), TOO_FEW)
def test_too_few_features_raise(exact, method, width, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        approximated(exact(), width, method)


def test_products_of_sums_are_multiplied_out():
    first, second, third, fourth = RBF(), LinearKernel(), constant(), ROUGH()
    kernel = approximated((first + second) * (third + fourth), 64)
    factors = [[part.kernel for part in term.parts] for term in kernel.family.parts]
    expected = [(first, third), (first, fourth), (second, third), (second, fourth)]
    for pair, originals in zip(factors, expected, strict=True):
        for part, original in zip(pair, originals, strict=True):
            assert list(map(id, part.parameters())) == list(map(id, original.parameters()))


def test_scales_of_sums_go_to_one_factor_of_every_product():
    inside, outside = scaled(RBF(), 3.0), scaled(LinearKernel() + RBF(), 0.5)
    kernel = approximated(inside * outside * ROUGH(), 64)
    x, y = points(5), points(4, seed=1)
    assert [len(term.parts) for term in kernel.family.parts] == [3, 3]
    close(dense(kernel.exact_kernel, x, y), dense(inside * outside * ROUGH(), x, y))
    names = [id(parameter) for name, parameter in kernel.named_parameters() if name.endswith("raw_outputscale")]
    assert names == [id(inside.raw_outputscale), id(outside.raw_outputscale)]
    outside.outputscale = 1.0
    before = dense(kernel, x, y)
    outside.outputscale = 0.25
    close(dense(kernel, x, y), 0.25 * before)


def test_nested_products_are_products():
    kernel = approximated(
        ProductKernel(RBF(), ProductKernel(ROUGH(), scaled(ProductKernel(RBF(), LinearKernel())))), 64
    )
    assert isinstance(kernel.exact_kernel, ProductKernel) and len(parts(kernel)) == 4
    close(product(kernel.features(points(5)), kernel.features(points(5))), dense(kernel, points(5)))


@pytest.mark.parametrize("make", [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a * b + a])
@pytest.mark.parametrize("is_same", [False, True])
@pytest.mark.parametrize("method", ["auto", "fourier", "fourier:complex"])
def test_equal_parts_have_weights_of_their_own(make, is_same, method):
    first = RBF()
    kernel = approximated(make(first, first if is_same else RBF()), 64, method)
    drawn = [part.feature_map.get_buffer("weight") for part in leaves(kernel)]
    for generator in (None, torch.Generator().manual_seed(3)):
        if generator is not None:
            kernel.resample(generator)
        for i, weight in enumerate(drawn):
            assert not any(bool((weight[:3] == other[:3]).any()) for other in drawn[:i])


def test_one_seed_is_one_kernel():
    x = points(5)
    for name in COMPOSITIONS:
        first, again, other = (dense(approximated(composition(name), seed=seed), x) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert torch.equal(first, other) == (name == "product of exact parts")


@every_form
def test_compositions_are_the_products_of_their_features(name, method):
    exact = composition(name)
    kernel = approximated(exact, method=method)
    x, y = points(5), points(3, seed=1)
    for left, right in [(x, y), (x, x), (torch.stack([x, 2.0 * x]), y)]:
        close(kernel(left, right).to_dense(), product(kernel.features(left), kernel.features(right)))
    close(kernel(x, diag=True), dense(kernel, x).diagonal())
    assert kernel.features(x).is_complex() == kernel.is_complex == method.endswith(":complex")
    close(kernel.features(x), kernel.scalar_features(x) * kernel.output_factor())
    close(dense(kernel.exact_kernel, x, y), dense(exact, x, y))
    assert kernel.features(x).shape[-1] <= 48


def mean_is(estimates, target, errors=5.0):
    """Whether the mean of matrices lies within a number of standard errors of a target, as a whole."""
    difference = torch.stack(estimates) - target
    variance = (difference - difference.mean(0)).square().sum() / (len(difference) - 1)
    return difference.mean(0).square().sum() <= errors**2 * variance / len(difference) + ROUNDING


@every_form
def test_means_over_seeds_are_the_exact_kernels(name, method):
    exact, x, y = composition(name), 0.25 * points(3), 0.25 * points(3, seed=1)
    kernel, generator = approximated(exact, 96, method), torch.Generator().manual_seed(7)
    if any(isinstance(part.feature_map, rfgp.features.Maclaurin) for part in leaves(kernel)):
        estimates = [dense(approximated(exact, 96, method, seed=seed), x, y) for seed in range(0, 400, 10)]
    else:
        estimates = [dense(kernel.resample(generator), x, y) for _ in range(40)]
    assert mean_is(estimates, dense(exact, x, y))
    assert not mean_is(estimates, 1.5 * dense(exact, x, y))


@pytest.mark.parametrize("method", ["fourier", "fourier:complex"])
def test_variance_of_products_of_independent_frequencies(method):
    """(1 - k1^2 k2^2)/D for D complex features, and half of that and of the pseudo-variance for their real part."""
    first, second = RBF(active_dims=[0, 1]), ROUGH(active_dims=[1, 2])
    first.lengthscale, second.lengthscale = 1.3, 2.0
    x, y = points(1), points(1, seed=1)
    width, groups = 8, 20000
    columns = width * groups * (1 if method.endswith(":complex") else 2)
    kernel = approximated(first * second, columns, method)
    left, right = kernel.features(x).detach(), kernel.features(y).detach()
    values = columns * left * right.conj()
    if not values.is_complex():  # cosine and sine of a frequency
        values = 0.5 * values.reshape(2, -1).sum(0)
    draws = values.reshape(groups, width).mean(-1)  # independent estimates from eight frequencies each
    exact = float(dense(first, x, y) * dense(second, x, y))
    twice = float(dense(first, 2.0 * x, 2.0 * y) * dense(second, 2.0 * x, 2.0 * y))
    variance, pseudo = (1.0 - exact**2) / width, (twice - exact**2) / width
    expected = variance if draws.is_complex() else 0.5 * (variance + pseudo)
    squares = (draws - exact).abs().square()
    assert abs(float(squares.mean()) - expected) <= 5.0 * float(squares.std()) / math.sqrt(groups)
    assert abs(complex(draws.mean()) - exact) <= 5.0 * math.sqrt(expected / groups)
    if draws.is_complex():
        squares = ((draws - exact) ** 2).real
        assert abs(float(squares.mean()) - pseudo) <= 5.0 * float(squares.std()) / math.sqrt(groups)


@pytest.mark.parametrize("method", ["auto", "fourier", "fourier:complex", "fourier_hadamard"])
@pytest.mark.parametrize("other", [LinearKernel, constant, lambda: CosineKernel(active_dims=[1])])
def test_exact_parts_multiply_the_features_of_the_others(method, other):
    """By Kronecker products, so that the estimate is that of the other part times the exact kernel."""
    exact = scaled(RBF()) * other()
    kernel = approximated(exact, 48, method)
    x, y = points(5), points(4, seed=1)
    left, right = parts(parts(kernel)[0]) if isinstance(kernel.exact_kernel, ScaleKernel) else parts(kernel)
    close(dense(kernel, x, y), dense(left, x, y) * dense(exact.kernels[1], x, y))
    expected = left.features(x)[..., :, None] * right.features(x)[..., None, :]
    features = kernel.features(x)
    if expected.is_complex() and not kernel.is_complex:
        features = torch.complex(*features.chunk(2, dim=-1))
    assert torch.equal(features, expected.flatten(-2))


@pytest.mark.parametrize("make", [lambda: RBF() * ROUGH(), lambda: RBF() * CUBIC(), lambda: OpticalKernel() * RBF()])
def test_open_ended_parts_are_multiplied_column_by_column(make):
    kernel = approximated(make(), 48)
    x = points(5)
    left, right = (part.all_features(x) for part in kernel.family.parts[0].parts)
    expected = math.sqrt(left.shape[-1]) * left * right
    close(kernel.features(x), torch.cat([expected.real, expected.imag], dim=-1))
    assert not torch.allclose(dense(kernel, x), product(left, left) * product(right, right))


def test_parts_with_biased_columns_are_multiplied_by_kronecker():
    for exact in (dot_product() * RBF(), dot_product() * ScaleKernel(dot_product())):
        kernel = approximated(exact, 64)
        x, y = points(5), points(4, seed=1)
        left, right = parts(kernel)
        close(dense(kernel, x, y), dense(left, x, y) * dense(right, x, y))


# Parameters of discrete laws: values jump with them, and gradients are right on average, see test_gradients_converge.
SCORES = {"sum of many": "raw_mixture_weights", "product": "raw_lengthscale", "nested": "raw_lengthscale"}
SCORES |= {"scaled product in a product": "raw_lengthscale"}


def scored_parameters(exact):
    periodic = [p.raw_lengthscale for p in exact.modules() if isinstance(p, PeriodicKernel)]
    return {id(p) for p in periodic} | {id(p) for n, p in exact.named_parameters() if n.endswith("mixture_weights")}


@every_form
def test_gradients_reach_all_parameters_and_are_those_of_the_value(name, method):
    exact = composition(name)
    kernel = approximated(exact, method=method)
    x, y = points(4), points(3, seed=1)
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))

    def value():
        return (weights * kernel(x, y).to_dense()).sum() + kernel(x, diag=True).sum()

    parameters, scored = dict(exact.named_parameters()), scored_parameters(exact)
    assert bool(scored) == (name in SCORES)
    for (path, parameter), gradient in zip(
        parameters.items(), torch.autograd.grad(value(), list(parameters.values())), strict=True
    ):
        assert bool(gradient.ne(0).any()), path
        if id(parameter) in scored:
            continue
        start, values = parameter.data.clone(), []
        direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(3))
        for step in (1e-6, -1e-6):
            parameter.data = start + step * direction
            values.append(float(value().detach()))
        parameter.data = start
        size = float(gradient.norm() * direction.norm()) + 1e-3 * abs(values[0])
        difference = (values[0] - values[1]) / 2e-6
        assert abs(float((gradient * direction).sum()) - difference) <= 1e-6 * size, path


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@every_composition
def test_gradients_of_the_evidence_are_those_of_dense_algebra(name):
    x, y = points(60), torch.sin(points(60).sum(-1))
    exact = composition(name)
    kernel, likelihood = approximated(exact), gpytorch.likelihoods.GaussianLikelihood()
    parameters = [*exact.parameters(), likelihood.raw_noise]
    model = WeightSpaceGP(kernel, likelihood)
    fast = torch.autograd.grad(model.condition(x, y).log_marginal_likelihood(), parameters)
    exact_gp = ExactModel(x, y, likelihood, kernel, gpytorch.means.ZeroMean()).train()
    same = torch.autograd.grad(likelihood(exact_gp(x)).log_prob(y), parameters)
    features = kernel.features(x)
    covariance = features @ features.mT + likelihood.noise * torch.eye(60)
    distribution = torch.distributions.MultivariateNormal(torch.zeros(60), covariance)
    slow = torch.autograd.grad(distribution.log_prob(y), parameters)
    for values in (fast, same):
        for value, expected in zip(values, slow, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-7 * max(1.0, float(expected.norm())))


def gamma():
    return GammaPrior(2.0, 1.0)


def test_parameters_priors_and_constraints_of_a_part_that_is_used_twice_count_once():
    smooth = ScaleKernel(RBFKernel(lengthscale_prior=gamma()), outputscale_prior=gamma())
    exact = smooth * (LinearKernel() + ROUGH(lengthscale_prior=gamma()))
    kernel = approximated(exact, 64)
    assert sorted(map(id, kernel.parameters())) == sorted(map(id, exact.parameters()))
    assert sorted(map(id, kernel.exact_kernel.parameters())) == sorted(map(id, exact.parameters()))
    count = [sum(1 for _ in module.named_priors()) for module in (exact, kernel, kernel.exact_kernel)]
    assert count == [3, 3, 3]
    likelihood, x = gpytorch.likelihoods.GaussianLikelihood(), points(20)
    values = []
    for covariance in (exact, kernel):
        model = ExactModel(x, x[:, 0], likelihood, covariance)
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        output = gpytorch.distributions.MultivariateNormal(torch.zeros(20), torch.eye(20))
        values.append(mll(output, x[:, 0]).detach())
    torch.testing.assert_close(*values)


STATES = [
    (name, saved_dim, fresh_dim)
    for name in ("sum", "product", "product of three", "scaled product")
    for saved_dim, fresh_dim in itertools.product([None, INPUTS], repeat=2)
] + [("product with an exact part", INPUTS, INPUTS)]  # its share of the features is known where the columns are


@pytest.mark.parametrize(("name", "saved_dim", "fresh_dim"), STATES)
def test_state_dict_of_lazy_and_made_compositions(name, saved_dim, fresh_dim):
    x = points(5)
    kernel = approximated(composition(name), seed=3, input_dim=saved_dim)
    expected, file = dense(kernel, x), io.BytesIO()
    torch.save(kernel.state_dict(), file)
    file.seek(0)
    fresh = approximated(composition(name, seed=9), seed=4, input_dim=fresh_dim)
    assert not torch.allclose(dense(copy.deepcopy(fresh), x), expected)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(dense(fresh, x), expected)


@every_form
def test_copies_of_compositions(name, method):
    exact = composition(name)
    kernel, x = approximated(exact, method=method), points(5)
    expected = dense(kernel, x)
    for exact_copy, copied in (copy.deepcopy((exact, kernel)), pickle.loads(pickle.dumps((exact, kernel)))):
        assert torch.equal(dense(copied, x), expected)
        assert sorted(map(id, copied.parameters())) == sorted(map(id, exact_copy.parameters()))
        for parameter in exact_copy.parameters():
            parameter.data += 0.5
        assert not torch.allclose(dense(copied, x), expected)
        copied.resample(torch.Generator().manual_seed(5))
        assert torch.equal(dense(kernel, x), expected)


@every_composition
def test_resample_reaches_all_parts(name):
    kernel = approximated(composition(name))
    before = {key: value.clone() for key, value in kernel.state_dict().items() if isinstance(value, torch.Tensor)}
    draws = kernel.version
    assert kernel.resample(torch.Generator().manual_seed(5)) is kernel
    assert kernel.version >= draws + len(leaves(kernel))
    after = kernel.state_dict()
    for path, part in kernel.named_modules():
        if isinstance(part, FeatureMap) and not isinstance(part, FourierSeries | LinearFeatures):
            names = [f"{path}.{n}" for n, _ in part.named_buffers() if not n.endswith(("coefficients", "importance"))]
            assert any(not torch.equal(before[n], after[n]) for n in names), path


@every_form
def test_compositions_in_float32(name, method):
    kernel = approximated(composition(name), method=method)
    x, y = points(5), points(4, seed=1)
    expected, narrow = dense(kernel, x, y), copy.deepcopy(kernel).float()
    value = dense(narrow, x.float(), y.float())
    assert value.dtype == torch.float32
    assert narrow.features(x.float()).dtype == (torch.complex64 if kernel.is_complex else torch.float32)
    assert (value.double() - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("method", ["auto", "fourier:complex"])
def test_active_dims_of_every_part(method):
    """Parts on columns of their own are the parts on these columns alone, in sums, products and scales around them."""

    def make(first, second, third):
        smooth, rough = scaled(RBF(active_dims=first)), ScaleKernel(ROUGH(), active_dims=second)
        return scaled(smooth * rough + CosineKernel(active_dims=third), 0.3)

    x = points(6, columns=7)
    chosen = make([5, 1], [6], [2])
    kernel = approximated(chosen, 48, method, input_dim=7)
    inner, third = parts(parts(kernel)[0])
    first, second = parts(inner)
    for part, dims in ((first, [5, 1]), (second, [6]), (third, [2])):
        alone = copy.deepcopy(part)
        for module in alone.modules():
            if isinstance(module, gpytorch.kernels.Kernel):
                module.active_dims = None
        assert torch.equal(part.features(x), alone.features(x[:, dims]))
    close(dense(kernel.exact_kernel, x), dense(chosen, x))
    close(product(kernel.features(x), kernel.features(x)), dense(kernel, x))
    other = x.clone()
    other[:, [0, 3, 4]] = 9.0  # columns of no part
    assert torch.equal(dense(kernel, other), dense(kernel, x))
    for column in (5, 1, 6, 2):
        changed = x.clone()
        changed[:, column] *= 1.5
        assert not torch.allclose(dense(kernel, changed), dense(kernel, x))
    assert torch.equal(dense(approximated(chosen, 48, method, input_dim=None), x), dense(kernel, x))


def test_active_dims_around_a_sum_inside_a_product_raise():
    inside = ScaleKernel(RBF() + LinearKernel(), active_dims=[0, 1])
    assert approximated(inside, 32).features(points(3)).shape == (3, 32)
    with pytest.raises(ValueError, match=r"^expected active_dims on the parts of a sum .*; move them inside$"):
        approximated(inside * RBF(), 32)


@every_form
def test_batches_of_compositions(name, method):
    """A batch of output scales around a composition, and of inputs."""
    exact = ScaleKernel(composition(name), batch_shape=torch.Size([3]))
    exact.outputscale = torch.tensor([0.5, 1.0, 2.0])
    kernel = approximated(exact, method=method)
    x, y = points(5), points(4, seed=1)
    plain = dense(parts(kernel)[0], x, y)
    whole = dense(kernel, x, y)
    assert whole.shape == (3, 5, 4) and kernel.features(x).shape[:2] == (3, 5)
    for i, scale in enumerate([0.5, 1.0, 2.0]):
        close(whole[i], scale * plain)
        close(dense(kernel[i], x, y), scale * plain)
        close(product(kernel.features(x), kernel.features(y))[i], scale * plain)
    close(dense(kernel, torch.stack([x, y[[0, 1, 2, 3, 0]], 2.0 * x]), y)[2], 2.0 * dense(parts(kernel)[0], 2.0 * x, y))
    close(dense(kernel.exact_kernel, x, y), dense(exact, x, y))


def test_parts_with_batches_of_their_own():
    shape = torch.Size([2])
    smooth, linear = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape), LinearKernel()
    exact = randomised(smooth * ROUGH(batch_shape=shape) + linear)
    kernel = approximated(exact, 48)
    x, y = points(5), points(4, seed=1)
    assert kernel.batch_shape == shape and dense(kernel, x, y).shape == (2, 5, 4)
    close(dense(kernel.exact_kernel, x, y), dense(exact, x, y))
    close(product(kernel.features(x), kernel.features(y)), dense(kernel, x, y))
    for i in range(2):
        close(dense(kernel[i], x, y), dense(kernel, x, y)[i])
    assert dense(kernel.expand_batch(3, 2), x, y).shape == (3, 2, 5, 4)
    close(dense(kernel.expand_batch(3, 2), x, y)[1], dense(kernel, x, y))


def test_kernels_with_features_can_be_combined_later():
    smooth, rough = approximated(scaled(RBF()), 32, seed=1), approximated(ROUGH(), 24, seed=2)
    x = points(5)
    for combine in (
        lambda a, b: a + b,
        lambda a, b: scaled(a + b, 1.0),
        lambda a, b: AdditiveKernel(a, AdditiveKernel(b)),
    ):
        for keep in (rfgp.approximation.with_features, lambda kernel: rfgp.approximate(kernel, 64)):
            kernel = keep(combine(smooth, rough))
            features = torch.cat([smooth.features(x), rough.features(x)], dim=-1)
            close(kernel.features(x), features)
    kernel = rfgp.approximate(smooth * rough, 64)
    close(dense(kernel, x), dense(smooth, x) * dense(rough, x))
    mixed = rfgp.approximate(smooth + LinearKernel(), 64, input_dim=INPUTS)
    close(dense(mixed, x), dense(smooth, x) + dense(mixed.exact_kernel.kernels[1], x))
    kernel = rfgp.approximation.with_features(ProductKernel(smooth, rough))
    close(dense(kernel, x), dense(smooth, x) * dense(rough, x))


@pytest.mark.parametrize("form", ["", ":complex"])
@pytest.mark.parametrize("method", ["fourier", "fourier_orthogonal", "tensor_srht", "gaussian", "tensor_sketch"])
def test_products_of_parts_with_the_same_weights_raise(method, form):
    make = RBF if method.startswith("fourier") else CUBIC
    parts = [approximated(make(), 64, method + form, seed=seed) for seed in (3, 3, 4)]
    with pytest.raises(
        ValueError, match=r"^expected parts with weights of their own, .*; make one of them with another"
    ):
        rfgp.approximate(parts[0] * parts[1], 64)
    with pytest.raises(
        ValueError, match=r"^expected parts with weights of their own, .*; make one of them with another"
    ):
        rfgp.approximate(parts[0] * parts[0], 64)
    assert isinstance(rfgp.approximate(parts[0] * parts[2], 64), FeatureKernel)


def test_exact_parts_may_be_the_same():
    linear = approximated(LinearKernel(), 8)
    x = points(5)
    close(dense(rfgp.approximate(linear * linear, 64), x), dense(linear, x).square())
    close(dense(approximated(LinearKernel() * LinearKernel(), 64), x), dense(LinearKernel(), x).square())


@pytest.mark.parametrize("make", [lambda: RBF() + RBF(), lambda: scaled(RBF() * RBF())])
def test_a_ready_map_is_for_one_kernel_alone(make):
    ready = RandomFourier(INPUTS, 64, is_complex=True)
    with pytest.raises(
        ValueError, match=r"^expected the name of a method for .*, got a RandomFourier; approximate the"
    ):
        rfgp.approximate(make(), 64, method=ready)


def test_methods_that_do_not_suit_a_part():
    with pytest.raises(
        ValueError, match=r"^expected one of the methods .* for PolynomialKernel, got 'fourier'; choose"
    ):
        approximated(RBF() + CUBIC(), 64, "fourier")
    kernel = approximated(RBF() * CUBIC() * dot_product(), 64, "fourier")  # the others take one that suits
    assert [type(part.feature_map).__name__ for part in leaves(kernel)] == ["RandomFourier", "TensorSRHT", "Maclaurin"]
    kernel = approximated(RBF() + LinearKernel() + constant(), 64, "fourier")  # exact parts stay exact
    assert [type(part.feature_map) for part in leaves(kernel)] == [RandomFourier, LinearFeatures, FourierSeries]


def test_sums_and_products_of_one():
    x = points(5)
    for combine in (AdditiveKernel, ProductKernel):
        for exact in (RBF(), scaled(ConstantKernel()), mixture(3)):
            kernel = approximated(combine(exact), 64)
            close(product(kernel.features(x), kernel.features(x)), dense(kernel, x))
            close(dense(kernel.exact_kernel, x), dense(exact, x))


def test_sums_that_wait_for_their_inputs():
    kernel = approximated(composition("sum with exact parts"), input_dim=None)
    assert [part.feature_map is None for part in leaves(kernel)] == [True, True, True, False]
    with pytest.raises(ValueError, match="waits for its first inputs"):
        kernel.resample()
    x = points(5)
    close(product(kernel.features(x), kernel.features(x)), dense(kernel, x))
    assert kernel.features(x).shape[-1] <= 48
    with pytest.raises(ValueError, match="expected x with 3 columns, got 4"):
        dense(kernel, points(5, columns=4))


def test_state_of_other_features_says_what_to_do():
    x = torch.rand(60, 3, dtype=torch.float64)
    chosen = rfgp.approximate(
        ScaleKernel(RBFKernel()), 16, train_inputs=x.float(), method="optimized_maclaurin", seed=0
    )
    other = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=3, seed=0)
    with pytest.raises(ValueError, match="same method, num_features, train_inputs and seed"):
        other.load_state_dict(chosen.state_dict())

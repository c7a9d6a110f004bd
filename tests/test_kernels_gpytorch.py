"""Kernels with features under GPyTorch's own kernel suite, and what they share with the exact kernels."""

from __future__ import annotations

import copy
import io
import math
import pickle
import unittest
import warnings

import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import CosineKernel, LinearKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

import rfgp
from rfgp.features import ComplexToReal, LinearFeatures, ProductSketch, TensorSRHT
from rfgp.features.by_name import SKETCHES
from rfgp.kernels import FeatureKernel, FeatureScaleKernel, MapRecipe

ALL_METHODS = [name + form for name in SKETCHES for form in ("", ":real", ":complex", ":ctr")]
WIDTH = 32
SCALAR, THREE = torch.Size(), torch.Size([3])
ROUNDING = 1e-10

every_method = pytest.mark.parametrize("method", ["auto", *ALL_METHODS])


def polynomial(**options):
    return PolynomialKernel(power=2, **options)


def scaled(kernel, batch_shape=SCALAR, **options):
    return ScaleKernel(kernel(batch_shape=batch_shape, **options), batch_shape=batch_shape)


def suite(create, create_ard=None):
    """GPyTorch's kernel suite, unmodified, over kernels made by ``create`` (and ``create_ard`` where ARD exists)."""
    members = {"seed": 0, "create_kernel_no_ard": lambda self, **options: create(**options)}
    if create_ard is not None:
        members["create_kernel_ard"] = lambda self, num_dims, **options: create_ard(ard_num_dims=num_dims, **options)
    return type("Suite", (BaseKernelTestCase, unittest.TestCase), members)


def lazy(kernel, method, degree):
    return lambda **options: FeatureKernel(kernel(**options), MapRecipe(method, WIDTH, 0))


def approximated(kernel, method):
    return lambda **options: rfgp.approximate(scaled(kernel, **options), WIDTH, method=method, seed=0)


def scaled_outside(kernel, method):
    def create(batch_shape=SCALAR, **options):
        inside = rfgp.approximate(kernel(batch_shape=batch_shape, **options), WIDTH, method=method, seed=0)
        return ScaleKernel(inside, batch_shape=batch_shape)

    return create


for _method in ["linear", *ALL_METHODS]:
    _name = _method.title().replace("_", "").replace(":", "")
    if _method != "linear":
        globals()[f"TestLazyPolynomial{_name}"] = suite(lazy(polynomial, _method, 2))
        globals()[f"TestApproximatedPolynomial{_name}"] = suite(approximated(polynomial, _method))
        globals()[f"TestScaledPolynomial{_name}"] = suite(scaled_outside(polynomial, _method))
    globals()[f"TestLazyLinear{_name}"] = suite(*[lazy(LinearKernel, _method, 1)] * 2)
    globals()[f"TestApproximatedLinear{_name}"] = suite(*[approximated(LinearKernel, _method)] * 2)


def inputs(num_rows, dim=4, seed=0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, num_rows, dim, generator=generator, dtype=torch.float64)


def randomise(kernel, seed=0):
    """The kernel in float64 with all parameters away from their defaults."""
    generator = torch.Generator().manual_seed(seed)
    kernel = kernel.double()
    for parameter in kernel.parameters():
        parameter.data.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return kernel


def real_product(left, right):
    product = left @ right.mH
    return product.real if product.is_complex() else product


EXACT = {
    "polynomial": polynomial,
    "polynomial, active_dims": lambda: polynomial(active_dims=[0, 2]),
    "linear": LinearKernel,
    "linear, ARD": lambda: LinearKernel(ard_num_dims=4),
    "linear, ARD and active_dims": lambda: LinearKernel(ard_num_dims=2, active_dims=[3, 1]),
    "scaled polynomial": lambda: ScaleKernel(polynomial()),
    "scaled polynomial, active_dims": lambda: ScaleKernel(polynomial(active_dims=[3, 1])),
    "scaled twice": lambda: ScaleKernel(ScaleKernel(LinearKernel())),
    "batch": lambda: scaled(polynomial, THREE),
    "double batch": lambda: scaled(polynomial, torch.Size([2, 3])),
    "batched scale over one polynomial": lambda: ScaleKernel(polynomial(), batch_shape=THREE),
    "batched scale over one linear, ARD": lambda: ScaleKernel(LinearKernel(ard_num_dims=4), batch_shape=THREE),
    "batched linear, ARD": lambda: scaled(LinearKernel, THREE, ard_num_dims=4),
}


def over_exact(condition=lambda name: True):
    names = [name for name in EXACT if condition(name)]
    return pytest.mark.parametrize("exact", [EXACT[name] for name in names], ids=names)


@over_exact()
@every_method
def test_kernel_is_the_product_of_features(exact, method):
    kernel = rfgp.approximate(randomise(exact()), WIDTH, input_dim=4, method=method, seed=1)
    x, y = inputs(5), inputs(3, seed=1)
    for left, right in [(x, y), (x, x)]:
        expected = real_product(kernel.features(left), kernel.features(right))
        torch.testing.assert_close(kernel(left, right).to_dense(), expected, rtol=0.0, atol=ROUNDING)
    diagonal = real_product(kernel.features(x), kernel.features(x)).diagonal(dim1=-1, dim2=-2)
    torch.testing.assert_close(kernel(x, diag=True), diagonal, rtol=0.0, atol=ROUNDING)
    factor = kernel.output_factor()
    assert factor.shape[-2:] == (1, 1)
    scaled_features = kernel.scalar_features(x) * factor
    torch.testing.assert_close(kernel.features(x), scaled_features.expand_as(kernel.features(x)))
    assert kernel.features(x).is_complex() == kernel.is_complex == method.endswith(":complex")


@over_exact()
def test_exact_kernel_equals_the_kernel_it_was_made_from(exact):
    original = randomise(exact())
    kernel = rfgp.approximate(original, WIDTH, input_dim=4, seed=0)
    x, y = inputs(5), inputs(3, seed=1)
    expected = original(x, y).to_dense()
    torch.testing.assert_close(kernel.exact_kernel(x, y).to_dense(), expected, rtol=0.0, atol=ROUNDING)


@over_exact(lambda name: "linear" in name or "twice" in name)
def test_linear_kernels_are_exact(exact):
    original = randomise(exact())
    kernel = rfgp.approximate(original, WIDTH, input_dim=4, seed=0)
    x, y = inputs(5), inputs(3, seed=1)
    torch.testing.assert_close(kernel(x, y).to_dense(), original(x, y).to_dense(), rtol=0.0, atol=ROUNDING)


@over_exact(lambda name: "twice" not in name)
@every_method
def test_mean_over_seeds_is_the_exact_kernel(exact, method):
    original = randomise(exact())
    x, y = inputs(3, seed=2) / 2.0, inputs(2, seed=3) / 2.0
    kernel = rfgp.approximate(original, 64, input_dim=4, method=method, seed=0)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        estimates = torch.stack([kernel.resample(generator)(x, y).to_dense() for _ in range(60)])
        error = estimates - original(x, y).to_dense()
    squares = error.square().flatten(1).sum(-1)
    total = error.mean(0).square().sum()
    assert total <= 25.0 * squares.mean() / len(error) + ROUNDING


@pytest.mark.parametrize("method", ["auto", "rademacher:real", "gaussian:ctr", "tensor_srht:real"])
def test_frobenius_error_is_what_the_moments_say(method):
    original = randomise(ScaleKernel(polynomial(active_dims=[0, 1, 3])))
    kernel = rfgp.approximate(original, 256, input_dim=4, method=method, seed=0)
    x = inputs(4) / 2.0
    active = x[:, [0, 1, 3]]
    mapped = torch.cat([active, original.base_kernel.offset.sqrt().expand(4, 1)], dim=-1).detach()
    variance = kernel.base_kernel.feature_map.moments(mapped, mapped).variance
    expected = original.outputscale.detach() ** 2 * variance.sum()
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        target = original(x).to_dense()
        errors = [(kernel.resample(generator)(x).to_dense() - target).square().sum() for _ in range(300)]
    errors = torch.stack(errors)
    assert (errors.mean() - expected).abs() <= 5.0 * errors.std() / math.sqrt(len(errors))
    assert expected.sqrt() <= 0.5 * target.norm()


@pytest.mark.parametrize("method", ["auto", "rademacher:complex"])
@pytest.mark.parametrize("name", ["scaled polynomial", "batched scale over one polynomial", "batched linear, ARD"])
def test_gradients_of_parameters(name, method):
    kernel = rfgp.approximate(randomise(EXACT[name]()), 8, input_dim=4, method=method, seed=0)
    x, y = inputs(3), inputs(2, seed=1)
    parameters = dict(kernel.named_parameters())
    assert all(parameter.requires_grad for parameter in parameters.values())

    def value(right, *values):
        call = torch.func.functional_call
        arguments = (x, x if right is None else right)
        return call(Evaluated(kernel), {f"kernel.{n}": v for n, v in zip(parameters, values, strict=True)}, arguments)

    for right in (y, None):
        assert torch.autograd.gradcheck(lambda *values, right=right: value(right, *values), tuple(parameters.values()))


class Evaluated(torch.nn.Module):
    """A kernel as a module whose forward gives a dense matrix."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, x, y):
        return self.kernel(x, y).to_dense()


def gamma():
    return GammaPrior(2.0, 1.0)


def with_priors():
    inside = polynomial(offset_prior=gamma(), offset_constraint=GreaterThan(0.1))
    return ScaleKernel(inside, outputscale_prior=gamma(), outputscale_constraint=Interval(0.01, 9.0))


@pytest.mark.parametrize("make_lazy", [False, True])
def test_parameters_are_the_same_objects(make_lazy):
    exact = with_priors()
    kernel = rfgp.approximate(exact, WIDTH, input_dim=None if make_lazy else 3, seed=0)
    for other in (kernel, kernel.exact_kernel):
        assert other.raw_outputscale is exact.raw_outputscale
        assert other.raw_outputscale_constraint is exact.raw_outputscale_constraint
        assert other.outputscale_prior is exact.outputscale_prior
    base = kernel.exact_kernel.base_kernel
    assert base.raw_offset is exact.base_kernel.raw_offset
    assert base.raw_offset_constraint is exact.base_kernel.raw_offset_constraint
    assert base.offset_prior is exact.base_kernel.offset_prior


def test_parameters_priors_and_constraints_count_once():
    exact = with_priors()
    kernel = rfgp.approximate(exact, WIDTH, input_dim=3, seed=0)
    wanted = [exact.raw_outputscale, exact.base_kernel.raw_offset]
    assert sorted(map(id, kernel.parameters())) == sorted(map(id, wanted))
    names = [name for name, _ in kernel.named_parameters(remove_duplicate=False)]
    assert len(names) == 2 and sorted(names) == sorted(name for name, _ in kernel.named_parameters())
    priors = [entry[2] for entry in kernel.named_priors()]
    assert sorted(map(id, priors)) == sorted(map(id, [exact.outputscale_prior, exact.base_kernel.offset_prior]))
    assert len(list(kernel.named_constraints())) == 2
    for name, module, prior, closure, _ in kernel.named_priors():
        value = kernel.outputscale if "outputscale" in name else exact.base_kernel.offset
        assert torch.equal(closure(module), value)
        assert torch.isfinite(prior.log_prob(closure(module))).all()


def test_setting_a_parameter_of_either_kernel_sets_both():
    exact = ScaleKernel(polynomial())
    kernel = rfgp.approximate(exact, WIDTH, input_dim=3, seed=0)
    exact.outputscale = 2.5
    exact.base_kernel.offset = 0.3
    assert float(kernel.outputscale.detach()) == pytest.approx(2.5)
    kernel.outputscale = 0.7
    assert float(exact.outputscale.detach()) == pytest.approx(0.7)
    assert float(kernel.exact_kernel.base_kernel.offset.detach()) == pytest.approx(0.3)


def with_prior_that_pickles():
    """GPyTorch's kernels other than ScaleKernel register their priors with lambdas, which cannot be pickled."""
    return ScaleKernel(polynomial(), outputscale_prior=gamma())


@pytest.mark.parametrize(
    ("clone", "make"),
    [
        (copy.deepcopy, with_priors),
        (copy.deepcopy, with_prior_that_pickles),
        (lambda value: pickle.loads(pickle.dumps(value)), with_prior_that_pickles),
    ],
    ids=["deepcopy", "deepcopy, one prior", "pickle"],
)
@pytest.mark.parametrize("make_lazy", [False, True])
def test_copies_share_parameters_among_themselves(clone, make, make_lazy):
    exact = randomise(make())
    kernel = rfgp.approximate(exact, WIDTH, input_dim=None if make_lazy else 4, seed=0)
    x = inputs(5)
    expected = kernel(x).to_dense()
    exact_copy, copied = clone((exact, kernel))
    torch.testing.assert_close(copied(x).to_dense(), expected, rtol=0.0, atol=0.0)
    assert copied.raw_outputscale is not kernel.raw_outputscale
    assert copied.raw_outputscale is exact_copy.raw_outputscale is copied.exact_kernel.raw_outputscale
    assert copied.exact_kernel.base_kernel.raw_offset is exact_copy.base_kernel.raw_offset
    assert len(list(copied.parameters())) == 2
    assert len(list(copied.named_priors())) == len(list(kernel.named_priors()))
    copied.outputscale = 5.0
    torch.testing.assert_close(kernel(x).to_dense(), expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("fresh_dim", [None, 4])
@pytest.mark.parametrize("saved_dim", [None, 4])
@pytest.mark.parametrize("name", ["scaled polynomial", "scaled polynomial, active_dims", "linear", "batch"])
@pytest.mark.parametrize("method", ["auto", "gaussian", "tensor_srht_stacked:complex", "tensor_sketch"])
def test_state_dict_of_lazy_and_made_kernels(name, saved_dim, fresh_dim, method):
    x = inputs(5)
    kernel = rfgp.approximate(randomise(EXACT[name]()), WIDTH, input_dim=saved_dim, method=method, seed=3)
    expected = kernel(x).to_dense()
    file = io.BytesIO()
    torch.save(kernel.state_dict(), file)
    file.seek(0)
    fresh = rfgp.approximate(EXACT[name]().double(), WIDTH, input_dim=fresh_dim, method=method, seed=4)
    if name == "scaled polynomial":
        assert not torch.allclose(copy.deepcopy(fresh)(x).to_dense(), expected)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(fresh(x).to_dense(), expected, rtol=0.0, atol=0.0)


def test_state_dict_before_the_first_call():
    kernel = rfgp.approximate(randomise(ScaleKernel(polynomial())), WIDTH, seed=3)
    fresh = rfgp.approximate(ScaleKernel(polynomial()).double(), WIDTH, seed=3)
    fresh.load_state_dict(kernel.state_dict())
    x = inputs(5)
    assert torch.equal(fresh(x).to_dense(), kernel(x).to_dense())


@every_method
@pytest.mark.parametrize("make", [polynomial, LinearKernel])
def test_same_seed_same_kernel(make, method):
    x = inputs(6)
    arguments = {"method": method, "seed": 7}

    def dense(kernel, data):
        return kernel(data).to_dense()

    lazily = rfgp.approximate(make().double(), WIDTH, **arguments)
    expected = dense(lazily, x)
    assert torch.equal(dense(rfgp.approximate(make().double(), WIDTH, input_dim=4, **arguments), x), expected)
    with_data = rfgp.approximate(make().double(), WIDTH, train_inputs=inputs(40), **arguments)
    assert torch.equal(dense(with_data, x), expected)
    active = rfgp.approximate(make(active_dims=[5, 1, 0, 2]).double(), WIDTH, input_dim=6, **arguments)
    spread = torch.zeros(6, 6, dtype=torch.float64)
    spread[:, [5, 1, 0, 2]] = x
    assert torch.equal(dense(active, spread), expected)
    if make is polynomial:
        other = rfgp.approximate(make().double(), WIDTH, method=method, seed=8)
        assert not torch.allclose(dense(other, x), expected)


def test_no_seed_takes_one_from_the_default_generator():
    torch.manual_seed(0)
    first = rfgp.approximate(polynomial(), WIDTH, input_dim=4)
    second = rfgp.approximate(polynomial(), WIDTH, input_dim=4)
    torch.manual_seed(0)
    again = rfgp.approximate(polynomial(), WIDTH, input_dim=4)
    x = inputs(5).float()
    assert torch.equal(first(x).to_dense(), again(x).to_dense())
    assert not torch.allclose(first(x).to_dense(), second(x).to_dense())


@pytest.mark.parametrize("method", ["auto", "rademacher:complex"])
def test_resample_draws_a_new_kernel(method):
    kernel = rfgp.approximate(ScaleKernel(polynomial()).double(), WIDTH, method=method, seed=0)
    with pytest.raises(ValueError, match="waits for its first inputs"):
        kernel.resample()
    x = inputs(5)
    before, draws = kernel(x).to_dense(), kernel.draws
    assert kernel.resample(torch.Generator().manual_seed(1)) is kernel
    assert kernel.draws == draws + 1
    after = kernel(x).to_dense()
    assert not torch.allclose(before, after)
    kernel.resample(torch.Generator().manual_seed(1))
    assert torch.equal(kernel(x).to_dense(), after)


def feature_map(kernel):
    return kernel.base_kernel.feature_map if isinstance(kernel, FeatureScaleKernel) else kernel.feature_map


@pytest.mark.parametrize(
    ("exact", "options", "expected"),
    [
        (polynomial, {"input_dim": 4}, 5),
        (polynomial, {"train_inputs": inputs(100, 3)}, 4),
        (lambda: polynomial(active_dims=[0, 2]), {}, 3),
        (lambda: polynomial(active_dims=[0, 2]), {"input_dim": 4}, 3),
        (lambda: polynomial(active_dims=[0, 2]), {"train_inputs": inputs(100, 5)}, 3),
        (lambda: ScaleKernel(polynomial()), {"input_dim": 2}, 3),
        (LinearKernel, {"input_dim": 4}, 4),
        (lambda: LinearKernel(ard_num_dims=6), {}, 6),
        (lambda: ScaleKernel(LinearKernel(ard_num_dims=2, active_dims=[0, 1])), {"input_dim": 9}, 2),
    ],
)
def test_input_dim_is_inferred(exact, options, expected):
    kernel = rfgp.approximate(exact(), WIDTH, seed=0, **options)
    assert feature_map(kernel).input_dim == expected


@pytest.mark.parametrize("exact", [polynomial, LinearKernel, lambda: ScaleKernel(polynomial())])
def test_maps_wait_where_nothing_tells_the_dimension(exact):
    kernel = rfgp.approximate(exact(), WIDTH, seed=0)
    assert feature_map(kernel) is None
    kernel(inputs(3, 7).float()).to_dense()
    assert feature_map(kernel).input_dim in (7, 8)
    with pytest.raises(ValueError, match="expected x with"):
        kernel(inputs(3, 6).float()).to_dense()


@pytest.mark.parametrize("method", ["auto", *ALL_METHODS])
def test_num_features_is_the_number_of_columns(method):
    kernel = rfgp.approximate(ScaleKernel(polynomial()), WIDTH, input_dim=4, method=method, seed=0)
    assert kernel.features(inputs(3).float()).shape == (3, WIDTH)


def test_linear_kernels_take_one_column_per_dimension():
    kernel = rfgp.approximate(LinearKernel(), WIDTH, input_dim=4)
    assert isinstance(kernel.feature_map, LinearFeatures)
    assert kernel.features(inputs(3).float()).shape == (3, 4)


def test_default_method_is_the_upsampled_complex_to_real_srht():
    chosen = rfgp.approximate(polynomial(), WIDTH, input_dim=4).feature_map
    assert isinstance(chosen, ComplexToReal) and isinstance(chosen.feature_map, TensorSRHT)
    assert chosen.feature_map.variant == "upsampled"


def test_a_map_in_place_of_a_name():
    sketch = ProductSketch(5, 9, 2, generator=torch.Generator().manual_seed(0))
    kernel = rfgp.approximate(ScaleKernel(polynomial()), 9, method=sketch)
    assert kernel.base_kernel.feature_map is sketch
    x = inputs(3).float()
    scaled_x = torch.cat([x, kernel.exact_kernel.base_kernel.offset.sqrt().expand(3, 1)], dim=-1)
    expected = kernel.outputscale * sketch(scaled_x) @ sketch(scaled_x).mT
    torch.testing.assert_close(kernel(x).to_dense(), expected)


def test_maps_take_dtype_of_the_kernel():
    kernel = rfgp.approximate(ScaleKernel(polynomial()).double(), WIDTH, input_dim=4)
    assert kernel(inputs(3)).to_dense().dtype == torch.float64
    assert kernel.float()(inputs(3).float()).to_dense().dtype == torch.float32


def test_scale_kernel_with_active_dims_of_its_own():
    exact = randomise(ScaleKernel(LinearKernel(), active_dims=[0, 2]))
    kernel = rfgp.approximate(exact, WIDTH, seed=0)
    x = inputs(5)
    expected = exact(x).to_dense()
    torch.testing.assert_close(kernel(x).to_dense(), expected, rtol=0.0, atol=ROUNDING)
    torch.testing.assert_close(real_product(kernel.features(x), kernel.features(x)), expected, rtol=0.0, atol=ROUNDING)
    torch.testing.assert_close(kernel.exact_kernel(x).to_dense(), expected, rtol=0.0, atol=ROUNDING)


def test_approximating_twice_changes_nothing():
    kernel = rfgp.approximate(ScaleKernel(polynomial()), WIDTH, input_dim=4)
    assert rfgp.approximate(kernel, 64) is kernel


def test_features_survive_a_plain_scale_kernel():
    inside = rfgp.approximate(randomise(polynomial()), WIDTH, input_dim=4)
    outside = ScaleKernel(inside, batch_shape=THREE).double()
    outside.outputscale = torch.tensor([0.5, 1.0, 2.0])
    kernel = rfgp.kernels.with_features(outside)
    assert kernel.raw_outputscale is outside.raw_outputscale
    assert rfgp.kernels.with_features(kernel) is kernel
    x = inputs(5)
    expected = real_product(kernel.features(x), kernel.features(x))
    torch.testing.assert_close(outside(x).to_dense(), expected, rtol=0.0, atol=ROUNDING)
    with pytest.raises(ValueError, match="expected a kernel with random features"):
        rfgp.kernels.with_features(polynomial())


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel,
        CosineKernel,
        lambda: ScaleKernel(CosineKernel()),
        lambda: polynomial() + CosineKernel(),
        lambda: "rbf",
    ],
)
def test_unsupported_kernels_raise(kernel):
    with pytest.raises(ValueError, match=r"expected a kernel with random features .*PolynomialKernel.*LinearKernel"):
        rfgp.approximate(kernel(), WIDTH, input_dim=2)


@pytest.mark.parametrize(
    ("exact", "options", "message"),
    [
        (polynomial, {"num_features": 33}, "expected an even num_features"),
        (polynomial, {"num_features": 33, "method": "gaussian:ctr"}, "expected an even num_features"),
        (polynomial, {"num_features": 0}, "expected a positive integer for num_features"),
        (polynomial, {"num_features": 32.5}, "expected a positive integer for num_features"),
        (polynomial, {"input_dim": 0}, "expected a positive integer for input_dim"),
        (polynomial, {"method": "fast"}, "expected a method among"),
        (polynomial, {"method": "rademacher:imaginary"}, "expected a method among"),
        (polynomial, {"method": "linear"}, "expected a polynomial feature map of degree 2"),
        (polynomial, {"method": ProductSketch(5, 8, 3)}, "expected a polynomial feature map of degree 2"),
        (LinearKernel, {"method": ProductSketch(4, 8, 2)}, "expected a polynomial feature map of degree 1"),
        (polynomial, {"method": "linear", "input_dim": None}, "expected a polynomial feature map of degree 2"),
        (lambda: PolynomialKernel(power=2.5), {}, "for power"),
        (lambda: PolynomialKernel(power=0), {}, "for power"),
        (lambda: PolynomialKernel(power=21), {}, "for power"),
        (lambda: polynomial(active_dims=[0, 4]), {}, "expected active_dims below input_dim=4"),
        (lambda: LinearKernel(ard_num_dims=3), {}, "expected 3 columns as ard_num_dims says"),
        (polynomial, {"train_inputs": inputs(50, 3)}, "expected train_inputs with 4 columns"),
        (polynomial, {"train_inputs": torch.ones(50)}, "expected train_inputs of shape"),
        (polynomial, {"train_inputs": torch.ones(50, 4).long()}, "expected floating-point train_inputs"),
        (polynomial, {"train_inputs": torch.full((50, 4), float("nan"))}, "expected finite values in train_inputs"),
    ],
)
def test_what_does_not_fit_raises(exact, options, message):
    arguments = {"num_features": WIDTH, "input_dim": 4, **options}
    with pytest.raises(ValueError, match=message):
        kernel = rfgp.approximate(exact(), **arguments)
        kernel(inputs(3).float()).to_dense()


def test_ard_and_active_dims_must_agree():
    with pytest.raises(ValueError, match="expected"):
        kernel = rfgp.approximate(LinearKernel(ard_num_dims=3, active_dims=[0, 1]), WIDTH, input_dim=4)
        kernel(inputs(3).float()).to_dense()


def test_feature_kernel_checks_the_map():
    with pytest.raises(ValueError, match="degree 2"):
        FeatureKernel(polynomial(), TensorSRHT(5, 8, 3))
    with pytest.raises(ValueError, match="degree 2"):
        FeatureKernel(polynomial(), ComplexToReal(TensorSRHT(5, 8, 3, is_complex=True)))
    with pytest.raises(ValueError, match="expected a kernel with random features"):
        FeatureKernel(CosineKernel(), TensorSRHT(5, 8, 3))
    with pytest.raises(ValueError, match="degree 2"):
        FeatureKernel(polynomial(), MapRecipe("rademacher", 8, 0))(inputs(3)).to_dense()
    kernel = FeatureKernel(polynomial(), TensorSRHT(4, 8, 2))
    with pytest.raises(ValueError, match="expected x with 4 columns"):
        kernel(inputs(3).float()).to_dense()


def test_more_features_than_rows_warns_and_works():
    x = inputs(20).float()
    with pytest.warns(UserWarning, match="num_features=32 exceeds the 20 training rows"):
        kernel = rfgp.approximate(polynomial(), WIDTH, train_inputs=x)
    assert torch.isfinite(kernel(x).to_dense()).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rfgp.approximate(polynomial(), WIDTH, train_inputs=inputs(WIDTH))


def test_last_dim_is_batch_raises():
    kernel = rfgp.approximate(polynomial(), WIDTH, input_dim=4)
    with pytest.raises(ValueError, match="last_dim_is_batch"):
        kernel.forward(inputs(3).float(), inputs(3).float(), last_dim_is_batch=True)

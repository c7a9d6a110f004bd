"""Kernels with features under GPyTorch's own kernel suite, and what they share with the exact kernels."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import itertools
import math
import pickle
import warnings

import gpytorch
import pytest
import torch
from feature_parts import leaf, map_inputs
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior
from kernel_suite import sphere_in_parts, suite
from problems import KERNELS, methods_of, randomised

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.approximation.families import FAMILIES, MapFamily, OperatorFamily, family
from rfgp.approximation.landmarks import Landmarks
from rfgp.approximation.maps import MapRecipe, drawn_maps
from rfgp.approximation.selection import best_method
from rfgp.features import ComplexToReal, LinearFeatures, OpticalFeatures, ProductSketch, RandomFourier, TensorSRHT
from rfgp.features.sketch_registry import SKETCHES
from rfgp.features.spectra import Matern
from rfgp.kernels import StationaryKernel

ALL_METHODS = [name + form for name in SKETCHES for form in ("", ":real", ":complex", ":ctr")]
WIDTH = 32
SCALAR, THREE = torch.Size(), torch.Size([3])
ROUNDING = 1e-10

every_method = pytest.mark.parametrize("method", ["auto", *ALL_METHODS])


def polynomial(**options):
    return PolynomialKernel(power=2, **options)


def scaled(kernel, batch_shape=SCALAR, **options):
    return ScaleKernel(kernel(batch_shape=batch_shape, **options), batch_shape=batch_shape)


def test_the_sphere_of_the_suite():
    x = sphere_in_parts(None)
    for columns in ([0, 2, 4, 6], list(range(3, 9))):
        torch.testing.assert_close(x[:, columns].norm(dim=-1), torch.ones(50))


def lazy(kernel, method):
    return lambda columns, **options: FeatureKernel(kernel(**options), MapRecipe(method, WIDTH, 0))


def approximated(kernel, method):
    return lambda columns, **options: rfgp.approximate(scaled(kernel, **options), WIDTH, method=method, seed=0)


def scaled_outside(kernel, method):
    def create(columns, batch_shape=SCALAR, **options):
        inside = rfgp.approximate(kernel(batch_shape=batch_shape, **options), WIDTH, method=method, seed=0)
        return ScaleKernel(inside, batch_shape=batch_shape)

    return create


MORE = {"pytestmark": [pytest.mark.long("GPyTorch's suite over every method, where one of each family runs always")]}
for _method in ["linear", *ALL_METHODS]:
    _more = {} if _method in ("linear", "tensor_srht:ctr", "gaussian:complex") else MORE
    _name = _method.title().replace("_", "").replace(":", "")
    if _method != "linear":
        globals()[f"TestLazyPolynomial{_name}"] = suite(lazy(polynomial, _method), **_more)
        globals()[f"TestApproximatedPolynomial{_name}"] = suite(approximated(polynomial, _method), **_more)
        globals()[f"TestScaledPolynomial{_name}"] = suite(scaled_outside(polynomial, _method), **_more)
    globals()[f"TestLazyLinear{_name}"] = suite(*[lazy(LinearKernel, _method)] * 2, **_more)
    globals()[f"TestApproximatedLinear{_name}"] = suite(*[approximated(LinearKernel, _method)] * 2, **_more)


def make_in_suite(case, columns, active_dims=None, **options):
    """A kernel of a family for the suite: of one column where it has only one, told of the columns where it must be."""
    if case.columns == 1:
        active_dims = (active_dims or [0])[:1]
    if case is KERNELS["spectral mixture"]:
        options["ard_num_dims"] = columns
    if case is KERNELS["advected"]:
        options["num_space_dims"] = columns - 1
    return case.create(active_dims=active_dims, **options)


def approximated_in_suite(case, method, is_scaled):
    def create(columns, batch_shape=SCALAR, **options):
        exact = make_in_suite(case, columns, batch_shape=batch_shape, **options)
        exact = ScaleKernel(exact, batch_shape=batch_shape) if is_scaled else exact
        if not method.startswith("optimized"):
            return rfgp.approximate(exact, WIDTH, method=method, seed=0)
        dims = options.get("active_dims") or range(columns)
        data = torch.zeros(WIDTH, max(dims) + 1)
        data[:, list(dims)] = case.inputs(WIDTH, columns=columns).float()
        return rfgp.approximate(exact, WIDTH, method=method, train_inputs=data, seed=0)

    return create


HAS_NO_PARAMETERS = {"skewed chi-squared", "dot product", "optical"}
for _key, _case in KERNELS.items():
    _name = _key.title().replace(" ", "").replace(",", "").replace("/", "").replace("-", "")
    _options = {"domain": _case.domain}
    if _key in HAS_NO_PARAMETERS:
        # the dtype of a kernel without parameters is the default one, whatever .to() does: nothing to test
        _own = functools.partial(make_in_suite, _case)
        globals()[f"TestExact{_name}"] = suite(_own, **_options, test_kernel_dtype_device=None)
        _own = approximated_in_suite(_case, "auto", False)
        globals()[f"TestPlain{_name}"] = suite(_own, **_options, test_kernel_dtype_device=None)
    elif _key in ("exponential", "polynomial on the sphere"):
        globals()[f"TestExact{_name}"] = suite(*[functools.partial(make_in_suite, _case)] * 2, **_options)
    else:
        globals()[f"TestPlain{_name}"] = suite(approximated_in_suite(_case, "auto", False), **_options)
    for _number, _method in enumerate(methods_of(_case)):
        if _method.partition(":")[0] in (*SKETCHES, "linear"):
            continue  # above
        _own = [approximated_in_suite(_case, _method, True)] * (2 if _case.has_ard else 1)
        _more = _options | (MORE if _number else {})
        globals()[f"Test{_name}{_method.title().replace('_', '').replace(':', '')}"] = suite(*_own, **_more)


def part(kernel, active_dims=None, position=slice(None), **options):
    """A part of a composition: a family on some of the active dimensions."""
    return kernel(active_dims=None if active_dims is None else active_dims[position], **options)


def added(columns, batch_shape=SCALAR, **options):
    options["batch_shape"] = batch_shape
    smooth, rough = scaled(RBFKernel, **options), scaled(functools.partial(MaternKernel, nu=1.5), **options)
    return smooth + rough + LinearKernel(**options)


def multiplied(columns, batch_shape=SCALAR, **options):
    options["batch_shape"] = batch_shape
    return scaled(RBFKernel, **options) * polynomial(**options)


def nested(columns, batch_shape=SCALAR, **options):
    options["batch_shape"] = batch_shape
    inside = scaled(RBFKernel, **options) + gpytorch.kernels.ConstantKernel(**options)
    return ScaleKernel(inside * LinearKernel(**options) + polynomial(**options), batch_shape=batch_shape)


def composed(exact, method):
    def create(columns, **options):
        input_dim = 10 if "active_dims" in options else columns
        return rfgp.approximate(exact(columns, **options), 2 * WIDTH, input_dim=input_dim, method=method, seed=0)

    return create


COMPOSED = {added: ("auto", "fourier:complex"), multiplied: ("auto", "fourier:complex"), nested: ("auto",)}
for _exact, _methods in COMPOSED.items():
    for _method in _methods:
        _name = _exact.__name__.title() + _method.title().replace("_", "").replace(":", "")
        globals()[f"Test{_name}"] = suite(composed(_exact, _method))


def inputs(num_rows, dim=4, seed=0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, num_rows, dim, generator=generator, dtype=torch.float64)


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
    kernel = rfgp.approximate(randomised(exact()), WIDTH, input_dim=4, method=method, seed=1)
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
    original = randomised(exact())
    kernel = rfgp.approximate(original, WIDTH, input_dim=4, seed=0)
    x, y = inputs(5), inputs(3, seed=1)
    expected = original(x, y).to_dense()
    torch.testing.assert_close(kernel.exact_kernel(x, y).to_dense(), expected, rtol=0.0, atol=ROUNDING)


@over_exact(lambda name: "linear" in name or "twice" in name)
def test_linear_kernels_are_exact(exact):
    original = randomised(exact())
    kernel = rfgp.approximate(original, WIDTH, input_dim=4, seed=0)
    x, y = inputs(5), inputs(3, seed=1)
    torch.testing.assert_close(kernel(x, y).to_dense(), original(x, y).to_dense(), rtol=0.0, atol=ROUNDING)


@over_exact(lambda name: "twice" not in name)
@pytest.mark.parametrize("method", ["auto", "gaussian:complex", "tensor_srht_stacked:real", "tensor_sketch"])
def test_mean_over_seeds_is_the_exact_kernel(exact, method):
    original = randomised(exact())
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
    original = randomised(ScaleKernel(polynomial(active_dims=[0, 1, 3])))
    kernel = rfgp.approximate(original, 256, input_dim=4, method=method, seed=0)
    x = inputs(4) / 2.0
    active = x[:, [0, 1, 3]]
    mapped = torch.cat([active, original.base_kernel.offset.sqrt().expand(4, 1)], dim=-1).detach()
    variance = kernel.feature_map.moments(mapped, mapped).variance
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
    kernel = rfgp.approximate(randomised(EXACT[name]()), 8, input_dim=4, method=method, seed=0)
    x, y = inputs(3), inputs(2, seed=1)
    parameters = dict(kernel.named_parameters())
    assert all(parameter.requires_grad for parameter in parameters.values())

    def value(right, *values):
        call = torch.func.functional_call
        arguments = (x, x if right is None else right)
        return call(Evaluated(kernel), {f"kernel.{n}": v for n, v in zip(parameters, values, strict=True)}, arguments)

    for right in (y, None):
        assert torch.autograd.gradcheck(lambda *values, right=right: value(right, *values), tuple(parameters.values()))


EVERY = [(name, method) for name, case in KERNELS.items() for method in methods_of(case)]
every_family_and_method = pytest.mark.parametrize(("name", "method"), EVERY)
every_family = pytest.mark.parametrize("name", KERNELS)
EXACT_METHODS = ("linear", "series")


def made(name, method="auto", exact=None, width=WIDTH, seed=1, **options):
    """An approximated kernel of a family, and the exact one; data are given where the method needs them."""
    case = KERNELS[name]
    exact = case.make() if exact is None else exact
    if "train_inputs" not in options and "input_dim" not in options:
        needs_data = method.startswith("optimized")
        options |= {"train_inputs": case.inputs(60)} if needs_data else {"input_dim": case.columns}
    return rfgp.approximate(exact, width, method=method, seed=seed, **options).double(), exact


def dense(kernel, x, y=None):
    with torch.no_grad():
        return kernel(x, y).to_dense()


def assert_close(actual, expected, relative=ROUNDING):
    size = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=relative * size)


def test_the_families_are_all_tested():
    leaves = {kernel: known for kernel, known in FAMILIES.items() if issubclass(known, MapFamily)}
    scalar = {kernel for kernel, known in leaves.items() if not issubclass(known, OperatorFamily)} - {StationaryKernel}
    stationary = {kernel for kernel in StationaryKernel.__subclasses__() if kernel.__module__.startswith("rfgp.")}
    assert {type(case.create()) for case in KERNELS.values()} == scalar | stationary
    for case in KERNELS.values():
        known = family(case.create())
        applicable = {method.name for method in known.applicable(case.columns)}
        assert set(case.methods) <= applicable <= set(known.methods)
        assert known.default in known.methods and known.in_products in (None, *known.methods)
    tested = {(type(case.create()), name) for case in KERNELS.values() for name in case.methods}
    known = {(type(case.create()), name) for case in KERNELS.values() for name in family(case.create()).methods}
    assert tested == known


@pytest.mark.smoke_for_each("name")
@every_family_and_method
def test_families_are_the_products_of_their_features(name, method):
    case = KERNELS[name]
    kernel, exact = made(name, method)
    for x, y in [(case.inputs(5), case.inputs(3, seed=1)), (case.inputs(4, batch=(2,)), case.inputs(3, 1, (2,)))]:
        features = kernel.features(x)
        for right in (x, y):
            assert_close(kernel(x, right).to_dense(), real_product(features, kernel.features(right)))
        diagonal = real_product(features, features).diagonal(dim1=-1, dim2=-2)
        assert_close(kernel(x, diag=True), diagonal)
        assert torch.equal(kernel.scalar_features(x) * kernel.output_factor(), features)
        assert features.is_complex() == kernel.is_complex == method.endswith(":complex")
        assert_close(kernel.exact_kernel(x, y).to_dense(), exact(x, y).to_dense(), 0.0)
    width = features.shape[-1]
    assert width == kernel.feature_map.num_features
    if method in EXACT_METHODS:
        assert width <= WIDTH
    elif method.startswith("random_maclaurin"):
        assert width <= WIDTH and kernel.feature_map.num_columns[0] == 1  # all copies of the constant
    else:
        assert width == WIDTH


@pytest.mark.parametrize("is_scaled", [False, True])
@every_family
def test_families_share_their_parameters(name, is_scaled):
    exact = ScaleKernel(KERNELS[name].make()) if is_scaled else KERNELS[name].make()
    kernel, _ = made(name, exact=exact)
    assert list(map(id, exact.parameters())) == list(map(id, kernel.parameters()))
    assert list(map(id, exact.parameters())) == list(map(id, kernel.exact_kernel.parameters()))
    assert len(list(kernel.named_constraints())) == len(list(exact.named_constraints()))
    names = [name for name, _ in kernel.named_parameters(remove_duplicate=False)]
    assert len(names) == len(set(names)) == len(list(kernel.parameters()))


BIASED = [(n, m) for n, m in EVERY if "hadamard" in m or m in EXACT_METHODS]
RANDOM_DEGREES = [(n, m) for n, m in EVERY if m.startswith("random_maclaurin")]


def mean_is(estimates, target, errors=5.0):
    """Whether the mean of matrices lies within a number of standard errors of a target, as a whole."""
    difference = torch.stack(estimates) - target
    variance = (difference - difference.mean(0)).square().sum() / (len(difference) - 1)
    return difference.mean(0).square().sum() <= errors**2 * variance / len(difference) + ROUNDING


@pytest.mark.parametrize(("name", "method"), [pair for pair in EVERY if pair not in BIASED + RANDOM_DEGREES])
def test_mean_over_seeds_of_every_family(name, method):
    """The exact kernel, or what the map says it estimates: a fitted kernel, or the terms of a series that are kept."""
    case = KERNELS[name]
    kernel, exact = made(name, method, width=64)
    x, y = case.inputs(3, seed=2), case.inputs(3, seed=3)
    x, y = (x, y) if case.domain == "sphere" else ({"spectral mixture": 0.1}.get(name, 0.7) * z for z in (x, y))
    kernel.scalar_features(x)
    feature_map = kernel.feature_map
    hyperparameters = leaf(kernel).hyperparameters(feature_map)
    scale, mapped = leaf(kernel).scale(feature_map) ** 2, (map_inputs(kernel, x), map_inputs(kernel, y))
    target = scale * feature_map.target(*mapped, **hyperparameters)
    if feature_map.is_unbiased:
        assert_close(target, exact(x, y).to_dense())
    generator = torch.Generator().manual_seed(5)
    estimates = [dense(kernel.resample(generator), x, y) for _ in range(60)]
    assert mean_is(estimates, target.detach())
    assert not mean_is(estimates, 1.5 * target.detach())  # the draws are enough to tell


@pytest.mark.parametrize(("name", "method"), RANDOM_DEGREES)
def test_mean_over_random_degrees(name, method):
    """Without bias but for the degrees above 20, which do not count at these inputs."""
    case, exact = KERNELS[name], KERNELS[name].make()
    x, y = 0.4 * case.inputs(3, seed=2), 0.4 * case.inputs(3, seed=3)
    estimates = [dense(made(name, method, exact, 256, seed)[0], x, y) for seed in range(25)]
    assert mean_is(estimates, dense(exact, x, y))
    assert not mean_is(estimates, 1.5 * dense(exact, x, y))


@pytest.mark.parametrize("columns", [2, 4, 8])
def test_hadamard_features_have_the_bias_that_is_known(columns):
    """At a distance of 1.5 lengthscales along an axis, by the errata."""
    bias = {2: -0.109, 4: -0.059, 8: -0.014}[columns]
    exact = RBFKernel().double()
    exact.lengthscale = 1.0
    width = 2**17
    kernel = rfgp.approximate(exact, 2 * width, input_dim=columns, method="fourier_hadamard", seed=0)
    x, y = torch.zeros(1, columns, dtype=torch.float64), torch.zeros(1, columns, dtype=torch.float64)
    y[0, 0] = 1.5
    cosines = width * (kernel.features(x) * kernel.features(y)).detach().reshape(2, width).sum(0)
    blocks = cosines.reshape(-1, columns).mean(-1)  # independent
    error = float(blocks.std()) / math.sqrt(len(blocks))
    assert abs(float(blocks.mean() - dense(exact, x, y)) - bias) <= 5.0 * error + 0.0005
    assert abs(bias) > 5.0 * error


def test_spherical_features_are_as_far_from_the_polynomial_as_their_fit():
    kernel, exact = made("polynomial on the sphere", "spherical")
    x = KERNELS["polynomial on the sphere"].inputs(50)
    feature_map = kernel.feature_map
    difference = (feature_map.target(x, x) * leaf(kernel).scale(feature_map) ** 2 - exact(x).to_dense()).abs().max()
    assert 0.0 < float(difference.detach()) <= 2.5**3 * feature_map.fit_error * (1.0 + 1e-9)


def saved(kernel):
    file = io.BytesIO()
    torch.save(kernel.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


STATES = [
    (name, method, knows_columns)
    for name, method in EVERY
    for knows_columns in (False, True)
    if knows_columns or not method.startswith("optimized")  # which needs data
]


@pytest.mark.parametrize(("name", "method", "knows_columns"), STATES)
def test_state_dict_of_every_family(name, method, knows_columns):
    case = KERNELS[name]
    kernel, _ = made(name, method)
    x = case.inputs(5)
    expected = dense(kernel, x)
    seed = 1 if "maclaurin" in method else 4  # which decides about the degrees
    options = {} if knows_columns else {"input_dim": None}
    parameters = case.make() if method.startswith("optimized") else case.create().double()  # for the same allocation
    fresh, _ = made(name, method, parameters, seed=seed, **options)
    fresh.load_state_dict(saved(kernel))
    assert torch.equal(dense(fresh, x), expected)


@every_family_and_method
def test_copies_of_every_family(name, method):
    kernel, exact = made(name, method, exact=ScaleKernel(KERNELS[name].make()).double())
    x = KERNELS[name].inputs(5)
    expected = dense(kernel, x)
    copies = [copy.deepcopy((exact, kernel)), pickle.loads(pickle.dumps((exact, kernel)))]
    for exact_copy, copied in copies:
        assert torch.equal(dense(copied, x), expected)
        assert list(map(id, copied.parameters())) == list(map(id, exact_copy.parameters()))
        copied.outputscale = 5.0
        assert torch.equal(dense(kernel, x), expected)
        copied.resample(torch.Generator().manual_seed(3))
        assert torch.equal(dense(kernel, x), expected)
        if method not in EXACT_METHODS and name != "linear":
            assert not torch.allclose(dense(copied, x) / copied.outputscale, expected / kernel.outputscale)


@pytest.mark.parametrize("place", ["alone", "scale outside", "scale with active_dims"])
@every_family
@pytest.mark.usefixtures("float64_default")
def test_active_dims_of_every_family(name, place):
    case = KERNELS[name]
    dims = [5, 1, 3, 0][: case.columns]
    x, y = case.inputs(5), case.inputs(4, seed=1)
    spread = torch.full((9, 6), float("nan"), dtype=torch.float64)  # columns that are not active are not looked at
    spread[:, dims] = torch.cat([x, y])
    on_all, on_some = case.make(), case.make(active_dims=dims)
    if place == "scale outside":
        on_all, on_some = ScaleKernel(on_all).double(), ScaleKernel(on_some).double()
    elif place == "scale with active_dims":
        on_all, on_some = ScaleKernel(on_all).double(), ScaleKernel(case.make(), active_dims=dims).double()
    expected, _ = made(name, exact=on_all)
    for options in ({}, {"input_dim": 6}, {"train_inputs": torch.nan_to_num(spread, 0.5)}):
        if "train_inputs" in options and not isinstance(expected.exact_kernel, ScaleKernel):
            options["method"] = family(on_all).default
        elif "train_inputs" in options:
            options["method"] = family(on_all.base_kernel).default
        options |= {} if options else {"input_dim": None}
        if options.get("method", "").startswith("random_maclaurin"):
            continue  # centers and scales do not differ, but nothing is gained
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel, _ = made(name, exact=on_some, **options)
        assert_close(dense(kernel, spread[:5], spread[5:]), dense(expected, x, y), 0.0)
        assert_close(kernel.features(spread[:5]), expected.features(x), 0.0)
        assert_close(dense(kernel.exact_kernel, spread[:5], spread[5:]), dense(on_all, x, y))


@every_family_and_method
def test_batches_of_every_family(name, method):
    """Kernels with a batch of parameters are, one by one, kernels with these parameters and the same weights."""
    case = KERNELS[name]
    exact = ScaleKernel(case.make(batch_shape=torch.Size([2, 3]))).double()  # whose scale has the batch of its base
    exact.outputscale = torch.tensor([[0.5, 1.0, 2.0], [0.3, 0.7, 0.2]])
    kernel, _ = made(name, method, exact=exact)
    x, y = case.inputs(5), case.inputs(4, seed=1)
    whole, features = dense(kernel, x, y), kernel.features(x).detach()
    assert whole.shape == (2, 3, 5, 4) and kernel.batch_shape == (2, 3)
    assert_close(dense(kernel.exact_kernel, x, y), dense(exact, x, y))
    for i, j in [(0, 0), (1, 2)]:
        single = case.make()
        for own, batched in zip(single.parameters(), exact.base_kernel.parameters(), strict=True):
            own.data.copy_(batched.data[i, j])
        scaled_single = ScaleKernel(single).double()
        scaled_single.outputscale = exact.outputscale[i, j].detach()
        alone = rfgp.approximate(scaled_single, kernel.feature_map.num_features, method=kernel.feature_map)
        alone.maps.center = kernel.maps.center
        assert_close(whole[i, j], dense(alone, x, y))
        assert_close(features[i, j], alone.features(x).detach())
        assert_close(dense(kernel[i, j], x, y), dense(alone, x, y))
        assert_close(dense(exact, x, y)[i, j], dense(scaled_single, x, y))


def phase_rounding(kernel, x, y):
    """A bound on what rounded phases add to an estimate whose frequencies are so large that they have no mean."""
    phases = map_inputs(kernel, torch.cat([x, y])).abs() @ kernel.feature_map.frequencies().abs().mT
    rounding = 0.5 * torch.finfo(torch.float32).eps * (x.shape[-1] + 2)
    return 2.0 * rounding * kernel.outputscale.detach() * phases.detach().mean(-1).max()


@every_family_and_method
def test_float32_of_every_family(name, method):
    """Rounding of float32 alone: kernels that move to float32 are the same to about a millionth of their size."""
    case = KERNELS[name]
    kernel, _ = made(name, method, exact=ScaleKernel(case.make()).double())
    x, y = case.inputs(5), case.inputs(4, seed=1)
    expected = dense(kernel, x, y)
    narrow = copy.deepcopy(kernel).float()
    assert kernel.features(x).dtype == (torch.complex128 if kernel.is_complex else torch.float64)
    assert narrow.features(x.float()).dtype == (torch.complex64 if kernel.is_complex else torch.float32)
    value = dense(narrow, x.float(), y.float())
    assert value.dtype == torch.float32
    bound = 2e-5 * expected.abs().max() + (phase_rounding(kernel, x, y) if name == "laplace" else 0.0)
    assert (value.double() - expected).abs().max() <= bound


SCORES = {"spectral mixture": {"raw_mixture_weights"}, "periodic, 3 columns": {"raw_lengthscale"}}
"""Parameters of discrete laws: values jump with them, gradients are right on average, see test_gradients_converge."""


@every_family_and_method
def test_gradients_reach_all_parameters_and_are_those_of_the_value(name, method):
    case = KERNELS[name]
    exact = ScaleKernel(case.make()).double()
    if name == "polynomial on the sphere":
        exact.requires_grad_(True)
    kernel, _ = made(name, method, exact=exact)
    x, y = case.inputs(4), case.inputs(3, seed=1)
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def value():
        return (weights * kernel(x, y).to_dense()).sum() + kernel(x, diag=True).sum()

    parameters = dict(exact.named_parameters())
    gradients = torch.autograd.grad(value(), list(parameters.values()), allow_unused=True)
    for (path, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        if name == "polynomial on the sphere" and path.endswith("raw_offset"):
            assert gradient is None  # it is frozen, see below
            continue
        assert gradient is not None and bool(gradient.ne(0).any()), path
        if path.rpartition(".")[2] in SCORES.get(name, ()):
            continue
        start, values = parameter.data.clone(), []
        direction = torch.randn(start.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        for step in (1e-6, -1e-6):
            parameter.data = start + step * direction
            values.append(float(value().detach()))
        parameter.data = start
        difference = (values[0] - values[1]) / 2e-6
        size = float(gradient.norm() * direction.norm()) + 1e-3 * abs(values[0])
        assert abs(float((gradient * direction).sum()) - difference) <= 1e-6 * size, path


def test_spherical_features_are_for_one_offset():
    kernel, exact = made("polynomial on the sphere", "spherical")
    x = KERNELS["polynomial on the sphere"].inputs(5)
    exact.offset = 1.7
    for use in (lambda: kernel(x).to_dense(), lambda: kernel.features(x)):
        with pytest.raises(
            ValueError, match=r"^expected the offset 1.5 that .*, got 1.7; approximate the kernel again$"
        ):
            use()
    again = rfgp.approximate(exact, WIDTH, input_dim=4, method="spherical")
    assert torch.isfinite(again(x).to_dense()).all()


def bad_inputs(name, dtype=torch.float64):
    """Inputs that a kernel of a family has to refuse, with what it says."""
    case = KERNELS[name]
    good = case.inputs(5)
    cases = {"NaN": float("nan"), "infinity": float("inf"), "minus infinity": float("-inf")}
    bad = {}
    for key, value in cases.items():
        bad[key] = good.clone()
        bad[key][2, 0] = value
    messages = dict.fromkeys(bad, r"^expected finite values in x, got 1 NaN or infinite ones; remove or impute them$")
    bad["integers"], messages["integers"] = good.long(), r"^expected floating-point x1?, got torch.int64; convert with"
    bad["no rows"], messages["no rows"] = (
        good[:0],
        r"^expected at least one row in x, got shape \(0, \d\); pass non-empty",
    )
    if case.domain == "positive":
        bad["below -c"], messages["below -c"] = (
            -1.5 * good,
            r"^expected inputs above -1.0, got -.*; use a larger skewness$",
        )
        bad["at -c"] = torch.full_like(good, -1.0)
        messages["at -c"] = r"^expected inputs above -1.0, got -1.0; use a larger skewness$"
    if case.domain == "sphere":
        bad["off the sphere"] = 1.1 * good
        messages["off the sphere"] = r"^expected x on the unit sphere, got .* by 0.1; divide every row by its norm$"
    return [(value, messages[key]) for key, value in bad.items()]


@pytest.mark.parametrize("waits", [False, True])
@every_family
@pytest.mark.usefixtures("float64_default")
def test_bad_inputs_raise_and_leave_the_kernel_as_it_was(name, waits):
    case = KERNELS[name]
    method = case.methods[0]
    options = {"input_dim": None} if waits else {}
    kernel, _ = made(name, method, **options)
    good = case.inputs(5)
    before = {key: copy.deepcopy(value) for key, value in kernel.state_dict().items()}
    for bad, message in bad_inputs(name):
        for spread in (bad, torch.cat([bad, bad], dim=-1)) if waits else (bad,):
            for left, right in ((spread, None), (spread, spread + 1)):
                with pytest.raises(ValueError, match=message if spread is bad else r"^expected "):
                    kernel(left, right).to_dense()
            with pytest.raises(ValueError, match=r"^expected "):
                kernel(spread, diag=True)
        with pytest.raises(ValueError, match=r"^expected "):
            kernel(good, bad).to_dense()
        after = kernel.state_dict()
        assert before.keys() == after.keys() and (kernel.feature_map is None) == (waits and name != "spectral mixture")
        assert all(torch.equal(v, after[k]) for k, v in before.items() if isinstance(v, torch.Tensor))
    assert torch.equal(dense(kernel, good), dense(made(name, method)[0], good))


@pytest.mark.parametrize(
    "make", [lambda k: k + RBFKernel(), lambda k: ScaleKernel(RBFKernel() * k), lambda k: RBFKernel() + k]
)
def test_a_build_that_fails_leaves_all_parts_waiting(make):
    kernel = rfgp.approximate(make(CosineKernel()).double(), WIDTH, seed=0)
    for use in (lambda x: kernel(x).to_dense(), lambda x: kernel(x, x[:2]).to_dense(), kernel.features):
        with pytest.raises(ValueError, match="expected one input column for CosineKernel, got 2"):
            use(inputs(5, 2))
    maps = [drawn.feature_map for drawn in drawn_maps(kernel)]
    assert maps == [None, None]
    fresh = rfgp.approximate(make(CosineKernel()).double(), WIDTH, seed=0)
    assert torch.equal(kernel(inputs(5, 1)).to_dense(), fresh(inputs(5, 1)).to_dense())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rfgp.kernels.SkewedChiSquaredKernel(0.0), r"^expected a positive skewness, got 0.0; "),
        (lambda: rfgp.kernels.SkewedChiSquaredKernel(float("nan")), r"^expected a positive skewness, got nan; "),
        (lambda: rfgp.kernels.OpticalKernel(3), r"^expected an even exponent, got 3; use 4$"),
        (lambda: rfgp.kernels.OpticalKernel(22), r"^expected an integer from 1 to 20 for exponent, got 22; choose"),
        (
            lambda: rfgp.kernels.DotProductKernel(torch.tensor([1.0, -1.0])),
            r"^expected finite non-negative coefficients",
        ),
        (
            lambda: rfgp.kernels.DotProductKernel(torch.tensor([1.0, 0.0])),
            r"positive one beyond a_0, got \[1.0, 0.0\]; ",
        ),
        (lambda: rfgp.kernels.DotProductKernel(torch.tensor([1.0, float("inf")])), r"^expected finite non-negative"),
        (lambda: rfgp.kernels.DotProductKernel(torch.ones(2, 2)), r"^expected finite non-negative coefficients"),
    ],
)
def test_exact_kernels_refuse_what_gives_no_kernel(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_exact_skewed_kernel_refuses_inputs_below_its_bound():
    kernel = rfgp.kernels.SkewedChiSquaredKernel(0.5)
    with pytest.raises(ValueError, match=r"^expected inputs above -0.5, got -0.5; use a larger skewness$"):
        kernel(torch.full((3, 1), -0.5)).to_dense()


def test_exact_kernels_are_their_definitions():
    x, y = inputs(5).abs(), inputs(3, seed=1).abs()
    inner = x @ y.mT
    coefficients = torch.tensor([0.5, 1.0, 0.0, 0.3])
    assert_close(dense(rfgp.kernels.DotProductKernel(coefficients).double(), x, y), 0.5 + inner + 0.3 * inner**3, 1e-7)
    exponential = rfgp.kernels.ExponentialDotProductKernel(ard_num_dims=4).double()
    exponential.lengthscale = torch.tensor([[0.5, 1.0, 2.0, 4.0]])
    assert_close(dense(exponential, x, y), torch.exp((x / exponential.lengthscale.detach() ** 2) @ y.mT))
    left, right = x[:, None, :] + 0.7, y[None, :, :] + 0.7
    chi = (2.0 * (left * right).sqrt() / (left + right)).prod(-1)
    assert_close(dense(rfgp.kernels.SkewedChiSquaredKernel(0.7), x, y), chi)
    norms = x.square().sum(-1)[:, None] * y.square().sum(-1)[None, :]
    optical = {2: inner**2 + norms, 4: 4.0 * (inner**4 + 4.0 * inner**2 * norms + norms**2)}
    for exponent, expected in optical.items():
        assert_close(dense(rfgp.kernels.OpticalKernel(exponent), x, y), expected)


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
    exact = randomised(make())
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
    kernel = rfgp.approximate(randomised(EXACT[name]()), WIDTH, input_dim=saved_dim, method=method, seed=3)
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
    kernel = rfgp.approximate(randomised(ScaleKernel(polynomial())), WIDTH, seed=3)
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
    named = arguments if make is LinearKernel or method != "auto" else {"method": "tensor_srht", "seed": 7}
    with_data = rfgp.approximate(make().double(), WIDTH, train_inputs=inputs(40), **named)
    assert torch.equal(dense(with_data, x), expected)
    active = rfgp.approximate(make(active_dims=[5, 1, 0, 2]).double(), WIDTH, input_dim=6, **arguments)
    spread = torch.zeros(6, 6, dtype=torch.float64)
    spread[:, [5, 1, 0, 2]] = x
    assert torch.equal(dense(active, spread), expected)
    if make is polynomial:
        other = rfgp.approximate(make().double(), WIDTH, method=method, seed=8)
        assert not torch.allclose(dense(other, x), expected)


@pytest.mark.parametrize("name", ["polynomial", "rbf", "matern 3/2", "exponential"])
def test_auto_with_data_is_the_method_that_is_predicted_to_be_best(name):
    case, exact = KERNELS[name], KERNELS[name].make()
    data, x = case.inputs(40), case.inputs(5, seed=1)
    chosen = best_method(exact, WIDTH, data)
    assert chosen.partition(":")[0] in ("landmarks", *family(exact).methods) and not chosen.endswith(":complex")
    automatic = rfgp.approximate(exact, WIDTH, train_inputs=data, seed=7)
    named = rfgp.approximate(exact, WIDTH, method=chosen, train_inputs=data, seed=7)
    assert torch.equal(automatic(x).to_dense(), named(x).to_dense())


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
    before, draws = kernel(x).to_dense(), kernel.version
    assert kernel.resample(torch.Generator().manual_seed(1)) is kernel
    assert kernel.version == draws + 1
    after = kernel(x).to_dense()
    assert not torch.allclose(before, after)
    kernel.resample(torch.Generator().manual_seed(1))
    assert torch.equal(kernel(x).to_dense(), after)


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
    method = "tensor_srht" if "train_inputs" in options else "auto"  # auto would rank the methods, some without offset
    kernel = rfgp.approximate(exact(), WIDTH, method=method, seed=0, **options)
    assert kernel.feature_map.input_dim == expected


@pytest.mark.parametrize("exact", [polynomial, LinearKernel, lambda: ScaleKernel(polynomial())])
def test_maps_wait_where_nothing_tells_the_dimension(exact):
    kernel = rfgp.approximate(exact(), WIDTH, seed=0)
    assert kernel.feature_map is None
    kernel(inputs(3, 7).float()).to_dense()
    assert kernel.feature_map.input_dim in (7, 8)
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
    assert kernel.feature_map is sketch
    x = inputs(3).float()
    scaled_x = torch.cat([x, kernel.exact_kernel.base_kernel.offset.sqrt().expand(3, 1)], dim=-1)
    expected = kernel.outputscale * sketch(scaled_x) @ sketch(scaled_x).mT
    torch.testing.assert_close(kernel(x).to_dense(), expected)


def test_maps_take_dtype_of_the_kernel():
    kernel = rfgp.approximate(ScaleKernel(polynomial()).double(), WIDTH, input_dim=4)
    assert kernel(inputs(3)).to_dense().dtype == torch.float64
    assert kernel.float()(inputs(3).float()).to_dense().dtype == torch.float32


def test_scale_kernel_with_active_dims_of_its_own():
    exact = randomised(ScaleKernel(LinearKernel(), active_dims=[0, 2]))
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
    inside = rfgp.approximate(randomised(polynomial()), WIDTH, input_dim=4)
    outside = ScaleKernel(inside, batch_shape=THREE).double()
    outside.outputscale = torch.tensor([0.5, 1.0, 2.0])
    kernel = rfgp.approximation.with_features(outside)
    assert kernel.raw_outputscale is outside.raw_outputscale
    assert rfgp.approximation.with_features(kernel) is kernel
    x = inputs(5)
    expected = real_product(kernel.features(x), kernel.features(x))
    torch.testing.assert_close(outside(x).to_dense(), expected, rtol=0.0, atol=ROUNDING)
    with pytest.raises(ValueError, match="expected a kernel with random features"):
        rfgp.approximation.with_features(polynomial())


UNSUPPORTED = {
    "arc": lambda: gpytorch.kernels.ArcKernel(MaternKernel()),
    "piecewise polynomial": lambda: gpytorch.kernels.PiecewisePolynomialKernel(q=2),
    "random features of GPyTorch": lambda: gpytorch.kernels.RFFKernel(num_samples=8, num_dims=2),
    "Hamming": lambda: gpytorch.kernels.HammingIMQKernel(vocab_size=4),
    "gradients": lambda: gpytorch.kernels.RBFKernelGrad(),
    "subclass": lambda: type("Mine", (gpytorch.kernels.PiecewisePolynomialKernel,), {})(),
    "not a kernel": lambda: "rbf",
}
AROUND = {
    "alone": lambda kernel: kernel,
    "scaled": ScaleKernel,
    "sum": lambda kernel: polynomial() + kernel,
    "product": lambda kernel: RBFKernel() * kernel,
    "nested": lambda kernel: ScaleKernel(RBFKernel() * (LinearKernel() + ScaleKernel(kernel))),
}
NOT_AROUND = {("not a kernel", around) for around in AROUND if around != "alone"}


@pytest.mark.parametrize("options", [{}, {"input_dim": 2}, {"train_inputs": inputs(40, 2)}])
@pytest.mark.parametrize("method", ["auto", "fourier"])
@pytest.mark.parametrize(
    ("kernel", "around"), [pair for pair in itertools.product(UNSUPPORTED, AROUND) if pair not in NOT_AROUND]
)
def test_unsupported_kernels_raise_and_list_the_supported_ones(kernel, around, method, options):
    made = AROUND[around](UNSUPPORTED[kernel]())
    if method == "auto" and "train_inputs" in options and kernel not in ("gradients", "not a kernel", "Hamming"):
        approximate = rfgp.approximate(made.double(), WIDTH, **options)
        assert any(isinstance(part, Landmarks) for part in approximate.modules())
        return
    if kernel == "Hamming" and "train_inputs" in options:  # whose inputs are one-hot
        options = {"input_dim": 2}
    before = copy.deepcopy(made.state_dict()) if around != "alone" else {}
    with pytest.raises(ValueError, match=r"^expected a kernel with random features") as caught:
        rfgp.approximate(made, WIDTH, method=method, **options)
    names = [supported.__name__ for supported in FAMILIES if not inspect.isabstract(supported)]
    assert all(name in str(caught.value) for name in [*names, "ScaleKernel", "AdditiveKernel", "ProductKernel"])
    landmarks = ', or method="landmarks" with train_inputs, which takes any positive definite kernel of one output'
    gradients = ", here LinearlyObservedKernel(base_kernel, [Value(), Gradient()])"
    advice = {"gradients": gradients, "not a kernel": ""}.get(kernel, landmarks)
    assert str(caught.value).endswith(f"got {type(UNSUPPORTED[kernel]()).__name__}; use one of these{advice}")
    assert all(torch.equal(value, made.state_dict()[key]) for key, value in before.items())


@pytest.mark.parametrize("around", AROUND)
def test_cosine_kernels_of_more_than_one_column_raise(around):
    x = inputs(40, 2)
    for options in ({"input_dim": 2}, {"train_inputs": x}, {}):
        with pytest.raises(ValueError, match=r"^expected one input column for CosineKernel, got 2; it is not positive"):
            rfgp.approximate(AROUND[around](CosineKernel()).double(), WIDTH, **options)(x).to_dense()
    with pytest.raises(ValueError, match=r"^expected one input column for CosineKernel, got 2"):
        rfgp.approximate(AROUND[around](CosineKernel(active_dims=[0, 2])), WIDTH)
    on_one = AROUND[around](CosineKernel(active_dims=[1])).double()
    assert rfgp.approximate(on_one, WIDTH, input_dim=2)(x).shape == (40, 40)


def test_the_cosine_kernel_of_two_columns_is_not_positive_definite():
    eigenvalues = torch.linalg.eigvalsh(CosineKernel().double()(inputs(40, 2)).to_dense())
    assert float(eigenvalues.min()) < -1.0


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
        (polynomial, {"method": "linear"}, "expected one of the methods rademacher, .* got 'linear'"),
        (polynomial, {"method": "fourier"}, "expected one of the methods rademacher, .* got 'fourier'"),
        (RBFKernel, {"method": "tensor_srht"}, "expected one of the methods fourier, .* got 'tensor_srht'"),
        (RBFKernel, {"method": "fourier", "num_features": 33}, "expected an even num_features for fourier"),
        (RBFKernel, {"method": "optical:ctr"}, "expected a real form of optical, got 'optical:ctr'; write optical"),
        (RBFKernel, {"method": "optimized_maclaurin"}, "expected train_inputs for optimized_maclaurin"),
        (RBFKernel, {"method": ProductSketch(5, 8, 2)}, r"expected RandomFourier with spectrum=Gaussian\(\) for RBF"),
        (MaternKernel, {"method": RandomFourier(4, 8, Matern(1.5))}, r"spectrum=Matern\(nu=2.5\) for MaternKernel"),
        (rfgp.kernels.OpticalKernel, {"method": OpticalFeatures(4, 8, 4)}, "OpticalFeatures with exponent=2"),
        (polynomial, {"method": "spherical"}, "expected an offset of at least 1 for spherical, got 0.6931"),
        (polynomial, {"method": ProductSketch(5, 8, 3)}, "expected a polynomial feature map of degree 2"),
        (LinearKernel, {"method": ProductSketch(4, 8, 2)}, "expected a polynomial feature map of degree 1"),
        (polynomial, {"method": "linear", "input_dim": None}, "expected one of the methods .* got 'linear'"),
        (lambda: PolynomialKernel(power=2.5), {}, "for power"),
        (lambda: PolynomialKernel(power=0), {}, "for power"),
        (lambda: PolynomialKernel(power=21), {}, "for power"),
        (lambda: polynomial(active_dims=[0, 4]), {}, "expected active_dims below input_dim=4"),
        (lambda: LinearKernel(ard_num_dims=3), {}, "expected 3 columns as ard_num_dims says"),
        (polynomial, {"train_inputs": inputs(50, 3)}, "expected train_inputs with 4 columns"),
        (polynomial, {"train_inputs": torch.ones(50)}, "expected train_inputs with 4 columns, got 1"),
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
    with pytest.raises(ValueError, match=r"expected a FourierSeries of one order .* got TensorSRHT of degree 3"):
        FeatureKernel(CosineKernel(), TensorSRHT(5, 8, 3))
    with pytest.raises(ValueError, match="expected a kernel with random features"):
        FeatureKernel(UNSUPPORTED["arc"](), TensorSRHT(5, 8, 3))
    with pytest.raises(ValueError, match="expected one of the methods"):
        FeatureKernel(polynomial(), MapRecipe("fourier", 8, 0))
    kernel = FeatureKernel(polynomial(), TensorSRHT(4, 8, 2))
    with pytest.raises(ValueError, match="expected x with 3 columns"):
        kernel(inputs(3).float()).to_dense()


def test_more_features_than_rows_warns_and_works():
    x = inputs(20).float()
    with pytest.warns(UserWarning, match="num_features=32 exceeds the 20 training rows"):
        kernel = rfgp.approximate(polynomial(), WIDTH, method="tensor_srht", train_inputs=x)
    assert torch.isfinite(kernel(x).to_dense()).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rfgp.approximate(polynomial(), WIDTH, method="tensor_srht", train_inputs=inputs(WIDTH))


def test_last_dim_is_batch_raises():
    kernel = rfgp.approximate(polynomial(), WIDTH, input_dim=4)
    with pytest.raises(ValueError, match="last_dim_is_batch"):
        kernel.forward(inputs(3).float(), inputs(3).float(), last_dim_is_batch=True)


@pytest.mark.parametrize("method", ["landmarks", "fourier_grid", "fourier"])
def test_a_kernel_around_others_has_their_input_dim(method):
    scaled = rfgp.approximate(ScaleKernel(RBFKernel()), 16, method=method, train_inputs=inputs(40, 2))
    tasks = rfgp.approximate(
        gpytorch.kernels.MultitaskKernel(RBFKernel(), num_tasks=2), 16, method=method, train_inputs=inputs(40, 2)
    )
    assert scaled.input_dim == tasks.input_dim == 2

"""Generic suite: what every feature map has to satisfy, over every example of every concrete class."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
import pickle

import pytest
import scipy.linalg
import torch
from cases import inner_map, is_deterministic, map_classes, map_examples, rebuilt

from rfgp.features import (
    ComplexToReal,
    FeatureMap,
    FourierSeries,
    LinearFeatures,
    Maclaurin,
    OpticalFeatures,
    PolynomialSketch,
    ProductSketch,
    RandomFourier,
    SphericalFourier,
    TensorSketch,
    TensorSRHT,
    polynomial_sketch,
)

ROUNDING = 1e-10
STANDARD_ERRORS = 5.0
ERRORS_OF_MEANS = 4.0  # whose estimates are nearly normal
DRAWS = 320

every_example = pytest.mark.parametrize("example", map_examples())


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def inputs(feature_map, *batch_and_rows, seed=0, dtype=torch.float64):
    x = torch.randn(*batch_and_rows, feature_map.input_dim, generator=seeded(seed), dtype=torch.float64)
    return (x / x.norm(dim=-1, keepdim=True)).to(dtype)


def same_state(left, right):
    first, second = left.state_dict(), right.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def with_other_weights(feature_map):
    others = (rebuilt(feature_map, seeded(seed)) for seed in range(100, 120))
    return next(other for other in others if not same_state(feature_map, other))


def test_every_class_is_collected():
    sketches = {ProductSketch, TensorSRHT, TensorSketch, ComplexToReal, LinearFeatures}
    fourier = {RandomFourier, SphericalFourier, FourierSeries}
    assert sketches | fourier | {Maclaurin, OpticalFeatures} <= set(map_classes())
    assert {param.values[0].cls for param in map_examples()} == set(map_classes())


def test_ids_fit_on_a_line():
    names = [param.id for param in map_examples()]
    assert all(len(name) <= 150 and name.isprintable() for name in names)


@pytest.mark.smoke_for_each("example")
@every_example
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype(example, dtype):
    feature_map = example().to(dtype)
    for batch in [(), (2,), (3, 1, 2)]:
        features = feature_map(inputs(feature_map, *batch, 4, dtype=dtype))
        assert features.shape == (*batch, 4, feature_map.num_features)
        assert features.dtype == (dtype.to_complex() if feature_map.is_complex else dtype)
        assert torch.isfinite(features.abs()).all()


@every_example
def test_single_precision_is_close_to_double(example):
    feature_map = example()
    x = inputs(feature_map, 7)
    exact = feature_map(x)
    bound = 1e-5 * max(float(exact.abs().max()), 1.0) + phase_rounding(inner_map(feature_map))
    single = feature_map.to(torch.float32)(x.float())
    assert (single - exact).abs().max() <= bound


def phase_rounding(feature_map):
    """A bound on the error of phases of unit inputs in single precision: frequencies can be huge."""
    if not isinstance(feature_map, RandomFourier):
        return 0.0
    draws = {name: buffer for name, buffer in feature_map.named_buffers() if name != "signs"}
    largest = feature_map.spectrum.frequencies(draws)[0].norm(dim=-1).max()
    return 4.0 * feature_map.padded_dim * torch.finfo(torch.float32).eps * float(largest)


@pytest.mark.parametrize("example", map_examples(lambda m: m.is_complex))
def test_planes_are_real_and_imaginary_part(example):
    feature_map = example()
    x = inputs(feature_map, 2, 3)
    real, imaginary = feature_map.planes(x)
    assert torch.equal(real, feature_map(x).real) and torch.equal(imaginary, feature_map(x).imag)


@pytest.mark.parametrize("example", map_examples(lambda m: not m.is_complex))
def test_real_maps_have_no_planes(example):
    feature_map = example()
    with pytest.raises(ValueError, match="expected a complex map"):
        feature_map.planes(inputs(feature_map, 3))


@pytest.mark.parametrize("example", map_examples(lambda m: not is_deterministic(m)))
def test_state_dict_round_trip(example):
    feature_map = example()
    x = inputs(feature_map, 5)
    other = with_other_weights(feature_map)
    other.load_state_dict(feature_map.state_dict())
    assert torch.equal(other(x), feature_map(x))


@every_example
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_are_equal_and_independent(example, clone):
    feature_map = example()
    x = inputs(feature_map, 5)
    before = feature_map(x)
    other = clone(feature_map)
    assert torch.equal(other(x), before)
    assert other.version == feature_map.version
    other.resample(seeded(11))
    assert torch.equal(feature_map(x), before)


@every_example
def test_weights_are_buffers_and_nothing_is_learned(example):
    feature_map = example()
    assert not list(feature_map.parameters())
    assert not any(buffer.is_complex() for buffer in feature_map.buffers())


@every_example
def test_seed_decides_the_weights(example):
    feature_map = example()
    first = rebuilt(feature_map, seeded(3))
    assert same_state(first, rebuilt(feature_map, seeded(3)))
    if not is_deterministic(feature_map):
        assert not all(same_state(first, rebuilt(feature_map, seeded(seed))) for seed in range(4, 14))


@every_example
def test_draws_do_not_depend_on_the_default_device(example):
    feature_map = example()
    expected = feature_map._draw(seeded(3))
    with torch.device("meta"):
        draws = feature_map._draw(seeded(3))
    assert draws.keys() == expected.keys()
    assert all(draws[name].device.type == "cpu" and torch.equal(draws[name], expected[name]) for name in draws)


@every_example
def test_resample_repeats_the_constructor(example):
    feature_map = example().to(torch.float32)
    wanted = rebuilt(feature_map, seeded(7)).to(torch.float32)
    version = feature_map.version
    assert feature_map.resample(seeded(7)) is feature_map
    assert same_state(feature_map, wanted)
    assert feature_map.version > version


@every_example
def test_resample_without_generator_uses_the_default_one(example):
    feature_map, other = example(), example()
    torch.manual_seed(5)
    feature_map.resample()
    torch.manual_seed(5)
    other.resample()
    assert same_state(feature_map, other)


@every_example
def test_resample_keeps_the_dtype(example):
    feature_map = example().to(torch.float32)
    dtypes = [buffer.dtype for buffer in feature_map.buffers()]
    feature_map.resample(seeded(0))
    assert [buffer.dtype for buffer in feature_map.buffers()] == dtypes


@every_example
def test_batch_equals_loop(example):
    feature_map = example()
    x, y = inputs(feature_map, 2, 3, 4), inputs(feature_map, 2, 3, 5, seed=1)
    looped = torch.stack([torch.stack([feature_map(x[i, j]) for j in range(3)]) for i in range(2)])
    torch.testing.assert_close(feature_map(x), looped, rtol=0.0, atol=ROUNDING)
    targets = torch.stack([torch.stack([feature_map.target(x[i, j], y[i, j]) for j in range(3)]) for i in range(2)])
    torch.testing.assert_close(feature_map.target(x, y), targets, rtol=0.0, atol=ROUNDING)
    moments = feature_map.moments(x, y)
    if moments is not None:
        assert moments.variance.shape == moments.pseudo_variance.shape == (2, 3, 4, 5)
        for part, one in zip(moments, feature_map.moments(x[1, 2], y[1, 2]), strict=True):
            torch.testing.assert_close(part[1, 2], one, rtol=0.0, atol=ROUNDING)


@every_example
def test_rows_do_not_depend_on_each_other(example):
    feature_map = example()
    x = inputs(feature_map, 613)
    together = feature_map(x)
    order = torch.randperm(613, generator=seeded(2))
    torch.testing.assert_close(feature_map(x[order]), together[order], rtol=0.0, atol=ROUNDING)


@every_example
def test_blocks_without_gradients_equal_the_path_with_gradients(example):
    feature_map = example()
    x = inputs(feature_map, 613)
    without = feature_map(x)
    with_gradients = feature_map(x.clone().requires_grad_())
    assert with_gradients.requires_grad and not without.requires_grad
    torch.testing.assert_close(with_gradients.detach(), without, rtol=0.0, atol=ROUNDING)
    with torch.no_grad():
        assert torch.equal(feature_map(x.clone().requires_grad_()), without)


@every_example
def test_inputs_stay_untouched(example):
    feature_map = example()
    x = inputs(feature_map, 70)
    before = x.clone()
    feature_map(x)
    assert torch.equal(x, before)


@every_example
def test_gradcheck(example):
    feature_map = example()
    x = inputs(feature_map, 2).requires_grad_()
    assert torch.autograd.gradcheck(feature_map, (x,))


@every_example
def test_wrong_inputs_raise(example):
    feature_map = example()
    x = inputs(feature_map, 3)
    wrong = {
        "columns": torch.cat([x, x[:, :1]], dim=-1),
        "no rows": x[:0],
        "integers": torch.ones(x.shape, dtype=torch.long),
        "one dimension": x[0],
        "complex": x.to(torch.complex128),
        "no tensor": x.tolist(),
    }
    if any(buffer.is_floating_point() for buffer in feature_map.buffers()):
        wrong["precision"] = x.float()
    for value in wrong.values():
        with pytest.raises(ValueError, match="expected"):
            feature_map(value)
        if feature_map.is_complex:
            with pytest.raises(ValueError, match="expected"):
                feature_map.planes(value)


@every_example
def test_target_is_a_kernel(example):
    feature_map = example()
    x, y = inputs(feature_map, 4), inputs(feature_map, 3, seed=1)
    torch.testing.assert_close(feature_map.target(x, y), feature_map.target(y, x).mH, rtol=0.0, atol=ROUNDING)
    assert torch.linalg.eigvalsh(feature_map.target(x, x)).min() >= -ROUNDING


@functools.cache
def estimates(example):
    """Independent kernel estimates between two and three fixed inputs, with those inputs and the map."""
    feature_map = example()
    x, shift = inputs(feature_map, 2, seed=20), inputs(feature_map, 3, seed=21)
    y = torch.nn.functional.normalize(torch.cat([x[:1], 0.7 * x[1:] + 0.7 * shift[1:2], shift[2:]]), dim=-1)
    both, generator = torch.cat([x, y]), seeded(1234)
    kernels = []
    with torch.no_grad():
        for _ in range(DRAWS // len(getattr(feature_map, "maps", [feature_map]))):
            features = feature_map.resample(generator)(both)
            kernels.append(features[:2] @ features[2:].mH)
    return feature_map, x, y, torch.stack(kernels)


def planes(z):
    return torch.stack([z.real, z.imag]) if z.is_complex() else z


def standard_error(samples):
    return samples.std(0) / math.sqrt(len(samples))


def expects_its_target(feature_map):
    return getattr(inner_map(feature_map), "structure", "") != "hadamard"


@pytest.mark.parametrize("example", map_examples(expects_its_target))
def test_mean_is_the_target(example):
    feature_map, x, y, kernels = estimates(example)
    moments = feature_map.moments(x, y)
    error = (kernels.mean(0) - feature_map.target(x, y)).abs()
    squares = (kernels - kernels.mean(0)).abs().square().mean(0) if moments is None else moments.variance
    assert (error <= ERRORS_OF_MEANS * (squares / len(kernels)).clamp_min(0.0).sqrt() + ROUNDING).all()


def has_moments(feature_map):
    weights = [b for b in feature_map.buffers() if b.is_floating_point()]
    x = inputs(feature_map, 1).to(weights[0].dtype if weights else torch.get_default_dtype())
    return feature_map.moments(x, x) is not None


def has_light_tails(feature_map):
    inner = inner_map(feature_map)
    if isinstance(inner, OpticalFeatures):
        return inner.exponent <= 2
    is_gaussian = getattr(inner, "weights", "") == "gaussian"
    return not isinstance(inner, PolynomialSketch) or inner.degree <= (2 if is_gaussian else 4)


@pytest.mark.parametrize("example", map_examples(lambda m: has_moments(m) and has_light_tails(m)))
def test_variance_and_pseudo_variance(example):
    feature_map, x, y, kernels = estimates(example)
    moments = feature_map.moments(x, y)
    assert not moments.variance.is_complex() and moments.variance.min() >= -ROUNDING
    deviations = (kernels - kernels.mean(0)) * math.sqrt(len(kernels) / (len(kernels) - 1))
    for squares, expected in [(deviations.abs().square(), moments.variance), (deviations**2, moments.pseudo_variance)]:
        samples = torch.view_as_real(squares) if squares.is_complex() else squares.unsqueeze(-1)
        wanted = torch.stack([expected.real, expected.imag if expected.is_complex() else 0.0 * expected], dim=-1)
        error = (samples.mean(0) - wanted[..., : samples.shape[-1]]).abs()
        assert (error <= STANDARD_ERRORS * standard_error(samples) + ROUNDING).all()
    if not feature_map.is_complex:
        assert torch.equal(moments.variance, moments.pseudo_variance)


@pytest.mark.parametrize("example", map_examples(lambda m: hasattr(m, "variance_bound") and not m.is_complex))
def test_variance_bound_holds(example):
    feature_map, x, y, kernels = estimates(example)
    squares = (kernels - feature_map.target(x, y)).square()
    assert (squares.mean(0) <= feature_map.variance_bound(x, y) + STANDARD_ERRORS * standard_error(squares)).all()


@pytest.mark.parametrize("is_complex", [False, True])
def test_variance_of_count_sketch(is_complex):
    feature_map = TensorSketch(5, 4, 1, is_complex, generator=seeded(0)).double()
    x, y = inputs(feature_map, 1), inputs(feature_map, 1, seed=3)
    generator = seeded(8)
    draws = []
    for _ in range(DRAWS):
        features = feature_map.resample(generator)(torch.cat([x, y]))
        draws.append((features[:1] @ features[1:].mH - x @ y.mT).abs().square())
    squares = torch.stack(draws)
    diagonal, inner = (x**2 * y**2).sum(), (x @ y.mT) ** 2
    norms = x.square().sum() * y.square().sum()
    expected = (norms - diagonal + (0.0 if is_complex else 1.0) * (inner - diagonal)) / 4
    assert ((squares.mean(0) - expected).abs() <= STANDARD_ERRORS * standard_error(squares)).all()


@pytest.mark.parametrize("form", ["real", "complex", "ctr"])
@pytest.mark.parametrize("weights", ["rademacher", "gaussian"])
def test_error_falls_with_the_root_of_the_width(form, weights):
    widths, generator = [4, 16, 64, 256], seeded(31)
    log_errors = []
    for width in widths:
        base = ProductSketch(4, width // 2 if form == "ctr" else width, 2, weights, form != "real").double()
        feature_map = ComplexToReal(base) if form == "ctr" else base
        x = inputs(feature_map, 6, seed=4)
        target = feature_map.target(x, x)
        squares = []
        for _ in range(400):
            features = feature_map.resample(generator)(x)
            squares.append((features @ features.mH - target).abs().square().mean())
        log_errors.append(0.5 * torch.stack(squares).mean().log())
    log_widths = torch.tensor(widths, dtype=torch.float64).log()
    centered = log_widths - log_widths.mean()
    slope = float((centered * torch.stack(log_errors)).sum() / centered.square().sum())
    assert abs(slope + 0.5) <= 0.1


@pytest.mark.parametrize("variant", ["upsampled", "stacked"])
@pytest.mark.parametrize("form", ["real", "complex", "ctr"])
@pytest.mark.parametrize(("input_dim", "copies"), [(4, 1), (3, 2), (5, 3), (1, 2)])
def test_linear_srht_of_full_width_is_exact(variant, form, input_dim, copies):
    padded = 1 << (input_dim - 1).bit_length()
    base = TensorSRHT(input_dim, copies * padded, 1, variant, form != "real", generator=seeded(0)).double()
    feature_map = ComplexToReal(base) if form == "ctr" else base
    assert feature_map.num_features == copies * padded * (2 if form == "ctr" else 1)
    x, y = inputs(feature_map, 4), inputs(feature_map, 3, seed=1)
    torch.testing.assert_close((feature_map(x) @ feature_map(y).mH).real, x @ y.mT, rtol=0.0, atol=1e-14)
    for part in feature_map.moments(x, y):
        assert part.abs().max() <= 1e-14


def examples_of(*classes):
    return pytest.mark.parametrize("example", map_examples(lambda m: isinstance(m, classes)))


def joined(planes_of_weights):
    """Complex weights from stored real and imaginary planes, which lie side by side along dimension 1."""
    return torch.complex(*planes_of_weights.chunk(2, dim=1))


@pytest.mark.smoke_for_each("example")
@examples_of(ProductSketch)
def test_product_sketch_is_a_product_of_dense_linear_maps(example):
    sketch = example()
    x = inputs(sketch, 6)
    weight = joined(sketch.weight) if sketch.is_complex else sketch.weight
    expected = torch.stack([x.to(w.dtype) @ w.mT for w in weight]).prod(0) / math.sqrt(sketch.num_features)
    torch.testing.assert_close(sketch(x), expected, rtol=0.0, atol=ROUNDING)


@pytest.mark.smoke_for_each("example")
@examples_of(TensorSRHT)
def test_srht_is_a_product_of_dense_linear_maps(example):
    sketch = example()
    x = inputs(sketch, 6)
    padded = torch.nn.functional.pad(x, (0, max(sketch.order - sketch.input_dim, 0)))
    hadamard = torch.tensor(scipy.linalg.hadamard(sketch.order), dtype=torch.float64)
    none = torch.empty(*sketch.signs.shape[:2], sketch.num_features, 0, dtype=torch.float64)
    both = (sketch.signs, sketch.extra_signs if sketch.num_extra else none)
    all_signs, extras = (joined(signs) if sketch.is_complex else signs for signs in both)
    expected = torch.ones(6, sketch.num_features, dtype=torch.float64)
    for signs, extra, index in zip(all_signs.squeeze(1), extras.squeeze(1), sketch.index, strict=True):
        rows = torch.cat([hadamard.to(block.dtype) * block for block in signs])
        expected = expected * (padded.to(rows.dtype) @ torch.cat([rows[index], extra], dim=-1).mT)
    torch.testing.assert_close(sketch(x), expected / math.sqrt(sketch.num_features), rtol=0.0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("input_dim", "num_features", "variant", "order"),
    [
        *[(2049, 8874, "upsampled", 2048), (2049, 8875, "upsampled", 4096), (2049, 64, "stacked", 4096)],
        *[(2056, 64, "upsampled", 2048), (2057, 64, "upsampled", 4096), (2048, 64, "upsampled", 2048)],
        *[(17, 31, "upsampled", 16), (17, 32, "upsampled", 32), (9, 1, "upsampled", 16), (1, 1, "upsampled", 1)],
    ],
)
def test_few_columns_beyond_a_power_of_two_are_not_transformed(input_dim, num_features, variant, order):
    sketch = TensorSRHT(input_dim, num_features, 1, variant)
    assert sketch.order == order and sketch.num_extra == max(input_dim - order, 0)
    assert ("extra_signs" in sketch.state_dict()) == (order < input_dim)


@pytest.mark.smoke_for_each("example")
@examples_of(TensorSketch)
def test_tensor_sketch_is_the_count_sketch_of_the_tensor_product(example):
    sketch = example()
    x = inputs(sketch, 3)
    signs = (joined(sketch.signs) if sketch.is_complex else sketch.signs).squeeze(1)
    expected = torch.zeros(3, sketch.num_features, dtype=signs.dtype)
    for entries in itertools.product(range(sketch.input_dim), repeat=sketch.degree):
        picks = list(enumerate(entries))
        column = sum(int(sketch.index[i, j]) for i, j in picks) % sketch.num_features
        expected[:, column] += math.prod(signs[i, j] * x[:, j] for i, j in picks)
    torch.testing.assert_close(sketch(x), expected, rtol=0.0, atol=ROUNDING)


@pytest.mark.smoke_for_each("example")
@examples_of(OpticalFeatures)
def test_optical_features_are_powers_of_the_modulus(example):
    feature_map = example()
    x = inputs(feature_map, 6)
    projected = x.to(torch.complex128) @ torch.complex(*feature_map.weight).mT
    expected = projected.abs() ** feature_map.exponent / math.sqrt(feature_map.num_features)
    torch.testing.assert_close(feature_map(x), expected, rtol=0.0, atol=ROUNDING)


@pytest.mark.smoke_for_each("example")
@examples_of(FourierSeries)
def test_fourier_series_is_exact(example):
    series = example()
    x, y = 3.0 * inputs(series, 4), inputs(series, 3, seed=1)
    phases = (x[:, None] - y) @ series.orders.mT
    expected = (series.coefficients * phases.cos()).sum(-1)
    torch.testing.assert_close(series(x) @ series(y).mT, expected, rtol=0.0, atol=ROUNDING)
    torch.testing.assert_close(series.target(x, y), expected, rtol=0.0, atol=ROUNDING)
    assert series.moments(x, y).variance.abs().max() == 0.0


@examples_of(FourierSeries)
def test_fourier_series_takes_other_coefficients(example):
    series = example()
    x = inputs(series, 4)
    values = torch.rand(2, 1, len(series.coefficients), generator=seeded(3), dtype=torch.float64).requires_grad_()
    features = series(x, coefficients=values)
    assert features.shape == (2, 1, 4, series.num_features)
    target = series.target(x, x, coefficients=values)
    torch.testing.assert_close(features @ features.mT, target, rtol=0.0, atol=ROUNDING)
    wanted = series.orders @ x[0] - series.orders @ x[1]
    (gradient,) = torch.autograd.grad(target[0, 0, 0, 1], values)
    torch.testing.assert_close(gradient[0, 0], wanted.cos(), rtol=0.0, atol=ROUNDING)


def test_fourier_series_of_other_shapes_raises():
    orders = torch.tensor([[0.0], [1.0]])
    for wrong in [(orders[:, 0], torch.ones(2)), (orders, torch.ones(3)), (orders, torch.ones(2, 1))]:
        with pytest.raises(ValueError, match="expected orders"):
            FourierSeries(*wrong)


def test_linear_features_are_the_inputs():
    feature_map = LinearFeatures(3)
    x = inputs(feature_map, 2, 5)
    assert torch.equal(feature_map(x), x)
    assert feature_map.moments(x, x).variance.abs().max() == 0.0


@pytest.mark.parametrize("example", map_examples(lambda m: hasattr(m, "forward_tensor")))
def test_forward_tensor_of_equal_factors_is_forward(example):
    feature_map = example()
    degree = inner_map(feature_map).degree
    x = inputs(feature_map, 2, 5)
    torch.testing.assert_close(feature_map.forward_tensor(*[x] * degree), feature_map(x), rtol=0.0, atol=ROUNDING)
    with pytest.raises(ValueError, match=f"expected {degree} inputs"):
        feature_map.forward_tensor(*[x] * (degree + 1))
    if degree > 1:
        with pytest.raises(ValueError, match="expected inputs of one shape"):
            feature_map.forward_tensor(*[x] * (degree - 1), x[..., :4, :])
    if degree != 2:
        with pytest.raises(ValueError, match=f"expected {degree} inputs"):
            feature_map.forward_pair(x, x)


@pytest.mark.parametrize("example", map_examples(lambda m: hasattr(m, "forward_pair") and inner_map(m).degree == 2))
def test_forward_pair_sketches_the_outer_product(example):
    feature_map = example()
    x, y = inputs(feature_map, 3, seed=1), inputs(feature_map, 3, seed=2)
    generator, samples = seeded(17), []
    for _ in range(300):
        features = feature_map.resample(generator).forward_pair(x, y)
        samples.append(features @ features.mH)
    kernels = planes(torch.stack(samples)).movedim(-3, 0)
    expected = planes(((x @ x.mT) * (y @ y.mT)).to(samples[0].dtype))
    assert ((kernels.mean(0) - expected).abs() <= STANDARD_ERRORS * standard_error(kernels) + ROUNDING).all()


@pytest.mark.parametrize("example", map_examples(lambda m: isinstance(m, ComplexToReal)))
def test_complex_to_real_is_the_real_part(example):
    feature_map = example()
    x, y = inputs(feature_map, 4), inputs(feature_map, 3, seed=1)
    inner = feature_map.feature_map
    expected = (inner(x) @ inner(y).mH).real
    torch.testing.assert_close(feature_map(x) @ feature_map(y).mT, expected, rtol=0.0, atol=ROUNDING)


@pytest.mark.parametrize("example", map_examples(lambda m: isinstance(m, RandomFourier) and m.is_complex))
def test_complex_to_real_fourier_features_are_the_real_ones(example):
    base = rebuilt(example(), seeded(5))
    feature_map = ComplexToReal(base)
    real = rebuilt(base, seeded(5), num_features=2 * base.num_features, is_complex=False)
    x, y = inputs(real, 4), inputs(real, 3, seed=1)
    assert torch.equal(feature_map(x), real(x)) and torch.equal(feature_map.target(x, y), real.target(x, y))
    assert (feature_map.moments(x, y) is None) == (real.moments(x, y) is None)
    if has_moments(base):
        torch.testing.assert_close(feature_map.moments(x, y).variance, real.moments(x, y).variance)


def test_complex_to_real_of_a_real_map_raises():
    with pytest.raises(ValueError, match="expected a complex feature map"):
        ComplexToReal(ProductSketch(3, 4, 2))
    with pytest.raises(ValueError, match="expected a complex feature map"):
        ComplexToReal("rademacher")


@pytest.mark.parametrize("cls", [ProductSketch, TensorSRHT, TensorSketch])
@pytest.mark.parametrize(
    "arguments",
    [(0, 4, 2), (3, 0, 2), (3, 4, 0), (3, 4, 21), (3, 4, 1.5), (3.5, 4, 2), (3, -4, 2), (3, 4, True), (3, "4", 2)],
)
def test_wrong_sizes_raise(cls, arguments):
    with pytest.raises(ValueError, match=r"expected (a positive integer|an integer from 1 to 20)"):
        cls(*arguments)


SKETCHES_BY_NAME = {
    "rademacher": (ProductSketch, {"weights": "rademacher"}),
    "gaussian": (ProductSketch, {"weights": "gaussian"}),
    "tensor_srht": (TensorSRHT, {"variant": "upsampled"}),
    "tensor_srht_stacked": (TensorSRHT, {"variant": "stacked"}),
    "tensor_sketch": (TensorSketch, {}),
}


@pytest.mark.parametrize("form", ["real", "complex", "ctr"])
@pytest.mark.parametrize("name", SKETCHES_BY_NAME)
def test_sketches_by_name(name, form):
    cls, options = SKETCHES_BY_NAME[name]
    sketch = polynomial_sketch(name, form, 5, 12, 3, seeded(4))
    base = inner_map(sketch)
    assert type(base) is cls and isinstance(sketch, ComplexToReal) == (form == "ctr")
    assert (sketch.num_features, sketch.input_dim, base.degree) == (12, 5, 3)
    assert base.is_complex == (form != "real") and sketch.is_complex == (form == "complex")
    assert all(getattr(base, key) == value for key, value in options.items())
    expected = cls(5, 6 if form == "ctr" else 12, 3, is_complex=form != "real", generator=seeded(4), **options)
    assert same_state(base, expected)


def test_unknown_sketches_and_odd_pairs_raise():
    with pytest.raises(ValueError, match="expected one of rademacher, gaussian, tensor_srht"):
        polynomial_sketch("cauchy", "real", 3, 4, 2)
    with pytest.raises(ValueError, match="expected one of real, complex, ctr"):
        polynomial_sketch("rademacher", "imaginary", 3, 4, 2)
    with pytest.raises(ValueError, match="expected an even num_features for rademacher:ctr"):
        polynomial_sketch("rademacher", "ctr", 3, 5, 2)


@every_example
def test_operations_grow_with_the_width(example):
    feature_map = example()
    assert 0.0 <= feature_map.operations < math.inf
    assert feature_map.operations > 0.0 or isinstance(feature_map, LinearFeatures)
    if "num_features" in inspect.signature(type(feature_map)).parameters:
        wider = rebuilt(feature_map, seeded(0), num_features=16 * feature_map.num_features)
        assert wider.operations > feature_map.operations


def test_operations_of_a_series_are_those_of_its_sketches_and_a_product_a_column():
    for feature_map in Maclaurin.examples():
        sketches = sum(sketch.operations for sketch in feature_map.maps_by_degree.values())
        assert feature_map.operations == sketches + feature_map.num_features


@pytest.mark.parametrize("is_complex", [False, True])
def test_count_sketches_have_all_columns(is_complex):
    feature_map = TensorSketch(200, 4, 1, is_complex, generator=seeded(0))
    assert feature_map.index.unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("exponent", [0, 1, 3, 19, 22, 2.5, True])
def test_optical_exponents_are_even(exponent):
    with pytest.raises(ValueError, match=r"expected (an even exponent|an integer from 1 to 20 for exponent)"):
        OpticalFeatures(3, 4, exponent)


def test_unknown_options_raise():
    with pytest.raises(ValueError, match="expected one of rademacher, gaussian"):
        ProductSketch(3, 4, 2, "cauchy")
    with pytest.raises(ValueError, match="expected one of upsampled, stacked"):
        TensorSRHT(3, 4, 2, "sideways")


def test_weights_follow_the_default_dtype_but_not_their_values():
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        double = ProductSketch(3, 4, 2, "gaussian", generator=seeded(0))
    finally:
        torch.set_default_dtype(default)
    single = ProductSketch(3, 4, 2, "gaussian", generator=seeded(0))
    assert double.weight.dtype == torch.float64 and single.weight.dtype == torch.float32
    assert torch.equal(double.weight.float(), single.weight)


def test_a_class_without_examples_cannot_be_made():
    class Nameless(PolynomialSketch):
        def _factor(self, i, x):
            return x

        def _draw(self, generator):
            return {}

    assert issubclass(Nameless, FeatureMap)
    with pytest.raises(TypeError, match="examples"):
        Nameless(3, 3, 2)

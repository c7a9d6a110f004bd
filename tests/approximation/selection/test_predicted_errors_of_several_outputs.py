"""Predicted errors of kernels of many outputs, and of sums whose parts share weights, against simulation over seeds."""

from __future__ import annotations

import math

import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from problems import randomised, scaled

import rfgp
from rfgp.approximation import with_features
from rfgp.approximation.selection import best_method, predicted_error, rank_methods, suggest_num_features
from rfgp.features import FeatureMap, Matern, RandomFourier, TensorSRHT
from rfgp.functionals import Gradient, Laplacian, Value
from rfgp.kernels import CurlFreeKernel, DivergenceFreeKernel, HelmholtzKernel, LinearlyObservedKernel

pytestmark = pytest.mark.usefixtures("float64_default")

WIDTH, DRAWS = 32, 100


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def points(num_rows, columns=2):
    return 0.7 * torch.randn(num_rows, columns, generator=seeded())


def rbf(lengthscale=0.7, **options):
    kernel = RBFKernel(**options)
    kernel.lengthscale = lengthscale
    return kernel


def shared_helmholtz():
    base = rbf()
    kernel = HelmholtzKernel(base, base)
    kernel.curl_free.outputscale, kernel.divergence_free.outputscale = 2.0, 0.5
    return kernel


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """As many draws in simulated predictions as there are in these tests."""
    monkeypatch.setattr(rfgp.approximation.selection.errors, "_COLUMNS_DRAWN", 1)
    monkeypatch.setattr(rfgp.approximation.selection.errors, "_DRAWS", DRAWS)


def agrees(prediction, kernel, x, factor=1.0):
    """Whether a prediction, its square times a factor, is the mean over draws within three standard errors of both.

    All maps of the kernel are drawn with the same seed.
    """
    maps = [part for part in kernel.modules() if isinstance(part, FeatureMap)]
    errors = torch.empty(DRAWS)
    with torch.no_grad():
        exact = kernel.exact_kernel(x, x).to_dense()
        for i in range(DRAWS):
            for feature_map in maps:
                feature_map.resample(seeded(100 + i))
            features = kernel.features(x)
            errors[i] = (features @ features.mH - exact).square().sum()
        size = exact.square().sum()
    values, square = errors / size, factor * prediction.relative_error**2
    own = 2.0 * prediction.relative_error * prediction.standard_error
    error = math.hypot(own, float(values.std()) / math.sqrt(DRAWS))
    in_units = prediction.mean_squared_error * len(x) ** 2 / float(size)
    assert in_units == pytest.approx(prediction.relative_error**2, rel=1e-9)
    return abs(float(values.mean()) - square) <= 3.0 * error


OUTPUTS = {
    "Laplacian": lambda: LinearlyObservedKernel(rbf(), [Laplacian()]),
    "curl-free": lambda: CurlFreeKernel(rbf()),
    "divergence-free": lambda: DivergenceFreeKernel(rbf(1.1)),
    "value and gradient": lambda: LinearlyObservedKernel(rbf(), [Value(), Gradient()]),
    "scaled value and gradient": lambda: LinearlyObservedKernel(scaled(rbf(), 3.0), [Value(), Gradient()]),
    "shared Helmholtz": shared_helmholtz,
    "observed shared Helmholtz": lambda: LinearlyObservedKernel(shared_helmholtz(), [Value()]),
    "tasks": lambda: randomised(MultitaskKernel(rbf(), num_tasks=3, rank=2)),
    "scaled tasks": lambda: randomised(ScaleKernel(MultitaskKernel(scaled(rbf()), num_tasks=3))),
}
MAPS = {
    "plain": lambda seed: RandomFourier(2, WIDTH, generator=seeded(seed)),
    "fourier": lambda seed: "fourier",
    "fourier_orthogonal": lambda seed: "fourier_orthogonal",
}
CLOSED = {(name, "plain") for name in OUTPUTS} | {(name, "fourier") for name in OUTPUTS if "value" not in name}
CASES = [(name, kind) for name in OUTPUTS for kind in MAPS if kind == "plain" or not name.startswith(("scaled", "obs"))]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_predicted_errors_of_many_outputs_are_those_that_are_simulated(name, kind):
    exact, x = OUTPUTS[name](), points(5)

    kernel = rfgp.approximate(exact, WIDTH, method=MAPS[kind](0), input_dim=2, seed=0)
    prediction = predicted_error(kernel, x)
    is_known = (name, kind) in CLOSED or (kind == "fourier_orthogonal" and "tasks" in name)
    assert prediction.is_closed_form == is_known
    assert agrees(prediction, kernel, x)
    assert not agrees(prediction, kernel, x, factor=2.0)


@pytest.mark.parametrize("width", [64, 1024])
def test_errors_of_a_laplacian_fall_with_the_number_of_features(width):
    exact, x = LinearlyObservedKernel(rbf(), [Laplacian()]), points(30)
    kernel = rfgp.approximate(exact, width, method=RandomFourier(2, width, generator=seeded()))
    single = rfgp.approximate(exact, 2, method=RandomFourier(2, 2, generator=seeded()))
    assert predicted_error(kernel, x).relative_error == pytest.approx(
        predicted_error(single, x).relative_error * math.sqrt(2.0 / width), rel=1e-9
    )


def test_plain_derivatives_of_a_rough_process_have_an_infinite_error():
    for structure in ("independent", "orthogonal"):
        plain = RandomFourier(2, WIDTH, Matern(1.5), structure, generator=seeded())
        kernel = rfgp.approximate(CurlFreeKernel(MaternKernel(nu=1.5)), WIDTH, method=plain)
        assert predicted_error(kernel, points(5)).relative_error == math.inf
        assert rfgp.approximation.hilbert_schmidt_variance(kernel, points(5), points(5)) is None


def test_samples_of_many_outputs_give_the_diagonal_its_share(monkeypatch):
    """The mean over samples is the error of all rows: pairs of a row with itself are one in N."""
    monkeypatch.setattr(rfgp.approximation.selection.errors, "_SAMPLE", 8)
    exact, x = OUTPUTS["tasks"](), points(16)
    kernel = rfgp.approximate(exact, WIDTH, method="fourier", input_dim=2, seed=0)
    found = torch.tensor([predicted_error(kernel, x, seed=seed).mean_squared_error for seed in range(100)])
    monkeypatch.setattr(rfgp.approximation.selection.errors, "_SAMPLE", 16)
    whole = predicted_error(kernel, x).mean_squared_error
    assert abs(float(found.mean()) - whole) <= 3.0 * float(found.std()) / math.sqrt(100)


# Sums whose parts share weights


def sketch(seed):
    return TensorSRHT(3, WIDTH, 2, generator=seeded(seed))


def fourier(seed):
    return RandomFourier(2, WIDTH, generator=seeded(seed))


def one_object(seed, create, parts):
    shared = create(seed)
    return with_features(AdditiveKernel(*[rfgp.approximate(part, WIDTH, method=shared) for part in parts]))


def equal_weights(seed, create, parts):
    return with_features(AdditiveKernel(*[rfgp.approximate(part, WIDTH, method=create(seed)) for part in parts]))


def same_seed(seed, create, parts):
    made = [rfgp.approximate(part, WIDTH, method="fourier", input_dim=2, seed=seed) for part in parts]
    return with_features(AdditiveKernel(*made))


SHARED = {
    "one map": (one_object, fourier, lambda: [rbf(), rbf()]),
    "one map, two lengthscales": (one_object, fourier, lambda: [scaled(rbf()), rbf(1.2)]),
    "equal weights": (equal_weights, fourier, lambda: [rbf(), scaled(rbf(1.2))]),
    "one seed": (same_seed, None, lambda: [rbf(), rbf(1.2)]),
    "one sketch": (one_object, sketch, lambda: [PolynomialKernel(power=2), scaled(PolynomialKernel(power=2))]),
    "tasks of one map": (one_object, fourier, lambda: [MultitaskKernel(rbf(), 2), MultitaskKernel(rbf(1.2), 2)]),
    "fields of one map": (one_object, fourier, lambda: [CurlFreeKernel(rbf()), CurlFreeKernel(rbf(1.2))]),
    "equal fields": (equal_weights, fourier, lambda: [CurlFreeKernel(rbf()), CurlFreeKernel(rbf(1.2))]),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.long("thousands of draws")
def test_parts_that_share_weights_are_predicted_with_their_covariance(name):
    compose, create, parts = SHARED[name]
    kernels, x = [randomised(part) if "tasks" in name else part for part in parts()], points(5)

    made = compose(0, create, kernels)
    before = [buffer.clone() for buffer in made.buffers()]
    prediction = predicted_error(made, x)
    assert all(torch.equal(a, b) for a, b in zip(before, made.buffers(), strict=True))
    assert not prediction.is_closed_form
    assert agrees(prediction, made, x)
    apart = with_features(AdditiveKernel(*[compose(i, create, [kernel]) for i, kernel in enumerate(kernels)]))
    assert not agrees(predicted_error(apart, x), made, x)


def test_the_variance_of_a_sum_on_one_measure_has_the_covariance_of_its_parts():
    exact, x, y = shared_helmholtz(), points(2), points(3)
    kernel = rfgp.approximate(exact, WIDTH, method="fourier", input_dim=2, seed=0)
    predicted = rfgp.approximation.hilbert_schmidt_variance(kernel, x, y)
    apart = [rfgp.approximation.hilbert_schmidt_variance(part, x, y) for part in parts(kernel)]
    target, samples = exact(x, y).to_dense(), []
    with torch.no_grad():
        for seed in range(200):
            error = kernel.resample(seeded(seed))(x, y).to_dense() - target
            samples.append(error.reshape(2, 2, 3, 2).square().sum((1, 3)))
    samples = torch.stack(samples)
    error = samples.std(0) / math.sqrt(len(samples))
    assert ((samples.mean(0) - predicted).abs() <= 4.0 * error + 1e-12).all()
    assert ((samples.mean(0) - apart[0] - apart[1]).abs() > 4.0 * error + 1e-12).any()


# Products with the covariance of tasks, one per row


def task_rows(num_rows):
    x = points(num_rows)
    return torch.cat([x[:, :1], (x[:, 1:] > 0).to(x)], dim=-1)


def one_task_per_row(data):
    return randomised(data * IndexKernel(num_tasks=2, active_dims=[1]))


@pytest.mark.long("whole rankings of many methods")
def test_products_with_tasks_are_ranked():
    exact, x = one_task_per_row(scaled(MaternKernel(active_dims=[0]))), task_rows(12)
    ranking = {candidate.method: candidate for candidate in rank_methods(exact, WIDTH, x)}
    assert {"auto", "fourier", "fourier_orthogonal", "fourier_hadamard"} <= set(ranking)
    assert best_method(exact, WIDTH, x) in ranking

    kernel = rfgp.approximate(exact, WIDTH, method="fourier", input_dim=2, seed=0)
    assert agrees(ranking["fourier"].error, kernel, x)
    assert suggest_num_features(exact, x, 0.9, method="fourier") >= 2


def test_tasks_alone_and_parts_with_features_leave_no_choice():
    x = task_rows(12)
    tasks = IndexKernel(num_tasks=2, active_dims=[1])
    made = rfgp.approximate(rbf(active_dims=[0]), WIDTH, method="fourier", input_dim=2, seed=0)
    rbf_names = {c.method for c in rank_methods(rbf(active_dims=[0]) * tasks, WIDTH, x, methods=["auto", "fourier"])}
    assert rbf_names == {"auto", "fourier"}
    ranking = {candidate.method: candidate for candidate in rank_methods(tasks + tasks, WIDTH, x)}
    assert set(ranking) == {"auto", "landmarks"} and ranking["auto"].error.relative_error <= 1e-7
    names = {candidate.method for candidate in rank_methods(made + MaternKernel(active_dims=[0]), WIDTH, x)}
    assert {"auto", "fourier"} <= names


def test_methods_of_tasks_are_those_of_the_selected_columns():
    periodic = MultitaskKernel(PeriodicKernel(), num_tasks=2, active_dims=[0])
    assert [candidate.method for candidate in rank_methods(periodic, WIDTH, points(5))] == ["series"]


# A ready map and its number of features


@pytest.mark.parametrize("exact", [rbf, lambda: scaled(rbf()), lambda: MultitaskKernel(rbf(), 2), shared_helmholtz])
def test_the_number_of_features_is_that_of_a_ready_map(exact):
    kernel, ready = exact(), fourier(0)
    assert rfgp.approximate(kernel, WIDTH, method=ready).num_scalar_features == WIDTH
    with pytest.raises(
        ValueError, match=rf"^expected num_features={WIDTH}, the columns of the RandomFourier .*, got 33; make the two"
    ):
        rfgp.approximate(kernel, 33, method=ready)

"""Predicted errors against measured ones, the ranking of methods, and the number of features."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from gpytorch.kernels import (
    ArcKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

import rfgp
from rfgp.kernels import ExponentialDotProductKernel, FeatureKernel, OpticalKernel, SkewedChiSquaredKernel
from rfgp.selection import best_method, predicted_error, rank_methods, suggest_num_features

pytestmark = pytest.mark.usefixtures("float64_default")

SEEDS = 80
KERNELS = {
    "RBF": (RBFKernel, ["fourier", "fourier_orthogonal", "fourier_hadamard", "optimized_maclaurin:ctr"]),
    "Matern": (MaternKernel, ["fourier", "fourier_orthogonal"]),
    "RQ": (RQKernel, ["fourier"]),
    "periodic": (PeriodicKernel, ["fourier"]),
    "polynomial": (lambda: PolynomialKernel(power=2), ["tensor_srht:ctr", "tensor_sketch", "optimized_maclaurin:real"]),
    "exponential": (ExponentialDotProductKernel, ["optimized_maclaurin:ctr"]),
    "skewed": (SkewedChiSquaredKernel, ["fourier"]),
    "scaled": (lambda: ScaleKernel(RBFKernel()), ["fourier"]),
    "sum": (lambda: ScaleKernel(RBFKernel(active_dims=[0])) + MaternKernel(active_dims=[1, 2]), ["fourier"]),
    "product": (lambda: RBFKernel(active_dims=[0]) * MaternKernel(active_dims=[1, 2]), ["fourier"]),
}
CASES = [(name, method) for name, (_, methods) in KERNELS.items() for method in methods]


def inputs(num_rows=60, seed=0):
    return torch.rand(num_rows, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "method"), CASES)
def test_predicted_error_is_the_measured_one(name, method):
    exact, x = KERNELS[name][0](), inputs()
    reference = exact(x).to_dense().detach()
    squares = []
    with torch.no_grad():
        for seed in range(SEEDS):
            kernel = rfgp.approximate(exact, 32, method=method, train_inputs=x, seed=seed)
            features = kernel.features(x)
            squares.append((features @ features.mT - reference).square().mean())
    predicted = predicted_error(rfgp.approximate(exact, 32, method=method, train_inputs=x, seed=0), x)
    measured = torch.stack(squares)
    size = float(reference.square().mean())
    own = 2.0 * predicted.relative_error * predicted.standard_error * size
    error = abs(float(measured.mean()) - predicted.mean_squared_error)
    assert error <= 3.5 * math.hypot(float(measured.std()) / math.sqrt(SEEDS), own)
    assert math.isclose(predicted.relative_error, math.sqrt(predicted.mean_squared_error / size), rel_tol=1e-9)
    simulated = method in ("tensor_sketch", "fourier_hadamard") or name == "product"
    assert predicted.is_closed_form == (not simulated and (name, method) != ("Matern", "fourier_orthogonal"))


def test_ranking_is_sorted_and_its_methods_can_be_made():
    x = inputs(120)
    for exact in (RBFKernel(), ScaleKernel(PolynomialKernel(power=3)), ExponentialDotProductKernel(), OpticalKernel()):
        ranking = rank_methods(exact, 32, x)
        errors = [candidate.error.mean_squared_error for candidate in ranking]
        assert errors == sorted(errors)
        for candidate in ranking:
            kernel = rfgp.approximate(exact, 32, method=candidate.method, train_inputs=x, seed=0)
            assert kernel.features(x).shape[-1] <= 32 and candidate.operations > 0
            assert not kernel.is_complex


def test_auto_takes_the_best_method():
    x = inputs(120)
    for exact in (RBFKernel(), MaternKernel(), PolynomialKernel(power=3)):
        chosen = best_method(exact, 32, x)
        ranking = rank_methods(exact, 32, x)
        error = next(c.error.relative_error for c in ranking if c.method == chosen)
        assert error <= 1.01 * ranking[0].error.relative_error
        auto = rfgp.approximate(exact, 32, train_inputs=x, seed=5)
        named = rfgp.approximate(exact, 32, method=chosen, train_inputs=x, seed=5)
        assert torch.equal(auto.features(x), named.features(x))


def test_of_equals_the_cheaper_one_is_taken():
    x = torch.nn.functional.normalize(torch.randn(100, 64), dim=-1)
    ranking = {c.method: c for c in rank_methods(MaternKernel(nu=1.5), 256, x, methods=["fourier", "fourier_hadamard"])}
    assert ranking["fourier_hadamard"].operations < ranking["fourier"].operations
    linear = LinearKernel()
    assert best_method(linear, 64, x) == "linear"


def test_predictions_are_reproducible():
    x = inputs()
    first, again = (rank_methods(MaternKernel(), 32, x, seed=3) for _ in range(2))
    assert first == again
    assert first != rank_methods(MaternKernel(), 32, x, seed=4)


@pytest.mark.parametrize("method", ["auto", "fourier"])
def test_suggested_number_meets_the_tolerance_and_half_of_it_does_not(method):
    x, tolerance = inputs(200), 0.05
    width = suggest_num_features(RBFKernel(), x, tolerance, method=method)
    assert width % 2 == 0

    def error(num_features):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel = rfgp.approximate(RBFKernel(), num_features, method=method, train_inputs=x, seed=0)
        return predicted_error(kernel, x).relative_error

    assert error(width) <= tolerance < error(2 * (width // 4))


def test_compositions_are_ranked_by_what_suits_all_parts():
    x = inputs(100)
    exact = ScaleKernel(RBFKernel(active_dims=[0])) + MaternKernel(active_dims=[1, 2]) + LinearKernel()
    methods = {candidate.method for candidate in rank_methods(exact, 67, x)}
    assert {"auto", "fourier", "fourier_orthogonal", "fourier_hadamard"} <= methods
    assert not any("maclaurin" in method for method in methods)


def test_auto_chooses_for_every_part_of_a_sum():
    x = inputs(200)
    smooth, rough = RBFKernel(active_dims=[0, 1]), MaternKernel(nu=1.5, active_dims=[2])
    smooth.lengthscale = 5.0
    kernel = rfgp.approximate(smooth + rough, 64, train_inputs=x, seed=0)
    kinds = [type(part.feature_map).__name__ for part in kernel.modules() if isinstance(part, FeatureKernel)]
    assert kinds == ["Maclaurin", "RandomFourier"]


def test_what_cannot_be_predicted_raises():
    x = inputs()
    with pytest.raises(ValueError, match="expected a positive tolerance"):
        suggest_num_features(RBFKernel(), x, 0.0)
    with pytest.raises(ValueError, match=r"expected a tolerance that .* features reach"):
        suggest_num_features(RBFKernel(), 1e3 * x, 1e-9, method="fourier")
    with pytest.raises(ValueError, match="expected a kernel with random features"):
        rank_methods(ArcKernel(RBFKernel()), 32, x)
    with pytest.raises(ValueError, match="expected a kernel made by"):
        predicted_error(RBFKernel(), x)
    with pytest.raises(ValueError, match="expected finite values in train_inputs"):
        rank_methods(RBFKernel(), 32, torch.full_like(x, torch.nan))
    with pytest.raises(ValueError, match="expected a method"):
        rank_methods(RBFKernel(), 32, x, methods=["tensor_srht"])

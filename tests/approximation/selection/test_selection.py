"""Predicted errors against measured ones, rankings of methods, and numbers of features."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import math

import gpytorch
import pytest
import torch
from feature_parts import map_inputs
from gpytorch.kernels import (
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from problems import COMPOSITIONS, FOURIER, ISOTROPIC, KERNELS, composition, methods_of, scaled

import rfgp
from rfgp.approximation import selection
from rfgp.approximation.families import FAMILIES, family
from rfgp.approximation.landmarks import Landmarks
from rfgp.approximation.selection import (
    Candidate,
    PredictedError,
    best_method,
    predicted_error,
    rank_methods,
    suggest_num_features,
)
from rfgp.approximation.selection.ranking import best_of_part
from rfgp.features import Maclaurin
from rfgp.kernels import ExponentialDotProductKernel

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, WIDTH, DRAWS = 30, 32, 60


def points(num_rows, columns=3, seed=0):
    return 0.7 * torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))


def approximated(exact, x, method, width=WIDTH, seed=0):
    return rfgp.approximate(exact, width, method=method, train_inputs=x, seed=seed).double()


def measured(kernel, exact, x, draws=DRAWS):
    """Mean squared errors of the kernel matrix over draws, relative to its size, and their standard error."""
    generator, values = torch.Generator().manual_seed(11), []
    with torch.no_grad():
        target = exact(x).to_dense()
        for _ in range(draws):
            features = kernel.resample(generator).features(x)
            values.append(((features @ features.mH).real - target).square().sum() / target.square().sum())
    values = torch.stack(values)
    return float(values.mean()), float(values.std()) / math.sqrt(draws)


def agree(prediction, mean, error, errors=3.0):
    """Whether squares of relative errors agree, the standard errors of both taken into account."""
    own = 2.0 * prediction.relative_error * prediction.standard_error
    rounding = 1e-12 * mean + 1e-16
    assert abs(prediction.relative_error**2 - mean) <= errors * math.hypot(own, error) + rounding


EVERY = [(name, method) for name, case in KERNELS.items() for method in methods_of(case)]
SIMULATED = ("fourier_hadamard", "fourier_qmc", "spherical_orthogonal", "spherical_hadamard", "tensor_sketch")


def has_closed_form(name, method):
    if method.startswith("fourier_orthogonal"):
        return name == "rbf"
    return not method.startswith(SIMULATED)


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize(("name", "method"), EVERY)
def test_predicted_errors_are_those_that_are_measured(monkeypatch, name, method):
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", WIDTH * DRAWS)
    case = KERNELS[name]
    near = 0.3 if method.startswith("random_maclaurin") else 0.7  # high degrees have heavy tails
    x = case.inputs(ROWS) if case.domain == "sphere" else near * case.inputs(ROWS)
    exact = scaled(case.make(), 3.0)
    kernel = approximated(exact, x, method)
    prediction = predicted_error(kernel, x)
    assert prediction.is_closed_form == has_closed_form(name, method)
    mean, error = measured(kernel, exact, x)
    agree(prediction, mean, error)
    size = float(exact(x).to_dense().detach().square().mean())
    assert prediction.mean_squared_error == pytest.approx(prediction.relative_error**2 * size, rel=1e-9, abs=1e-15)


WITHOUT_FEATURES = [("sum of many", "fourier:complex")]  # its polynomial has no Fourier features


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize(
    ("name", "method"),
    [pair for pair in itertools.product(COMPOSITIONS, ("auto", "fourier:complex")) if pair not in WITHOUT_FEATURES],
)
def test_predicted_errors_of_compositions(monkeypatch, name, method):
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 48 * 30)
    exact, x = composition(name), 0.5 * points(ROWS)
    kernel = rfgp.approximate(exact, 48, method=method, input_dim=3, seed=0)
    prediction = predicted_error(kernel, x)
    if name in ("sum with exact parts", "scaled sum") or (method != "auto" and name == "sum"):
        assert prediction.is_closed_form
    elif name != "product of exact parts":
        assert not prediction.is_closed_form
    agree(prediction, *measured(kernel, exact, x))


def test_a_large_data_set_is_sampled_without_bias():
    """The mean over samples of 512 rows is the error of all rows, the diagonal with its true share."""
    x = points(700)
    kernel = approximated(scaled(RBFKernel()), x, "fourier", 64)
    variance = kernel.feature_map.moments(*[map_inputs(kernel, x)] * 2).variance
    expected = float(kernel.outputscale.detach() ** 2 * variance.detach().mean())
    found = [predicted_error(kernel, x, seed=seed).mean_squared_error for seed in range(30)]
    values = torch.tensor(found)
    assert len(set(found)) == 30
    assert abs(float(values.mean()) - expected) <= 3.0 * float(values.std()) / math.sqrt(30)
    assert float(values.std()) < 0.05 * expected
    diagonal = float(variance.diagonal().detach().mean())
    assert diagonal < 1e-12 < expected  # that of cosines and sines; a sample has more of it


@pytest.mark.long("whole rankings of many methods")
def test_the_error_does_not_depend_on_scale_or_dtype():
    x = points(ROWS)
    for method in ("fourier", "fourier_hadamard"):
        single = [predicted_error(approximated(scaled(RBFKernel(), s), x, method), x) for s in (1.0, 5.0)]
        assert single[1].relative_error == pytest.approx(single[0].relative_error, rel=1e-10)
        assert single[1].mean_squared_error == pytest.approx(25.0 * single[0].mean_squared_error, rel=1e-10)
        narrow = rfgp.approximate(scaled(RBFKernel(), 1.0).float(), WIDTH, method=method, input_dim=3, seed=0)
        error = predicted_error(narrow, x.float())
        assert error.relative_error == pytest.approx(single[0].relative_error, rel=1e-4)
        assert narrow.dtype == torch.float32


def test_exact_kernels_have_no_error():
    x = points(ROWS)
    for exact in (LinearKernel(), LinearKernel() * LinearKernel(), CosineKernel(active_dims=[0]) + LinearKernel()):
        for rows in (x, torch.zeros(5, 3)):
            assert predicted_error(rfgp.approximate(exact, 16, input_dim=3), rows).relative_error <= 1e-7


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize("name", KERNELS)
def test_rankings_are_sorted_and_can_be_used(monkeypatch, name):
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)
    case = KERNELS[name]
    exact, x = case.make(), case.inputs(20)
    ranking = rank_methods(exact, 64, x)
    losses = [candidate.kl_per_point for candidate in ranking]
    assert losses == sorted(losses) and all(math.isfinite(loss) and loss >= 0.0 for loss in losses)
    assert all(math.isfinite(c.error.mean_squared_error) and 0.0 <= c.coverage <= 1.0 for c in ranking)
    names = [candidate.method for candidate in ranking]
    assert len(set(names)) == len(names)
    suits = {"landmarks", *map(str, family(exact).applicable(case.columns))}
    assert set(names) <= suits
    if name != "polynomial":  # whose spherical features are for the sphere, and an offset above 1
        assert set(names) == suits
    for candidate in ranking:
        kernel = approximated(exact, x, candidate.method, 64)
        assert kernel.features(x).shape[-1] <= candidate.num_features == 64 and not kernel.is_complex
        assert candidate.operations >= 0.0
        if not candidate.method.startswith(("random_maclaurin", "landmarks")):
            own = predicted_error(kernel, x).relative_error
            assert own == pytest.approx(candidate.error.relative_error, rel=1e-9, abs=1e-12)


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
def test_rankings_of_random_degrees_are_over_degrees():
    exact, x = PolynomialKernel(power=2), points(20)
    (candidate,) = rank_methods(exact, 64, x, methods=["random_maclaurin:real"])
    assert candidate.error.standard_error > 0.0
    with torch.no_grad():
        target = exact(x).to_dense()
        kernels = [approximated(exact, x, "random_maclaurin:real", 64, seed) for seed in range(100, 250)]
        values = torch.stack([(k(x).to_dense() - target).square().sum() / target.square().sum() for k in kernels])
    agree(candidate.error, float(values.mean()), float(values.std()) / math.sqrt(len(values)))


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", {"auto", *ISOTROPIC, "fourier_grid", "landmarks"}),
        ("sum of many", {"auto", "landmarks"}),
        ("product", {"auto", *FOURIER, "landmarks"}),
        ("scaled sum", {"auto", "landmarks", *map(str, family(RBFKernel()).applicable(3))}),
        ("scaled sum in a product", {"auto", *ISOTROPIC, "landmarks"}),
        ("product of exact parts", {"auto", "landmarks", *map(str, family(LinearKernel()).applicable(3))}),
    ],
)
@pytest.mark.long("whole rankings of many methods")
def test_rankings_of_compositions(monkeypatch, name, expected):
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)  # the fewest draws
    exact, x = composition(name), points(20)
    ranking = rank_methods(exact, 65, x)
    losses, names = [c.kl_per_point for c in ranking], [c.method for c in ranking]
    assert losses == sorted(losses) and len(names) == len(set(names)) and set(names) <= expected
    assert name == "product of exact parts" or set(names) == expected
    for candidate in ranking:
        assert rfgp.approximate(exact, 65, method=candidate.method, train_inputs=x).features(x).shape[-1] <= 65


def test_only_the_methods_asked_for_are_ranked():
    names = ["fourier", "fourier_hadamard"]
    assert sorted(c.method for c in rank_methods(RBFKernel(), 64, points(70), methods=names)) == sorted(names)


def test_predictions_are_repeatable_and_leave_everything_as_it_was(monkeypatch):
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)
    exact, x = scaled(MaternKernel(nu=1.5)), points(520)
    before = [parameter.clone() for parameter in exact.parameters()]
    state = torch.get_rng_state()
    names = ["fourier", "fourier_orthogonal", "landmarks"]
    first = rank_methods(exact, 64, x, methods=names)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before, exact.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in exact.parameters())
    torch.manual_seed(99)
    assert rank_methods(exact, 64, x, methods=names) == first
    assert rank_methods(exact, 64, x, seed=1, methods=names) != first
    kernel = approximated(exact, x, "fourier_orthogonal")
    weights = kernel.feature_map.get_buffer("weight").clone()
    assert (
        predicted_error(kernel, x, seed=3) == predicted_error(kernel, x, seed=3) != predicted_error(kernel, x, seed=4)
    )
    assert torch.equal(kernel.feature_map.get_buffer("weight"), weights) and kernel.version == 0
    sizes = {suggest_num_features(exact, x[:40], 0.4, method="fourier_hadamard") for _ in range(2)}
    assert len(sizes) == 1


@pytest.mark.parametrize(
    ("losses", "operations", "best"),
    [
        ((0.1, 0.105, 0.2), (10.0, 5.0, 1.0), 1),
        ((0.1, 0.111, 0.2), (10.0, 5.0, 1.0), 0),
        ((0.1, 0.105, 0.109), (10.0, 5.0, 1.0), 2),
        ((0.1, 0.105, 0.2), (5.0, 10.0, 1.0), 0),
        ((0.0, 9e-4, 0.2), (10.0, 5.0, 1.0), 1),  # which no interval shows
        ((0.0, 2e-3, 0.2), (10.0, 5.0, 1.0), 0),
    ],
)
def test_the_best_method_is_the_cheapest_of_those_that_lose_as_little(monkeypatch, losses, operations, best):
    names = ["fourier", "fourier_orthogonal", "fourier_hadamard"]

    def candidate(kernel, num_features, method, *_):
        if method not in names:
            raise ValueError("left out")
        i = names.index(method)
        return Candidate(method, num_features, PredictedError(0.0, 0.0, 0.0), operations[i], kl_per_point=losses[i])

    monkeypatch.setattr(selection.ranking, "candidate_of", candidate)
    assert best_method(MaternKernel(), 64, points(70)) == names[best]


@pytest.mark.parametrize("name", ["linear", "periodic", "cosine", "constant"])
def test_exact_features_are_best_where_there_are_some(name):
    case = KERNELS[name]
    assert best_method(case.make(), 64, case.inputs(70)) == case.methods[0]
    assert best_method(scaled(case.make()), 64, case.inputs(70)) == case.methods[0]


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize("tolerance", [0.5, 0.1])
@pytest.mark.parametrize(
    ("exact", "method"),
    [
        (RBFKernel, "fourier"),
        (RBFKernel, "fourier_orthogonal"),
        (lambda: MaternKernel(nu=2.5), "auto"),
        (lambda: scaled(RQKernel()), "fourier"),
        (lambda: PolynomialKernel(power=2), "tensor_srht"),
        (lambda: RBFKernel() + LinearKernel(), "fourier"),
    ],
)
def test_suggested_numbers_meet_the_tolerance_and_their_halves_do_not(monkeypatch, exact, method, tolerance):
    if method == "auto":
        monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)
    x, kernel = points(20), exact()
    width = suggest_num_features(kernel, x, tolerance, method=method)
    assert width % 2 == 0 and isinstance(width, int)

    def error(width):
        name = best_method(kernel, width, x) if method == "auto" else method
        (candidate,) = rank_methods(kernel, width, x, methods=[name])
        return candidate.error.relative_error

    assert error(width) <= tolerance
    half = 2 * (width // 4)
    with_less = [half, 2 * int(0.97 * width / 2) - 2] if method == "fourier" else [half]
    for fewer in with_less:
        if fewer >= 8:
            assert error(fewer) > tolerance


def test_suggested_numbers_of_exact_kernels_are_the_smallest():
    assert suggest_num_features(LinearKernel(), points(20), 1e-6) == 2
    columns = suggest_num_features(KERNELS["periodic"].make(), points(20, 1), 1e-6)
    assert 4 <= columns <= 40 and columns % 2 == 0


@pytest.mark.parametrize("tolerance", [0.0, -0.1, float("nan")])
def test_bad_tolerances_raise(tolerance):
    with pytest.raises(ValueError, match=f"^expected a positive tolerance, got {tolerance}; 0.1 is ten percent$"):
        suggest_num_features(RBFKernel(), points(20), tolerance)


def test_tolerances_that_cannot_be_met_raise():
    with pytest.raises(
        ValueError, match=r"^expected a tolerance that 131072 features reach, got 1e-06; use a larger one"
    ):
        suggest_num_features(RBFKernel(), points(5), 1e-6, method="fourier")


WITHOUT_FAMILY = [
    gpytorch.kernels.PiecewisePolynomialKernel(),
    RBFKernel() + gpytorch.kernels.PiecewisePolynomialKernel(),
    ScaleKernel(RBFKernel() * gpytorch.kernels.PiecewisePolynomialKernel()),
]


@pytest.mark.parametrize("exact", WITHOUT_FAMILY)
def test_kernels_without_random_features_have_landmarks(exact):
    exact, x = copy.deepcopy(exact).double(), points(40)
    (only,) = rank_methods(exact, 16, x)
    assert only.method == best_method(exact, 16, x) == "landmarks" and only.operations == 16 * (3 + 16)
    kernel = rfgp.approximate(exact, 16, train_inputs=x, seed=0)
    assert any(isinstance(part, Landmarks) for part in kernel.modules())
    assert kernel.features(x).shape == (40, 16)
    assert 2 <= suggest_num_features(exact, x) <= 40


def test_landmarks_suit_kernels_that_are_not_defined_beyond_the_data():
    x = torch.nn.functional.normalize(points(40), dim=-1) * torch.linspace(0.1, 0.9, 40, dtype=torch.float64)[:, None]
    exact = gpytorch.kernels.CylindricalKernel(3, RBFKernel()).double()
    with pytest.raises(RuntimeError, match="radius > 1"):
        exact(2.0 * x).to_dense()
    kernel = rfgp.approximate(exact, 40, train_inputs=x, seed=0)
    torch.testing.assert_close(kernel(x).to_dense(), exact(x).to_dense(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "exact", [gpytorch.kernels.RBFKernelGrad(), gpytorch.kernels.MultitaskKernel(WITHOUT_FAMILY[0], num_tasks=2)]
)
def test_kernels_without_any_features_raise_and_list_those_with_some(exact):
    x = points(20)
    uses = [
        lambda: rank_methods(exact, 16, x),
        lambda: best_method(exact, 16, x),
        lambda: suggest_num_features(exact, x, 0.1),
        lambda: rfgp.approximate(exact, 16, train_inputs=x),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="expected a kernel with random features") as caught:
            use()
        names = [kernel.__name__ for kernel in FAMILIES if not inspect.isabstract(kernel)]
        assert all(name in str(caught.value) for name in names)


BAD = [
    ({"train_inputs": [1.0, 2.0]}, "^expected a torch.Tensor for train_inputs, got list; use torch.as_tensor$"),
    ({"train_inputs": torch.ones(())}, "^expected train_inputs of shape"),
    ({"train_inputs": torch.ones(5, 3).long()}, "^expected floating-point train_inputs"),
    ({"train_inputs": torch.ones(0, 3)}, "^expected at least one row in train_inputs"),
    ({"train_inputs": torch.full((5, 3), float("nan"))}, "^expected finite values in train_inputs, got 15"),
    ({"num_features": 0}, "^expected a positive integer for num_features, got 0"),
    ({"num_features": 2.5}, "^expected a positive integer for num_features, got 2.5"),
    ({"methods": ["fourier", "magic"]}, "^expected a method among .* got 'magic'; choose one of these"),
    ({"methods": ["tensor_srht"]}, "^expected a method that suits the kernel, got none; tensor_srht: expected one of"),
    (
        {"kernel": CosineKernel()},
        "^expected a method that suits the kernel, got none; series: expected one input column",
    ),
    (
        {"kernel": MaternKernel(), "num_features": 3, "methods": ["fourier"]},
        "^expected a method that suits the kernel, got none; fourier: expected",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments_of_a_ranking_raise(change, message):
    arguments = {"kernel": RBFKernel(), "num_features": 4, "train_inputs": points(9)} | change
    with pytest.raises(ValueError, match=message):
        rank_methods(**arguments)


def test_kernels_without_features_have_no_predicted_error():
    with pytest.raises(
        ValueError, match=r"^expected a kernel made by rfgp.approximate, got RBFKernel; wrap it with rfgp"
    ):
        predicted_error(RBFKernel(), points(9))


@pytest.mark.filterwarnings("ignore:.*exceeds the .* training rows")
@pytest.mark.parametrize("width", [12, 128])
@pytest.mark.parametrize("name", ["rbf", "matern 3/2", "exponential", "polynomial"])
def test_auto_is_the_first_of_the_ranking_or_as_good(monkeypatch, name, width):
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)
    case = KERNELS[name]
    exact, x = case.make(), 0.5 * case.inputs(70)
    ranking = {candidate.method: candidate for candidate in rank_methods(exact, width, x)}
    lasting = [candidate for candidate in ranking.values() if not candidate.is_truncated] or list(ranking.values())
    first, best = lasting[0], ranking[best_method(exact, width, x)]
    assert best.kl_per_point <= max(1.1 * first.kl_per_point, 1e-3)
    assert best.operations <= first.operations or best.method == first.method
    kernels = [approximated(exact, x, method, width, 5) for method in ("auto", best.method)]
    assert torch.equal(*[kernel(x[:6]).to_dense() for kernel in kernels])


@pytest.mark.long("whole rankings of many methods")
def test_the_smallest_error_depends_on_the_data(monkeypatch):
    """Maclaurin features have the smallest error near the origin, Fourier features far from it."""
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)
    rankings = [rank_methods(RBFKernel(), 128, factor * points(130)) for factor in (0.2, 2.0)]
    near, far = (sorted(r, key=lambda c: c.error.relative_error) for r in rankings)
    near, far = ([c for c in ranking if c.method != "landmarks"] for ranking in (near, far))
    assert near[0].method.startswith("optimized_maclaurin") and near[0].is_truncated
    assert far[0].method.startswith("fourier") and not far[0].is_truncated
    sphere = torch.nn.functional.normalize(points(70), dim=-1)
    methods = {candidate.method for candidate in rank_methods(PolynomialKernel(power=2), 64, points(70))}
    assert not any(method.startswith("spherical") for method in methods)
    exact = PolynomialKernel(power=2)
    exact.offset = 1.5
    methods = {candidate.method for candidate in rank_methods(exact, 64, sphere)}
    assert {"spherical", "spherical_orthogonal", "spherical_hadamard"} <= methods


def test_results_are_plain_records():
    error = PredictedError(0.25, 0.5, 0.0)
    assert error.is_closed_form and not dataclasses.replace(error, standard_error=0.1).is_closed_form
    with pytest.raises(dataclasses.FrozenInstanceError):
        error.relative_error = 1.0


def test_batches_of_inputs_are_one_set_of_rows():
    x = points(200)
    kernel = rfgp.approximate(RBFKernel(), 32, method="fourier", input_dim=3, seed=0)
    assert predicted_error(kernel, x.reshape(2, 100, 3)) == predicted_error(kernel, x)


@pytest.mark.parametrize(
    "exact", [RBFKernel, lambda: scaled(RBFKernel()), lambda: scaled(RBFKernel()) + LinearKernel()]
)
def test_auto_leaves_out_series_that_do_not_end(monkeypatch, exact):
    """Near the origin truncated series have the smallest error on the data, and fail off them."""
    monkeypatch.setattr(selection.errors, "_COLUMNS_DRAWN", 1)
    kernel, x = exact(), 0.2 * points(130)
    names = ["fourier", "fourier_orthogonal", "optimized_maclaurin:real", "optimized_maclaurin"]
    marks = {c.method: c.is_truncated for c in rank_methods(kernel, 66, x, methods=names)}
    assert all(marks[name] == name.startswith("optimized") for name in marks) and len(marks) >= 3
    assert not best_method(kernel, 66, x).startswith("optimized")
    maps = rfgp.approximate(kernel, 66, train_inputs=x).modules()
    assert not any(isinstance(part, Maclaurin) for part in maps)
    asked = rfgp.approximate(kernel, 66, method="optimized_maclaurin:real", train_inputs=x).modules()
    assert any(isinstance(part, Maclaurin) for part in asked)


def test_truncated_series_collapse_off_the_data_and_auto_does_not():
    x, far = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0, torch.full((1, 2), 3.0)
    exact = scaled(RBFKernel(), 4.0)
    exact.base_kernel.lengthscale = 1.0
    variances = [
        float(rfgp.approximate(exact, 64, method=method, train_inputs=x, seed=0)(far).to_dense().detach())
        for method in (best_of_part(exact, 64, x), "optimized_maclaurin:real")
    ]
    assert variances[0] == pytest.approx(4.0, rel=1e-6) and variances[1] < 1.0


@pytest.mark.parametrize(
    ("exact", "first"), [(ExponentialDotProductKernel, True), (lambda: PolynomialKernel(2), False)]
)
def test_series_that_end_and_kernels_without_other_methods_keep_maclaurin_features(exact, first):
    ranking = rank_methods(exact(), 64, points(70), methods=["optimized_maclaurin:real", "random_maclaurin:real"])
    assert {candidate.is_truncated for candidate in ranking} == {first}
    assert any("maclaurin" in name for name in selection.ranking.methods_for_auto(exact(), points(9)))


# How many features


def uniform(num_rows, columns=8):
    return 2.0 * torch.rand(num_rows, columns, generator=torch.Generator().manual_seed(0)) - 1.0


def counted(monkeypatch, law=None):
    """The widths that predictions are made for, by the library's predictions or by a law of the error."""
    widths, original = [], selection.ranking.candidate_of

    def candidate(kernel, width, method, *arguments):
        widths.append(width)
        if law is None:
            return original(kernel, width, method, *arguments)
        return Candidate(method, width, PredictedError(law(width) ** 2, law(width), 0.0), 1.0)

    monkeypatch.setattr(selection.ranking, "candidate_of", candidate)
    return widths


def test_kernels_that_are_nearly_diagonal_are_found_early(monkeypatch):
    widths = counted(monkeypatch)
    x = uniform(2000)
    with pytest.raises(
        ValueError, match=r"nearly diagonal on these inputs .* use the exact one, or a larger tolerance$"
    ):
        suggest_num_features(ScaleKernel(RBFKernel()), x, 0.05, method="fourier")
    assert len(widths) <= 3 and max(widths) <= 2000
    wide = RBFKernel()
    wide.lengthscale = 4.0
    assert suggest_num_features(wide, x, 0.05, method="fourier") < 2000


@pytest.mark.parametrize(
    ("law", "steps"), [(lambda d: 3.0 / math.sqrt(d), 4), (lambda d: 40.0 / d, 14), (lambda d: 2.0 * d**-0.3, 14)]
)
@pytest.mark.parametrize("tolerance", [0.4, 0.1])
def test_numbers_are_solved_for(monkeypatch, law, steps, tolerance):
    widths = counted(monkeypatch, law)
    found = suggest_num_features(RBFKernel(), points(20), tolerance, method="fourier")
    assert found % 2 == 0 and law(found) <= tolerance < law(0.97 * found - 2)
    assert len(widths) == len(set(widths)) <= steps


def test_time_is_bounded(monkeypatch):
    """A clock that moves on by a second whenever it is looked at."""
    clock = iter(range(10**6))
    monkeypatch.setattr(selection.width, "perf_counter", lambda: float(next(clock)))
    widths = counted(monkeypatch, lambda d: 30.0 / math.sqrt(d))
    with pytest.raises(
        ValueError, match=r"is found in 2 seconds, got none: with 64 features .* about 90,000 are needed"
    ):
        suggest_num_features(RBFKernel(), points(20), 0.1, method="fourier", time_limit=2)
    assert widths == [64]
    assert 89000 < suggest_num_features(RBFKernel(), points(20), 0.1, method="fourier", time_limit=math.inf) < 92000
    counted(monkeypatch, lambda d: 3.0 / math.sqrt(d))
    with pytest.warns(UserWarning, match="^64 features meet the tolerance, and 0 do not: time_limit=2 seconds ended"):
        assert suggest_num_features(RBFKernel(), points(20), 0.9, method="fourier", time_limit=2) == 64


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_bad_time_limits_raise(limit):
    with pytest.raises(ValueError, match=f"^expected a positive time_limit, got {limit}; 60 is usual$"):
        suggest_num_features(RBFKernel(), points(20), 0.1, time_limit=limit)


def test_searches_show_their_progress(capsys):
    suggest_num_features(RBFKernel(), points(20), 0.5, method="fourier", progress=True)
    assert "suggest" in capsys.readouterr().err
    suggest_num_features(RBFKernel(), points(20), 0.5, method="fourier", progress=False)
    assert not capsys.readouterr().err

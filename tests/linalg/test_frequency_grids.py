"""Grids of frequencies, their sums, transforms and iterations, against dense algebra."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from rfgp.linalg import exponential_sums, trigonometric_series
from rfgp.linalg.conjugate_gradients import ConjugateGradients
from rfgp.linalg.frequency_grid import (
    FrequencyGrid,
    cross_of_lags,
    gram_of_lags,
    head_of_gram,
    lag_half,
    series_of_weights,
)
from rfgp.linalg.lanczos import lanczos
from rfgp.linalg.toeplitz_gram import ToeplitzGram, _fast_size
from rfgp.linalg.toeplitz_precision import ToeplitzPrecision
from rfgp.linalg.trigonometric_series import PointTable, TrigonometricSeries

pytestmark = pytest.mark.usefixtures("float64_default")

HALVES = [(4,), (2, 3), (3, 1, 2)]


def grid(half, columns=None):
    """All orders of one half space, in an order of their own, for rows between -1 and 3."""
    orders = [j for j in itertools.product(*(range(-h, h + 1) for h in half)) if j > (0,) * len(half)]
    orders = torch.tensor(orders)[torch.randperm(len(orders), generator=torch.Generator().manual_seed(1))]
    signs = torch.where(torch.arange(len(orders)) % 3 == 0, -1, 1).unsqueeze(-1)  # of j and -j either one
    bounds = torch.tensor([[-1.0], [3.0]]).expand(2, len(half)).contiguous()
    return FrequencyGrid(orders * signs, torch.linspace(0.3, 0.5, len(half)), bounds, columns)


def rows(count, width):
    return 4.0 * torch.rand(count, width, generator=torch.Generator().manual_seed(2)) - 1.0


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def dense_features(made, x):
    angles = ((x - 1.0) * made.spacing) @ made.orders.double().mT
    return torch.cat([torch.ones(len(x), 1), math.sqrt(2.0) * angles.cos(), math.sqrt(2.0) * angles.sin()], dim=-1)


def lags_of(made, x, weights):
    """The sums of cosines and sines of all differences, (2, L)."""
    sums = exponential_sums.exponential_sums(made.phases(x), weights, lag_half(made.orders))
    return torch.stack([sums.real.flatten(1), -sums.imag.flatten(1)], dim=-2)[0]


@pytest.mark.parametrize("half", HALVES)
def test_gram_matrices_are_those_of_the_features(half):
    made, x = grid(half), rows(20, len(half))
    weights = normal(20, 1).square()
    features = dense_features(made, x)
    wanted = features.mT @ (weights * features)
    lags = lags_of(made, x, weights)
    torch.testing.assert_close(made.features(made.phases(x)), features)
    torch.testing.assert_close(gram_of_lags(lags, made.orders), wanted)
    fast, columns = ToeplitzGram(lags, made.orders), normal(len(wanted), 3)
    assert fast.num_features == made.num_features == len(wanted)
    torch.testing.assert_close(fast.diagonal, wanted.diagonal())
    torch.testing.assert_close(fast.product(columns), wanted @ columns, rtol=1e-10, atol=1e-10)
    numbers, head = head_of_gram(lags, made.orders, 4)
    torch.testing.assert_close(head, wanted[numbers][:, numbers])
    torch.testing.assert_close(cross_of_lags(lags, made.orders), features.mT @ weights[:, 0])


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("count", [1, 4])
def test_sums_of_exponentials_are_those_of_all_pairs(half, is_there, count, monkeypatch):
    """With and without finufft, of an odd and an even number of columns, one of which is zero."""
    if is_there and not exponential_sums.has_fft():
        pytest.skip("finufft is not installed")
    monkeypatch.setattr(exponential_sums, "has_fft", lambda: is_there)
    monkeypatch.setattr(exponential_sums, "_CHUNK_NUMBERS", 40)
    phases, columns = rows(13, len(half)), normal(13, count)
    columns[:, count // 2 + 1 :] = 0.0
    orders = torch.cartesian_prod(*(torch.arange(-h, h + 1.0) for h in half)).reshape(-1, len(half))
    wanted = (columns.mT + 0j) @ torch.exp(-1j * (phases @ orders.mT))
    found = exponential_sums.exponential_sums(phases, columns, half)
    assert found.shape == (count, *(2 * h + 1 for h in half))
    torch.testing.assert_close(found.flatten(1), wanted, rtol=1e-10, atol=1e-10)
    assert not bool(found[count // 2 + 1 :].any())


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("count", [1, 3])
def test_series_of_weights_are_the_functions_at_tables_and_scattered_points(half, count):
    made = grid(half)
    weights = normal(made.num_features, count)
    series = TrigonometricSeries(series_of_weights(weights, made.orders).flatten(2), made.half)
    axes = [torch.linspace(-1.0, 2.0, 3 + axis) for axis in range(len(half))]
    table = torch.cartesian_prod(*axes).reshape(-1, len(half))
    assert PointTable.of(made.phases(table)) is not None
    for x in (table, table[:-1].flip(0), rows(9, len(half))):
        wanted = (dense_features(made, x) @ weights).mT
        found = series.values(made.phases(x))
        if found is not None:
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        if trigonometric_series.has_fft():
            torch.testing.assert_close(series.at_points(made.phases(x)), wanted, rtol=1e-10, atol=1e-10)


def test_scattered_points_are_no_table_and_ask_for_no_large_one():
    scattered = rows(1000, 2)
    assert PointTable.of(scattered) is None
    lines = torch.stack([torch.arange(600) // 20 + 0.0, scattered[:600, 1]], dim=-1)
    assert PointTable.of(lines) is None  # 30 leading coordinates and 600 last ones for 600 points


def test_the_box_of_a_grid():
    made = grid((2, 2), torch.tensor([2, 0]))
    assert made.half == (2, 2) and lag_half(made.orders) == (4, 4)
    assert made.middle.tolist() == [[1.0, 0.0, 1.0]] and made.far.tolist() == [[7.0, 0.0, 7.0]]
    x = rows(5, 3)
    torch.testing.assert_close(made.phases(x), (x[:, [2, 0]] - 1.0) * made.spacing)
    picked = made.selecting(torch.tensor([5, 4, 3]))
    assert picked.columns.tolist() == [3, 5]
    corners = torch.tensor([[-1.0, 0.0, 3.0], [3.0, 0.0, -1.0]])
    assert torch.equal(made.phases_of_rows(corners), made.phases(corners))
    with pytest.raises(ValueError, match=r"between -1 and 3 in column 1, .* got -1\.1 to 2;"):
        made.phases_of_rows(torch.tensor([[2.0, 0.0, 0.0], [-1.1, 9.0, 0.0]]))


def spread_matrix(size=40, largest=1e3):
    """A symmetric matrix with eigenvalues from one to the largest."""
    basis = torch.linalg.qr(normal(size, size))[0]
    return (basis * torch.logspace(0, math.log10(largest), size)) @ basis.mT


def of_matrix(function, matrix):
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * function(values)) @ vectors.mT


@pytest.mark.parametrize("function", [torch.log, torch.rsqrt, torch.reciprocal])
def test_lanczos_of_as_many_iterations_as_rows_is_exact(function):
    matrix, columns = spread_matrix(12, 10.0), normal(12, 3)
    krylov = lanczos(lambda z: matrix @ z, columns, 0.0, 100)
    wanted = of_matrix(function, matrix) @ columns
    torch.testing.assert_close(krylov.products(function), wanted, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(krylov.quadratic_forms(function), (columns * wanted).sum(0), rtol=1e-7, atol=1e-7)
    assert krylov.nodes.shape == (3, 12)


def test_lanczos_ends_after_the_tens_of_iterations_that_change_little():
    matrix, columns = spread_matrix(200, 200.0), normal(200, 2)
    wanted = (columns * torch.linalg.solve(matrix, columns)).sum(0)
    sizes = []
    for tolerance in (1e-1, 1e-3, 1e-7):
        krylov = lanczos(lambda z: matrix @ z, columns, tolerance, 200)
        sizes.append(krylov.nodes.shape[-1])
        assert float((krylov.quadratic_forms(torch.reciprocal) / wanted - 1.0).abs().max()) < tolerance
    assert all(size % 10 == 0 for size in sizes) and 20 <= sizes[0] < sizes[1] < sizes[2] < 200
    assert lanczos(lambda z: matrix @ z, columns, 1e-6, 13).nodes.shape[-1] == 13


def test_slopes_of_logarithms_are_those_of_automatic_differentiation():
    matrix, columns = spread_matrix(12, 30.0).requires_grad_(), normal(12, 2)
    krylov = lanczos(lambda z: matrix.detach() @ z, columns, 0.0, 12)
    form = columns[:, 1] @ of_matrix(torch.log, matrix) @ columns[:, 1]
    (wanted,) = torch.autograd.grad(form, matrix)
    vectors, nodes, inner = krylov.log_slope(1)
    torch.testing.assert_close(vectors @ inner @ vectors.mT, 0.5 * (wanted + wanted.mT), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(nodes, torch.linalg.eigvalsh(matrix.detach()), rtol=1e-8, atol=1e-8)


def test_conjugate_gradients_solve_and_stop_where_nothing_is_left():
    matrix = spread_matrix(30, 100.0)
    right = normal(30, 3)
    right[:, 1] = 0.0
    solver = ConjugateGradients(lambda z: matrix @ z, lambda z: z / matrix.diagonal().unsqueeze(-1), right)
    start = (right.square() / matrix.diagonal().unsqueeze(-1)).sum(0)
    torch.testing.assert_close(solver.energy, start)
    for _ in range(60):
        solver.step()
    torch.testing.assert_close(solver.solution, torch.linalg.solve(matrix, right), rtol=1e-9, atol=1e-9)
    assert len(solver.steps) == 60 and bool(torch.isfinite(solver.solution).all())
    solver.solution[0, 0] += 1.0
    solver.replace_residual()
    torch.testing.assert_close(solver.residual, right - matrix @ solver.solution)


def test_precisions_of_grids_are_those_of_dense_matrices(monkeypatch):
    made, x = grid((3, 2)), rows(25, 2)
    lags = lags_of(made, x, torch.ones(25, 1))
    amplitudes = torch.linspace(1.0, 0.1, made.num_features)
    monkeypatch.setattr("rfgp.linalg.toeplitz_precision._HEAD", 3)
    monkeypatch.setattr("rfgp.linalg.toeplitz_precision._CHANGE", 0.0)
    precision = ToeplitzPrecision(ToeplitzGram(lags, made.orders), amplitudes)
    scaled = dense_features(made, x) * amplitudes
    dense = torch.eye(made.num_features) + scaled.mT @ scaled
    columns = normal(made.num_features, 6)
    torch.testing.assert_close(precision.product(columns), dense @ columns)
    solution, residual = precision.solve(columns)
    torch.testing.assert_close(dense @ solution + residual, columns)
    assert float(torch.linalg.vector_norm(residual, dim=0).max()) < 1e-4
    basis = math.sqrt(made.num_features) * torch.eye(made.num_features)
    probes = precision.probes(basis)
    torch.testing.assert_close(probes.log_determinants.mean(), dense.logdet(), rtol=1e-6, atol=1e-6)
    covariance = probes.draws @ probes.draws.mT / made.num_features
    torch.testing.assert_close(covariance, torch.linalg.inv(dense), rtol=1e-6, atol=1e-6)
    leaf = amplitudes.clone().requires_grad_()
    of_leaf = dense_features(made, x) * leaf
    (wanted,) = torch.autograd.grad((torch.eye(made.num_features) + of_leaf.mT @ of_leaf).logdet(), leaf)
    value, slope = precision.log_determinant(basis, True)
    torch.testing.assert_close(value, dense.logdet(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slope, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 11, 13, 97, 121])
def test_fast_sizes_are_the_next_products_of_two_three_and_five(size):
    products = {2**a * 3**b * 5**c for a in range(8) for b in range(5) for c in range(4)}
    assert _fast_size(size) == min(number for number in products if number >= size)

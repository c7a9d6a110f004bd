"""Rows of tall matrices: chunks of them, those near others, those that are equal, and scales of columns."""

from __future__ import annotations

import math

import pytest
import torch

from rfgp.linalg import is_ill_conditioned, joined, largest_square, nearest, product_dtype, row_chunks, spaced_rows
from rfgp.linalg.column_scales import in_units, standardized
from rfgp.linalg.nearest import NearestRows, scaled_points
from rfgp.linalg.row_search import row_numbers


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("num_rows", [0, 1, 511, 512, 513, 9000])
@pytest.mark.parametrize("num_columns", [1, 700, 10_000])
def test_chunks_are_all_rows_in_turn(num_rows, num_columns):
    chunks = row_chunks(num_rows, num_columns)
    assert [row for part in chunks for row in range(num_rows)[part]] == list(range(num_rows))
    sizes = [part.stop - part.start for part in chunks]
    assert len(set(sizes[:-1])) <= 1 and all(size <= 8192 for size in sizes)
    assert all(size == 512 or size * num_columns * 8 <= 24 * 2**20 for size in sizes[:-1])
    if num_columns == 700 and num_rows == 9000:
        assert sizes[0] == 24 * 2**20 // (700 * 8)


@pytest.mark.parametrize("dim", [-2, -1, 0])
@pytest.mark.parametrize("has_gradients", [False, True])
def test_parts_of_several_sizes_are_joined_as_they_were(dim, has_gradients):
    whole = normal(2, 9, 8).requires_grad_(has_gradients)
    sizes = {-2: [2, 4, 3], -1: [5, 1, 2], 0: [1, 1]}[dim]
    found = joined(iter(whole.split(sizes, dim=dim)), sum(sizes), dim=dim)
    assert torch.equal(found, whole) and found.requires_grad == has_gradients


@pytest.mark.parametrize("columns", [1, 3, 8, 9, 12])
def test_near_rows_are_those_of_the_smallest_distances(columns, monkeypatch):
    """By a tree and by all distances, in chunks, of points that are far from the origin."""
    monkeypatch.setattr(nearest, "_CACHED", 120)
    monkeypatch.setattr(nearest, "_ENOUGH", 1)
    points, asked = 30.0 + normal(150, columns), 30.0 + normal(7, columns) + 0.5
    wanted = torch.cdist(asked, points).topk(4, largest=False)[1]
    assert torch.equal(NearestRows(points).query(asked, 4), wanted)
    assert NearestRows(points).query(points[:3], 1).tolist() == [[0], [1], [2]]


def of_few_dimensions(columns):
    """Points on a plane of three dimensions, and one of twenty values of a text."""
    x = normal(2000, 3) @ normal(3, columns)
    return torch.cat([x, 3.0 * torch.eye(20, dtype=torch.float64)[torch.arange(2000) % 20]], dim=-1)


@pytest.mark.parametrize(
    ("points", "many", "has_tree"),
    [
        (normal(2000, 12), 100, True),
        (normal(2000, 24), 100, False),
        (of_few_dimensions(4), 100, True),
        (of_few_dimensions(4), 3000, False),
        (torch.zeros(2000, 13, dtype=torch.float64), 100, True),
    ],
)
def test_a_tree_finds_near_rows_where_they_have_few_dimensions(points, many, has_tree, monkeypatch):
    """Of few rows all distances are quick, and exact where a tree that is allowed some slack is not."""
    for name, value in {"_MANY_ROWS": many, "_SAMPLE": 200, "_AMONG": 1800}.items():
        monkeypatch.setattr(nearest, name, value)
    rows, asked = NearestRows(points), points[:7] + 0.01
    found, wanted = rows.query(asked, 4), torch.cdist(asked, points).topk(4, largest=False)[0]
    torch.testing.assert_close((points[found] - asked.unsqueeze(1)).norm(dim=-1), wanted)
    assert ("tree" in vars(rows)) is has_tree


def test_points_in_units_of_their_scales_lack_columns_that_do_not_count():
    x, scales = normal(6, 3).float(), torch.tensor([2.0, 0.0, 0.5], dtype=torch.float64)
    found = scaled_points(x, scales)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, x.double()[:, [0, 2]] * scales[[0, 2]])
    assert torch.equal(scaled_points(x, 0.0 * scales), torch.zeros(6, 1, dtype=torch.float64))
    matrix = normal(3, 2)
    torch.testing.assert_close(scaled_points(x, matrix), x.double() @ matrix)


@pytest.mark.parametrize("is_complex", [False, True])
def test_equal_rows_are_found_once_each_by_inputs_and_targets(is_complex):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 4.0], [0.0, 2.0]])
    y = torch.tensor([0.5, math.nan, 0.5, 0.7, 0.1])
    y = torch.complex(y, 2.0 * y) if is_complex else y
    wanted = torch.tensor([3, 0, 0, 0, 1, 4])
    asked = x[wanted].clone()
    asked[5, 0] = -0.0
    assert row_numbers((x, y, None), (asked, y[wanted], None)).tolist() == [3, 0, 2, -1, 1, 4]
    others = torch.tensor([[1.0, 4.0], [3.0, 2.0], [9.0, 2.0]])  # the last two are no rows, though their numbers occur
    assert row_numbers((x, y), (others, y[[3, 1, 0]])).tolist() == [3, -1, -1]
    assert row_numbers((x, y), (x[:1], y[3:4])).tolist() == [-1]
    assert row_numbers((x, y), (x[:2, :1], y[:2])).tolist() == [-1, -1]


def test_rows_whose_columns_differ_by_rounding_are_found():
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0], [5.0, 6.0]]).double()
    y = torch.tensor([[0.5, 1.0], [0.7, 1.0], [0.2, 1.0], [math.nan, 1.0], [0.1, 1.0]]).double()
    rounded = y + torch.tensor([1e-16, -1e-16, 1e-15, 1e-15, 1e-3]).unsqueeze(-1)
    assert row_numbers((x, y, None), (x, rounded, None)).tolist() == [0, 1, 2, 3, -1]
    order = torch.tensor([3, 1, 0, 0])
    assert row_numbers((x, y, None), (x[order], rounded[order], None)).tolist() == [3, 1, 0, -1]
    assert row_numbers((x, y, None), (x, rounded, y[:, 0])).tolist() == [-1] * 5
    assert row_numbers((x, y), (x + 1e-15, rounded)).tolist() == [-1] * 5


def test_tails_are_compressed_with_a_continuous_slope_and_expanded_again():
    scales = torch.tensor([[1.0, -2.0], [2.0, 0.5], [3.0, math.inf]], dtype=torch.float64)
    x = torch.tensor([[-1e6, 1e6], [-5.1, -4.0], [1.0, 0.0], [7.1, 3.0], [1e8, -1e3]], dtype=torch.float64)
    z = standardized(x, scales)
    torch.testing.assert_close(in_units(z, scales), x)
    torch.testing.assert_close(z[:, 1], (x[:, 1] + 2.0) / 0.5)
    raw = (x[:, 0] - 1.0) / 2.0
    tail = raw.sign() * 3.0 * (1.0 + (raw.abs() / 3.0).log())
    torch.testing.assert_close(z[:, 0], torch.where(raw.abs() > 3.0, tail, raw))
    torch.testing.assert_close(standardized(x, scales[:2])[:, 0], raw)
    torch.testing.assert_close(in_units(standardized(x, scales[:2]), scales[:2]), x)


def test_products_are_in_single_precision_where_noise_drowns_their_rounding():
    single, double = torch.float32, torch.float64
    found = [product_dtype(*case) for case in ((single, 0.011, lambda: 1.0), (single, 0.01, lambda: 1.0))]
    assert found == [single, double]
    assert product_dtype(double, 1.0, lambda: 1.0) == double
    assert product_dtype(torch.complex64, 1.0, lambda: 1.0) == single
    assert largest_square(torch.tensor([[0.0, 1.0], [3.0, 4.0]])) == pytest.approx(25.0)
    assert is_ill_conditioned(torch.tensor([1.0, 7e7])) and not is_ill_conditioned(torch.tensor([1.0, 6e7]))
    assert torch.equal(spaced_rows(normal(200, 2)), normal(200, 2)[::3]) and len(spaced_rows(normal(20, 2))) == 20

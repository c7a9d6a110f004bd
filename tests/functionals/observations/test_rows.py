"""Rows of observations: what they say, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch

from rfgp.functionals.observations import boxes, derivatives, num_columns, points, segments, split
from rfgp.functionals.observations.quadrature import nodes

LOW, HIGH = torch.tensor([[0.0, 1.0], [2.0, 2.0]]), torch.tensor([[1.0, 3.0], [2.5, 2.0]])
NORMAL = torch.tensor([0.0, -1.0])


def test_points_have_no_extent_and_the_weight_of_a_value():
    rows = split(points(LOW), 2)
    assert torch.equal(rows.center, LOW) and not rows.half_widths.any() and not rows.half_vector.any()
    assert torch.equal(rows.weights, torch.tensor([[1.0, 0.0, 0.0]]).expand(2, 3))


def test_derivatives_weigh_the_gradient():
    assert torch.equal(split(derivatives(LOW, NORMAL), 2).weights, torch.tensor([[0.0, 0.0, -1.0]]).expand(2, 3))


@pytest.mark.parametrize(("integral", "expected"), [(False, [1.0, 1.0]), (True, [2.0, 0.5])])
def test_boxes_without_extent_in_a_coordinate_have_the_volume_of_the_others(integral, expected):
    rows = split(boxes(LOW, HIGH, integral=integral), 2)
    assert rows.weights[:, 0].tolist() == expected
    assert torch.equal(rows.center - rows.half_widths, LOW) and torch.equal(rows.center + rows.half_widths, HIGH)


@pytest.mark.parametrize(("integral", "expected"), [(False, [1.0, 1.0]), (True, [math.sqrt(5.0), 0.5])])
def test_segments_run_from_start_to_end(integral, expected):
    rows = split(segments(LOW, HIGH, integral=integral), 2)
    torch.testing.assert_close(rows.weights[:, 0], torch.tensor(expected))
    assert torch.equal(rows.center - rows.half_vector, LOW) and torch.equal(rows.center + rows.half_vector, HIGH)


def test_weights_of_fields():
    rows = split(segments(LOW, HIGH, weights=HIGH - LOW), 2)
    assert torch.equal(rows.weights, HIGH - LOW) and num_columns(2, 2) == 8 and num_columns(2) == points(LOW).shape[1]


def test_nodes_integrate_polynomials():
    center, mass = nodes(split(boxes(LOW[:1], HIGH[:1]).double(), 2), 4)
    assert center.shape == (1, 16, 2) and mass.shape == (16,)
    expected = (1.0 / 4.0) * (3.0**6 - 1.0) / 6.0 / 2.0
    torch.testing.assert_close(float((mass * center[..., 0] ** 3 * center[..., 1] ** 5).sum()), expected)
    along, mass = nodes(split(segments(LOW[:1], HIGH[:1]).double(), 2), 4)
    torch.testing.assert_close(float((mass * along[..., 0] * along[..., 1]).sum()), 7.0 / 6.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: points(LOW[0]), "expected x of shape"),
        (lambda: points(LOW.long()), "expected floating-point x"),
        (lambda: points(LOW[None]), r"expected x of shape \(N, d\), got \(1, 2, 2\)"),
        (lambda: points(torch.full((2, 2), math.nan)), "expected finite values in x"),
        (lambda: points(LOW, weights=torch.ones(3, 2)), r"expected weights of shape \(2, T\), got \(3, 2\)"),
        (lambda: derivatives(LOW, torch.ones(2, 3)), r"expected direction of shape \(2, 2\), got \(2, 3\)"),
        (lambda: derivatives(LOW, NORMAL.double()), "expected direction of dtype"),
        (lambda: boxes(HIGH, LOW), "expected upper corners at or above the lower ones, got some below"),
        (lambda: boxes(LOW, HIGH, integral=1), "expected True or False for integral"),
        (lambda: segments(LOW, HIGH[:1]), r"expected end of shape \(2, 2\), got \(1, 2\)"),
        (
            lambda: split(LOW, 2),
            "expected rows of rfgp.functionals.observations with more than 6 columns for input_dim=2, got 2",
        ),
        (lambda: num_columns(0), "expected a positive integer for input_dim"),
    ],
)
def test_bad_rows_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()

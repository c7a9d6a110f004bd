"""Simplex coding: the recursion with the errata, its geometry, and that decoding undoes encoding."""

import math

import pytest
import torch

from rfgp.models.least_squares.simplex import decode, encode, simplex_code


@pytest.mark.parametrize("num_classes", [2, 3, 4, 10, 50])
def test_corners_have_unit_norm_and_equal_angles(num_classes):
    code = simplex_code(num_classes, torch.float64)
    p = num_classes - 1
    assert code.shape == (p, num_classes)
    expected = torch.full((num_classes, num_classes), -1.0 / p, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(code.mT @ code, expected, rtol=0.0, atol=1e-14)
    torch.testing.assert_close(code.sum(-1), torch.zeros(p, dtype=torch.float64), rtol=0.0, atol=1e-13)
    frame = (p + 1) / p * torch.eye(p, dtype=torch.float64)
    torch.testing.assert_close(code @ code.mT, frame, rtol=0.0, atol=1e-13)


def test_three_classes_are_the_triangle_of_the_recursion():
    half, height = 0.5, math.sqrt(0.75)
    expected = torch.tensor([[1.0, -half, -half], [0.0, height, -height]])
    torch.testing.assert_close(simplex_code(3), expected)
    assert simplex_code(2).tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_decoding_undoes_encoding(num_classes, dtype):
    labels = torch.randint(num_classes, (100,), generator=torch.Generator().manual_seed(0))
    values = encode(labels, num_classes, dtype)
    assert values.shape == (100, num_classes - 1) and values.dtype == dtype
    assert torch.equal(decode(values), labels)
    assert torch.equal(decode(0.01 * values.reshape(4, 25, -1)), labels.reshape(4, 25))


def test_decoding_takes_the_nearest_corner():
    values = torch.randn(200, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    distances = torch.cdist(values, simplex_code(5, torch.float64).mT)
    assert torch.equal(decode(values), distances.argmin(-1))


def test_dtypes():
    assert simplex_code(3).dtype == torch.get_default_dtype()
    assert encode(torch.tensor([0]), 3).dtype == torch.get_default_dtype()
    assert encode(torch.tensor([0, 2], dtype=torch.int32), 3).shape == (2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simplex_code(1), "at least two classes"),
        (lambda: simplex_code(2.5), "positive integer"),
        (lambda: encode(torch.tensor([0.0, 1.0]), 2), "integer class labels"),
        (lambda: encode(torch.tensor([0, 2]), 2), "labels from 0 to 1"),
        (lambda: encode(torch.tensor([-1, 1]), 2), "labels from 0 to 1"),
        (lambda: encode(torch.tensor([[0, 1]]), 2), "shape"),
        (lambda: encode([0, 1], 2), "list"),
        (lambda: decode(torch.tensor([[1, 2]])), "floating-point"),
        (lambda: decode(torch.tensor([[1.0, math.nan]])), "finite"),
        (lambda: decode(torch.zeros(3, 0)), "shape"),
        (lambda: decode([1.0]), "list"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()

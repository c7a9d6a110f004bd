"""Fast Walsh-Hadamard transform."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from .._support import checks
from .._support.torch_names import has_values

_BITS, _BITS_ALONE = 5, 6
"""A transform is a few products with Hadamard matrices of at most 2^5 rows, or one of 2^6, which are as large as each
other: a product with a small one would cost as much as with a large one."""


def _hadamard(order: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = torch.ones(1, 1, dtype=dtype, device=device)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], -1), torch.cat([matrix, -matrix], -1)])
    return matrix


_cached_hadamard = functools.lru_cache(maxsize=64)(_hadamard)


def hadamard(order: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    r"""Sylvester's Hadamard matrix :math:`H_n`, with entries :math:`\pm 1` and :math:`H_n H_n^\top = n I`.

    :param order: the number of rows n, a power of two.

    >>> hadamard(2)
    tensor([[ 1.,  1.],
            [ 1., -1.]])
    """
    if not isinstance(order, int) or isinstance(order, bool) or order < 1 or order & (order - 1):
        raise ValueError(f"expected a power of two as the order of a Hadamard matrix, got {order!r}; pad the input")
    dtype = torch.get_default_dtype() if dtype is None else checks.floating_dtype("dtype", dtype)
    checks.fits_in_memory(float(order) ** 2 * dtype.itemsize, f"a matrix of order {order}", "choose a smaller order")
    return _cached_hadamard(order, dtype, device or torch.device("cpu")).clone()


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``, a positive integer.

    >>> next_power_of_two(5)
    8
    """
    return 1 << (checks.positive_integer("n", n) - 1).bit_length()


def _factors(order: int) -> list[int]:
    """Powers of two as equal as possible whose product is a power of two; the last product is over the most batches."""
    bits = order.bit_length() - 1
    parts = min(bits, 1) if bits <= _BITS_ALONE else -(-bits // _BITS)
    return [1 << ((bits + part) // parts) for part in range(parts)]


def fwht(x: Tensor, dim: int = -1) -> Tensor:
    """Fast Walsh-Hadamard transform :math:`H_n x` along one dimension, unnormalized, in O(n log n).

    :param x: a real tensor of any float dtype whose size n along ``dim`` is a power of two.
    :raises ValueError: where n is not a power of two.

    >>> fwht(torch.tensor([1.0, 0.0, 0.0, 2.0]))
    tensor([ 3., -1., -1.,  3.])
    """
    size = checks.floating(x, "x").dim()
    if not isinstance(dim, int) or not -size <= dim < size:
        raise ValueError(f"expected a dimension from {-size} to {size - 1} for dim, got {dim!r}; choose one of these")
    dim = dim % size
    order = x.shape[dim]
    if order < 1 or order & (order - 1):
        raise ValueError(f"expected a power of two along dimension {dim}, got {order}; pad the input with zeros")
    before, after = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    matrix_of = _cached_hadamard if has_values() else _hadamard
    result, done = x, 1
    for factor in _factors(int(order)):
        matrix = matrix_of(factor, x.dtype, x.device)
        inner = (order // (done * factor)) * after
        if inner == 1:
            result = result.reshape(-1, factor) @ matrix
        else:
            result = matrix @ result.reshape(before * done, factor, inner)
        done *= factor
    return result.reshape(x.shape)

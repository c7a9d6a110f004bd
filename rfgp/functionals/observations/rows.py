"""Rows that describe what is observed, and how they are taken apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..._support import checks


class ObservationRows(NamedTuple):
    """The parts of encoded rows: regions :math:`c + [-h, h] + [-s, s]` and weights of the outputs.

    :param center: c, (..., N, d).
    :param half_widths: h, the half widths of a box along the coordinates, (..., N, d).
    :param half_vector: s, half the vector from the start to the end of a segment, (..., N, d).
    :param weights: a, (..., N, T).

    >>> split(points(torch.ones(4, 2)), input_dim=2).center.shape
    torch.Size([4, 2])
    """

    center: Tensor
    half_widths: Tensor
    half_vector: Tensor
    weights: Tensor


def num_columns(input_dim: int, num_outputs: int | None = None) -> int:
    """The number of columns 3 d + T of encoded rows, with T = 1 + d for value and derivatives of a function.

    >>> num_columns(2), num_columns(2, num_outputs=2)
    (9, 8)
    """
    dim = checks.positive_integer("input_dim", input_dim)
    return 3 * dim + (1 + dim if num_outputs is None else checks.positive_integer("num_outputs", num_outputs))


def split(x: Tensor, input_dim: int) -> ObservationRows:
    """The parts of encoded rows (..., N, 3 d + T).

    >>> split(points(torch.ones(4, 2)), input_dim=2).weights.shape
    torch.Size([4, 3])
    """
    dim = checks.positive_integer("input_dim", input_dim)
    if checks.inputs(x).shape[-1] <= 3 * dim:
        raise ValueError(
            f"expected rows of rfgp.functionals.observations with more than {3 * dim} columns for input_dim={dim}, got "
            f"{x.shape[-1]}; make them by points, boxes, segments or derivatives"
        )
    return ObservationRows(x[..., :dim], x[..., dim : 2 * dim], x[..., 2 * dim : 3 * dim], x[..., 3 * dim :])


def points(x: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Rows (N, 3 d + T) for values at points, :math:`L f = \sum_t a_t f_t(x)`.

    :param x: the points, (N, d).
    :param weights: the weights a of the outputs, (N, T) or (T,); default: the value of a scalar function,
        (1, 0, ..., 0). A derivative is (0, n).
    :raises ValueError: for points or weights that are not finite, or of other shapes.

    >>> points(torch.zeros(3, 2)).shape
    torch.Size([3, 9])
    """
    center = _points("x", x)
    zero = torch.zeros_like(center)
    return _rows(center, zero, zero, weights)


def derivatives(x: Tensor, direction: Tensor) -> Tensor:
    r"""Rows (N, 4 d + 1) for derivatives of a scalar function, :math:`L f = n^\top \nabla f(x)`.

    :param x: the points, (N, d).
    :param direction: n, (N, d) or (d,), such as the outer normals of a boundary; its length multiplies the derivative.
    :raises ValueError: for points or directions that are not finite, or of other shapes.

    >>> derivatives(torch.zeros(3, 2), torch.tensor([0.0, 1.0])).shape
    torch.Size([3, 9])
    """
    center = _points("x", x)
    weights = _like(center, "direction", direction, center.shape[-1])
    return points(center, torch.cat([torch.zeros_like(weights[:, :1]), weights], dim=-1))


def boxes(lower: Tensor, upper: Tensor, weights: Tensor | None = None, integral: bool = False) -> Tensor:
    """Rows (N, 3 d + T) for averages or integrals over boxes; without extent in some coordinates over faces or edges.

    :param lower: the lower corners, (N, d).
    :param upper: the upper corners, (N, d).
    :param weights: the weights a of the outputs, (N, T) or (T,); default: the value of a scalar function.
    :param integral: whether the integral is observed, and not the average.
    :raises ValueError: for corners or weights that are not finite, or of other shapes, or corners in the wrong order.

    >>> boxes(torch.zeros(3, 2), torch.ones(3, 2)).shape
    torch.Size([3, 9])
    """
    low = _points("lower", lower)
    high = _like(low, "upper", upper, low.shape[-1])
    if bool((high < low).any()):
        raise ValueError("expected upper corners at or above the lower ones, got some below; exchange them")
    size = (high - low).masked_fill(high == low, 1.0).prod(-1, keepdim=True)
    made = _rows(0.5 * (low + high), 0.5 * (high - low), torch.zeros_like(low), weights)
    return _scaled(made, low.shape[-1], size) if checks.flag("integral", integral) else made


def segments(start: Tensor, end: Tensor, weights: Tensor | None = None, integral: bool = False) -> Tensor:
    """Rows (N, 3 d + T) for averages or integrals along straight lines.

    :param start: where the lines begin, (N, d).
    :param end: where they end, (N, d).
    :param weights: the weights a of the outputs, (N, T) or (T,); default: the value of a scalar function. With
        ``end - start`` the average of a field is its work (circulation) along the line.
    :param integral: whether the integral over the length is observed, and not the average.
    :raises ValueError: for ends or weights that are not finite, or of other shapes.

    >>> segments(torch.zeros(3, 2), torch.ones(3, 2), integral=True).shape
    torch.Size([3, 9])
    """
    first = _points("start", start)
    last = _like(first, "end", end, first.shape[-1])
    made = _rows(0.5 * (first + last), torch.zeros_like(first), 0.5 * (last - first), weights)
    length = torch.linalg.vector_norm(last - first, dim=-1, keepdim=True)
    return _scaled(made, first.shape[-1], length) if checks.flag("integral", integral) else made


def _rows(center: Tensor, half_widths: Tensor, half_vector: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        values = torch.zeros(len(center), 1 + center.shape[-1], dtype=center.dtype, device=center.device)
        values[:, 0] = 1.0
    else:
        values = _like(center, "weights", weights)
    return torch.cat([center, half_widths, half_vector, values], dim=-1)


def _scaled(rows: Tensor, dim: int, size: Tensor) -> Tensor:
    return torch.cat([rows[:, : 3 * dim], size * rows[:, 3 * dim :]], dim=-1)


def _points(name: str, x: Tensor) -> Tensor:
    if checks.finite(checks.inputs(x, name=name), name).dim() != 2:
        raise ValueError(f"expected {name} of shape (N, d), got {tuple(x.shape)}; flatten it")
    return x


def _like(center: Tensor, name: str, value: Tensor, columns: int | None = None) -> Tensor:
    """A checked tensor (N, k) with a row for every point, or one (k,) for all of them."""
    values = checks.finite(checks.same_kind(checks.floating(value, name), center, name, "the points"), name)
    if values.dim() == 1:
        values = values.expand(len(center), -1)
    if values.dim() != 2 or len(values) != len(center) or values.shape[1] != (columns or values.shape[1]):
        wanted = f"({len(center)}, {columns or 'T'})"
        raise ValueError(f"expected {name} of shape {wanted}, got {tuple(value.shape)}; pass one row for every point")
    return values

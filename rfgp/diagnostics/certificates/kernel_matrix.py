"""Products with an exact kernel matrix that is never stored, in float64, and a bound on their rounding errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...approximation.values import accurate_values
from .kernel_values import values_of

EPS = torch.finfo(torch.float64).eps
_BLOCK = 512
_ROWS = 8192


class KernelMatrix:
    """The matrix :math:`K = k(x, x)` of inputs (N, d), as its products with columns; one block exists at a time."""

    def __init__(self, kernel: Kernel, x: Tensor) -> None:
        self._kernel = copy.deepcopy(kernel).double()
        if self._kernel.batch_shape or self._kernel.num_outputs_per_input(x, x) != 1:
            raise ValueError(
                f"expected one kernel of one output, got a {type(kernel).__name__} of several; take outputs one by one"
            )
        self._dims = kernel.active_dims
        selected = self.select(x)
        self._values = values_of(self._kernel, selected)
        self._rows = self._values.prepared(selected)
        self.deviations = self.deviations_at(selected)
        """The roots of k(x, x), (N,)."""
        self._roundings = self._values.roundings(self._rows)

    def __len__(self) -> int:
        """The number N of rows."""
        return len(self._rows)

    def select(self, x: Tensor) -> Tensor:
        """The columns of inputs that ``active_dims`` name, in float64."""
        return x.double() if self._dims is None else x.double().index_select(-1, self._dims)

    @torch.no_grad()
    def deviations_at(self, points: Tensor) -> Tensor:
        """The roots of k(x, x) at points (M, d), (M,)."""
        parts = [accurate_values(self._kernel, part, part, diag=True) for part in points.split(_ROWS)]
        return torch.cat(parts).clamp_min(0.0).sqrt()

    def times(self, columns: Tensor) -> Tensor:
        """K times columns (N, R)."""
        total = torch.zeros_like(columns)
        for left in _blocks(len(self)):
            for right in _blocks(len(self), left.start):
                values = self._values.between(self._rows[left], self._rows[right])
                total[left] += values @ columns[right]
                if right.start > left.start:
                    total[right] += values.mT @ columns[left]
        return total

    def plus_diagonal(self, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
        """What multiplies columns with K plus a diagonal (N,)."""
        return lambda columns: self.times(columns).addcmul_(diagonal.unsqueeze(-1), columns)

    def cross_times(self, points: Tensor, columns: Tensor) -> Tensor:
        """The values between points (M, d) and the rows times columns (N, R): (M, R)."""
        prepared = self._values.prepared(points)
        total = columns.new_zeros(len(prepared), columns.shape[-1])
        for left in _blocks(len(prepared)):
            for right in _blocks(len(self)):
                total[left] += self._values.between(prepared[left], self._rows[right]) @ columns[right]
        return total

    def columns(self, points: Tensor) -> Tensor:
        """The values (N, M) between the rows and points (M, d)."""
        return self._dense(self._rows, self._values.prepared(points))

    def block(self, left: Tensor, right: Tensor) -> Tensor:
        """The values (L, M) between points (L, d) and (M, d)."""
        return self._dense(self._values.prepared(left), self._values.prepared(right))

    def rounding(self, columns: Tensor, points: Tensor | None = None) -> Tensor:
        r"""A bound on the errors of the products of K, or of values between points and the rows, with columns (N, R).

        .. math:: |\hat K v - K v|_i \le \epsilon\, \sigma_i \sum_j (u_i + u_j + m)\, \sigma_j |v_j|, \qquad
            \sigma_i^2 = k(x_i, x_i)
        """
        of_rows = self.deviations, self._roundings
        return self._rounding(of_rows if points is None else self._sizes(points), of_rows, columns)

    def rounding_of(self, points: Tensor, columns: Tensor) -> Tensor:
        """A bound on the errors (N, R) of values between the rows and points times columns (M, R)."""
        return self._rounding((self.deviations, self._roundings), self._sizes(points), columns)

    def block_rounding(self, left: Tensor, right: Tensor) -> Tensor:
        """A bound on the errors of :meth:`block`, (L, M)."""
        return self._value_rounding(self._sizes(left), self._sizes(right))

    def column_rounding(self, points: Tensor) -> Tensor:
        """A bound on the errors of :meth:`columns`, (N, M)."""
        return self._value_rounding((self.deviations, self._roundings), self._sizes(points))

    def _rounding(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], columns: Tensor) -> Tensor:
        sums = _BLOCK + len(columns) / _BLOCK + 4.0
        sizes = right[0][:, None] * columns.abs()
        inner = (left[1][:, None] + sums) * sizes.sum(0)
        return EPS * left[0][:, None] * (inner + (right[1][:, None] * sizes).sum(0))

    def _value_rounding(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
        return EPS * left[0][:, None] * right[0] * (left[1][:, None] + right[1])

    def _sizes(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return self.deviations_at(points), self._values.roundings(self._values.prepared(points))

    def _dense(self, left: Tensor, right: Tensor) -> Tensor:
        dense = left.new_empty(len(left), len(right))
        for rows in _blocks(len(left)):
            dense[rows] = self._values.between(left[rows], right)
        return dense


def _blocks(count: int, start: int = 0) -> Iterator[slice]:
    for first in range(start, count, _BLOCK):
        yield slice(first, min(first + _BLOCK, count))

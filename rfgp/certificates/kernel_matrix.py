"""Products with an exact kernel matrix that is never stored, in float64, and a bound on their rounding errors."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .. import _checks
from ..kernels.values import accurate_values
from .stationary import Stationary

EPS = torch.finfo(torch.float64).eps
_BLOCK = 512
_ROWS = 8192
_ROUNDINGS_OF_A_VALUE = 500.0
"""Of kernels without a formula here: their values are taken to have an error of at most 1e-13 of the variances."""


class KernelMatrix:
    r"""The matrix :math:`K = k(x, x)` as what it does to columns; one block of it exists at a time.

    Blocks on one side of the diagonal are used twice. Gaussian and Matern kernels, scaled or not, are evaluated in
    place; all others by their ``forward``.

    :param kernel: an exact kernel of one output.
    :param x: its inputs (N, d).
    :raises ValueError: for a kernel of several outputs or a batch of kernels.

    >>> import gpytorch
    >>> matrix = KernelMatrix(gpytorch.kernels.RBFKernel(), torch.zeros(3, 2))
    >>> matrix.times(torch.ones(3, 1, dtype=torch.float64)).squeeze(-1)
    tensor([3., 3., 3.], dtype=torch.float64)
    """

    def __init__(self, kernel: Kernel, x: Tensor) -> None:
        self._kernel = copy.deepcopy(kernel).double()
        if self._kernel.batch_shape or self._kernel.num_outputs_per_input(x, x) != 1:
            raise ValueError(
                f"expected one kernel of one output, got a {type(kernel).__name__} of several; take outputs one by one"
            )
        self._dims = kernel.active_dims
        self._form = Stationary.of(self._kernel, self._selected(x))
        self._rows = self._prepared(x)
        self._deviations, self._squares = self._sizes(x, self._rows)

    def __len__(self) -> int:
        """The number N of rows."""
        return len(self._rows)

    def standard_deviations(self, x: Tensor | None = None) -> Tensor:
        """The roots of k(x, x) (M,), at the rows of the matrix by default."""
        return self._deviations if x is None else self._sizes(x, self._prepared(x))[0]

    def times(self, columns: Tensor) -> Tensor:
        """K times columns (N, R)."""
        total = torch.zeros_like(columns)
        for left in self._blocks(len(self)):
            for right in self._blocks(len(self), left.start):
                values = self._values(self._rows[left], self._rows[right])
                total[left] += values @ columns[right]
                if right.start > left.start:
                    total[right] += values.mT @ columns[left]
        return total

    def cross_times(self, x: Tensor, columns: Tensor) -> Tensor:
        """The values between x (M, d) and the rows times columns (N, R): (M, R)."""
        points = self._prepared(x)
        total = columns.new_zeros(len(points), columns.shape[-1])
        for left in self._blocks(len(points)):
            for right in self._blocks(len(self)):
                total[left] += self._values(points[left], self._rows[right]) @ columns[right]
        return total

    def columns(self, x: Tensor) -> Tensor:
        """The values (N, M) between the rows and x (M, d)."""
        points = self._prepared(x)
        return torch.cat([self._values(self._rows[rows], points).clone() for rows in self._blocks(len(self))])

    def rounding(self, columns: Tensor, x: Tensor | None = None) -> Tensor:
        r"""A bound on the error of the products (M, R) of the values between x, or the rows, and columns.

        .. math:: |\hat K v - K v|_i \le \epsilon\, \sigma_i \Big[(c_1 q_i + c_2 + m) \sum_j \sigma_j |v_j|
            + c_1 \sum_j q_j \sigma_j |v_j|\Big], \qquad \sigma_i^2 = k(x_i, x_i)

        with m sums one after the other, and :math:`q_i` the squared norm of an input in lengthscales, since distances
        are differences of these.
        """
        deviations, squares = (self._deviations, self._squares) if x is None else self._sizes(x, self._prepared(x))
        of_squares, of_values = self._roundings
        sums = _BLOCK + len(self) / _BLOCK + 4.0
        sizes = self._deviations[:, None] * columns.abs()
        inner = (of_squares * squares[:, None] + of_values + sums) * sizes.sum(0)
        return EPS * deviations[:, None] * (inner + of_squares * (self._squares[:, None] * sizes).sum(0))

    def column_rounding(self, x: Tensor) -> Tensor:
        """A bound on the error of :meth:`columns`, (N, M)."""
        deviations, squares = self._sizes(x, self._prepared(x))
        of_squares, of_values = self._roundings
        roundings = of_squares * (self._squares[:, None] + squares) + of_values
        return EPS * self._deviations[:, None] * deviations * roundings

    @property
    def _roundings(self) -> tuple[float, float]:
        return (0.0, _ROUNDINGS_OF_A_VALUE) if self._form is None else self._form.roundings

    def _selected(self, x: Tensor) -> Tensor:
        _checks.inputs(x)
        return x.double() if self._dims is None else x.double().index_select(-1, self._dims)

    def _prepared(self, x: Tensor) -> Tensor:
        selected = self._selected(x)
        return selected if self._form is None else self._form.scaled(selected)

    def _sizes(self, x: Tensor, prepared: Tensor) -> tuple[Tensor, Tensor]:
        """The roots of k(x, x), and the squared norms of prepared rows."""
        with torch.no_grad():
            parts = self._selected(x).split(_ROWS)
            variances = torch.cat([accurate_values(self._kernel, part, part, diag=True) for part in parts])
        return variances.clamp_min(0.0).sqrt(), prepared.square().sum(-1)

    def _values(self, left: Tensor, right: Tensor) -> Tensor:
        """A block of the matrix, which the next one may overwrite."""
        with torch.no_grad():
            if self._form is None:
                return accurate_values(self._kernel, left, right)
            return self._form.values(left, right)

    @staticmethod
    def _blocks(count: int, start: int = 0) -> Iterator[slice]:
        for first in range(start, count, _BLOCK):
            yield slice(first, min(first + _BLOCK, count))

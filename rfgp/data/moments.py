"""Means, standard deviations and ranges of columns, from one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .. import _checks


@dataclass(frozen=True)
class ColumnMoments:
    r"""Moments of the columns of rows, of which those of other rows can be merged.

    Sums of squares are around the mean, so that an offset costs no digits; those of two sets A and B of rows become

    .. math:: S = S_A + S_B + (m_B - m_A)^2 n_A n_B / (n_A + n_B)

    (Chan, Golub and LeVeque 1979, eq. 2.1b). All is in float64 but means of complex columns.

    :param count: the number of values that are not NaN in each column, (d,), or () for one column.
    :param mean: their mean.
    :param squares: the sum of their squared distances from it.
    :param minimum: the smallest value; of complex columns NaN.
    :param maximum: the largest value; of complex columns NaN.

    >>> left, right = (ColumnMoments.of(torch.randn(rows, 3)) for rows in (50, 80))
    >>> left.merge(right).count
    tensor([130., 130., 130.], dtype=torch.float64)
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    minimum: Tensor
    maximum: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Those of rows.

        :param values: (N, d), or (N,) for one column; NaN where a value is missing.
        """
        exact = values.detach().to(torch.complex128 if values.is_complex() else torch.float64)
        columns = exact.movedim(0, -1).contiguous()
        missing = columns.isnan() if bool(columns.sum().isnan()) else None
        known = _filled(columns, missing, 0.0)
        every = torch.full(known.shape[:-1], known.shape[-1], dtype=torch.float64, device=known.device)
        count = every if missing is None else every - missing.sum(-1)
        start = known[..., :1]
        centered = _filled(known - start, missing, 0.0)
        shift = centered.sum(-1, keepdim=True) / count.unsqueeze(-1).clamp_min(1.0)
        squares = torch.linalg.vector_norm(_filled(centered - shift, missing, 0.0), dim=-1).square()
        mean = (start + shift).squeeze(-1)
        if exact.is_complex():
            return cls(count, mean, squares, torch.full_like(count, torch.nan), torch.full_like(count, torch.nan))
        low, high = (_filled(columns, missing, end) for end in (torch.inf, -torch.inf))
        return cls(count, mean, squares, low.amin(-1), high.amax(-1))

    @property
    def std(self) -> Tensor:
        """The standard deviation, with the number of values in the denominator."""
        return (self.squares / self.count.clamp_min(1.0)).sqrt()

    def merge(self, other: ColumnMoments) -> ColumnMoments:
        """Those of these rows and others.

        :param other: moments of as many columns.
        :raises ValueError: for something else.
        """
        _checks.instance("other", other, ColumnMoments, "moments of columns", "make them by ColumnMoments.of(rows)")
        count = self.count + other.count
        share = other.count / count.clamp_min(1.0)
        distance = other.mean - self.mean
        return ColumnMoments(
            count,
            self.mean + share * distance,
            self.squares + other.squares + distance.abs().square() * share * self.count,
            torch.minimum(self.minimum, other.minimum),
            torch.maximum(self.maximum, other.maximum),
        )


def _filled(values: Tensor, missing: Tensor | None, with_value: float) -> Tensor:
    return values if missing is None else values.masked_fill(missing, with_value)

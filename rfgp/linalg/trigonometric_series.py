"""Trigonometric series of equispaced frequencies at points that share coordinates, such as those of a map."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .exponential_sums import exponentials, has_fft, series_values

_SPARE = 4
"""A table of points may have so many times as many entries as there are points."""


class PointTable(NamedTuple):
    """Points as entries of a table, of their leading coordinates by the last one.

    :param leading: distinct leading coordinates, (U, d - 1).
    :param last: distinct last ones, (V,).
    :param row: which leading ones every point has, (N,).
    :param column: which last one, (N,).
    """

    leading: Tensor
    last: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, phases: Tensor) -> PointTable | None:
        """The table of points (N, d); None where it would be much larger."""
        is_new = torch.ones(len(phases), dtype=torch.bool, device=phases.device)
        is_new[1:] = (phases[1:, :-1] != phases[:-1, :-1]).any(-1)
        leading = phases[is_new, :-1]
        if len(leading) > _SPARE * max(1.0, len(phases) ** 0.5):
            return None
        last, column = torch.unique(phases[:, -1], return_inverse=True)
        is_table = len(leading) * len(last) <= _SPARE * len(phases)
        return cls(leading, last, is_new.cumsum(0) - 1, column) if is_table else None


class TrigonometricSeries:
    r"""Functions :math:`f_s(\theta) = \sum_k a_{sk} \cos k^\top \theta + b_{sk} \sin k^\top \theta`.

    :param coefficients: a and b, (S, 2, L), for all whole k with :math:`|k_a| \le h_a`.
    :param half: h, d numbers.
    """

    def __init__(self, coefficients: Tensor, half: tuple[int, ...]) -> None:
        cosines, sines = coefficients.unbind(1)
        self._values = torch.complex(cosines, sines).reshape(len(coefficients), *(2 * h + 1 for h in half))
        self._half = half
        self._waves: tuple[Tensor, Tensor] | None = None

    def values(self, phases: Tensor) -> Tensor | None:
        """The functions at points (N, d), (S, N); None where these are scattered, and no ``finufft`` is at hand."""
        table = PointTable.of(phases)
        if table is not None:
            return self.at(table)
        return self.at_points(phases) if has_fft() and phases.device.type == "cpu" else None

    def at(self, table: PointTable) -> Tensor:
        """The functions at the points of a table, (S, N)."""
        rows = self._values.unsqueeze(1).expand(-1, len(table.leading), *self._values.shape[1:])
        for axis, half in enumerate(self._half[:-1]):
            rows = torch.einsum("ua,sua...->su...", exponentials(table.leading[:, axis], half), rows)
        half = self._half[-1]
        right, left = rows[..., half:], rows[..., : half + 1].flip(-1)
        cosines, sines = right.real + left.real, right.imag - left.imag
        cosines[..., 0] *= 0.5
        values = torch.cat([cosines, sines], dim=-1) @ self._of_last(table.last)
        return values[:, table.row, table.column]

    def at_points(self, phases: Tensor) -> Tensor:
        """The functions at scattered points (N, d), (S, N), by ``finufft``: two of them as one complex series."""
        mirrored = self._values.flip(list(range(1, self._values.dim()))).conj()
        pairs = 0.5 * (self._values + mirrored)
        count = len(pairs)
        if count % 2:
            pairs = torch.cat([pairs, torch.zeros_like(pairs[:1])])
        both = series_values(pairs[0::2] + 1j * pairs[1::2], phases)
        return torch.stack([both.real, both.imag], dim=1).flatten(0, 1)[:count]

    def _of_last(self, last: Tensor) -> Tensor:
        """Cosines and sines (2 h + 2, V) of the last coordinates, which most tables of a map have in common."""
        if self._waves is None or not torch.equal(self._waves[0], last):
            angles = last * torch.arange(self._half[-1] + 1, dtype=last.dtype, device=last.device).unsqueeze(-1)
            self._waves = last, torch.cat([angles.cos(), angles.sin()])
        return self._waves[1]

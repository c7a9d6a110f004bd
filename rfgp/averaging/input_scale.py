"""Columns of inputs as they are, as half ranks, by powers, on which long tails are short, or by a linear map."""

from __future__ import annotations

import copy
from typing import Literal, Self

import numpy as np
import scipy
import torch
from torch import Tensor

from .column_scale import ColumnScale

Kind = Literal["values", "half ranks", "powers", "map"]

_FARTHEST = 8.0
"""Standardized inputs are taken to lie within so many standard deviations."""


class InputScale:
    r"""Standardized columns: of values, of half ranks, or of Yeo and Johnson's transform.

    .. math:: z = \tfrac12 \Big(u + \Phi^{-1}\Big(\frac{r(u)}{n}\Big)\Big), \qquad u = (x - m) / s

    Half ranks z are the mean of standardized values and their normal scores. Tied values have the mean of their ranks
    r, and new values interpolate. Columns that do not vary or that equal earlier ones are left out.

    :param x: inputs (N, d).
    :param kind: what the columns become; those of a map are made by :meth:`mapped`.
    :ivar weights: those of the map, (d, d); None where there is none.
    :ivar optimism: the nats by which a row that was left out is too probable, as the map was learned from it: the
        number of its angles, d (d - 1) / 2, over that of rows. Source: Akaike (1974).

    >>> x = torch.tensor([[0.0], [1.0], [1000.0]], dtype=torch.float64)
    >>> [round(value, 2) for value in InputScale(x, "half ranks")(x).flatten().tolist()]
    [-0.97, -0.41, 1.38]
    """

    weights: Tensor | None = None
    optimism = 0.0

    def __init__(self, x: Tensor, kind: Kind) -> None:
        self.kind, self.kept = kind, _different(x)
        columns = x[:, self.kept]
        self.columns = ColumnScale(columns, is_transformed=kind == "powers")
        standard = self.columns.forward(columns)
        self.tables = [_scores(column) for column in standard.numpy().T] if kind == "half ranks" else []
        self.blend = ColumnScale(self._blended(standard), is_transformed=False)

    def _blended(self, standard: Tensor) -> Tensor:
        pairs = zip(standard.numpy().T, self.tables, strict=False)
        scores = [torch.from_numpy(np.interp(column, *table)) for column, table in pairs]
        return 0.5 * (standard + torch.stack(scores, dim=-1)) if scores else standard

    def __call__(self, x: Tensor) -> Tensor:
        """Inputs (N, d) on this scale, (N, k) for the k columns that are kept."""
        return self.blend.forward(self._unscaled(x)).clamp(-_FARTHEST, _FARTHEST)

    def _unscaled(self, x: Tensor) -> Tensor:
        blended = self._blended(self.columns.forward(x[:, self.kept]))
        return blended if self.weights is None else blended @ self.weights.mT

    def mapped(self, weights: Tensor, x: Tensor) -> Self:
        """This scale, a linear map with weights (k, k), and a standardization of what it makes of inputs (N, d)."""
        twin = copy.copy(self)
        twin.kind, twin.weights, twin.optimism = "map", weights, 0.5 * len(weights) * (len(weights) - 1) / len(x)
        twin.blend = ColumnScale(twin._unscaled(x), is_transformed=False)
        return twin


def _different(x: Tensor) -> Tensor:
    """The numbers of the columns that vary and equal no earlier one."""
    scale = (x - x.mean(0)).square().mean(0).sqrt()  # zero where squares underflow
    varies = ((x != x[:1]).any(0) & (scale > 0.0)).nonzero().flatten()
    if not len(varies):
        return varies
    first = np.unique(x[:, varies].numpy(), axis=1, return_index=True)[1]
    return varies[np.sort(first)]


def _scores(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values of a column, and the normal scores of their mean ranks."""
    values, counts = np.unique(column, return_counts=True)
    return values, scipy.special.ndtri((np.cumsum(counts) - 0.5 * counts) / len(column))

"""Columns on a scale between their values and their ranks, on which long tails are short."""

from __future__ import annotations

import numpy as np
import scipy
import torch
from torch import Tensor

_FARTHEST = 8.0
"""Standardized inputs are taken to lie within so many standard deviations."""


class InputScale:
    r"""Standardized columns, or half ranks: the mean of standardized values and their normal scores, standardized.

    .. math:: z = \tfrac12 \Big(u + \Phi^{-1}\Big(\frac{r(u)}{n}\Big)\Big), \qquad u = (x - m) / s

    Tied values have the mean of their ranks r, and new values interpolate. Columns that do not vary are left out.

    :param x: inputs (N, d).
    :param has_ranks: whether ranks count.

    >>> x = torch.tensor([[0.0], [1.0], [1000.0]], dtype=torch.float64)
    >>> [round(value, 2) for value in InputScale(x, has_ranks=True)(x).flatten().tolist()]
    [-0.97, -0.41, 1.38]
    """

    def __init__(self, x: Tensor, has_ranks: bool) -> None:
        self.has_ranks = has_ranks
        mean, scale = _moments(x)
        self.kept = ((x != x[:1]).any(0) & (scale > 0.0)).nonzero().flatten()
        columns, self.mean, self.scale = x[:, self.kept], mean[self.kept], scale[self.kept]
        standard = (columns - self.mean) / self.scale
        self.tables = [_scores(column) for column in standard.numpy().T] if has_ranks else []
        self.center, self.unit = _moments(self._blended(standard))

    def _blended(self, standard: Tensor) -> Tensor:
        if not self.has_ranks:
            return standard
        columns = zip(standard.numpy().T, self.tables, strict=True)
        scores = [torch.from_numpy(np.interp(column, *table)) for column, table in columns]
        return 0.5 * (standard + torch.stack(scores, dim=-1)) if scores else standard

    def __call__(self, x: Tensor) -> Tensor:
        """Inputs (N, d) on this scale, (N, k) for the k columns that vary."""
        blended = self._blended((x[:, self.kept] - self.mean) / self.scale)
        return ((blended - self.center) / self.unit).clamp(-_FARTHEST, _FARTHEST)


def _moments(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations (d,) of columns (N, d), of which there may be none."""
    mean = columns.mean(0)
    return mean, (columns - mean).square().mean(0).sqrt()


def _scores(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values of a column, and the normal scores of their mean ranks."""
    values, counts = np.unique(column, return_counts=True)
    return values, scipy.special.ndtri((np.cumsum(counts) - 0.5 * counts) / len(column))

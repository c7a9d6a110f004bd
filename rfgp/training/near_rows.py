"""Rows that are near each other: groups of a row with those near it, and blocks of equal sizes."""

from __future__ import annotations

import math

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..approximation.input_scales import input_scales
from ..linalg.nearest import NearestRows, scaled_points
from .starts import random_rows

_MEASURED = 4096
_FEW_INPUTS, _THINNING, _FEWEST = 3, 8, 64
_SLACK, _KEPT = 0.5, 4
"""Of the searches for rows that teach parameters, which miss 2 % of the nearest rows; so many searches are kept."""
_SAME, _TWIN = 1e-12, 1e-4
"""Scales that are the same but for so much are; a row at so small a part of the median squared distance is a twin."""


class NearRows:
    """Finds rows near others in units of the lengthscales; of few inputs on several scales.

    With few inputs the nearest rows are so near that they tell little about lengthscales. Source: Stein, Chi and Welty
    (2004).

    :param x: inputs (N, d).
    """

    def __init__(self, x: Tensor) -> None:
        self.x, self._sample = x, x[random_rows(len(x), _MEASURED)]
        self.scales = 1 + max(0, int(math.log(len(x) / _FEWEST, _THINNING))) if x.shape[-1] <= _FEW_INPUTS else 1
        self._scales: Tensor | None = None
        self._found: list[tuple[Tensor, int, Tensor]] = []

    def groups(self, kernel: Kernel, rows: Tensor, size: int) -> Tensor:
        """``size`` other rows near some rows, and last the row itself, (n, size + 1)."""
        self._scale_by(kernel)
        for known, count, groups in self._found:
            if count == size and torch.equal(known, rows):
                return groups
        groups = near_groups(self._searches, rows, size, _SLACK)
        self._found = [*self._found[1 - _KEPT :], (rows, size, groups)]
        return groups

    def nearest(self, kernel: Kernel, rows: Tensor, size: int, slack: float = _SLACK) -> Tensor:
        """The same on one scale.

        :param slack: see :meth:`NearestRows.query`.
        """
        self._scale_by(kernel)
        return near_groups(self._searches[:1], rows, size, slack)

    def _scale_by(self, kernel: Kernel) -> None:
        """Measure distances in units of the lengthscales."""
        scales = input_scales(kernel, self._sample)
        if self._scales is None or not _are_proportional(scales, self._scales):
            self._scales, self._found = scales, []
            self._searches = searches(scaled_points(self.x, scales), self.scales)

    def without_twins(self, groups: Tensor) -> Tensor:
        """Groups as :meth:`groups` makes them, but for those whose last row almost is another row.

        Two rows with the same inputs, and the same target, would teach a noise of zero. Where half of the rows have a
        twin, their targets are repeated measurements, and all groups stay.
        """
        points = self._searches[0][1].points
        near = points[groups[:, :-1]] - points[groups[:, -1:]]
        squared = near.square().sum(-1).amin(-1)
        is_alone = squared > _TWIN * squared.median()
        return groups[is_alone] if 2 * int(is_alone.sum()) > len(groups) else groups


Search = tuple[Tensor, NearestRows]
"""The numbers of some rows, and how those among them are found that are near others."""


def searches(points: Tensor, scales: int = 1) -> list[Search]:
    """Searches among all rows of points (N, d), among a random eighth of them, among an eighth of these, and so on."""
    some, found = torch.arange(len(points), device=points.device), []
    for scale in range(scales):
        if scale:
            some = some[random_rows(len(some), len(some) // _THINNING).to(some.device)]
        found.append((some, NearestRows(points if scale == 0 else points[some])))
    return found


def near_groups(searches: list[Search], rows: Tensor, size: int, slack: float = 0.0) -> Tensor:
    """``size`` other rows near some rows, as many of each search, and last the row itself, (n, size + 1).

    :param slack: see :meth:`NearestRows.query`.
    """
    points, chosen = searches[0][1].points, rows.unsqueeze(-1)
    size = min(size, len(points) - 1)
    for number, (some, nearest) in enumerate(searches):
        count = size // len(searches) + (size % len(searches) if number == 0 else 0)
        found = nearest.query(points[rows], min(chosen.shape[-1] + count, len(some)), slack)
        near = some[found]
        is_chosen = (near.unsqueeze(-1) == chosen.unsqueeze(-2)).any(-1)
        others = is_chosen.to(torch.uint8).argsort(dim=-1, stable=True)[:, :count]
        chosen = torch.cat([near.gather(-1, others), chosen], dim=-1)
    return chosen


def _are_proportional(scales: Tensor, others: Tensor) -> bool:
    """Whether scales (d,) or (d, r) are those of others but for one factor, so that the same rows are near."""
    if scales.shape != others.shape:
        return False
    size = scales.norm() / others.norm()
    return bool(((scales - size * others).abs() <= _SAME * scales.abs()).all()) if bool(size > 0) else True


def near_blocks(points: Tensor, size: int, count: int, seed: int = 0) -> Tensor:
    """At most ``count`` blocks (count, size) of near rows of (N, d), by median splits of the widest coordinate."""
    values = points.detach().double().cpu().numpy()
    random = np.random.default_rng(seed)
    rows = random.permutation(len(values))
    total = max(1, len(rows) // size)
    return torch.from_numpy(np.stack(_split(rows[: total * size], values, size, min(count, total), random)))


def _split(
    rows: np.ndarray, points: np.ndarray, size: int, count: int, random: np.random.Generator
) -> list[np.ndarray]:
    if not count:
        return []
    total = len(rows) // size
    if total <= 1:
        return [rows[:size]]
    inside = points[rows]
    low, high = np.quantile(inside[:4096], (0.05, 0.95), axis=0)
    half = total // 2
    order = np.argpartition(inside[:, int((high - low).argmax())], half * size)
    left = int(random.hypergeometric(half, total - half, count))
    first = _split(rows[order[: half * size]], points, size, left, random)
    return first + _split(rows[order[half * size :]], points, size, count - left, random)

"""Blocks of near rows, of equal sizes, from which parameters are learned."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


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

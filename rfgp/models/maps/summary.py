"""What a map was, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .evaluation import Float32Error


@dataclass(frozen=True, eq=False)
class MapSummary:
    """The summary of a map of N points and T outputs; made by :func:`rfgp.predict_map`.

    :param num_rows: N.
    :param num_outputs: T, or the number of classes.
    :param seconds: how long it took.
    :param dtype: of features, products and values.
    :param float32_error: the largest errors of float32 values at a sample of points; None without a comparison.
    :param float64_rows: how many rows were computed in float64 where float32 was off by more than a thousandth.
    :param path: where the map is; None where it is in memory.
    :param mean: the means, (N,) or (N, T), where the map went nowhere else.
    :param variance: the variances, likewise.
    """

    num_rows: int
    num_outputs: int
    seconds: float
    dtype: torch.dtype
    float32_error: Float32Error | None = None
    float64_rows: int = 0
    path: Path | None = None
    mean: Tensor | None = None
    variance: Tensor | None = None

    @property
    def rows_per_second(self) -> float:
        """How many points a second."""
        return self.num_rows / self.seconds

    def __str__(self) -> str:
        where = "" if self.path is None else f", in {self.path}"
        lines = [f"{self.num_rows:,} points in {self.seconds:.3g} s, {self.rows_per_second:,.0f} a second{where}"]
        if self.float32_error is not None:
            mean, deviation = self.float32_error
            lines.append(f"float32 errors up to {mean:.2g} (mean) and {deviation:.2g} (deviation) prior deviations")
        if self.float64_rows:
            lines.append(f"{self.float64_rows:,} rows in float64, where float32 was off by more")
        return "\n".join(lines)

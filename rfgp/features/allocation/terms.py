"""Coefficients of a Maclaurin series, and a sketch for every degree."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ..._support import checks
from ..base import FeatureMap
from ..ctr import polynomial_sketch
from ..linear import LinearFeatures

MAX_DEGREE = 20
"""The largest degree of a Maclaurin series: later terms are left out."""


def series_coefficients(coefficients: Tensor) -> Tensor:
    """The coefficients up to degree 20 in float64, or a ValueError where they are no kernel's."""
    values = checks.series(coefficients).detach().to("cpu", torch.float64)
    return checks.series(values[: MAX_DEGREE + 1])


def sketches(
    columns: dict[int, int],
    input_dim: int,
    sketch: str,
    form: str,
    generator: Generator | None,
    dtype: torch.dtype | None,
    real_linear: bool = True,
) -> dict[int, FeatureMap]:
    """A polynomial sketch for every degree, with so many columns; with ``real_linear`` the linear term is real."""

    def make(degree: int, width: int) -> FeatureMap:
        kind = "real" if real_linear and form == "ctr" and degree == 1 else form
        if real_linear and degree == 1 and kind == "real" and width == input_dim:
            return LinearFeatures(input_dim)
        return polynomial_sketch(sketch, kind, input_dim, width, degree, generator, dtype)

    return {degree: make(degree, width) for degree, width in columns.items()}

"""Polynomial sketches by name and form."""

from __future__ import annotations

import torch
from torch import Generator

from .. import _checks
from .base import FeatureMap
from .ctr import ComplexToReal
from .sketch_registry import FORMS, SKETCHES


def polynomial_sketch(
    name: str,
    form: str,
    input_dim: int,
    num_features: int,
    degree: int,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
) -> FeatureMap:
    """A sketch of the homogeneous polynomial kernel by its name and form.

    :param form: "real", "complex", or "ctr" for a complex sketch of half the width as a real one.
    :param num_features: the number of columns that come out; even for "ctr".
    :raises ValueError: for an unknown name or form, or an odd width for "ctr".

    >>> polynomial_sketch("tensor_srht", "ctr", 3, 10, degree=2).num_features
    10
    """
    named = SKETCHES[_checks.choice("name", name, tuple(SKETCHES))]
    is_complex = _checks.choice("form", form, FORMS) != "real"
    width = paired_width(num_features, name) if form == "ctr" else num_features
    sketch = named.make(input_dim, width, degree, is_complex=is_complex, generator=generator, dtype=dtype)
    return ComplexToReal(sketch) if form == "ctr" else sketch


def paired_width(num_features: int, name: str) -> int:
    """Half of an even number of columns that come in pairs, or raise."""
    if _checks.positive_integer("num_features", num_features) % 2:
        raise ValueError(
            f"expected an even num_features for {name}:ctr, whose columns come in pairs, got {num_features}; "
            f"use {num_features + 1}, or {name}:real"
        )
    return int(num_features) // 2

"""What the bounds share: checks of numbers, and rounding up to whole numbers of columns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._support import checks

_MOST_FEATURES = 2**53  # beyond, float64 does not know every integer


def within(name: str, value: Any, smallest: float) -> Tensor:
    """Return ``value`` as a float64 tensor, or raise where it has entries outside of [smallest, 1]."""
    tensor = checks.real_tensor(value, name).double()
    rounding = 1e-6  # of kernel values in single precision
    if not bool(((tensor >= smallest - rounding) & (tensor <= 1.0 + rounding)).all()):
        raise ValueError(
            f"expected numbers from {smallest:g} to 1 for {name}, got {float(tensor.min()):g} to "
            f"{float(tensor.max()):g}; divide by k(0), or by its square where it is a variance"
        )
    return tensor.clamp(smallest, 1.0)


def at_least_one(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise where it is below 1."""
    number = checks.positive(name, value)
    if number < 1.0:
        raise ValueError(f"expected a number of at least 1 for {name}, got {value!r}; it is 1 for a matrix of rank one")
    return number


def coregionalization(value: Any) -> Tensor:
    """The matrix in double precision, or raise where it is not symmetric and positive semi-definite."""
    name = "coregionalization"
    gamma = checks.finite(checks.inputs(value, name=name), name).detach().double()
    if gamma.dim() != 2 or gamma.shape[0] != gamma.shape[1]:
        raise ValueError(f"expected a square matrix for {name}, got shape {tuple(gamma.shape)}; pass (p, p)")
    tolerance = 1e-5 * float(gamma.abs().max())  # of matrices in single precision
    is_symmetric = float((gamma - gamma.mT).abs().max()) <= tolerance
    gamma = 0.5 * (gamma + gamma.mT)
    if not is_symmetric or float(torch.linalg.eigvalsh(gamma)[0]) < -tolerance * gamma.shape[0]:
        raise ValueError(f"expected a symmetric positive semi-definite {name}, got another matrix; pass one, as B B^T")
    return gamma


def columns(num_features: Any, cos_and_sin: bool = True) -> int:
    """A number of columns, or raise where it is not positive, or odd where they are cos and sin columns."""
    count = checks.positive_integer("num_features", num_features)
    if cos_and_sin and count % 2:
        raise ValueError(
            f"expected an even num_features, a cos and a sin column for each frequency, got {count}; add one"
        )
    return count


def rounded_up(needed: Tensor) -> Tensor:
    """The smallest positive integers from ``needed`` up."""
    if not bool((needed < _MOST_FEATURES / 2).all()):
        raise ValueError(
            "expected an epsilon and a delta that 2^53 features can reach, got a need of "
            f"{float(needed.max()):g}; choose larger ones"
        )
    return needed.ceil().clamp_min(1.0).long()

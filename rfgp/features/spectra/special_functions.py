"""Quantiles and Bessel functions by SciPy, differentiable in their parameters."""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from torch import Tensor


def largest_level(uniform: Tensor) -> float:
    """The largest number below 1: uniform draws may have been rounded to 1, where quantiles are infinite."""
    return 1.0 - 0.5 * torch.finfo(uniform.dtype).eps


@torch.library.custom_op("rfgp::gamma_root", mutates_args=())
def _root_and_slope(alpha: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The root, and its derivative in alpha."""
    shape, level = (t.to("cpu", torch.float64).numpy() for t in (alpha, uniform))
    level = np.minimum(level, largest_level(uniform))
    step = 1e-4 * shape
    below, root, above = (np.sqrt(scipy.special.gammaincinv(a, level)) for a in (shape - step, shape, shape + step))
    return torch.as_tensor(np.asarray(root)).to(alpha), torch.as_tensor((above - below) / (2.0 * step)).to(alpha)


@_root_and_slope.register_fake
def _(alpha: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes(alpha.shape, uniform.shape)
    return alpha.new_empty(shape), alpha.new_empty(shape)


def gamma_root(alpha: Tensor, uniform: Tensor) -> Tensor:
    """The root of the quantile of the gamma distribution of shape alpha at levels up to 1; differentiable once."""
    at = alpha.detach()
    root, slope = _root_and_slope(at, uniform)
    return root + slope * (alpha - at)


@torch.library.custom_op("rfgp::scaled_bessel", mutates_args=())
def value_and_slope(z: Tensor, orders: Tensor) -> tuple[Tensor, Tensor]:
    """The functions, and their derivatives in z."""
    value, n = (t.to("cpu", torch.float64).numpy() for t in (z, orders))
    scaled = scipy.special.ive(np.abs(n), value)
    neighbors = scipy.special.ive(np.abs(n - 1.0), value) + scipy.special.ive(np.abs(n + 1.0), value)
    return torch.as_tensor(scaled).to(z), torch.as_tensor(0.5 * neighbors - scaled).to(z)


@value_and_slope.register_fake
def _(z: Tensor, orders: Tensor) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes(z.shape, orders.shape)
    return z.new_empty(shape), z.new_empty(shape)


def scaled_bessel(z: Tensor, orders: Tensor) -> Tensor:
    """Modified Bessel functions exp(-z) I_n(z) of whole orders, (..., 1) and (J,) to (..., J); differentiable once."""
    at = z.detach()
    value, slope = value_and_slope(at, orders)
    return value + slope * (z - at)


def gamma_quadrature(shape: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms (Q,) of values of a gamma variable of mean 1, and of their probabilities (..., Q), for shapes (...).

    The trapezoidal rule in equispaced logarithms, which hold all but 1e-13 of the distribution.
    """
    smallest, largest = float(shape.detach().min()), float(shape.detach().max())
    width, step = 30.0 / smallest + math.sqrt(60.0 / smallest), min(0.4, 0.8 / math.sqrt(largest))
    logs = torch.arange(-width, math.log1p(width), step, dtype=torch.float64, device=shape.device).to(shape)
    return logs, torch.log_softmax(shape.unsqueeze(-1) * (logs - logs.exp()), dim=-1)

"""Scaled modified Bessel functions, differentiable in their argument."""

from __future__ import annotations

import numpy as np
import scipy
import torch
from torch import Tensor


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
    """Modified Bessel functions exp(-z) I_n(z) of whole orders, (..., 1) and (J,) to (..., J).

    :param z: the argument, not negative; the functions are differentiable in it once.
    :param orders: the orders n.
    """
    at = z.detach()
    value, slope = value_and_slope(at, orders)
    return value + slope * (z - at)

"""Scaled modified Bessel functions, differentiable in their argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor


class ScaledBessel(torch.autograd.Function):
    """Modified Bessel functions exp(-z) I_n(z) of whole orders, (..., 1) and (J,) to (..., J), differentiable in z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, orders: Tensor) -> Tensor:
        value, n = (t.detach().to("cpu", torch.float64).numpy() for t in (z, orders))
        scaled = scipy.special.ive(np.abs(n), value)
        neighbors = scipy.special.ive(np.abs(n - 1.0), value) + scipy.special.ive(np.abs(n + 1.0), value)
        ctx.save_for_backward(torch.as_tensor(0.5 * neighbors - scaled).to(z))
        ctx.shape = z.shape
        return torch.as_tensor(scaled).to(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return (gradient * slope).sum_to_size(ctx.shape), None

"""The root of a gamma variable, differentiable in its shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from .levels import largest_level


class GammaRoot(torch.autograd.Function):
    """The root of the quantile function of the gamma distribution of shape alpha, differentiable in alpha.

    Small quantiles would underflow in single precision; levels may be 1 where they were rounded to that.
    """

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, uniform: Tensor) -> Tensor:
        shape, level = (t.detach().to("cpu", torch.float64).numpy() for t in (alpha, uniform))
        level = np.minimum(level, largest_level(uniform))
        step = 1e-4 * shape
        below, root, above = (np.sqrt(scipy.special.gammaincinv(a, level)) for a in (shape - step, shape, shape + step))
        ctx.save_for_backward(torch.as_tensor((above - below) / (2.0 * step)).to(alpha))
        ctx.shape = alpha.shape
        return torch.as_tensor(np.asarray(root)).to(alpha)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return (gradient * slope).sum_to_size(ctx.shape), None

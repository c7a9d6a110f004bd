"""The root of a gamma variable, differentiable in its shape."""

from __future__ import annotations

import numpy as np
import scipy
import torch
from torch import Tensor

from .levels import largest_level


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
    """The root of the quantile function of the gamma distribution of shape alpha; differentiable once, in alpha.

    Small quantiles would underflow in single precision; levels may be 1 where they were rounded to that.
    """
    at = alpha.detach()
    root, slope = _root_and_slope(at, uniform)
    return root + slope * (alpha - at)

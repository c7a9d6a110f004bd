"""The kernel of optical random features."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..features.optical import even_exponent, optical_kernel
from .parameter_free import ParameterFreeKernel


class OpticalKernel(ParameterFreeKernel):
    r"""The limit of optical random features, a sum of normalized even polynomial kernels.

    .. math:: k_{2 s}(x, y) = (s!)^2 \sum_{i=0}^s \binom{s}{i}^2 (x^\top y)^{2 i} (\|x\| \|y\|)^{2 (s - i)}

    :param exponent: 2 s, an even number from 2 to 20.
    :raises ValueError: for another exponent.

    Source: T Eq. 6.4.

    >>> import torch
    >>> OpticalKernel(exponent=2)(torch.ones(1, 2)).to_dense()
    tensor([[8.]])
    """

    def __init__(self, exponent: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.exponent = even_exponent(exponent)

    def values(self, x1: Tensor, x2: Tensor) -> Tensor:
        return optical_kernel(x1, x2, self.exponent)

"""The skewed chi-squared kernel, for histograms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._support import checks
from ..features import HyperbolicSecant
from .parameter_free import ParameterFreeKernel
from .stationary import StationaryKernel


class SkewedChiSquaredKernel(ParameterFreeKernel, StationaryKernel):
    r"""The skewed chi-squared kernel of inputs above -c, shift-invariant in their logarithms.

    .. math:: k(x, y) = \prod_k \frac{2 \sqrt{(x_k + c)(y_k + c)}}{(x_k + c) + (y_k + c)}

    :param skewness: c, a positive number.
    :raises ValueError: for other c, and for inputs of -c or less.

    Source: B 3.2.2, Eq. 12 (Li et al., 2010).

    >>> kernel = SkewedChiSquaredKernel(skewness=1.0)
    >>> kernel(torch.zeros(1, 1), torch.full((1, 1), 3.0)).to_dense()
    tensor([[0.8000]])
    """

    has_lengthscale = False
    settings = ("skewness",)
    spectrum = HyperbolicSecant()

    def __init__(self, skewness: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skewness = checks.positive("skewness", skewness, "inputs have to exceed its negative")

    @property
    def is_stationary(self) -> bool:
        """False: only in the logarithms."""
        return False

    def scaled(self, x: Tensor) -> Tensor:
        """The logarithms log(x + c), in whose differences the kernel is shift-invariant."""
        if not bool((x > -self.skewness).all()):
            raise ValueError(
                f"expected inputs above {-self.skewness}, got {float(x.detach().min())}; use a larger skewness"
            )
        return torch.log(x + self.skewness)

    def values(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.spectrum.kernel(self.scaled(x1), self.scaled(x2))

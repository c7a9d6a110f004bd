"""Vector fields as the sum of a gradient and a field without divergence."""

from __future__ import annotations

import copy
from typing import Any, Self

from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel

from .checked import CheckedKernel
from .curl_free import CurlFreeKernel
from .divergence_free import DivergenceFreeKernel


class HelmholtzKernel(CheckedKernel, AdditiveKernel):
    r"""The sum of a curl-free and a divergence-free kernel, each with its own output scale and lengthscale.

    .. math:: K = s_1 K_{\text{curl-free}} + s_2 K_{\text{divergence-free}}

    The operators CurlFreePart and DivergenceFreePart predict its two parts. Share one base kernel unless the data tell
    the parts apart: a gradient of long lengthscale resembles a uniform flow, and may absorb the other part.

    :param curl_free_base: the kernel of the potential: an RBFKernel, or a MaternKernel with nu 3/2 or 5/2.
    :param divergence_free_base: that of the other part, or the same object to share it; default: a copy of the first.
    :raises ValueError: for other base kernels.

    Source: M Example 5.

    >>> import gpytorch, torch
    >>> HelmholtzKernel(gpytorch.kernels.RBFKernel())(torch.zeros(4, 2)).shape
    torch.Size([8, 8])
    """

    def __init__(self, curl_free_base: Kernel, divergence_free_base: Kernel | None = None) -> None:
        other = copy.deepcopy(curl_free_base) if divergence_free_base is None else divergence_free_base
        parts = CurlFreeKernel(curl_free_base), DivergenceFreeKernel(other)
        super().__init__(*[ScaleKernel(part, batch_shape=part.batch_shape) for part in parts])

    @property
    def curl_free(self) -> ScaleKernel:
        """The part that is a gradient."""
        return self.kernels[0]

    @property
    def divergence_free(self) -> ScaleKernel:
        """The part without divergence."""
        return self.kernels[1]

    def expand_batch(self, *sizes: Any) -> Self:
        expanded = copy.deepcopy(self)
        for i, part in enumerate(self.kernels):
            expanded.kernels[i] = part.expand_batch(*sizes)
        return expanded

"""How far the features of one or many outputs are from the exact kernel, in closed form."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..features import FeatureMap
from .feature_kernel import FeatureKernel


def hilbert_schmidt_variance(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor | None:
    r"""The variance :math:`E \|\hat K(x, y) - K(x, y)\|_F^2` of the estimate of a kernel of many outputs by features.

    With m independent frequencies of amplitudes a(w), and :math:`Q = b b^H`, it is

    .. math:: \frac1m \Big\{\frac12 \sum_{s, t} E\big[a^4 |Q_{st}|^2\big] + \mathrm{Re}\, E\big[a^4 Q_{st}^2\,
        e^{2 i w^\top (x - y)}\big] - \|K(x, y)\|_F^2\Big\}

    :param kernel: a kernel made by :func:`rfgp.approximate`.
    :param x: the full inputs, (..., N, d).
    :param y: (..., M, d).
    :returns: (..., N, M), which may be infinite. None where there is no closed form: for orthogonal frequencies, the
        trace measure of several orders or with ARD, and parts of a sum that share weights in other ways.
    :raises ValueError: for a kernel without features.

    Source: errata, from B 4.4 (whose Proposition 33 lacks a factor).

    >>> import gpytorch, rfgp
    >>> exact = rfgp.kernels.CurlFreeKernel(gpytorch.kernels.RBFKernel())
    >>> kernel = rfgp.approximate(exact, num_features=64, method=rfgp.features.RandomFourier(3, 64))
    >>> hilbert_schmidt_variance(kernel, torch.zeros(2, 3), torch.zeros(4, 3)).shape
    torch.Size([2, 4])
    """
    checks.same_kind(checks.inputs(y, checks.inputs(x).shape[-1], "y"), x, "y", "x")
    if not isinstance(kernel, FeatureKernel):
        raise ValueError(
            f"expected a kernel with random features, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )
    moments = kernel.moments(x, y)
    is_biased = any(not part.is_unbiased for part in kernel.modules() if isinstance(part, FeatureMap))
    if moments is None or is_biased or not bool(torch.isfinite(moments.variance).all()):
        return None
    return moments.variance

"""How far the features of one or many outputs are from the exact kernel, in closed form."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..features import FeatureMap
from .random_feature_kernel import RandomFeatureKernel


def hilbert_schmidt_variance(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor | None:
    r"""The variance :math:`E \|\hat K(x, y) - K(x, y)\|_F^2` of the estimate of a kernel of many outputs by features.

    With m independent frequencies of amplitudes a(w), and :math:`Q = b b^H`, it is

    .. math:: \frac1m \Big\{\frac12 \sum_{s, t} E\big[a^4 |Q_{st}|^2\big] + \mathrm{Re}\, E\big[a^4 Q_{st}^2\,
        e^{2 i w^\top (x - y)}\big] - \|K(x, y)\|_F^2\Big\}

    The entries of Q are polynomials, so that the means are derivatives of scalar kernels: of the kernel itself for
    unbounded features; of a Gaussian with variance 2/3 of that of the frequencies for widened ones. Under the trace
    measure of one order q, :math:`a^2 = M_q / \|w\|^{2 q}` of scaled frequencies divides the sums over s and t.
    For :math:`k\,\Gamma` it is :math:`\|\Gamma\|_F^2` times the variance of scalar features. Scales multiply it, and
    the parts of a sum add up, with their covariance where they share one measure.

    :param kernel: a kernel made by :func:`rfgp.approximate`.
    :param x: the full inputs, (..., N, d).
    :param y: (..., M, d).
    :returns: (..., N, M), which may be infinite: without a change of measure derivatives of order q need nu > 2 q.
        None where there is no closed form: for orthogonal frequencies, the trace measure of several orders or with
        ARD, and parts of a sum that share weights in other ways.
    :raises ValueError: for a kernel without features.

    Source: errata, from B 4.4 (whose Proposition 33 lacks a factor).

    >>> import gpytorch, rfgp
    >>> exact = rfgp.kernels.CurlFreeKernel(gpytorch.kernels.RBFKernel())
    >>> kernel = rfgp.approximate(exact, num_features=64, method=rfgp.features.RandomFourier(3, 64))
    >>> hilbert_schmidt_variance(kernel, torch.zeros(2, 3), torch.zeros(4, 3)).shape
    torch.Size([2, 4])
    """
    checks.same_kind(checks.inputs(y, checks.inputs(x).shape[-1], "y"), x, "y", "x")
    if not isinstance(kernel, RandomFeatureKernel):
        raise ValueError(
            f"expected a kernel with random features, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )
    moments = kernel.moments(x, y)
    is_biased = any(not part.is_unbiased for part in kernel.modules() if isinstance(part, FeatureMap))
    if moments is None or is_biased or not bool(torch.isfinite(moments.variance).all()):
        return None
    return moments.variance

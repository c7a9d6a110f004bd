"""The kernel inception distance, from arrays of features of images."""

from __future__ import annotations

import math

from gpytorch.kernels import Kernel, PolynomialKernel
from torch import Tensor

from .. import _checks
from ..approximation import approximate
from .discrepancy import Discrepancy, mmd
from .sums import check_samples


def kernel_inception_distance(
    x: Tensor,
    y: Tensor,
    *,
    degree: int = 3,
    offset: float = 1.0,
    num_features: int | None = None,
    method: str = "tensor_srht:ctr",
    seed: int | None = None,
) -> Discrepancy:
    r"""The kernel inception distance (KID) of two sets of images, from the features that a network has of them.

    It is the squared maximum mean discrepancy with the kernel :math:`(x^\top y / d + c)^p`, approximated by features
    of the polynomial, in linear time. With ``num_features=None`` it is exact, in quadratic time.

    :param x: features of the first set, (n, d), such as the 2,048 outputs of an Inception network.
    :param y: features of the second set, (m, d).
    :param degree: p, 3 in the literature.
    :param offset: c.
    :param num_features: the number D of random features; default: none, the exact distance.
    :param method: the method of :func:`rfgp.approximate`.
    :param seed: the seed of the random features; default: drawn from PyTorch's default generator.
    :raises ValueError: for other samples or arguments.

    Source: T 4.3.2; Binkowski et al. (2018).

    >>> import torch
    >>> x, y = torch.rand(1000, 64), torch.rand(1000, 64) + 0.1
    >>> exact, fast = kernel_inception_distance(x, y), kernel_inception_distance(x, y, num_features=512, seed=0)
    >>> abs(fast.squared / exact.squared - 1) < 0.2
    True
    """
    a, b, kernel = scaled_inputs_and_kernel(x, y, degree, offset)
    if num_features is not None:
        kernel = approximate(kernel, num_features, input_dim=x.shape[-1], method=method, seed=seed)
    return mmd(a, b, kernel)


def scaled_inputs_and_kernel(x: Tensor, y: Tensor, degree: int, offset: float) -> tuple[Tensor, Tensor, Kernel]:
    """Both samples over the root of d, and the polynomial kernel of these."""
    kernel = PolynomialKernel(power=_checks.positive_integer("degree", degree)).to(_checks.inputs(x))
    kernel.offset = _checks.positive("offset", offset)
    check_samples(kernel, x, y, 8)
    root = math.sqrt(x.shape[-1])
    return x / root, y / root, kernel

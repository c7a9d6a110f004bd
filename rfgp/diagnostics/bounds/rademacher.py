"""Bounds for Rademacher sketches of polynomial kernels, by Bernstein's inequality for a pair of inputs."""

from __future__ import annotations

import math

from torch import Tensor

from ..._support import checks
from .tail import TailBound


def rademacher_bound(x: Tensor, y: Tensor, degree: int, is_complex: bool = False) -> TailBound:
    r"""Bound on the relative error of a Rademacher sketch in :math:`(x^\top y)^p`, by Bernstein's inequality.

    .. math:: \Pr\big[|\hat k(x, y) - (x^\top y)^p| \ge \epsilon \|x\|_1^p \|y\|_1^p\big]
        \le 2 \exp\Big(\frac{-D \epsilon^2 / 2}{\sigma^2 + 2 \epsilon / 3}\Big), \qquad
        \sigma^2 = \frac{V}{\|x\|_1^{2p} \|y\|_1^{2p}}

    with the variance V of a single feature, where c = 2 for real and 1 for complex weights:

    .. math:: V = \Big(\|x\|^2 \|y\|^2 + c \Big((x^\top y)^2 - \sum_k x_k^2 y_k^2\Big)\Big)^p - (x^\top y)^{2p}

    :param x: inputs (..., N, d).
    :param y: inputs (..., M, d).
    :param degree: the degree p of the kernel.
    :param is_complex: whether the weights are fourth roots of unity, in place of signs.
    :returns: a bound with tensors (..., N, M) on the relative error; D counts (complex) columns of the sketch.
    :raises ValueError: for bad inputs or a bad degree.

    Source: T Theorem 3.4.1, Eq. 3.21 and B.4, with the smaller :math:`\sigma^2` above.

    >>> import torch
    >>> x = torch.tensor([[0.5, 0.5]])
    >>> bound = rademacher_bound(x, x, degree=2)
    >>> bound.failure_probability(1000, epsilon=0.1)
    tensor([[5.7218e-09]], dtype=torch.float64)
    """
    variance, is_zero = _relative_variance(x, y, degree, is_complex)
    return TailBound(
        log_factor=lambda epsilon: math.log(2.0),
        rate=lambda epsilon: (epsilon**2 / 2.0 / (variance + 2.0 * epsilon / 3.0)).masked_fill(is_zero, math.inf),
    )


def _relative_variance(x: Tensor, y: Tensor, degree: int, is_complex: bool) -> tuple[Tensor, Tensor]:
    """Variance of one feature for inputs scaled to 1-norm one, and where an input is zero; two (..., N, M) tensors."""
    degree = checks.positive_integer("degree", degree)
    checks.finite(checks.inputs(x))
    checks.finite(checks.inputs(y, x.shape[-1], "y"), "y")
    checks.same_kind(y, x, "y", "x")
    x, y = _scaled(x), _scaled(y)
    inner = (x @ y.mT).square()
    norms = x.square().sum(-1)[..., :, None] * y.square().sum(-1)[..., None, :]
    mixed = inner - x.square() @ y.square().mT
    second_moment = (norms + (1.0 if checks.flag("is_complex", is_complex) else 2.0) * mixed) ** degree
    return (second_moment - inner**degree).clamp_min(0.0), norms == 0.0


def _scaled(x: Tensor) -> Tensor:
    x = x.double()
    norm = x.abs().sum(-1, keepdim=True)
    return x / norm.masked_fill(norm == 0.0, 1.0)

"""Bounds for Rademacher sketches of polynomial kernels, by Bernstein's inequality for a pair of inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import _checks
from . import _common


def rademacher_failure_probability(
    x: Tensor, y: Tensor, degree: int, num_features: int, epsilon: float, is_complex: bool = False
) -> Tensor:
    r"""Upper bound on the probability that a Rademacher sketch misses :math:`(x^\top y)^p` by a relative epsilon.

    .. math:: \Pr\big[|\hat k(x, y) - (x^\top y)^p| \ge \epsilon \|x\|_1^p \|y\|_1^p\big]
        \le 2 \exp\Big(\frac{-D \epsilon^2 / 2}{\sigma^2 + 2 \epsilon / 3}\Big), \qquad
        \sigma^2 = \frac{V}{\|x\|_1^{2p} \|y\|_1^{2p}}

    V is the variance of a single feature,

    .. math:: V = \Big(\|x\|^2 \|y\|^2 + c \Big((x^\top y)^2 - \sum_k x_k^2 y_k^2\Big)\Big)^p - (x^\top y)^{2p}

    with c = 2 for real and 1 for complex weights. For a complex sketch the error is the modulus of a complex number,
    which bounds the error of the real part, too. The thesis takes Bernstein's inequality for real variables there. The
    same inequality holds for the modulus, with the complex variance and without another factor: independent complex
    :math:`X_i` of mean zero satisfy

    .. math:: E \cosh\Big(\lambda \Big|\sum_i X_i\Big|\Big)
        \le \exp\Big(\sum_i E\big[e^{\lambda |X_i|} - 1 - \lambda |X_i|\big]\Big)

    (Pinelis, 1994), and the rest of the usual proof stays. The thesis states its theorem with :math:`V / (\|x\|^{2p}
    \|y\|^{2p})` in place of :math:`\sigma^2`, which is larger; its proof shows the bound above.

    :param x: inputs (..., N, d).
    :param y: inputs (..., M, d).
    :param degree: the degree p of the kernel.
    :param num_features: the number of columns D of the sketch, complex columns where it is complex.
    :param epsilon: the error relative to the largest value that a single feature can take; positive.
    :param is_complex: whether the weights are fourth roots of unity, in place of signs.
    :returns: float64 probabilities (..., N, M), at most 1; 0 where one of the inputs is zero.
    :raises ValueError: for bad inputs, degree, num_features or epsilon.

    Source: T Theorem 3.4.1, Eq. B.4.

    >>> x = torch.tensor([[0.5, 0.5]])
    >>> rademacher_failure_probability(x, x, degree=2, num_features=1000, epsilon=0.1)
    tensor([[5.7218e-09]], dtype=torch.float64)
    """
    columns = _checks.positive_integer("num_features", num_features)
    epsilon = _common.positive("epsilon", epsilon)
    variance, is_zero = _rademacher_variance(x, y, degree, is_complex)
    bound = 2.0 * torch.exp(-columns * epsilon**2 / 2.0 / (variance + 2.0 * epsilon / 3.0))
    return bound.clamp_max(1.0).masked_fill(is_zero, 0.0)


def rademacher_num_features(
    x: Tensor, y: Tensor, degree: int, epsilon: float, delta: float, is_complex: bool = False
) -> Tensor:
    r"""Features with which a Rademacher sketch is within a relative epsilon with probability 1 - delta or more.

    .. math:: D \ge 2 \Big(\frac{2}{3 \epsilon} + \frac{\sigma^2}{\epsilon^2}\Big) \log\frac{2}{\delta}

    The inverse of :func:`rademacher_failure_probability`, which defines :math:`\sigma^2`: the smallest integer for
    which that bound is at most delta.

    :param x: inputs (..., N, d).
    :param y: inputs (..., M, d).
    :param degree: the degree p of the kernel.
    :param epsilon: the error relative to :math:`\|x\|_1^p \|y\|_1^p`; positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param is_complex: whether the weights are fourth roots of unity, in place of signs.
    :returns: int64 numbers of columns (..., N, M); 1 where one of the inputs is zero.
    :raises ValueError: for bad inputs, degree, epsilon or delta, or more than :math:`2^{53}` features.

    Source: T Eq. 3.21, with the smaller :math:`\sigma^2` of :func:`rademacher_failure_probability`.

    >>> x = torch.tensor([[0.5, 0.5]])
    >>> rademacher_num_features(x, x, degree=2, epsilon=0.1, delta=0.05)
    tensor([[188]])
    """
    epsilon, delta = _common.positive("epsilon", epsilon), _common.probability("delta", delta)
    variance, is_zero = _rademacher_variance(x, y, degree, is_complex)
    needed = 2.0 * (2.0 / (3.0 * epsilon) + variance / epsilon**2) * math.log(2.0 / delta)
    return _common.rounded_up(needed).masked_fill(is_zero, 1)


def _rademacher_variance(x: Tensor, y: Tensor, degree: int, is_complex: bool) -> tuple[Tensor, Tensor]:
    """Variance of one feature for inputs scaled to 1-norm one, and where an input is zero; two (..., N, M) tensors."""
    degree = _checks.positive_integer("degree", degree)
    _checks.finite(_checks.inputs(x))
    _checks.finite(_checks.inputs(y, x.shape[-1], "y"), "y")
    _checks.same_kind(y, x, "y", "x")
    x, y = _scaled(x), _scaled(y)
    inner = (x @ y.mT).square()
    norms = x.square().sum(-1)[..., :, None] * y.square().sum(-1)[..., None, :]
    mixed = inner - x.square() @ y.square().mT
    second_moment = (norms + (1.0 if _checks.flag("is_complex", is_complex) else 2.0) * mixed) ** degree
    return (second_moment - inner**degree).clamp_min(0.0), norms == 0.0


def _scaled(x: Tensor) -> Tensor:
    x = x.double()
    norm = x.abs().sum(-1, keepdim=True)
    return x / norm.masked_fill(norm == 0.0, 1.0)

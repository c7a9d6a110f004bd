"""Bounds for random Fourier features at a pair of inputs, by the inequalities of Hoeffding and Bernstein."""

from __future__ import annotations

import math

from torch import Tensor

from . import _common
from .tail import TailBound


def fourier_variance(kernel: Tensor, kernel_at_double: Tensor) -> Tensor:
    r"""Variance of what a single frequency adds to a kernel estimate from cos and sin columns.

    .. math:: v(\tau) = \operatorname{Var} \cos(w^\top \tau) = \tfrac12 + \tfrac12 k(2 \tau) - k(\tau)^2

    At most 1 for every kernel, and at most 1/2 for the Gaussian kernel, where it is :math:`(1 - k(\tau)^2)^2 / 2`.

    :param kernel: values :math:`k(\tau)` of a shift-invariant kernel with k(0) = 1, of any shape.
    :param kernel_at_double: its values :math:`k(2 \tau)`, of the same shape.
    :returns: a float64 tensor of that shape.
    :raises ValueError: for values outside of [-1, 1], or shapes that differ.

    Source: T Section 2.1; Sutherland and Schneider (2015).

    >>> import torch
    >>> tau = torch.tensor([0.0, 1.0, 10.0], dtype=torch.float64)
    >>> fourier_variance(torch.exp(-(tau**2) / 2), torch.exp(-((2 * tau) ** 2) / 2))
    tensor([0.0000, 0.1998, 0.5000], dtype=torch.float64)
    """
    value = _common.within("kernel", kernel, -1.0)
    at_double = _common.within("kernel_at_double", kernel_at_double, -1.0)
    if value.shape != at_double.shape:
        raise ValueError(
            f"expected kernel_at_double of shape {tuple(value.shape)}, as kernel has, got {tuple(at_double.shape)}; "
            "evaluate both at the same pairs"
        )
    return (0.5 + 0.5 * at_double - value.square()).clamp(0.0, 1.0)


def fourier_bound(variance: float | Tensor = 1.0) -> TailBound:
    r"""Bound on the error of random Fourier features in one kernel value, by Hoeffding and Bernstein.

    .. math:: \Pr[|\hat k(\tau) - k(\tau)| \ge \epsilon] \le 2 \exp\Big(\frac{-D \epsilon^2}{4 \alpha}\Big), \qquad
        \alpha = \min\big(1, v(\tau) + \tfrac23 \epsilon\big)

    with D columns, cos and sin for each of D/2 independent frequencies, and k(0) = 1. The inequality is Hoeffding's
    where :math:`\alpha = 1`, as it is without a variance, and Bernstein's elsewhere.

    :param variance: the variance v of a single frequency, from 0 to 1, of any shape: see :func:`fourier_variance`.
    :returns: a bound with tensors of the shape of ``variance``.
    :raises ValueError: for a variance outside of [0, 1].

    Source: Rahimi and Recht (2007); Sutherland and Schneider (2015).

    >>> import torch
    >>> bound = fourier_bound(variance=torch.tensor([0.0, 0.2, 1.0], dtype=torch.float64))
    >>> bound.failure_probability(1000, epsilon=0.1)
    tensor([1.0351e-16, 1.6964e-04, 1.6417e-01], dtype=torch.float64)
    >>> bound.num_features(epsilon=0.1, delta=0.05)
    tensor([  100,  394,  1476])
    """
    largest = _common.within("variance", variance, 0.0)
    return TailBound(
        log_factor=lambda epsilon: math.log(2.0),
        rate=lambda epsilon: epsilon**2 / (4.0 * (largest + 2.0 * epsilon / 3.0).clamp_max(1.0)),
        cos_and_sin=True,
    )


def fourier_num_features(epsilon: float, delta: float, variance: float | Tensor = 1.0) -> Tensor:
    r"""Columns for one kernel value within epsilon with probability 1 - delta: those of :func:`fourier_bound`.

    .. math:: D \ge \frac{4 \alpha}{\epsilon^2} \log\frac{2}{\delta}, \qquad
        \alpha = \min\big(1, v(\tau) + \tfrac23 \epsilon\big)

    :param epsilon: the error, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param variance: the variance v of a single frequency, from 0 to 1, of any shape: see :func:`fourier_variance`.
    :returns: int64 numbers of columns, even, of the shape of ``variance``.
    :raises ValueError: for a bad epsilon, delta or variance, or more than :math:`2^{53}` features.

    Source: Rahimi and Recht (2007); Sutherland and Schneider (2015).

    >>> fourier_num_features(0.1, 0.05)
    tensor(1476)
    """
    return fourier_bound(variance).num_features(epsilon, delta)

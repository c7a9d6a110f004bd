"""Bounds for kernel derivatives from random Fourier features that hold for all pairs of inputs from a compact set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _checks
from . import _common


class _Derivative(NamedTuple):
    """S, main theorem: the error is below slow/sqrt(m) + fast/m + scale (24 sqrt(6 t/m) + 36 K t/m)."""

    scale: float  # sigma_{p,q}
    growth: float  # K
    slow: float
    fast: float


def derivative_error_bound(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    num_features: int,
    delta: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> float:
    r"""Error that kernel derivatives from random Fourier features stay below with probability 1 - delta.

    .. math:: \sup_{x, y} |\partial^{p,q} k - \widehat{\partial^{p,q} k}| < \sigma_{p,q} \Big(
        \frac{C_3 \sqrt{d \log(16 \ell C_{p,q} + 4)} + C_1 + 24 \sqrt{6 t}}{\sqrt m} +
        \frac{36 K (\log 2 + 1 + t)}{m}\Big), \qquad t = \log\frac{2}{\delta}

    .. math:: \sigma_{p,q}^2 = E[w^{2(p+q)}], \quad C_{p,q}^2 = \frac{E[w^{2(p+q)} \|w\|^2]}{\sigma_{p,q}^2}, \quad
        C_1 = 14 \sqrt{6 \log 2} + 1, \quad C_3 = 7 \sqrt 6 \Big(1 + \frac{\sqrt\pi}{(\log 2)^{3/2}}\Big)

    for all x and y of a compact set, with cos and sin columns for each of m = D/2 independent frequencies w, and k(0)
    normalized to 1. The moments have to satisfy :math:`E|w^{p+q}|^n \le \sigma_{p,q}^n K^{n-2} n!/2` for all n from 2
    and a K from 1 up. K is 1 for kernel values, for first derivatives of a Gaussian kernel and for second ones in two
    coordinates, and :math:`2/\sqrt 3` for second derivatives in a single coordinate (S has 2). No K exists for higher
    derivatives of a Gaussian kernel, nor for any derivative of a Matérn kernel.

    The bound grows slowly with the diameter, but its constants, which S takes from van de Geer and Lederer (2013),
    Theorem 8, are large: it is never below :math:`150 \sigma_{p,q}/\sqrt m`, hundreds of times what errors are.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param num_features: the number of columns D, even.
    :param delta: the probability of a larger error, between 0 and 1.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :returns: the error.
    :raises ValueError: for derivatives without a K, for both or neither of ``lengthscale`` and ``second_moment``, or
        for a number outside of its range.

    Source: S, main theorem, Eq. 15, 16.

    >>> derivative_error_bound([0, 0], [0, 0], 4.0, 100_000, 0.05, lengthscale=1.0)
    1.58...
    >>> derivative_error_bound([1, 0], [0, 0], 4.0, 100_000, 0.05, lengthscale=[0.5, 1.0])
    3.34...
    """
    m, t = _common.columns(num_features) // 2, math.log(2.0 / _common.probability("delta", delta))
    c = _derivative(p, q, diameter, lengthscale, second_moment)
    slow, fast = _with_probability(c, t)
    return slow / math.sqrt(m) + fast / m


def derivative_failure_probability(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    num_features: int,
    epsilon: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> float:
    r"""Upper bound on the probability that some kernel derivative on a compact set is missed by epsilon.

    .. math:: \Pr\Big[\sup_{x, y} |\partial^{p,q} k - \widehat{\partial^{p,q} k}| \ge \epsilon\Big] \le 2 e^{-t}

    with the t for which :func:`derivative_error_bound` gives epsilon, which is a quadratic equation in :math:`\sqrt t`.
    It is 1 as long as epsilon is below about :math:`150 \sigma_{p,q} / \sqrt m`.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter of the compact set.
    :param num_features: the number of columns D = 2 m, even.
    :param epsilon: the error, positive.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :returns: a probability, at most 1.
    :raises ValueError: as :func:`derivative_error_bound` does, and where epsilon is not positive.

    Source: S, main theorem, Eq. 15, 16.

    >>> derivative_failure_probability([1, 0], [1, 0], 4.0, 1_000_000, 1.0, lengthscale=1.0)
    0.0018...
    """
    m, epsilon = _common.columns(num_features) // 2, _common.positive("epsilon", epsilon)
    c = _derivative(p, q, diameter, lengthscale, second_moment)
    left = epsilon - c.slow / math.sqrt(m) - c.fast / m
    if left <= 0.0:
        return 1.0
    root = _positive_root(36.0 * c.growth * c.scale / m, 24.0 * math.sqrt(6.0 / m) * c.scale, left)
    return min(1.0, 2.0 * math.exp(-(root**2)))


def derivative_num_features(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    epsilon: float,
    delta: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> int:
    r"""Columns with which all kernel derivatives on a compact set are within epsilon with probability 1 - delta.

    .. math:: D = 2 m, \qquad \frac{a}{\sqrt m} + \frac{b}{m} \le \epsilon

    with the left-hand side of :func:`derivative_error_bound`: the smallest even number for which that error is at most
    epsilon. This takes more than :math:`2 (150 \sigma_{p,q} / \epsilon)^2` columns.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter of the compact set.
    :param epsilon: the error, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :returns: an even number of columns.
    :raises ValueError: as :func:`derivative_error_bound` does, where epsilon is not positive, or for more than
        :math:`2^{53}` features.

    Source: S, main theorem, Eq. 15, 16.

    >>> derivative_num_features([0, 0], [0, 0], 4.0, 0.1, 0.05, lengthscale=1.0)
    24932572
    """
    epsilon, t = _common.positive("epsilon", epsilon), math.log(2.0 / _common.probability("delta", delta))
    slow, fast = _with_probability(_derivative(p, q, diameter, lengthscale, second_moment), t)
    root = torch.tensor(_positive_root(fast, slow, epsilon), dtype=torch.float64)
    return 2 * int(_common.rounded_up(root**-2))


def _with_probability(c: _Derivative, t: float) -> tuple[float, float]:
    return c.slow + 24.0 * math.sqrt(6.0 * t) * c.scale, c.fast + 36.0 * c.growth * t * c.scale


def _positive_root(a: float, b: float, c: float) -> float:
    """The positive root of a u^2 + b u = c, for positive a, b and c."""
    return 2.0 * c / (b + math.sqrt(b**2 + 4.0 * a * c))


def _derivative(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    lengthscale: float | Sequence[float] | Tensor | None,
    second_moment: float | None,
) -> _Derivative:
    orders = _orders(p, q)
    if (lengthscale is None) == (second_moment is None):
        raise ValueError(
            f"expected one of lengthscale and second_moment, got {'neither' if lengthscale is None else 'both'}; pass "
            "lengthscale for a Gaussian kernel, and second_moment for values of another one"
        )
    if second_moment is not None:
        if any(orders):
            raise ValueError(
                f"expected p = q = 0 with a second_moment, got p + q = {orders}; only frequencies of a Gaussian kernel "
                "are known to have moments that grow slowly enough (those of a Matérn kernel are infinite): pass its "
                "lengthscale"
            )
        scale, growth, lipschitz = 1.0, 1.0, math.sqrt(_common.positive("second_moment", second_moment))
    else:
        scale, growth, lipschitz = _gaussian_moments(orders, lengthscale)
    entropy = len(orders) * math.log(16.0 * _common.positive("diameter", diameter) * lipschitz + 4.0)
    log2 = math.log(2.0)
    chaining = 7.0 * math.sqrt(6.0) * (1.0 + math.sqrt(math.pi) / log2**1.5) * math.sqrt(entropy)
    slow = scale * (chaining + 14.0 * math.sqrt(6.0 * log2) + 1.0)
    return _Derivative(scale, growth, slow, scale * 36.0 * growth * (log2 + 1.0))


def _gaussian_moments(orders: list[int], lengthscale: Any) -> tuple[float, float, float]:
    """sigma_{p,q}, K and C_{p,q} for independent frequencies N(0, 1/lengthscale^2) and r = p + q.

    For a square, K^2 = 4/3 turns the condition on the moments into binom(2n, n) <= 3/8 4^n; for a product of two, K = 1
    turns it into Gamma((n + 1)/2) <= sqrt(pi)/2 Gamma(n/2 + 1). Both are equalities at n = 2, and slack beyond.
    """
    if sum(orders) > 2:
        raise ValueError(
            f"expected derivatives of total order 2 at most, got p + q = {orders}; the moments of products of three or "
            "more Gaussian frequencies grow faster than n! K^n, which the bound does not allow"
        )
    values = _checks.real_tensor(lengthscale, "lengthscale").double().flatten().tolist()
    scales = [_common.positive("lengthscale", value) for value in values]
    if len(scales) not in (1, len(orders)):
        raise ValueError(f"expected 1 or {len(orders)} lengthscales, got {len(scales)}; pass one per column of x")
    scales = scales * (len(orders) // len(scales))
    is_square = max(orders) == 2
    scale = math.sqrt(3.0 if is_square else 1.0) / math.prod(s**r for s, r in zip(scales, orders, strict=True))
    lipschitz = math.sqrt(sum((2 * r + 1) / s**2 for s, r in zip(scales, orders, strict=True)))
    return scale, 2.0 / math.sqrt(3.0) if is_square else 1.0, lipschitz


def _orders(p: Any, q: Any) -> list[int]:
    """The sum of two multi-indices."""
    values = []
    for name, index in (("p", p), ("q", q)):
        entries = _checks.tensor(index, name).tolist() if isinstance(index, Tensor) else index
        is_index = isinstance(entries, Sequence) and len(entries) > 0
        if not is_index or not all(type(entry) is int and entry >= 0 for entry in entries):
            raise ValueError(f"expected d non-negative integers for {name}, got {index!r}; pass one order per column")
        values.append(list(entries))
    if len(values[0]) != len(values[1]):
        raise ValueError(
            f"expected as many orders in p as in q, got {len(values[0])} and {len(values[1])}; pass one per column"
        )
    return [left + right for left, right in zip(*values, strict=True)]

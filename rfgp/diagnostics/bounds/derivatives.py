"""Bounds for kernel derivatives from random Fourier features that hold for all pairs of inputs from a compact set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from . import _common


@dataclass(frozen=True)
class DerivativeBound:
    r"""A bound on the largest error of a kernel derivative, with probability :math:`1 - 2 e^{-t}`.

    .. math:: \frac{a}{\sqrt m} + \frac{b}{m} + \sigma \Big(24 \sqrt{\frac{6 t}{m}} + \frac{36 K t}{m}\Big), \qquad
        m = \frac D2

    :param scale: :math:`\sigma_{p,q}`.
    :param growth: K.
    :param slow: a.
    :param fast: b.

    >>> DerivativeBound(scale=1.0, growth=1.0, slow=200.0, fast=60.0).failure_probability(10, epsilon=1.0)
    1.0
    """

    scale: float
    growth: float
    slow: float
    fast: float

    def error(self, num_features: int, delta: float) -> float:
        """The error that is exceeded with a probability of at most delta; ``num_features`` is even."""
        m = _common.columns(num_features) // 2
        slow, fast = self._coefficients(delta)
        return slow / math.sqrt(m) + fast / m

    def failure_probability(self, num_features: int, epsilon: float) -> float:
        """Upper bound on the probability that an error is epsilon or more; ``num_features`` is even."""
        m, epsilon = _common.columns(num_features) // 2, checks.positive("epsilon", epsilon)
        left = epsilon - self.slow / math.sqrt(m) - self.fast / m
        if left <= 0.0:
            return 1.0
        root = _positive_root(36.0 * self.growth * self.scale / m, 24.0 * math.sqrt(6.0 / m) * self.scale, left)
        return min(1.0, 2.0 * math.exp(-(root**2)))

    def num_features(self, epsilon: float, delta: float) -> int:
        """The smallest even number of columns for which the error is at most epsilon with probability 1 - delta."""
        epsilon = checks.positive("epsilon", epsilon)
        slow, fast = self._coefficients(delta)
        root = torch.tensor(_positive_root(fast, slow, epsilon), dtype=torch.float64)
        return 2 * int(_common.rounded_up(root**-2))

    def _coefficients(self, delta: float) -> tuple[float, float]:
        """Those of 1/sqrt(m) and of 1/m."""
        t = math.log(2.0 / checks.share("delta", delta))
        return self.slow + 24.0 * math.sqrt(6.0 * t) * self.scale, self.fast + 36.0 * self.growth * t * self.scale


def derivative_bound(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> DerivativeBound:
    r"""Bound on the error of kernel derivatives from random Fourier features on a compact set.

    .. math:: \sup_{x, y} |\partial^{p,q} k - \widehat{\partial^{p,q} k}| < \sigma_{p,q} \Big(
        \frac{C_3 \sqrt{d \log(16 \ell C_{p,q} + 4)} + C_1 + 24 \sqrt{6 t}}{\sqrt m} +
        \frac{36 K (\log 2 + 1 + t)}{m}\Big)

    .. math:: \sigma_{p,q}^2 = E[w^{2(p+q)}], \quad C_{p,q}^2 = \frac{E[w^{2(p+q)} \|w\|^2]}{\sigma_{p,q}^2}, \quad
        C_1 = 14 \sqrt{6 \log 2} + 1, \quad C_3 = 7 \sqrt 6 \Big(1 + \frac{\sqrt\pi}{(\log 2)^{3/2}}\Big)

    with probability :math:`1 - 2 e^{-t}`, for cos and sin columns of each of m = D/2 independent frequencies w,
    k(0) = 1, and :math:`E|w^{p+q}|^n \le \sigma_{p,q}^n K^{n-2} n!/2` for all n from 2. No such K exists for third
    and higher derivatives of a Gaussian kernel, nor for any derivative of a Matérn kernel.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :raises ValueError: for derivatives without a K, not exactly one of the moments, or a bad number.

    Source: S, main theorem, Eq. 15, 16; the constants are those of van de Geer and Lederer (2013), Theorem 8.

    >>> bound = derivative_bound([1, 0], [0, 0], 4.0, lengthscale=[0.5, 1.0])
    >>> bound.error(100_000, delta=0.05)
    3.34...
    """
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
        scale, growth, lipschitz = 1.0, 1.0, math.sqrt(checks.positive("second_moment", second_moment))
    else:
        scale, growth, lipschitz = _gaussian_moments(orders, lengthscale)
    entropy = len(orders) * math.log(16.0 * checks.positive("diameter", diameter) * lipschitz + 4.0)
    log2 = math.log(2.0)
    chaining = 7.0 * math.sqrt(6.0) * (1.0 + math.sqrt(math.pi) / log2**1.5) * math.sqrt(entropy)
    slow = scale * (chaining + 14.0 * math.sqrt(6.0 * log2) + 1.0)
    return DerivativeBound(scale, growth, slow, scale * 36.0 * growth * (log2 + 1.0))


def _positive_root(a: float, b: float, c: float) -> float:
    """The positive root of a u^2 + b u = c, for positive a, b and c."""
    return 2.0 * c / (b + math.sqrt(b**2 + 4.0 * a * c))


def _gaussian_moments(orders: list[int], lengthscale: Any) -> tuple[float, float, float]:
    """sigma_{p,q}, K and C_{p,q} for independent frequencies N(0, 1/lengthscale^2) and r = p + q."""
    if sum(orders) > 2:
        raise ValueError(
            f"expected derivatives of total order 2 at most, got p + q = {orders}; the moments of products of three or "
            "more Gaussian frequencies grow faster than n! K^n, which the bound does not allow"
        )
    values = checks.real_tensor(lengthscale, "lengthscale").double().flatten().tolist()
    scales = [checks.positive("lengthscale", value) for value in values]
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
        entries = checks.tensor(index, name).tolist() if isinstance(index, Tensor) else index
        is_index = isinstance(entries, Sequence) and len(entries) > 0
        if not is_index or not all(type(entry) is int and entry >= 0 for entry in entries):
            raise ValueError(f"expected d non-negative integers for {name}, got {index!r}; pass one order per column")
        values.append(list(entries))
    if len(values[0]) != len(values[1]):
        raise ValueError(
            f"expected as many orders in p as in q, got {len(values[0])} and {len(values[1])}; pass one per column"
        )
    return [left + right for left, right in zip(*values, strict=True)]

"""Minh's bound for bounded operator-valued features on a compact set, in the Hilbert-Schmidt norm."""

from __future__ import annotations

from .compact_set import over_compact_set
from .operator_fourier import operator_fourier_bound
from .tail import TailBound


def minh_bound(
    input_dim: int, diameter: float, slope: float, largest_norm: float, second_moment: float | None = None
) -> TailBound:
    r"""Minh's bound on the largest Hilbert-Schmidt error of bounded operator features on a compact set.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\|_{HS} \ge \epsilon\Big] \le
        2^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon}{8 (d + 1) M} \log\Big(1 + \frac{M \epsilon}{2 \sigma^2}\Big)\Big)

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad
        s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big), \qquad m = E\big[\|w\| \|A(w)\|_{HS}\big]

    with the features, M and sigma of :func:`operator_fourier_bound`. M has the diameter of the set of
    differences in place of :math:`2 \ell`. The maximum with 1 is missing there, for any epsilon, and without it the
    bound is false: it goes to zero with m, as if all errors were differences from an error at the origin, which is not
    zero unless :math:`A(w)` is constant.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set of inputs.
    :param slope: m; for a decomposable kernel :math:`\|\Gamma\|_{HS} E\|w\|`.
    :param largest_norm: the bound M on :math:`\|A(w)\|_{HS}`.
    :param second_moment: :math:`\sigma^2 = E \|A(w)\|_{HS}^2`, at most M squared; default: M squared.
    :returns: a bound with numbers on the error in the Hilbert-Schmidt norm; D is that of the scalar map.
    :raises ValueError: for a number that is not positive, or a second moment beyond the square of the bound.

    Source: M Theorem 12, where D counts frequencies, with the maximum.

    >>> bound = minh_bound(2, 4.0, slope=1.2533, largest_norm=1.0)
    >>> bound.failure_probability(50_000, epsilon=0.2), bound.num_features(epsilon=0.2, delta=0.05)
    (7.33...e-16, 9896)
    """
    return over_compact_set(operator_fourier_bound(largest_norm, second_moment), input_dim, diameter, slope)

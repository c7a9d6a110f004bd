"""Variance and error of operator-valued random Fourier features at a pair of inputs, in the Hilbert-Schmidt norm."""

from __future__ import annotations

import math

from torch import Tensor

from . import _common
from .fourier import fourier_variance
from .tail import TailBound


def operator_fourier_variance(kernel: Tensor, kernel_at_double: Tensor, coregionalization: Tensor) -> Tensor:
    r"""Variance of what a single frequency adds to the estimate of a decomposable kernel from cos and sin columns.

    .. math:: V(\tau) = E\big[(\cos(w^\top \tau) \Gamma - k(\tau) \Gamma)^2\big]
        = \Big(\tfrac12 + \tfrac12 k(2 \tau) - k(\tau)^2\Big) \Gamma^2

    The estimate from D columns, two per frequency, has the variance :math:`2 V / D`. This is the case :math:`A(w) =
    \Gamma` of the identity

    .. math:: V(\tau) = \tfrac12 E[A(w)^2] + \tfrac12 E[\cos(2 w^\top \tau) A(w)^2] - K(\tau)^2

    which stands in place of the inequality of B: its proof loses a factor 2 where a covariance with :math:`1 + \cos(2
    w^\top \tau)` becomes one with :math:`\cos(w^\top \tau)^2`, which is half of it.

    :param kernel: values :math:`k(\tau)` of a shift-invariant kernel with k(0) = 1, of any shape.
    :param kernel_at_double: its values :math:`k(2 \tau)`, of the same shape.
    :param coregionalization: the positive semi-definite matrix Gamma, (p, p).
    :returns: a float64 tensor (..., p, p).
    :raises ValueError: for kernel values outside of [-1, 1], shapes that differ, or a bad matrix.

    Source: B Proposition 33 and 4.4.1, corrected.

    >>> import torch
    >>> gamma = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> operator_fourier_variance(torch.tensor(0.5), torch.tensor(0.0625), gamma)
    tensor([[1.4062, 1.1250],
            [1.1250, 1.4062]], dtype=torch.float64)
    """
    gamma = _common.coregionalization(coregionalization)
    return fourier_variance(kernel, kernel_at_double)[..., None, None] * (gamma @ gamma)


def operator_fourier_bound(largest_norm: float, second_moment: float | None = None) -> TailBound:
    r"""Bound on the Hilbert-Schmidt error of bounded operator features in one value of an operator.

    .. math:: \Pr\big[\|\hat K(\tau) - K(\tau)\|_{HS} \ge \epsilon\big] \le
        2 \exp\Big(\frac{-D \epsilon}{4 M} \log\Big(1 + \frac{M \epsilon}{\sigma^2}\Big)\Big), \qquad
        \|A(w)\|_{HS} \le M, \quad \sigma^2 = E \|A(w)\|_{HS}^2

    with D columns for each output of :math:`A(w)^{1/2}`, cos and sin for each of D/2 independent frequencies w, and
    :math:`K(\tau) = E[\cos(w^\top \tau) A(w)]`. M and sigma are :math:`\|\Gamma\|_{HS}` for a decomposable kernel. For
    curl-free and divergence-free features of a Gaussian kernel with the trace measure they are :math:`d /
    \text{lengthscale}^2` and :math:`\sqrt{d - 1}` times that; the bound :math:`\operatorname{tr} K(0)` of M is larger
    for the latter. Features with other measures are not bounded.

    The inequality is that of Smale and Zhou (2007), whose M bounds the terms before their mean is subtracted. It
    follows from Pinelis' inequality for the difference, as the mean that adds :math:`\|K(\tau)\|` to the bound takes
    :math:`\|K(\tau)\|^2` from the second moment.

    :param largest_norm: the bound M.
    :param second_moment: sigma squared, at most M squared; default: M squared.
    :returns: a bound with numbers on the error in the Hilbert-Schmidt norm; D is that of the scalar map.
    :raises ValueError: for a number that is not positive, or a second moment beyond the square of the bound.

    Source: M Theorem 11, where D counts frequencies.

    >>> bound = operator_fourier_bound(largest_norm=1.0)
    >>> bound.failure_probability(1000, epsilon=0.2), bound.num_features(epsilon=0.2, delta=0.05)
    (0.00021..., 406)
    """
    largest = _common.positive("largest_norm", largest_norm)
    moment = largest * largest if second_moment is None else _common.positive("second_moment", second_moment)
    if moment > largest * largest * (1.0 + 1e-9):
        raise ValueError(
            f"expected a second_moment of at most {largest * largest:g}, the square of largest_norm, got {moment:g}; "
            "increase largest_norm"
        )
    return TailBound(
        log_factor=lambda epsilon: math.log(2.0),
        rate=lambda epsilon: epsilon / (4.0 * largest) * math.log1p(epsilon * (largest / moment)),
        cos_and_sin=True,
    )

"""The covariance of the estimates of two fields by the same frequencies: the mathematics of their moments."""

from __future__ import annotations

import math
from typing import Any

import torch
from linear_operator import to_dense
from torch import Tensor

from ..features import FeatureMap, Gaussian, Matern, PowerWeighted, RandomFourier, WidenedGaussian
from ..features.spectra import radial_moment
from ..functionals import Polynomial, add, adjoint, degree, multiply
from ..kernels.derivatives import partial_derivatives, smoothness


def covariance_of_fields(feature_map: FeatureMap, left: Any, right: Any, x: Tensor, y: Tensor) -> Tensor | None:
    """The sum (..., N, M) of the covariances of the entries of two estimates from the frequencies of one map.

    Of one estimate it is the variance; None without a closed form. Source: errata, from B 4.4.
    """
    spectrum = feature_map.spectrum if isinstance(feature_map, RandomFourier) else None
    if not isinstance(feature_map, RandomFourier) or not isinstance(
        spectrum, Gaussian | Matern | PowerWeighted | WidenedGaussian
    ):
        return None
    rows, others = (kernel.covariance(x.shape[-1]) for kernel in (left, right))
    scalar = left.scalar_kernel
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row, other, strict=True)]
    modulus = _total([multiply(entry, adjoint(other)) for entry, other in pairs])
    square = _total([multiply(entry, other) for entry, other in pairs])
    factor, shrink = torch.ones_like(scalar.lengthscale[..., 0, 0]), 1.0
    if isinstance(spectrum, WidenedGaussian):
        factor, shrink = factor * (4.0 / 3.0) ** (0.5 * x.shape[-1]), math.sqrt(2.0 / 3.0)
    elif isinstance(spectrum, PowerWeighted):
        if len(set(spectrum.powers)) > 1 or scalar.lengthscale.shape[-1] > 1:
            return None
        power = spectrum.powers[0]
        quotients = [_over_norm(polynomial, power, x.shape[-1]) for polynomial in (modulus, square)]
        if quotients[0] is None or quotients[1] is None:
            return None
        modulus, square = quotients[0], quotients[1]
        moment = radial_moment(spectrum.spectrum, power, x.shape[-1])
        factor = moment * scalar.lengthscale[..., 0, 0] ** (-2 * power)
    if max(degree(modulus), degree(square)) > 2 * smoothness(scalar):
        return torch.full_like(x[..., :, :1] @ y[..., :, :1].mT, math.inf)
    if feature_map.structure != "independent":
        return None
    zero = torch.zeros_like(x[..., :1, :])
    at_zero = _derivative(modulus, scalar, zero, zero, shrink)
    at_double = _derivative(square, scalar, 2.0 * x, 2.0 * y, shrink)
    second = 0.5 * factor[..., None, None] * (at_zero + at_double)
    blocks = [
        to_dense(kernel.forward(x, y)).unflatten(-2, (-1, len(rows))).unflatten(-1, (-1, len(rows)))
        for kernel in (left, right)
    ]
    return (second - (blocks[0] * blocks[1]).sum((-3, -1))) / feature_map.num_frequencies


def _derivative(polynomial: Polynomial, scalar: Any, x: Tensor, y: Tensor, shrink: float) -> Tensor:
    """A polynomial in the derivatives of k(shrink (x - y)), the kernel of frequencies that are shrunk."""
    values = partial_derivatives(scalar, shrink * x, shrink * y, polynomial)
    terms = [coefficient * shrink ** sum(alpha) * values[alpha] for alpha, coefficient in polynomial.items()]
    return sum(terms, torch.zeros_like(x[..., :, :1] @ y[..., :, :1].mT))


def _total(polynomials: list[Polynomial]) -> Polynomial:
    total: Polynomial = {}
    for polynomial in polynomials:
        total = add(total, polynomial)
    return total


def _over_norm(polynomial: Polynomial, power: int, dim: int) -> Polynomial | None:
    r"""The polynomial over :math:`\|w\|^{2 q}`, that is minus the Laplacian, or None where a remainder is left."""
    for _ in range(power):
        quotient: Polynomial = {}
        while polynomial:
            leading = max(polynomial)
            if leading[0] < 2:
                return None
            alpha = (leading[0] - 2, *leading[1:])
            quotient = add(quotient, {alpha: -polynomial[leading]})
            laplacian = {(*alpha[:k], alpha[k] + 2, *alpha[k + 1 :]): polynomial[leading] for k in range(dim)}
            rest = add(polynomial, laplacian, -1.0)
            polynomial = {powers: value for powers, value in rest.items() if value != 0.0}
        polynomial = quotient
    return polynomial

"""How far the features of one or many outputs are from the exact kernel, in closed form."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from .. import _checks
from ..features import FeatureMap, Gaussian, Matern, PowerWeighted, RandomFourier, WidenedGaussian
from ..features.spectra import radial_moment
from ..operators import Polynomial, add, adjoint, degree, multiply
from .composition import FeatureScaleKernel, FeatureSumKernel, have_common_weights, unscaled
from .derivatives import partial_derivatives, smoothness
from .feature_kernel import FeatureKernel, FeatureStructure
from .multitask import FeatureMultitaskKernel
from .operator_valued import OperatorValuedKernel


def hilbert_schmidt_variance(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor | None:
    r"""The variance :math:`E \|\hat K(x, y) - K(x, y)\|_F^2` of the estimate of a kernel of many outputs by features.

    With m independent frequencies of amplitudes a(w), and :math:`Q = b b^H`, it is

    .. math:: \frac1m \Big\{\frac12 \sum_{s, t} E\big[a^4 |Q_{st}|^2\big] + \mathrm{Re}\, E\big[a^4 Q_{st}^2\,
        e^{2 i w^\top (x - y)}\big] - \|K(x, y)\|_F^2\Big\}

    The entries of Q are polynomials, so that the means are derivatives of scalar kernels: of the kernel itself for
    unbounded features; of a Gaussian with variance 2/3 of that of the frequencies for widened ones. Under the trace
    measure of one order q, :math:`a^2 = M_q / \|w\|^{2 q}` of scaled frequencies divides the sums over s and t.

    :param kernel: a kernel made by :func:`rfgp.approximate`; for a separable kernel :math:`k\,\Gamma` it is
        :math:`\|\Gamma\|_F^2` times the variance of the scalar features, and for scalar kernels that variance itself.
        Scales multiply it; the parts of a sum add up, with their covariance where they share one measure.
    :param x: the full inputs, (..., N, d).
    :param y: (..., M, d).
    :returns: (..., N, M), or None where there is no closed form (for orthogonal frequencies, and for the trace measure
        of several orders or with ARD, and for parts of a sum that share weights in other ways), and where the variance
        is infinite: without a change of measure derivatives of order q need nu > 2 q.
    :raises ValueError: for a kernel without features.

    Source: errata, from B 4.4 (whose Proposition 33 lacks a factor).

    >>> import gpytorch, rfgp
    >>> from rfgp.features import RandomFourier
    >>> exact = rfgp.kernels.CurlFreeKernel(gpytorch.kernels.RBFKernel())
    >>> kernel = rfgp.approximate(exact, num_features=64, method=RandomFourier(3, 64))
    >>> hilbert_schmidt_variance(kernel, torch.zeros(2, 3), torch.zeros(4, 3)).shape
    torch.Size([2, 4])
    """
    for inputs in (x, y):
        _checks.inputs(inputs)
    if not isinstance(kernel, FeatureStructure):
        raise ValueError(
            f"expected a kernel with random features, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )
    moments = mean_and_variance(kernel, x, y)
    is_biased = any(not part.is_unbiased for part in kernel.modules() if isinstance(part, FeatureMap))
    if moments is None or is_biased or not bool(torch.isfinite(moments[1]).all()):
        return None
    return moments[1]


def mean_and_variance(kernel: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
    r"""The mean of the estimate by features, and the variance :math:`E \|\hat K - E \hat K\|_F^2` of every block.

    :param kernel: a kernel made by :func:`rfgp.approximate`.
    :param x: the full inputs, (..., N, d).
    :param y: (..., M, d).
    :returns: (..., N T, M T) and (..., N, M), which may be infinite; or None where there is no closed form.
    """
    return _moments(kernel, kernel._select(x), kernel._select(y))


def _moments(kernel: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance at inputs that the kernel's ``active_dims`` have selected."""
    if isinstance(kernel, FeatureScaleKernel):
        inner, scale = _moments(kernel.base_kernel, x, y), kernel.outputscale[..., None, None]
        return None if inner is None else (scale * inner[0], scale.square() * inner[1])
    if isinstance(kernel, FeatureMultitaskKernel):
        inner, tasks = _moments(kernel.data_covar_module, x, y), to_dense(kernel.task_covar_module.covar_matrix)
        if inner is None:
            return None
        mean = inner[0][..., :, None, :, None] * tasks[:, None, :]
        return mean.flatten(-2).flatten(-3, -2), inner[1] * tasks.square().sum((-2, -1))[..., None, None]
    if isinstance(kernel, FeatureSumKernel):
        return _of_sum(kernel, x, y)
    if not isinstance(kernel, FeatureKernel):
        return None
    if isinstance(kernel.base_kernel, OperatorValuedKernel):
        variance = _covariance_of_fields(kernel, kernel, x, y)
        return None if variance is None else (to_dense(kernel.base_kernel.forward(x, y)), variance)
    return _of_functions(kernel, x, y)


def _of_sum(kernel: FeatureSumKernel, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
    """The moments of the parts added up, with twice the covariance of every two that share their measure."""
    parts = kernel.parts
    moments = [mean_and_variance(part, x, y) for part in parts]
    means, variances = ([m[i] for m in moments if m is not None] for i in (0, 1))
    if len(means) < len(parts):
        return None
    for i, part in enumerate(parts):
        for other in parts[:i]:
            if have_common_weights(part, other):
                covariance = _covariance_of_parts(part, other, x, y) if kernel.has_one_map else None
                if covariance is None:
                    return None
                variances.append(2.0 * covariance)
    return sum(means[1:], means[0]), sum(variances[1:], variances[0])


def _covariance_of_parts(left: Any, right: Any, x: Tensor, y: Tensor) -> Tensor | None:
    """The covariance of scaled fields that share their frequencies."""
    covariance = _covariance_of_fields(unscaled(left), unscaled(right), left._select(x), left._select(y))
    if covariance is None:
        return None
    for part in (left, right):
        while isinstance(part, FeatureScaleKernel):
            covariance, part = part.outputscale[..., None, None] * covariance, part.base_kernel
    return covariance


def _of_functions(kernel: FeatureKernel, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
    feature_map, law = kernel.bound_map(x)
    inputs = kernel.map_inputs(x), kernel.map_inputs(y)
    moments = feature_map.moments(*inputs, **law)
    if moments is None:
        return None
    scale = kernel.family.scale(feature_map) ** 2
    # of the real part, where features are complex
    variance = scale**2 * 0.5 * (moments.variance + moments.pseudo_variance.real)
    return scale * feature_map.target(*inputs, **law).real, variance


def _covariance_of_fields(left: FeatureKernel, right: FeatureKernel, x: Tensor, y: Tensor) -> Tensor | None:
    """The sum of covariances of the entries of two fields that share map and scalar kernel; of one, its variance."""
    feature_map, _ = left.bound_map(x)
    spectrum = feature_map.spectrum if isinstance(feature_map, RandomFourier) else None
    known = Gaussian | Matern | PowerWeighted | WidenedGaussian
    if not isinstance(feature_map, RandomFourier) or not isinstance(spectrum, known):
        return None
    exact: list[Any] = [left.base_kernel, right.base_kernel]
    rows, others = (kernel.covariance(x.shape[-1]) for kernel in exact)
    scalar = exact[0].scalar_kernel
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row, other, strict=True)]
    modulus = _sum([multiply(entry, adjoint(other)) for entry, other in pairs])
    square = _sum([multiply(entry, other) for entry, other in pairs])
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
        to_dense(kernel.forward(x, y)).unflatten(-2, (-1, len(rows))).unflatten(-1, (-1, len(rows))) for kernel in exact
    ]
    return (second - (blocks[0] * blocks[1]).sum((-3, -1))) / feature_map.num_frequencies


def _derivative(polynomial: Polynomial, scalar: Any, x: Tensor, y: Tensor, shrink: float) -> Tensor:
    """A polynomial in the derivatives of k(shrink (x - y)), the kernel of frequencies that are shrunk."""
    values = partial_derivatives(scalar, shrink * x, shrink * y, polynomial)
    terms = [coefficient * shrink ** sum(alpha) * values[alpha] for alpha, coefficient in polynomial.items()]
    return sum(terms, torch.zeros_like(x[..., :, :1] @ y[..., :, :1].mT))


def _sum(polynomials: list[Polynomial]) -> Polynomial:
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
            polynomial = add(polynomial, laplacian, -1.0)
        polynomial = quotient
    return polynomial

"""Main effects: what the function is on average, where one input is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from .analysis import analysis, checked_grid
from .closed_form import conditional_means, mean_squared_slopes, partial_variances
from .estimate import Estimate, shares
from .given import Inputs
from .inputs import InputDistribution
from .sampled import sampled_means


@dataclass(frozen=True)
class MainEffects:
    """Conditional means along every input, from :func:`main_effects`.

    :param names: the names of the d inputs.
    :param grid: the values of the inputs, (G, d).
    :param effect: the conditional means with their posterior, (G, d), or (T, G, d) for several outputs.
    :param method: "closed form", or "sampling".
    """

    names: tuple[str, ...]
    grid: Tensor
    effect: Estimate
    method: str


def main_effects(
    model: Any,
    inputs: Inputs,
    grid: int | Tensor = 50,
    *,
    num_functions: int = 200,
    num_points: int = 256,
) -> MainEffects:
    r"""The main effects :math:`E[f(X) \mid X_k = x_k]` along a grid, with their posterior.

    .. math:: E[f(X) \mid X_k = x] = \mathrm{Re} \sum_j c_j e^{\mathrm{i} \omega_{jk} x}
        \prod_{l \ne k} \chi_l(\omega_{jl})

    Model and inputs are as for :func:`sobol_indices`.

    :param grid: the values of the inputs, (G, d), or their number; default: 50 from the 0.5 % to the 99.5 % quantile.
    :param num_points: the number of points of the other inputs where the features are not Fourier features.
    :raises ValueError: as :func:`sobol_indices` does, and for a bad grid.

    Source: Oakley and O'Hagan (2004).

    >>> import gpytorch, rfgp
    >>> from rfgp.diagnostics.sensitivity import Uniform, main_effects
    >>> x = torch.rand(100, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x[:, 0])
    >>> main_effects(model, [Uniform(0, 1), Uniform(0, 1)], grid=20).effect.mean.shape
    torch.Size([20, 2])
    """
    count = checks.positive_integer("num_points", num_points)
    functions = analysis(model, inputs, num_functions)
    values = checked_grid(grid, functions.inputs)
    if functions.waves is None:
        effects = functions.joined(
            [sampled_means(group, functions.inputs, values, count).movedim(-1, 0) for group in functions.groups]
        )
    else:
        effects = functions.of_waves(lambda waves: conditional_means(waves, functions.inputs, values).movedim(-1, 0))
    return MainEffects(functions.names, values, functions.estimate(effects), functions.method)


@dataclass(frozen=True)
class DerivativeSensitivities:
    """Mean squares of derivatives with their posterior, from :func:`derivative_sensitivities`.

    :param names: the names of the d inputs.
    :param inputs: their distributions.
    :param mean_square: the mean squared derivatives, (d,), or (T, d) for several outputs.
    :param variance: the variance of f over the inputs, a number, or (T,).
    """

    names: tuple[str, ...]
    inputs: tuple[InputDistribution, ...]
    mean_square: Estimate
    variance: Estimate

    def total_bound(self) -> Estimate:
        r"""The upper bounds :math:`T_k \le C_k\, E (\partial f / \partial x_k)^2 / V` of the total indices.

        C is :math:`(b - a)^2 / \pi^2` for uniform inputs and :math:`\sigma^2` for normal ones; empirical have none.

        Source: Sobol' and Kucherenko (2009); Lamboni et al. (2013).
        """
        constants = [distribution.poincare_constant for distribution in self.inputs]
        if None in constants:
            name = self.names[constants.index(None)]
            raise ValueError(f"expected uniform or normal inputs for a bound, got values for {name}; use sobol_indices")
        factor = torch.tensor(constants, dtype=torch.float64)
        squares, whole = self.mean_square, self.variance
        return Estimate(shares(factor * squares.value, whole.value), shares(factor * squares.samples, whole.samples))


def derivative_sensitivities(model: Any, inputs: Inputs, *, num_functions: int = 200) -> DerivativeSensitivities:
    r"""The mean squared derivatives :math:`\nu_k = E\, (\partial f / \partial x_k)^2`, in closed form.

    Parameters are those of :func:`sobol_indices`.

    :raises ValueError: as :func:`sobol_indices` does, and for other than Fourier features.

    Source: Sobol' and Kucherenko (2009).

    >>> import gpytorch, rfgp
    >>> from rfgp.diagnostics.sensitivity import Uniform, derivative_sensitivities
    >>> x = torch.rand(100, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x[:, 0])
    >>> derivative_sensitivities(model, [Uniform(0, 1), Uniform(0, 1)]).total_bound().value.shape
    torch.Size([2])
    """
    functions = analysis(model, inputs, num_functions)
    squares = functions.of_waves(lambda waves: mean_squared_slopes(waves, functions.inputs))
    variance = functions.of_waves(lambda waves: partial_variances(waves, functions.inputs, False).variance)
    return DerivativeSensitivities(
        functions.names, functions.inputs, functions.estimate(squares), functions.estimate(variance)
    )

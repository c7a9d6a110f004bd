"""Uncertain inputs through a model: what is known about the output."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..._support import checks
from ...approximation.reference_tensor import reference_tensor
from ...linalg.sampling import drawing_from
from ...models import WeightSpaceGP
from .analysis import central_part, check_bounds, check_model
from .estimate import Estimate
from .inputs import Inputs, checked_inputs, default_names
from .sampled import SampledFunctions


@dataclass(frozen=True)
class Propagation:
    r"""The distribution of f(X), where neither X nor f is known, from :func:`propagate`.

    .. math:: \mathrm{Var}\, f(X) = \mathrm{Var}_X\, E_f f(X) + E_X \mathrm{Var}_f f(X)

    :param mean: the mean of f(X), a number, or (T,) for several outputs.
    :param input_std: the root of the first term, of the same shape.
    :param model_std: the root of the second term, likewise.
    :param points: the inputs, (N, d).
    :param values: functions drawn from the posterior at these, (S, N), or (S, N, T).
    """

    mean: Tensor
    input_std: Tensor
    model_std: Tensor
    points: Tensor
    values: Tensor

    @property
    def std(self) -> Tensor:
        """The standard deviation of f(X)."""
        return (self.input_std.square() + self.model_std.square()).sqrt()

    def quantile(self, level: float) -> Estimate:
        """The quantile of f(X) over the inputs, with its posterior."""
        return _estimate(self.values.quantile(checks.share("level", level), dim=1))

    def exceedance(self, threshold: float) -> Estimate:
        """The probability over the inputs that f(X) exceeds a threshold, with its posterior."""
        limit = checks.number(threshold)
        if math.isnan(limit):
            raise ValueError(f"expected a number for threshold, got {threshold!r}; in the units of the targets")
        return _estimate((self.values > limit).to(self.values.dtype).mean(1))


@torch.no_grad()
def propagate(
    model: WeightSpaceGP,
    inputs: Inputs | Tensor,
    *,
    num_points: int = 2000,
    num_functions: int = 200,
    generator: Generator | None = None,
) -> Propagation:
    """The distribution of the output for uncertain inputs, split into what inputs and model contribute.

    :param model: a fitted model of one or several outputs.
    :param inputs: distributions of independent inputs as for :func:`sobol_indices`, or draws (N, d) of dependent ones.
    :param num_points: the number N of inputs that are drawn.
    :param num_functions: the number S of functions drawn from the posterior.
    :param generator: a CPU generator for inputs and functions; default: PyTorch's own.
    :raises ValueError: for a model without a fit or of complex targets, or inputs far outside the training inputs.

    >>> import gpytorch, rfgp
    >>> from rfgp.diagnostics.sensitivity import Normal, propagate
    >>> x = torch.rand(100, 1)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=1)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x[:, 0])
    >>> known = propagate(model, {"length": Normal(0.5, 0.1)})
    >>> known.std.shape, known.exceedance(0.6).mean.shape
    (torch.Size([]), torch.Size([]))
    """
    count = checks.positive_integer("num_functions", num_functions)
    size, seed = checks.positive_integer("num_points", num_points), checks.generator(generator)
    checks.fits_in_memory(8.0 * count * size, f"{count:,} functions at {size:,} points", "take fewer")
    if isinstance(inputs, Tensor):
        x = checks.finite(checks.inputs(inputs, name="inputs"), "inputs")
        names = default_names(x.shape[-1])
    else:
        by_name = checked_inputs(inputs)
        names = list(by_name)
        x = torch.stack([distribution.sample(size, seed) for distribution in by_name.values()], dim=-1)
    check_model(model)
    x = x.to(reference_tensor(model.covar_module))
    posterior = model.posterior(x)
    check_bounds(model, names, central_part(x))
    with drawing_from(seed):
        values = SampledFunctions(model, count).drawn(x)
    mean, variance = posterior.mean, posterior.variance
    if model.noise.is_batched:
        mean, variance = mean.mT, variance.mT
    return Propagation(mean.mean(0), mean.std(0, correction=0), variance.mean(0).sqrt(), x, values)


def _estimate(samples: Tensor) -> Estimate:
    return Estimate(samples.mean(0), samples)

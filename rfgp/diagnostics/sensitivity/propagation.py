"""Uncertain inputs through a model: what is known about the output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import scipy
import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg.sampling import drawing_from
from .analysis import central_part, check_bounds
from .copula import GaussianCopula
from .estimate import Estimate
from .given import Inputs, checked_inputs
from .inputs import default_names
from .sources import source_of

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are shown."""


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

    def __str__(self) -> str:
        """A table of the mean, standard deviations and quantiles, the latter with 95 % intervals, for every output."""
        if self.mean.dim():
            return "\n".join(f"output {t + 1}\n{self._output(t)}" for t in range(len(self.mean)))
        return "\n".join(
            [
                f"{'mean':<34}{float(self.mean):>12.4g}",
                f"{'standard deviation':<34}{float(self.std):>12.4g}",
                f"{'  what the inputs contribute':<34}{float(self.input_std):>12.4g}",
                f"{'  what the model does not know':<34}{float(self.model_std):>12.4g}",
                f"{'quantile':<34}{'value':>12}{'95 % from':>12}{'to':>12}",
                *(f"{level:<34.0%}" + "".join(f"{c:>12}" for c in _shown(self.quantile(level))) for level in LEVELS),
            ]
        )

    def _output(self, place: int) -> Propagation:
        """The distribution of one output of several."""
        mean, input_std, model_std = (part[place] for part in (self.mean, self.input_std, self.model_std))
        return Propagation(mean, input_std, model_std, self.points, self.values[..., place])

    @property
    def std(self) -> Tensor:
        """The standard deviation of f(X)."""
        return (self.input_std.square() + self.model_std.square()).sqrt()

    def quantile(self, level: float) -> Estimate:
        r"""The quantile of f(X) over the inputs, with its posterior and the error of N points.

        Of each function it is the order statistic of a level :math:`u_s \sim \mathrm{Beta}(N p, N (1 - p))`.

        Source: Rubin (1981), the Bayesian bootstrap.
        """
        share, count = checks.share("level", level), self.values.shape[1]
        ranks = self._drawn(count * share, count * (1.0 - share)) * (count - 1)
        values, low = self.values.sort(dim=1).values, ranks.long().clamp_max(max(count - 2, 0))
        high, weight = (low + 1).clamp_max(count - 1), ranks - low
        row = torch.arange(len(values))
        weight = weight.reshape(-1, *[1] * (values.dim() - 2))
        samples = torch.lerp(values[row, low], values[row, high], weight.to(values))
        return Estimate(self.values.quantile(share, dim=1).mean(0), samples)

    def exceedance(self, threshold: float) -> Estimate:
        r"""The probability over the inputs that f(X) exceeds a threshold, with its posterior and the error of N points.

        Of each function, which exceeds it at n of N points, it is a draw of
        :math:`\mathrm{Beta}(n + \tfrac12, N - n + \tfrac12)`, Jeffreys' posterior.
        """
        limit = checks.number(threshold)
        if math.isnan(limit):
            raise ValueError(f"expected a number for threshold, got {threshold!r}; in the units of the targets")
        above = (self.values > limit).sum(1).double()
        samples = self._drawn(above + 0.5, self.values.shape[1] - above + 0.5)
        return Estimate(above.mean(0) / self.values.shape[1], samples.to(self.values))

    def _drawn(self, a: float | Tensor, b: float | Tensor) -> Tensor:
        """Values of Beta distributions at equally spaced levels, one for each function, in a fixed order."""
        count = len(self.values)
        order = torch.randperm(count, generator=Generator().manual_seed(0))
        spaced = ((order + 0.5) / count).double()
        if isinstance(a, Tensor):
            spaced = spaced.reshape(-1, *[1] * (a.dim() - 1)).expand(a.shape)
        return torch.as_tensor(scipy.stats.beta.ppf(spaced.numpy(), a, b))


@torch.no_grad()
def propagate(
    model: Any,
    inputs: Inputs | GaussianCopula | Tensor,
    *,
    num_points: int = 2000,
    num_functions: int = 200,
    generator: Generator | None = None,
) -> Propagation:
    """The distribution of the output for uncertain inputs, split into what inputs and model contribute.

    Printed, the result is a table.

    :param model: a fitted model as for :func:`sobol_indices`.
    :param inputs: distributions of independent inputs as for :func:`sobol_indices`; of dependent ones, a
        :class:`GaussianCopula`, or draws (N, d).
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
    elif isinstance(inputs, GaussianCopula):
        names, x = list(inputs.inputs), inputs.sample(size, seed)
    else:
        by_name = checked_inputs(inputs)
        names = list(by_name)
        x = torch.stack([distribution.sample(size, seed) for distribution in by_name.values()], dim=-1)
    source, x = source_of(model), x.double().cpu()
    mean, variance = source.moments(x)
    check_bounds(source.bounds, names, central_part(x))
    outputs = mean.shape[1:].numel()
    with drawing_from(seed):
        drawn = torch.cat([group(x)[:, outputs:] for group in source.functions(count)], dim=-1)
    values = drawn.mT if mean.dim() == 1 else drawn.unflatten(-1, (-1, outputs)).transpose(0, 1)
    return Propagation(mean.mean(0), mean.std(0, correction=0), variance.mean(0).sqrt(), x, values)


def _shown(estimate: Estimate) -> list[str]:
    low, high = estimate.interval()
    return [f"{float(value):.4g}" for value in (estimate.value, low, high)]

"""Sobol' indices of the function that a model has learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from .analysis import Analysis, analysis
from .closed_form import PartialVariances, partial_variances
from .estimate import Estimate, frame, shares, table
from .functions import differences, side_by_side
from .given import Inputs
from .sampled import sampled_variances


@dataclass(frozen=True)
class SobolIndices:
    """Sobol' indices with their posterior, from :func:`sobol_indices`; (d,), or (T, d) for several outputs.

    :param names: the names of the d inputs.
    :param first: first-order indices: the share of the variance of f that is that of an input alone.
    :param total: total indices: the share that involves an input, interactions included.
    :param second: second-order indices, (d, d) with NaN on the diagonal: the share of an interaction of two inputs.
    :param mean: the mean of f over the inputs, a number, or (T,).
    :param variance: its variance over the inputs.
    :param method: "closed form", or "sampling" where the features are not Fourier features.
    :param outside: the shares of every input, and of its variance, outside the training inputs, (2, d); a WeightSpaceGP
        knows their range in powers of two. What the function is there is extrapolated, and intervals only know of it
        what the model does.
    """

    names: tuple[str, ...]
    first: Estimate
    total: Estimate
    second: Estimate | None
    mean: Estimate
    variance: Estimate
    method: str
    outside: Tensor

    def __str__(self) -> str:
        """The table, with intervals of probability 95 %."""
        return self.table()

    def table(self, level: float = 0.95) -> str:
        """The indices with intervals of probability ``level`` as plain text, the most important input first.

        Below these it names inputs of which much is outside the training inputs.
        """
        return table(self.names, {"first order": self.first, "total": self.total}, self.outside, level)

    def to_frame(self, level: float = 0.95) -> Any:
        """First-order and total indices as a pandas DataFrame, a row for every input (and output)."""
        return frame(self.names, {"first": self.first, "total": self.total}, level)


def sobol_indices(
    model: Any,
    inputs: Inputs,
    *,
    second_order: bool = True,
    num_functions: int = 200,
    num_points: int = 1024,
) -> SobolIndices:
    r"""Sobol' indices of the function of a model with independent uncertain inputs, and how well they are known.

    .. math:: S_k = \frac{V_k}{V}, \qquad T_k = 1 - \frac{V_{-k}}{V}, \qquad
        S_{kl} = \frac{V_{kl} - V_k - V_l}{V}, \qquad V_S = \mathrm{Var}\, E[f(X) \mid X_S]

    In closed form, at O(m^2 d), for Fourier features, and sums, products and multitask kernels of these; other
    features are averaged over scrambled Sobol' points.

    :param model: a fitted WeightSpaceGP of real targets (or of class labels: the latent functions), a GPyTorch ExactGP
        with Gaussian noise, or a :class:`rfgp.sklearn.RandomFeatureGPRegressor`, in the units of its table.
    :param inputs: a distribution for every column of the inputs, in the units of the fit, by name or in order: of this
        module, of scipy.stats, of torch.distributions, or as text such as "normal(10, 2)".
    :param second_order: whether interactions of pairs are wanted.
    :param num_functions: the number S of functions drawn from the posterior, by PyTorch's random numbers.
    :param num_points: the number of points where the features are not Fourier features, a power of two.
    :raises ValueError: for a model without a fit or of complex targets, or inputs far outside those of training.

    Source: Sobol' (1993); Homma and Saltelli (1996), total indices; Oakley and O'Hagan (2004), Gaussian processes.

    >>> import gpytorch, rfgp
    >>> from rfgp.diagnostics.sensitivity import Normal, Uniform, sobol_indices
    >>> x = torch.rand(100, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x[:, 0])
    >>> indices = sobol_indices(model, {"length": Uniform(0, 1), "load": Normal(0.5, 0.1)})
    >>> indices.first.value.shape, indices.method
    (torch.Size([2]), 'closed form')
    """
    checks.flag("second_order", second_order)
    count = checks.positive_integer("num_points", num_points)
    functions = checks.positive_integer("num_functions", num_functions)
    checks.fits_in_memory(8.0 * count * functions, f"{functions:,} functions at {count:,} points", "take fewer")
    known = analysis(model, inputs, functions)
    variances, apart = _sampled(known, count, second_order) if known.waves is None else _closed(known, second_order)
    whole = variances.variance
    spreads: tuple[Tensor | None, Tensor | None] = (None, None)
    if apart is not None:
        spreads = shares(apart.single, whole), shares(apart.variance.unsqueeze(-1) - apart.others, whole)
    second = None
    if variances.pairs is not None:
        alone = variances.single
        interaction = variances.pairs - alone.unsqueeze(-1) - alone.unsqueeze(-2)
        interaction.diagonal(dim1=-2, dim2=-1).fill_(torch.nan)
        second = known.estimate(shares(interaction, whole.unsqueeze(-1)))
    return SobolIndices(
        known.names,
        known.estimate(shares(variances.single, whole), spreads[0]),
        known.estimate(shares(whole.unsqueeze(-1) - variances.others, whole), spreads[1]),
        second,
        known.estimate(variances.mean),
        known.estimate(variances.variance),
        known.method,
        known.outside,
    )


def _sampled(known: Analysis, num_points: int, second_order: bool) -> tuple[PartialVariances, PartialVariances]:
    """Variances of all functions and of their differences from the mean; groups have points of their own."""
    outputs = known.num_outputs or 1
    parts = [
        sampled_variances(group, known.inputs, num_points, second_order, outputs, seed)
        for seed, group in enumerate(known.groups)
    ]
    return _joined([whole for whole, _ in parts], known.joined), _joined([apart for _, apart in parts], known.joined)


def _closed(known: Analysis, second_order: bool) -> tuple[PartialVariances, PartialVariances | None]:
    """Variances of all functions and, where all have the same waves, of their differences from the mean."""
    sets = known.waves or []
    if len(sets) > 1:
        return _joined([partial_variances(waves, known.inputs, second_order) for waves in sets], torch.cat), None
    both = side_by_side([sets[0], differences(sets[0], known.num_outputs or 1)])
    found = partial_variances(both, known.inputs, second_order)
    half = len(found.variance) // 2
    return found.taken(slice(half)), found.taken(slice(half, None))


def _joined(parts: Sequence[PartialVariances], join: Callable[[list[Tensor]], Tensor]) -> PartialVariances:
    """The variances of several sets of functions as those of one."""
    pairs = [part.pairs for part in parts if part.pairs is not None]
    return PartialVariances(
        join([part.mean for part in parts]),
        join([part.variance for part in parts]),
        join([part.single for part in parts]),
        join([part.others for part in parts]),
        join(pairs) if pairs else None,
    )

"""Split conformal intervals: the errors of a model at rows that it has not seen give its intervals their width."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from ..._support import checks
from ...likelihoods import MultitaskFixedNoiseGaussianLikelihood


class SplitConformal:
    r"""Intervals around the predictions of a model, with their width from calibration rows, by :func:`split_conformal`.

    .. math:: C(x) = \mu(x) \pm q\, \sigma(x), \qquad
        q = \text{the } \lceil (n + 1)(1 - \alpha) \rceil\text{-th smallest of } |y_i - \mu(x_i)| / \sigma(x_i)

    They cover a new observation, exchangeable with the n calibration rows, with a probability of at least
    :math:`1 - \alpha` for any model, and of less than :math:`1 - \alpha + 1 / (n + 1)` for scores without ties. With
    groups this holds in each of them.

    :param labels: the groups that have quantiles of their own, in ascending order, (G,); None for one of all rows.
    :param quantiles: q of every group and output, (G, T).
    """

    def __init__(self, model: Any, labels: Tensor | None, quantiles: Tensor, normalize: bool) -> None:
        self.model, self.labels, self.quantiles, self.normalize = model, labels, quantiles, normalize

    @torch.no_grad()
    def interval(self, x: Tensor, noise: Tensor | None = None, groups: Tensor | None = None) -> Interval:
        """Intervals of new observations at inputs (n, d), with their noise for a fixed-noise likelihood.

        :param groups: the groups of the rows, (n,), where calibration has some; infinite intervals for new ones.
        """
        mean, deviation = predicted(self.model, x, noise)
        width = self._quantiles(x, groups).to(mean) * (columns(deviation) if self.normalize else 1.0)
        half = width.expand(columns(mean).shape).reshape(mean.shape)
        return Interval(mean - half, mean + half)

    def _quantiles(self, x: Tensor, groups: Tensor | None) -> Tensor:
        """The quantiles (n, T) of rows, or (1, T) without groups."""
        if (groups is None) != (self.labels is None):
            wanted, got = ("groups", "none") if groups is None else ("no groups", "some")
            raise ValueError(f"expected {wanted} as at calibration, got {got}; give both rows groups, or none")
        if groups is None or self.labels is None:
            return self.quantiles
        is_own = _checked(groups, x).unsqueeze(-1) == self.labels.to(groups)
        found = self.quantiles[is_own.to(torch.uint8).argmax(-1)]
        return found.masked_fill(~is_own.any(-1, keepdim=True), math.inf)


@torch.no_grad()
def split_conformal(
    model: Any,
    x: Tensor,
    y: Tensor,
    level: float = 0.9,
    *,
    noise: Tensor | None = None,
    normalize: bool = True,
    groups: Tensor | None = None,
) -> SplitConformal:
    r"""Calibrate the intervals of a fitted model with rows that it was not fitted to.

    :param model: a fitted regression model of :mod:`rfgp.models`, or a GPyTorch ExactGP in evaluation mode.
    :param x: inputs of the calibration rows, (n, d).
    :param y: their targets, (n,) or (n, T), with NaN for missing ones; every output has its own width.
    :param level: the coverage :math:`1 - \alpha`; default: 0.9.
    :param noise: the noise variances of these rows, for a fixed-noise likelihood.
    :param normalize: whether errors count in standard deviations of the prediction; default: True.
    :param groups: integers (n,), such as of sensors or regions: intervals then cover in every group; default: one.
    :returns: an object whose ``interval(x)`` gives intervals, infinite where there are too few rows for the level.
    :raises ValueError: for targets or noise of another kind, or another level.

    Source: V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World, 2005; J. Lei et al.,
    Distribution-free predictive inference for regression, 2018, Theorem 2.2 and Section 5.2. Of groups: V. Vovk,
    Conditional validity of inductive conformal predictors, 2012.

    >>> import gpytorch, rfgp
    >>> x = torch.rand(150, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x[:100], x[:100, 0])
    >>> lower, upper = split_conformal(model, x[100:], x[100:, 0], level=0.9).interval(x[:3])
    """
    share = checks.share("level", level)
    checks.flag("normalize", normalize)
    if not callable(model) or not hasattr(model, "likelihood"):
        raise ValueError(f"expected a model with a likelihood, got {type(model).__name__}; such as a WeightSpaceGP")
    if isinstance(model, ExactGP) and model.training:
        raise ValueError("expected a model in evaluation mode, got one in training mode; call model.eval() first")
    mean, deviation = predicted(model, x, noise)
    if checks.floating(y, "y").shape != mean.shape:
        got = tuple(y.shape)
        raise ValueError(f"expected real targets y of shape {tuple(mean.shape)}, got {got}; give a target per row")
    if bool(torch.isinf(y).any()):
        raise ValueError("expected finite targets y, got infinite ones; NaN stands for a missing one")
    errors = columns((y - mean).abs() / deviation if normalize else (y - mean).abs())
    if groups is None:
        return SplitConformal(model, None, _quantiles(errors, share).unsqueeze(0), normalize)
    own = _checked(groups, x)
    labels = own.unique()
    quantiles = torch.stack([_quantiles(errors[own == label], share) for label in labels])
    return SplitConformal(model, labels, quantiles, normalize)


def _checked(groups: Tensor, x: Tensor) -> Tensor:
    return checks.one_per_row(checks.integers(groups, "groups", "numbers of groups"), x, "groups")


def _quantiles(errors: Tensor, level: float) -> Tensor:
    """The quantiles (T,) of errors (n, T), of which NaN is missing."""
    return torch.stack([quantile(column[~column.isnan()], level) for column in errors.unbind(-1)])


def predicted(model: Any, x: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """The means and standard deviations of new observations."""
    fixed = FixedNoiseGaussianLikelihood | MultitaskFixedNoiseGaussianLikelihood
    if noise is not None and not isinstance(model.likelihood, fixed):
        raise ValueError(
            f"expected noise for a fixed-noise likelihood alone, got some for a {type(model.likelihood).__name__}; "
            "leave it out"
        )
    observed = model.likelihood(model(x), **({} if noise is None else {"noise": noise}))
    if observed.mean.is_complex() or observed.mean.shape[0] != len(x):
        raise ValueError(
            "expected a regression model of real targets, got another; take class labels to "
            "rfgp.diagnostics.conformal.ClassConditionalSets"
        )
    return observed.mean, observed.variance.sqrt()


class Interval(NamedTuple):
    """Intervals in the units of the targets.

    :param lower: the lower ends, (n,), or (n, T) for several outputs; minus infinity where there are too few rows.
    :param upper: the upper ends, of the same shape.

    >>> Interval(torch.zeros(3), torch.ones(3)).upper
    tensor([1., 1., 1.])
    """

    lower: Tensor
    upper: Tensor


def rank(count: int, level: float) -> int:
    """The rank ceil((n + 1) level) of the score that is a conformal quantile; above n there is none."""
    return math.ceil((count + 1) * level - 1e-9)


def quantile(scores: Tensor, level: float) -> Tensor:
    """The conformal quantile of scores (n,): the one of this rank, or infinity where there is none."""
    number = rank(len(scores), level)
    return scores.new_tensor(math.inf) if number > len(scores) else scores.kthvalue(number).values


def columns(values: Tensor) -> Tensor:
    """Values (n,) or (n, T) as (n, T)."""
    return torch.atleast_1d(values).unsqueeze(-1) if values.dim() == 1 else values

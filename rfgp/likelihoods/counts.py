"""Likelihoods of counts that rows have collected over different exposures, such as years, areas or populations."""

from __future__ import annotations

import abc
from typing import Any

from gpytorch.distributions import MultivariateNormal
from torch import Tensor
from torch.distributions import Distribution

from .._support import checks
from .quadrature import QuadratureLikelihood, QuadratureMarginal


class CountLikelihood(QuadratureLikelihood):
    r"""Counts whose mean is their exposure times the rate exp(f).

    .. math:: E[y_i \mid f_i] = e_i\, e^{f_i} = e^{f_i + \log e_i}

    ``likelihood(f, exposure=e)`` has counts of these exposures, (..., N) as the function has; without it they are ones.

    Source: McCullagh and Nelder (1989), Generalized Linear Models, section 6.3.
    """

    @abc.abstractmethod
    def counts(self, f: Tensor) -> Distribution:
        """The distribution of counts given the logarithms of their means."""

    def forward(self, function_samples: Tensor, *args: Any, exposure: Any = None, **kwargs: Any) -> Any:
        """The distribution of counts given values of the function, the logarithms of the rates."""
        return self.counts(function_samples + log_exposure(exposure, function_samples))

    def log_marginal(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, exposure: Any = None, **kwargs: Any
    ) -> Tensor:
        """The log density (..., N) of counts (..., N), without the function."""
        return self.marginal(function_dist, exposure=exposure).log_prob(observations)

    def marginal(
        self, function_dist: MultivariateNormal, *args: Any, exposure: Any = None, **kwargs: Any
    ) -> QuadratureMarginal:
        """The distribution of counts, without the function."""
        mean = function_dist.mean
        shifted = mean + log_exposure(exposure, mean)
        return QuadratureMarginal(self.conditional, shifted, function_dist.variance, self.quadrature)


def checked_exposure(exposure: Any) -> Tensor:
    """Positive finite exposures, or a ValueError."""
    values = checks.finite(checks.real_tensor(checks.tensor(exposure, "exposure"), "exposure").detach(), "exposure")
    if not bool((values > 0).all()):
        raise ValueError(
            f"expected positive exposure, got a smallest one of {float(values.min()):g}; leave rows without exposure "
            "out"
        )
    return values


def checked_counts(counts: Any, name: str, other: str) -> None:
    """Raise a ValueError where numbers (N,) are no counts; NaN is missing.

    :param other: what takes other numbers.
    """
    bad = counts[(counts < 0) | (counts % 1 != 0) & (counts == counts)]
    if len(bad):
        raise ValueError(
            f"expected whole numbers of at least 0 for {name}, got {float(bad[0]):g}; pass the counts, and their "
            f"exposures beside them, in place of rates, or use {other}"
        )


def log_exposure(exposure: Any, f: Tensor) -> Tensor | float:
    """What is added to values (..., N) of the function for exposures; zero for None."""
    if exposure is None:
        return 0.0
    values = checked_exposure(exposure)
    if values.shape != f.shape[f.dim() - values.dim() :]:
        raise ValueError(
            f"expected exposure of the shape of the function, {tuple(f.shape)}, got {tuple(values.shape)}; pass one "
            "for each row"
        )
    return values.double().log().to(f)

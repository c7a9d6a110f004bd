"""How far the mean of a model with features is from exact, with a bound on how wrong that answer is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._support import checks
from ...models import WeightSpaceGP
from .posterior import CertifiedPosterior, certified_posterior


class Certificate(NamedTuple):
    """How far a model is from the exact one with the same parameters and rows, at M points, in float64.

    :param model_mean: the posterior mean of the model, (M,).
    :param exact_mean: the certified mean of the exact model, (M,).
    :param error_bound: how far ``exact_mean`` may be from exact, (M,).
    :param posterior: the certified posterior, for other points, variances, or a tighter tolerance.
    """

    model_mean: Tensor
    exact_mean: Tensor
    error_bound: Tensor
    posterior: CertifiedPosterior

    @property
    def distance(self) -> Tensor:
        """What there is between the two means, (M,)."""
        return (self.model_mean - self.exact_mean).abs()

    @property
    def smallest_error(self) -> Tensor:
        """The model is at least so far from exact, (M,)."""
        return (self.distance - self.error_bound).clamp_min(0.0)

    @property
    def largest_error(self) -> Tensor:
        """The model is at most so far from exact, (M,)."""
        return self.distance + self.error_bound


@torch.no_grad()
def certify(
    model: WeightSpaceGP, x: Tensor, y: Tensor, new_x: Tensor, noise: Tensor | None = None, **settings: Any
) -> Certificate:
    r"""How far the posterior mean of a fitted model is from that of the exact model, at any number of rows.

    .. math:: |m(x) - E f(x)| \le |m(x) - \mu(x) - k_x^\top \alpha| + \sqrt{k(x, x)} \sqrt{r^\top (K + S)^{-1} r}

    :param model: a fitted model of one real output.
    :param x: the training inputs (N, d) that it was fitted to.
    :param y: their targets (N,).
    :param new_x: the points, (M, d).
    :param noise: the noise variances of the rows, for a fixed-noise likelihood without them.
    :param settings: those of :func:`certified_posterior`, such as ``tolerance``.
    :raises ValueError: for another model, bad data, or what :func:`certified_posterior` refuses.

    Source: errata, identity 8 of the last section.

    >>> import gpytorch, rfgp
    >>> x, likelihood = torch.rand(200, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, likelihood).condition(x, x.sum(-1))
    >>> found = certify(model, x, x.sum(-1), x[:3])
    >>> bool((found.smallest_error <= found.largest_error).all())
    True
    """
    checks.instance("model", model, WeightSpaceGP, "a WeightSpaceGP", "use certified_posterior for an exact kernel")
    fitted = model.statistics.num_rows
    if len(checks.inputs(x)) != fitted:
        raise ValueError(f"expected the {fitted:g} rows that the model was fitted to, got {len(x)}; pass all of them")
    approximate = model.posterior(new_x).mean.detach().double()
    parts = model.covar_module, model.likelihood, x, y, model.mean_module, noise
    posterior = certified_posterior(*parts, **settings)
    return Certificate(approximate, posterior.mean(new_x), posterior.error_bound(new_x), posterior)

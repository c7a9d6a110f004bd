"""Marginals of likelihoods by quadrature over the function."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal, base_distributions
from torch import Tensor
from torch.distributions import Distribution


def marginal_by_quadrature(
    conditional: Callable[[Tensor], Distribution],
    function_dist: MultivariateNormal,
    quadrature: gpytorch.utils.quadrature.GaussHermiteQuadrature1D,
) -> Distribution:
    r"""The mixture :math:`\sum_k w_k\, p(y \mid m + \sqrt{2 v}\, t_k)` with Gauss-Hermite points and weights.

    Its moments are those of the marginal to the order of the quadrature.

    :param conditional: takes values of the function (..., N, K) and returns the distribution of targets.
    :param function_dist: the distribution of the function, of mean m and variance v, (..., N).
    :param quadrature: GPyTorch's rule of K points.
    """
    mean, deviation = function_dist.mean.unsqueeze(-1), (2.0 * function_dist.variance).sqrt().unsqueeze(-1)
    points, weights = (values.to(mean) for values in (quadrature.locations, quadrature.weights))
    mixture = base_distributions.Categorical(probs=weights.expand(*mean.shape[:-1], len(weights)))
    result: Distribution = torch.distributions.MixtureSameFamily(mixture, conditional(mean + deviation * points))
    return result

"""The kernel of a study where it is left open: the one whose exact model predicts rows best that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal
from tqdm.auto import tqdm

from .._support import checks
from ..linalg import cholesky
from .bench import Bench
from .losses import Losses, classification_losses, mean_and_error, regression_losses
from .runs import KernelScore


def rank_kernels(make: Callable[[str], Bench], names: Sequence[str], progress: bool | None) -> list[KernelScore]:
    """Kernels by the mean negative log density of rows that are left out one at a time, the best first."""
    losses: dict[str, Tensor] = {}
    for name in tqdm(names, desc="kernels", unit="kernel", disable=checks.no_bar(progress)):
        bench = make(name)
        try:
            bench.learn(progress=False)
            losses[name] = leave_one_out(bench).log_loss
        except ValueError:
            losses[name] = torch.full((len(bench.some),), math.inf, dtype=torch.float64)
    means = {name: float(values.mean()) for name, values in losses.items()}
    order = sorted(names, key=means.__getitem__)
    best = losses[order[0]]
    return [
        KernelScore(
            name,
            means[name],
            *(mean_and_error(losses[name] - best) if math.isfinite(means[name]) else (math.inf, 0.0)),
        )
        for name in order
    ]


@torch.no_grad()
def leave_one_out(bench: Bench) -> Losses:
    r"""What the exact model loses on every row of its own, given the others, from one factor.

    .. math:: y_i - \mu_{-i} = \Sigma_{-i} [K^{-1} (y - m)]_i, \qquad \Sigma_{-i} = ([K^{-1}]_{ii})^{-1}

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, Eq. 5.12, for one output.
    """
    prior = bench.exact_model()(bench.x[bench.some])
    noisy = bench.likelihood(prior)
    targets = bench.targets
    covariance = noisy.covariance_matrix
    residual = (targets - noisy.mean).reshape(*covariance.shape[:-1], 1)
    inverse = torch.cholesky_inverse(cholesky(covariance))
    weights = (inverse @ residual).squeeze(-1)
    count = bench.num_outputs
    blocks = inverse.unflatten(-1, (-1, count)).unflatten(-3, (-1, count))
    covariances = torch.linalg.inv(blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3))
    errors = (covariances @ weights.unflatten(-1, (-1, count)).unsqueeze(-1)).squeeze(-1)
    variances = covariances.diagonal(dim1=-2, dim2=-1)
    shape: Any = targets.shape
    mean, variance = targets - errors.reshape(shape), variances.reshape(shape)
    if bench.classes is None:
        return regression_losses(Normal(mean, variance.sqrt()), targets)
    noise = (noisy.variance - prior.variance).clamp_min(0.0)
    latent = Normal(mean, (variance - noise).clamp_min(1e-12).sqrt())
    return classification_losses(bench.probabilities(latent), bench.y[bench.some])

"""The exact Gaussian process of one output of a simulator, with draws of its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Generator, Tensor

from .kernels import DEGREES, correlations

_NUM_STARTS, _NUM_PROPOSALS, _NUM_KEPT = 3, 96, 16
_PRIOR_OF_LENGTHSCALE = math.log(0.7), 1.0  # mean and standard deviation of logarithms, in ranges of the runs
_PRIOR_OF_SCALE = math.log(1.0), 1.5
_PRIOR_OF_NOISE = math.log(1e-4), 3.0
_LIMITS = (math.log(0.02), math.log(60.0)), (math.log(1e-3), math.log(1e4)), (math.log(1e-8), math.log(2.0))


@dataclass(frozen=True)
class Emulator:
    r"""A posterior of the function :math:`c + s\, g(x)` for each of B draws of the parameters, equally likely.

    :param kind: the name of the kernel.
    :param x: runs (n, d), scaled to [0, 1].
    :param y: outputs (n,), standardized.
    :param lengthscale: (B, d); ``scale`` and ``noise`` are the variances of g and of the noise, (B,).
    :param factor: the Cholesky factors of the covariances of the runs, (B, n, n).
    :param weights: the inverse covariances times the outputs, (B, n).
    """

    kind: str
    x: Tensor
    y: Tensor
    lengthscale: Tensor
    scale: Tensor
    noise: Tensor
    factor: Tensor
    weights: Tensor

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (N,) of the function at scaled inputs (N, d), over draws of the parameters."""
        mean, variance = self._moments(x)
        return mean.mean(0), variance.mean(0) + mean.var(0, correction=0)

    def left_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (n,) of each run by the others, noise included."""
        inverse = torch.cholesky_inverse(self.factor)
        variance = 1.0 / inverse.diagonal(dim1=-2, dim2=-1)
        mean = self.y - self.weights * variance
        return mean.mean(0), variance.mean(0) + mean.var(0, correction=0)

    def covariance(self, x: Tensor) -> Tensor:
        """The posterior covariance (N, N) of the function at scaled inputs, for the first draw of the parameters."""
        cross = self.scale[0] * correlations(self.kind, x, self.x, self.lengthscale[0]) + 1.0
        prior = self.scale[0] * correlations(self.kind, x, x, self.lengthscale[0]) + 1.0
        half = torch.linalg.solve_triangular(self.factor[0], cross.mT, upper=False)
        return prior - half.mT @ half

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = [], []
        for b in range(len(self.scale)):
            cross = self.scale[b] * correlations(self.kind, x, self.x, self.lengthscale[b]) + 1.0
            half = torch.linalg.solve_triangular(self.factor[b], cross.mT, upper=False)
            means.append(cross @ self.weights[b])
            variances.append((self.scale[b] + 1.0 - half.square().sum(0)).clamp_min(0.0))
        return torch.stack(means), torch.stack(variances)


def fitted(x: Tensor, y: Tensor, generator: Generator) -> Emulator:
    """The emulator of scaled runs and standardized outputs, by the kernel of the largest evidence."""
    found = [(*_most_probable(kind, x, y, generator), kind) for kind in DEGREES]
    _, best, kind = min(found, key=lambda entry: entry[0])
    draws = _parameters(kind, x, y, best, generator)
    lengthscale, scale, noise = draws[:, :-2].exp(), draws[:, -2].exp(), draws[:, -1].exp()
    factor = torch.linalg.cholesky(_covariance(kind, x, draws))
    weights = torch.cholesky_solve(y.expand(len(draws), -1).unsqueeze(-1), factor).squeeze(-1)
    return Emulator(kind, x, y, lengthscale, scale, noise, factor, weights)


def _covariance(kind: str, x: Tensor, theta: Tensor) -> Tensor:
    """Covariances (..., n, n) of the runs, with an unknown constant of variance one, for logarithms (..., d + 2)."""
    scale, noise = theta[..., -2, None, None].exp(), theta[..., -1, None, None].exp()
    return scale * correlations(kind, x, x, theta[..., :-2].exp()) + 1.0 + (noise + 1e-9) * torch.eye(len(x)).to(x)


def _loss(kind: str, x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """Minus the logarithm of evidence times prior, (...), for logarithms of the parameters (..., d + 2)."""
    factor = torch.linalg.cholesky_ex(_covariance(kind, x, theta))[0]
    half = torch.linalg.solve_triangular(factor, y.unsqueeze(-1).expand(*factor.shape[:-1], 1), upper=False)
    fit = 0.5 * half.square().sum((-1, -2)) + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    center, width = _prior(x.shape[-1])
    return fit + 0.5 * ((theta - center) / width).square().sum(-1)


def _prior(dim: int) -> tuple[Tensor, Tensor]:
    pairs = [_PRIOR_OF_LENGTHSCALE] * dim + [_PRIOR_OF_SCALE, _PRIOR_OF_NOISE]
    center, width = torch.tensor(pairs, dtype=torch.float64).unbind(-1)
    return center + torch.cat([0.5 * math.log(dim) * torch.ones(dim), torch.zeros(2)]), width


def _bounds(dim: int) -> list[tuple[float, float]]:
    return [_LIMITS[0]] * dim + [_LIMITS[1], _LIMITS[2]]


def _most_probable(kind: str, x: Tensor, y: Tensor, generator: Generator) -> tuple[float, Tensor]:
    """The smallest loss, and its parameters, from the best of several starts."""
    dim = x.shape[-1]
    center, width = _prior(dim)
    starts = center + 0.7 * width * torch.randn(16, dim + 2, generator=generator, dtype=x.dtype)
    starts[0] = center
    low, high = torch.tensor(_bounds(dim), dtype=x.dtype).unbind(-1)
    starts = starts.clamp(low, high)
    losses = torch.stack([_loss(kind, x, y, start) for start in starts])
    chosen = starts[losses.nan_to_num(math.inf).argsort()[:_NUM_STARTS]]

    def value_and_slope(theta: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        point = torch.tensor(theta, requires_grad=True)
        loss = _loss(kind, x, y, point)
        (slope,) = torch.autograd.grad(loss, point)
        return float(loss), slope.numpy()

    found = [
        minimize(
            value_and_slope, start.numpy(), jac=True, method="L-BFGS-B", bounds=_bounds(dim), options={"maxiter": 60}
        )
        for start in chosen
    ]
    best = min(found, key=lambda result: result.fun)
    return float(best.fun), torch.tensor(best.x)


def _parameters(kind: str, x: Tensor, y: Tensor, best: Tensor, generator: Generator) -> Tensor:
    """Draws (B, d + 2) of the parameters: the most probable ones, and those that importance weights have chosen.

    Proposals are those of a Laplace approximation of the evidence, wider by a fifth.
    """
    hessian = torch.autograd.functional.hessian(lambda theta: _loss(kind, x, y, theta), best)
    values, vectors = torch.linalg.eigh(hessian)
    widths = 1.2 * values.clamp_min(0.1).rsqrt()
    normal = torch.randn(_NUM_PROPOSALS, len(best), generator=generator, dtype=x.dtype)
    low, high = torch.tensor(_bounds(x.shape[-1]), dtype=x.dtype).unbind(-1)
    proposals = (best + (normal * widths) @ vectors.mT).clamp(low, high)
    with torch.no_grad():
        losses = torch.stack([_loss(kind, x, y, proposal) for proposal in proposals])
    log_weights = -losses + 0.5 * normal.square().sum(-1)
    shares = torch.softmax(log_weights.nan_to_num(-math.inf), 0)
    levels = (torch.arange(_NUM_KEPT - 1) + torch.rand(1, generator=generator)) / (_NUM_KEPT - 1)
    chosen = torch.searchsorted(shares.cumsum(0), levels.double()).clamp_max(_NUM_PROPOSALS - 1)
    return torch.cat([best.unsqueeze(0), proposals[chosen]])

"""The exact Gaussian process of one output of a simulator: effects of single inputs, and one of all together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from ...linalg import cholesky

Kind = Literal["rbf", "matern52"]
KINDS: tuple[Kind, ...] = ("rbf", "matern52")
_JITTER = 1e-7
"""Noise variance in units of the prior variance, which keeps matrices positive definite."""
_JOINT_WAVES, _SINGLE_WAVES = 256, 48


@dataclass(frozen=True)
class Parameters:
    r"""The parameters of the kernel of d inputs, from the vector (3 d + 2,) of their logarithms.

    .. math:: k(x, z) = 1 + v\, \kappa\big(|(x - z) / \ell|\big) + \sum_k v_k\, \kappa\big(|x_k - z_k| / \ell_k\big)
    """

    vector: Tensor

    @property
    def dim(self) -> int:
        """The number d of inputs."""
        return (len(self.vector) - 2) // 3

    @property
    def lengthscale(self) -> Tensor:
        """Those of the joint part, (d,)."""
        return self.vector[: self.dim].exp()

    @property
    def variance(self) -> Tensor:
        """That of the joint part."""
        return self.vector[self.dim].exp()

    @property
    def single_lengthscale(self) -> Tensor:
        """Those of the parts of single inputs, (d,)."""
        return self.vector[self.dim + 2 : 2 * self.dim + 2].exp()

    @property
    def single_variance(self) -> Tensor:
        """Those of the parts of single inputs, (d,)."""
        return self.vector[2 * self.dim + 2 :].exp()

    @property
    def noise(self) -> Tensor:
        """The noise variance."""
        total = 1.0 + self.variance + self.single_variance.sum()
        return self.vector[self.dim + 1].exp() + _JITTER * total


def covariance(x: Tensor, z: Tensor, parameters: Parameters, kind: Kind) -> Tensor:
    """The kernel matrix of inputs (N, d) and (M, d)."""
    a, b = ((part - 0.5) / parameters.lengthscale for part in (x, z))
    square = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1) - 2.0 * a @ b.mT
    result = 1.0 + parameters.variance * _correlation(square.clamp_min(1e-30), kind)
    for k in range(parameters.dim):
        difference = (x[:, k].unsqueeze(-1) - z[:, k]) / parameters.single_lengthscale[k]
        result = result + parameters.single_variance[k] * _correlation(difference.square() + 1e-30, kind)
    return result


def _correlation(square: Tensor, kind: Kind) -> Tensor:
    """The correlation at squared distances."""
    if kind == "rbf":
        return torch.exp(-0.5 * square)
    scaled = (5.0 * square).sqrt()
    return (1.0 + scaled + scaled.square() / 3.0) * torch.exp(-scaled)


class Process:
    """The process of runs x (N, d) in the unit cube and standardized outputs y (N,), for known parameters."""

    def __init__(self, x: Tensor, y: Tensor, parameters: Parameters, kind: Kind) -> None:
        self.x, self.y, self.parameters, self.kind = x, y, parameters, kind
        total = covariance(x, x, parameters, kind)
        total.diagonal().add_(parameters.noise)
        self.factor = cholesky(total)
        self.weights = self.solve(y)

    def solve(self, y: Tensor) -> Tensor:
        """The product (N, ...) of the inverse covariance of the runs and y (N, ...), by its factor."""
        return torch.cholesky_solve(y.reshape(len(y), -1), self.factor).reshape(y.shape)

    def mean(self, x: Tensor) -> Tensor:
        """The posterior mean at x (M, d), (M,)."""
        return self.cross(x) @ self.weights

    def variance(self, x: Tensor) -> Tensor:
        """The posterior variance of the function at x (M, d), (M,)."""
        prior = 1.0 + self.parameters.variance + self.parameters.single_variance.sum()
        return (prior - self._half(x).square().sum(0)).clamp_min(0.0)

    def covariance(self, x: Tensor) -> Tensor:
        """The posterior covariance of the function at x (M, d), (M, M)."""
        half = self._half(x)
        return covariance(x, x, self.parameters, self.kind) - half.mT @ half

    def _half(self, x: Tensor) -> Tensor:
        """The prior covariance with the runs, multiplied by the inverse of their factor, (N, M).

        Its products have the rounding errors of the prior variance. Those by the inverse of the covariance have larger
        ones, by the ratio of the prior variance to the noise, and can exceed the posterior variance.
        """
        return torch.linalg.solve_triangular(self.factor, self.cross(x).mT, upper=False)

    def cross(self, x: Tensor) -> Tensor:
        """The prior covariance with the runs, (M, N)."""
        return covariance(x, self.x, self.parameters, self.kind)


class Draws:
    r"""The posterior mean and S functions drawn from the posterior, by Fourier features of the prior.

    .. math:: f_s(x) = \phi(x) w_s + k(x, X) (K + \sigma^2 I)^{-1} (y - \phi(X) w_s - \epsilon_s)

    Source: Wilson et al. (2020), pathwise conditioning.
    """

    def __init__(self, process: Process, num_functions: int, scale: float, generator: Generator) -> None:
        parameters, dim = process.parameters, process.parameters.dim
        joint = _frequencies(_JOINT_WAVES, dim, process.kind, generator) / parameters.lengthscale
        single = torch.zeros(dim, _SINGLE_WAVES, dim, dtype=torch.float64)
        for k in range(dim):
            waves = _frequencies(_SINGLE_WAVES, 1, process.kind, generator).squeeze(-1)
            single[k, :, k] = waves / parameters.single_lengthscale[k]
        self.process, self.scale = process, scale
        self.frequency = torch.cat([joint, single.flatten(0, 1)])
        amplitude = torch.cat(
            [
                (parameters.variance / _JOINT_WAVES).expand(_JOINT_WAVES),
                (parameters.single_variance / _SINGLE_WAVES).repeat_interleave(_SINGLE_WAVES),
            ]
        ).sqrt()
        normal = torch.randn(2 * len(amplitude) + 1, num_functions, generator=generator, dtype=torch.float64)
        self.prior = torch.cat([amplitude, amplitude, torch.ones(1, dtype=torch.float64)]).unsqueeze(-1) * normal
        noise = torch.randn(len(process.x), num_functions, generator=generator, dtype=torch.float64)
        at_runs = self._features(process.x) @ self.prior + parameters.noise.sqrt() * noise
        self.update = process.solve(-at_runs)

    def __call__(self, x: Tensor) -> Tensor:
        """The mean, then the functions at x (M, d), (M, 1 + S)."""
        cross = self.process.cross(x)
        mean = (cross @ self.process.weights).unsqueeze(-1)
        return torch.cat([mean, mean + self.scale * (self._features(x) @ self.prior + cross @ self.update)], dim=-1)

    def _features(self, x: Tensor) -> Tensor:
        phase = x @ self.frequency.mT
        return torch.cat([phase.cos(), phase.sin(), torch.ones_like(phase[:, :1])], dim=-1)


def _frequencies(count: int, dim: int, kind: Kind, generator: Generator) -> Tensor:
    """Draws (count, d) from the spectral density of a kernel with lengthscales of one."""
    normal = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    if kind == "rbf":
        return normal
    square = torch.randn(count, 5, generator=generator, dtype=torch.float64).square().sum(-1, keepdim=True)
    return normal * math.sqrt(5.0) / square.sqrt()

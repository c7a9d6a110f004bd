"""The exact Gaussian process of one output of a simulator: effects of single inputs, and one of all together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...linalg import cholesky

Kind = Literal["rbf", "matern52"]
KINDS: tuple[Kind, ...] = ("rbf", "matern52")
_JITTER = 1e-7
"""Noise variance in units of the prior variance, which keeps matrices positive definite."""


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
    """The kernel matrix of inputs (..., N, d) and (..., M, d)."""
    a, b = ((part - 0.5) / parameters.lengthscale for part in (x, z))
    square = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1).unsqueeze(-2) - 2.0 * a @ b.mT
    result = 1.0 + parameters.variance * _correlation(square.clamp_min(1e-30), kind)
    for k in range(parameters.dim):
        difference = (x[..., k].unsqueeze(-1) - z[..., k].unsqueeze(-2)) / parameters.single_lengthscale[k]
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

    def between(self, x: Tensor, z: Tensor) -> Tensor:
        """The posterior covariance of the function at pairs of x (M, d) and z (M, d), (M,)."""
        prior = covariance(x.unsqueeze(-2), z.unsqueeze(-2), self.parameters, self.kind).flatten()
        return prior - (self._half(x) * self._half(z)).sum(0)

    def _half(self, x: Tensor) -> Tensor:
        """The prior covariance with the runs, multiplied by the inverse of their factor, (N, M).

        Its products have the rounding errors of the prior variance. Those by the inverse of the covariance have larger
        ones, by the ratio of the prior variance to the noise, and can exceed the posterior variance.
        """
        return torch.linalg.solve_triangular(self.factor, self.cross(x).mT, upper=False)

    def cross(self, x: Tensor) -> Tensor:
        """The prior covariance with the runs, (M, N)."""
        return covariance(x, self.x, self.parameters, self.kind)

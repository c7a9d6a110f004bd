"""The spectral density of the rational quadratic kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg import sampling
from .base import IsotropicSpectrum
from .special_functions import gamma_root


@dataclass(frozen=True)
class RationalQuadratic(IsotropicSpectrum):
    r"""The spectral density of the rational quadratic kernel :math:`k = (1 + \|x - y\|^2/(2 \alpha))^{-\alpha}`.

    :param alpha: the shape, unless the hyperparameters have another one (...,), which is differentiable.

    >>> import torch
    >>> RationalQuadratic().kernel(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[0.5000]])
    """

    has_quantiles: ClassVar = True
    alpha: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("alpha", self.alpha)

    def with_directions(self, directions: Tensor, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        base = super().with_directions(directions, dim, generator)
        return base | {"uniform": sampling.uniform((len(directions),), generator)}

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def num_uniforms(self, dim: int) -> int:
        return dim + 1

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        return {"weight": torch.special.ndtri(uniforms[:, 1:]), "uniform": uniforms[:, 0].clone()}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        alpha = self._alpha(base_draws["weight"], hyperparameters)
        root = gamma_root(alpha[..., None], base_draws["uniform"])
        return (root / alpha[..., None].sqrt())[..., None] * base_draws["weight"], None

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        alpha = self._alpha(distance, hyperparameters)[..., None, None]
        return (1.0 + distance.square() / (2.0 * alpha)) ** -alpha

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        """The Gaussian densities of gamma-distributed variances, summed by the trapezoidal rule in log variances."""
        alpha = self._alpha(w, hyperparameters)
        logs = _quadrature(alpha.detach()).to(w)
        log_shares = torch.log_softmax(alpha[..., None] * (logs - logs.exp()), dim=-1)
        square, dim = w.square().sum(-1, keepdim=True), w.shape[-1]
        log_values = -0.5 * (square * (-logs).exp() + dim * (logs + math.log(2.0 * math.pi)))
        return torch.exp(log_shares[..., None, :] + log_values).sum(-1)

    def mass_around_zero(self, radius: Tensor, dim: int, alpha: Tensor) -> Tensor:
        """The integral of the density over a ball (...), which is finite where the density at its center is not."""
        logs = _quadrature(alpha.detach()).to(radius)
        shares = torch.softmax(alpha[..., None] * (logs - logs.exp()), dim=-1)
        inside = torch.special.gammainc(torch.full_like(logs, 0.5 * dim), 0.5 * radius[..., None].square() / logs.exp())
        return (shares * inside).sum(-1)

    def _alpha(self, like: Tensor, hyperparameters: dict[str, Tensor]) -> Tensor:
        return hyperparameters["alpha"] if "alpha" in hyperparameters else like.new_full((), self.alpha)


def _quadrature(alpha: Tensor) -> Tensor:
    """Logarithms of the variance, equispaced, that hold all but 1e-13 of the gamma distributions of shapes alpha."""
    smallest, largest = float(alpha.min()), float(alpha.max())
    width, step = 30.0 / smallest + math.sqrt(60.0 / smallest), min(0.4, 0.8 / math.sqrt(largest))
    return torch.arange(-width, math.log1p(width), step, dtype=torch.float64)

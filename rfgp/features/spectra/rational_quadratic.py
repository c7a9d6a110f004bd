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
from .lattice import mixture_beside_zero
from .special_functions import gamma_quadrature, gamma_root


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
        logs, log_shares = gamma_quadrature(alpha)
        square, dim = w.square().sum(-1, keepdim=True), w.shape[-1]
        log_values = -0.5 * (square * (-logs).exp() + dim * (logs + math.log(2.0 * math.pi)))
        return torch.exp(log_shares[..., None, :] + log_values).sum(-1)

    def mass_around_zero(self, radius: Tensor, dim: int, alpha: Tensor) -> Tensor:
        """The integral of the density over a ball (...), which is finite where the density at its center is not."""
        logs, log_shares = gamma_quadrature(alpha)
        inside = torch.special.gammainc(torch.full_like(logs, 0.5 * dim), 0.5 * radius[..., None].square() / logs.exp())
        return (log_shares.exp() * inside).sum(-1)

    def beside_zero(self, periods: Tensor, **hyperparameters: Tensor) -> Tensor:
        return mixture_beside_zero(periods, *gamma_quadrature(self._alpha(periods, hyperparameters)))

    def _alpha(self, like: Tensor, hyperparameters: dict[str, Tensor]) -> Tensor:
        return hyperparameters["alpha"] if "alpha" in hyperparameters else like.new_full((), self.alpha)

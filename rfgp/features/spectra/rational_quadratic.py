"""The spectral density of the rational quadratic kernel."""

from __future__ import annotations

from dataclasses import dataclass

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

    alpha: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("alpha", self.alpha)

    def with_directions(self, directions: Tensor, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        base = super().with_directions(directions, dim, generator)
        return base | {"uniform": sampling.uniform((len(directions),), generator)}

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        alpha = self._alpha(base_draws["weight"], hyperparameters)
        root = gamma_root(alpha[..., None], base_draws["uniform"])
        return (root / alpha[..., None].sqrt())[..., None] * base_draws["weight"], None

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        alpha = self._alpha(distance, hyperparameters)[..., None, None]
        return (1.0 + distance.square() / (2.0 * alpha)) ** -alpha

    def _alpha(self, like: Tensor, hyperparameters: dict[str, Tensor]) -> Tensor:
        return hyperparameters["alpha"] if "alpha" in hyperparameters else like.new_full((), self.alpha)

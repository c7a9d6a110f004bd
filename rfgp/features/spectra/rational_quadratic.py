"""The spectral law of the rational quadratic kernel."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from ... import _checks, sampling
from .base import IsotropicSpectrum
from .gamma_root import GammaRoot


@dataclass(frozen=True)
class RationalQuadratic(IsotropicSpectrum):
    r"""Normal frequencies times the root of a gamma variable, of :math:`k = (1 + \|x - y\|^2/(2 \alpha))^{-\alpha}`.

    :param alpha: the shape, unless ``law`` has another one (...,), which gradients flow through.
    """

    exact_kernel = "gpytorch.kernels.RQKernel"
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _checks.positive("alpha", self.alpha)

    def with_directions(self, directions: Tensor, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        base = super().with_directions(directions, dim, generator)
        return base | {"uniform": sampling.uniform((len(directions),), generator)}

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        alpha = self._alpha(draws["weight"], law)
        root = GammaRoot.apply(alpha[..., None], draws["uniform"])
        return (root / alpha[..., None].sqrt())[..., None] * draws["weight"], None

    def of_distance(self, distance: Tensor, **law: Tensor) -> Tensor:
        alpha = self._alpha(distance, law)[..., None, None]
        return (1.0 + distance.square() / (2.0 * alpha)) ** -alpha

    def _alpha(self, like: Tensor, law: dict[str, Tensor]) -> Tensor:
        return law["alpha"] if "alpha" in law else like.new_tensor(self.alpha)

"""The spectral density of a Gaussian kernel that is carried along with a random velocity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import Spectrum


@dataclass(frozen=True)
class Advected(Spectrum):
    r"""The spectral density of a Gaussian field that drifts with a normal velocity; time is the last coordinate.

    .. math:: k(h, u) = e^{-u^2/2} \prod_k \frac1{\sqrt{1 + s_k^2 u^2}}
        \exp\Big(-\frac{(h_k - v_k u)^2}{2 (1 + s_k^2 u^2)}\Big)

    The hyperparameters of scaled inputs are the mean ``velocity`` v, (..., d), and the ``spread`` s, (..., d) or
    (..., 1), both 0 by default.

    Source: Cox and Isham (1988); Gneiting (2002).

    >>> x = torch.tensor([[1.0, 1.0]])
    >>> Advected().kernel(x, 0.0 * x, velocity=torch.ones(1))
    tensor([[0.6065]])
    """

    has_quantiles: ClassVar = True

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {
            "normal": sampling.gaussian((width, dim), generator),
            "velocity": sampling.gaussian((width, dim - 1), generator),
        }

    def num_uniforms(self, dim: int) -> int:
        return 2 * dim - 1

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        dim = (uniforms.shape[-1] + 1) // 2
        normal = torch.special.ndtri(uniforms)
        return {"normal": normal[:, :dim].clone(), "velocity": normal[:, dim:].clone()}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        normal = base_draws["normal"]
        velocity, spread = (v.unsqueeze(-2) for v in self._parameters(normal, hyperparameters))
        drawn = velocity + spread * base_draws["velocity"]
        space, time = normal[..., :-1], normal[..., -1:]
        time = time - (drawn * space).sum(-1, keepdim=True)
        return torch.cat([space.expand(*time.shape[:-1], -1), time], dim=-1), None

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        velocity, spread = (v.unsqueeze(-2) for v in self._parameters(w, hyperparameters))
        space, time = w[..., :-1], w[..., -1]
        variance = 1.0 + (spread * space).square().sum(-1)  # of the frequency of time given those of space
        exponent = space.square().sum(-1) + (time + (velocity * space).sum(-1)).square() / variance
        return torch.exp(-0.5 * exponent) * variance.rsqrt() * (2.0 * math.pi) ** (-0.5 * w.shape[-1])

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        velocity, spread = (v[..., None, None, :] for v in self._parameters(x, hyperparameters))
        difference = factor * (x.unsqueeze(-2) - y.unsqueeze(-3))
        space, time = difference[..., :-1], difference[..., -1:]
        widened = 1.0 + (spread * time).square()
        exponent = ((space - velocity * time).square() / widened).sum(-1) + time.squeeze(-1).square()
        return torch.exp(-0.5 * exponent) * widened.expand_as(space).prod(-1).rsqrt()

    def _parameters(self, like: Tensor, hyperparameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        zero = like.new_zeros(like.shape[-1] - 1)
        return hyperparameters.get("velocity", zero), hyperparameters.get("spread", zero)

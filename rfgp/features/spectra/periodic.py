"""The spectral density of the periodic kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import Spectrum
from .special_functions import largest_level, value_and_slope


@torch.library.custom_op("rfgp::periodic_orders", mutates_args=())
def _orders_and_slope(z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers (..., m, d) drawn at levels (m, d), and the derivatives of their log probabilities in z (..., d)."""
    largest = float(z.max())
    orders = torch.arange(-1, int(20.0 + 8.0 * math.sqrt(largest) + largest)).to(z)
    orders = torch.cat([-orders[2:].flip(0), orders[1:]])
    probability, slope = value_and_slope(z.unsqueeze(-1), orders)
    total = probability.double().cumsum(-1)
    edges = (total[..., :-1] / total[..., -1:]).contiguous()
    levels = uniform.mT.double().clamp_max(largest_level(uniform))
    levels = levels.expand(*edges.shape[:-1], -1).contiguous()
    chosen = torch.searchsorted(edges, levels, right=True)
    return orders[chosen].mT.clone(), (slope / probability).gather(-1, chosen).mT.clone()


@_orders_and_slope.register_fake
def _(z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    shape = (*z.shape[:-1], *uniform.shape)
    return z.new_empty(shape), z.new_empty(shape)


@dataclass(frozen=True)
class Periodic(Spectrum):
    r"""The spectral distribution of a periodic kernel: integer frequencies.

    .. math:: k = \exp\Big(-\sum_k z_k (1 - \cos(x_k - y_k))\Big), \qquad P(w_k = n) = e^{-z_k} I_n(z_k)

    The concentrations z, (..., d) or (..., 1), are hyperparameters, and 1 by default.

    >>> Periodic().kernel(torch.zeros(1, 1), torch.full((1, 1), torch.pi))
    tensor([[0.1353]])
    """

    has_quantiles: ClassVar = True

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {"uniform": sampling.uniform((width, dim), generator)}

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        return {"uniform": uniforms}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        z = self._concentration(base_draws["uniform"], hyperparameters)
        at = z.detach()
        orders, slope = _orders_and_slope(at, base_draws["uniform"])
        return orders, torch.exp(0.5 * (slope * (z - at).unsqueeze(-2)).sum(-1))

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        z = self._concentration(x, hyperparameters)
        exponent = x.new_zeros(())
        for k in range(x.shape[-1]):
            difference = factor * (x[..., :, None, k] - y[..., None, :, k])
            exponent = exponent + z[..., k, None, None] * (1.0 - torch.cos(difference))
        return torch.exp(-exponent)

    def _concentration(self, like: Tensor, hyperparameters: dict[str, Tensor]) -> Tensor:
        z = hyperparameters.get("concentration", like.new_ones(1))
        return z.expand(*z.shape[:-1], like.shape[-1])

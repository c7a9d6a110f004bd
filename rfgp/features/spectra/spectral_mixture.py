"""The spectral density of spectral mixture kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg import sampling
from .base import Spectrum


@dataclass(frozen=True)
class SpectralMixture(Spectrum):
    r"""The spectral density of GPyTorch's SpectralMixtureKernel: a normal mixture in every coordinate.

    .. math:: k(\tau) = \prod_k \sum_q c_q \exp(-2 \pi^2 \tau_k^2 v_{qk}^2) \cos(2 \pi \mu_{qk} \tau_k)

    The hyperparameters are weights (..., Q), means and scales (..., Q, d).

    :param num_mixtures: Q, the number of components, all of weight 1/Q, mean 1 and scale 1/(2 pi) by default.

    >>> SpectralMixture(3).kernel(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.6065]])
    """

    has_quantiles: ClassVar = True
    num_mixtures: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_mixtures", checks.positive_integer("num_mixtures", self.num_mixtures))

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {
            "normal": sampling.gaussian((width, dim), generator),
            "sign": sampling.rademacher((width, dim), generator),
            "uniform": sampling.uniform((width, dim), generator),
        }

    def num_uniforms(self, dim: int) -> int:
        return 2 * dim

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        signs_and_levels, levels = uniforms.chunk(2, dim=-1)
        doubled = 2.0 * signs_and_levels
        sign = torch.where(doubled < 1.0, -1.0, 1.0).to(doubled)
        return {"normal": torch.special.ndtri(levels), "sign": sign, "uniform": doubled.frac()}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, means, scales = self._parameters(base_draws["normal"], hyperparameters)
        share = weights / weights.sum(-1, keepdim=True)
        width, dim = base_draws["uniform"].shape
        edges = share.detach().cumsum(-1)[..., :-1].contiguous()
        uniform = base_draws["uniform"].flatten().expand(*edges.shape[:-1], width * dim).contiguous()
        chosen = torch.searchsorted(edges, uniform, right=True).unflatten(-1, (width, dim))

        def pick(values: Tensor) -> Tensor:
            return values.expand(*values.shape[:-1], dim).gather(-2, chosen)

        frequencies = 2.0 * math.pi * (base_draws["sign"] * pick(means) + pick(scales) * base_draws["normal"])
        probability = pick(share[..., None])
        importance = (probability / probability.detach()).prod(-1)
        return frequencies, (weights.sum(-1, keepdim=True) ** dim * importance).sqrt()

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        weights, means, scales = self._parameters(x, hyperparameters)
        result = None
        for k in range(x.shape[-1]):
            difference = factor * (x[..., None, :, None, k] - y[..., None, None, :, k])
            envelope = torch.exp(-2.0 * (math.pi * difference * scales[..., k, None, None]) ** 2)
            wave = torch.cos(2.0 * math.pi * difference * means[..., k, None, None])
            factor_k = (weights[..., None, None] * envelope * wave).sum(-3)
            result = factor_k if result is None else result * factor_k
        if result is None:
            raise ValueError("expected inputs with at least one column, got none; pass non-empty data")
        return result

    def at_zero(self, **hyperparameters: Tensor) -> Tensor | float:
        if "weights" not in hyperparameters:
            return 1.0
        return (hyperparameters["weights"].sum(-1) ** hyperparameters["means"].shape[-1])[..., None, None]

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        weights, means, scales = self._parameters(w, hyperparameters)
        orders, total = w / (2.0 * math.pi), w.new_ones(())
        for k in range(w.shape[-1]):
            center, scale = means[..., k, None], scales[..., k, None]
            bumps = [torch.exp(-0.5 * ((orders[..., None, :, k] - sign * center) / scale).square()) for sign in (1, -1)]
            share = weights[..., None] / (2.0 * scale * (2.0 * math.pi) ** 1.5)
            total = total * (share * (bumps[0] + bumps[1])).sum(-2)
        return total

    def _parameters(self, like: Tensor, hyperparameters: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        if "weights" in hyperparameters:
            return hyperparameters["weights"], hyperparameters["means"], hyperparameters["scales"]
        ones = like.new_ones(self.num_mixtures, like.shape[-1])
        return ones[:, 0] / self.num_mixtures, ones, ones / (2.0 * math.pi)

"""Plane waves that kernels with Fourier features consist of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Waves(NamedTuple):
    r"""A finite sum of plane waves with frequencies w (..., m, d) and factors b (..., m, T).

    .. math:: K(x, y) = \mathrm{Re} \sum_j e^{\mathrm{i} w_j^\top (x - y)}\, b_j b_j^H
    """

    frequencies: Tensor
    factor: Tensor

    def scaled(self, root: Tensor) -> Waves:
        """The waves of the kernel times the square of ``root``, (...)."""
        return Waves(self.frequencies, root[..., None, None] * self.factor)

    def embedded(self, dims: Tensor, input_dim: int) -> Waves:
        """The same as functions of all coordinates, of which ``dims`` are those that they depend on."""
        frequencies = self.frequencies.new_zeros(*self.frequencies.shape[:-1], input_dim)
        return Waves(frequencies.index_copy(-1, dims, self.frequencies), self.factor)

    def symmetric(self) -> Waves:
        """Waves of both directions, whose sum is real by itself."""
        frequencies = torch.cat([self.frequencies, -self.frequencies], dim=-2)
        return Waves(frequencies, torch.cat([self.factor, self.factor.conj()], dim=-2) * 0.5**0.5)

    @staticmethod
    def concatenated(parts: list[Waves]) -> Waves:
        """The waves of a sum."""
        return Waves(_cat([part.frequencies for part in parts]), _cat([part.factor for part in parts]))

    def elementwise(self, other: Waves) -> Waves:
        """Products of every wave with the one of its number, times their number: of independent scalar kernels."""
        width = self.frequencies.shape[-2]
        return Waves(self.frequencies + other.frequencies, width**0.5 * self.factor * other.factor)

    def kronecker(self, other: Waves) -> Waves:
        """Products of every wave with every other one: of scalar kernels."""
        frequencies = self.frequencies.unsqueeze(-2) + other.frequencies.unsqueeze(-3)
        factor = self.factor.unsqueeze(-2) * other.factor.unsqueeze(-3)
        return Waves(frequencies.flatten(-3, -2), factor.flatten(-3, -2))


def _cat(parts: list[Tensor]) -> Tensor:
    batch = torch.broadcast_shapes(*[part.shape[:-2] for part in parts])
    return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in parts], dim=-2)

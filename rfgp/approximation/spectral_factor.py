"""The matrix-valued spectral density of an exact kernel of several outputs at the frequencies of a grid."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .spectral_weights import GridFrequencies


class SpectralFactor(NamedTuple):
    r"""Factors :math:`\sqrt{S(\omega_j) \prod_a h_a}\, b(\omega_j)` in some columns, as :class:`SpectralWeights` are.

    :param values: (..., J, T, r), real or complex.
    :param dims: these columns.
    :param total: the sums of the squared norms at all frequencies of a grid, (..., T).
    """

    values: Tensor
    dims: frozenset[int]
    total: Tensor

    @property
    def weights(self) -> Tensor:
        """The variances of the outputs at every frequency, (..., J, T)."""
        return self.values.abs().square().sum(-1)

    @property
    def cut_off(self) -> Tensor:
        """What frequencies with zero first, and one of each other pair, leave of the variances, (..., T)."""
        weights = self.weights
        return self.total - 2.0 * weights.sum(-2) + weights[..., 0, :]

    def scaled(self, scale: Tensor) -> SpectralFactor:
        """Those of the kernel times numbers (...)."""
        factor = scale.double()
        values = factor.sqrt()[..., None, None, None] * self.values
        return SpectralFactor(values, self.dims, factor.unsqueeze(-1) * self.total)

    def in_all(self, at: GridFrequencies, dims: frozenset[int]) -> Tensor:
        """The values for more columns: zero where a frequency is not zero in one of the others."""
        return self.values * at.is_zero_beside(self.dims, dims)[:, None, None]

    def plus(self, other: SpectralFactor, at: GridFrequencies) -> SpectralFactor:
        """Those of a sum of kernels of the same outputs."""
        if self.total.shape[-1] != other.total.shape[-1]:
            raise ValueError(
                f"expected parts with one number of outputs in a sum, got {self.total.shape[-1]} and "
                f"{other.total.shape[-1]}; correct the kernels"
            )
        dims = self.dims | other.dims
        parts = [part.in_all(at, dims) for part in (self, other)]
        batch = torch.broadcast_shapes(*[part.shape[:-3] for part in parts])
        values = torch.cat([part.expand(*batch, *part.shape[-3:]) for part in parts], dim=-1)
        return SpectralFactor(values, dims, self.total + other.total)

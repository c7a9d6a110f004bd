"""The matrix-valued spectral density of an exact kernel of several outputs at the frequencies of a grid."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SpectralFactor(NamedTuple):
    r"""Factors :math:`\sqrt{S(\omega_j) \prod_a h_a}\, b(\omega_j)` at zero and other frequencies.

    :param values: (..., J, T, r), real or complex.
    :param total: the sum of their products :math:`b b^H` at all frequencies of a grid, (..., T, T), real.
    """

    values: Tensor
    total: Tensor

    @property
    def weights(self) -> Tensor:
        """The variances of the outputs at every frequency, (..., J, T)."""
        return self.values.abs().square().sum(-1)

    @property
    def cut_off(self) -> Tensor:
        """What zero, and frequencies of which the opposites count too, leave of the covariance, (..., T, T).

        Rounding leaves no variance below zero, and no correlation beyond one.
        """
        products = (self.values @ self.values.mH).real if self.values.is_complex() else self.values @ self.values.mT
        missing = self.total - 2.0 * products.sum(-3) + products[..., 0, :, :]
        variances = missing.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(torch.float64).tiny)
        bound = variances.detach().sqrt()
        bounds = bound.unsqueeze(-1) * bound.unsqueeze(-2)
        others = torch.maximum(torch.minimum(missing, bounds), -bounds)
        is_own = torch.eye(variances.shape[-1], dtype=torch.bool, device=missing.device)
        return torch.where(is_own, torch.diag_embed(variances), others)

    def scaled(self, scale: Tensor) -> SpectralFactor:
        """Those of the kernel times numbers (...)."""
        factor = scale.double()
        values = factor.sqrt()[..., None, None, None] * self.values
        return SpectralFactor(values, factor[..., None, None] * self.total)

    def plus(self, other: SpectralFactor) -> SpectralFactor:
        """Those of a sum of kernels of the same outputs."""
        if self.total.shape[-1] != other.total.shape[-1]:
            raise ValueError(
                f"expected parts with one number of outputs in a sum, got {self.total.shape[-1]} and "
                f"{other.total.shape[-1]}; correct the kernels"
            )
        parts = self.values, other.values
        batch = torch.broadcast_shapes(*[part.shape[:-3] for part in parts])
        values = torch.cat([part.expand(*batch, *part.shape[-3:]) for part in parts], dim=-1)
        return SpectralFactor(values, self.total + other.total)

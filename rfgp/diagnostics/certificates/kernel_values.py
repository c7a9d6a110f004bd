"""Values of any kernel in float64, with a bound on their rounding errors: compositions by those of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    Kernel,
    PeriodicKernel,
    ProductKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from torch import Tensor

from ...approximation.values import accurate_values
from .stationary import StationaryValues


class KernelValues(Protocol):
    r"""How a kernel is evaluated: :math:`|\hat k(x, y) - k(x, y)| \le \epsilon\, \sigma_x \sigma_y (u_x + u_y)`."""

    def prepared(self, x: Tensor) -> Tensor:
        """What :meth:`between` takes of selected inputs (N, d), (N, c)."""

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """The kernel between prepared inputs, in memory that the next call overwrites."""

    def roundings(self, rows: Tensor) -> Tensor:
        """The numbers u of prepared inputs, (N,)."""


class CompositeValues:
    """A scaled sum or product of kernels; ``columns`` are those of the inputs that each selects, None for all."""

    def __init__(
        self,
        parts: Sequence[KernelValues],
        columns: Sequence[Tensor | None],
        is_product: bool,
        outputscale: float,
        x: Tensor,
    ) -> None:
        self._parts, self._columns, self._is_product, self._outputscale = parts, columns, is_product, outputscale
        self._widths = [part.shape[-1] for part in self._split(x[:1])]

    def prepared(self, x: Tensor) -> Tensor:
        """What the parts take of inputs, side by side."""
        return torch.cat(self._split(x), dim=-1)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """The kernel between prepared inputs."""
        pairs = zip(self._parts, left.split(self._widths, -1), right.split(self._widths, -1), strict=True)
        total, *others = [part.between(x, y) for part, x, y in pairs]
        for values in others:
            total = total.mul_(values) if self._is_product else total.add_(values)
        return total.mul_(self._outputscale)

    def roundings(self, rows: Tensor) -> Tensor:
        """The numbers of all parts, and what sums, products and scales round."""
        pairs = zip(self._parts, rows.split(self._widths, -1), strict=True)
        parts = [part.roundings(columns) for part, columns in pairs]
        return torch.stack(parts).sum(0) + len(parts) + 1.0

    def _split(self, x: Tensor) -> list[Tensor]:
        selected = [x if columns is None else x.index_select(-1, columns) for columns in self._columns]
        return [part.prepared(columns) for part, columns in zip(self._parts, selected, strict=True)]


class GenericValues:
    r"""A kernel as its ``forward`` has it, with distances from differences of inputs less ``center``, (d,).

    Values are taken to be off by :math:`(500 + 8 d)\, \epsilon`, besides 64 times the errors of scaled inputs.
    """

    def __init__(self, kernel: Kernel, center: Tensor) -> None:
        self._kernel, self._center = kernel, center
        for part in kernel.modules():
            if isinstance(part, Kernel):
                part.covar_dist = _distances
        lengths = [getattr(part, name, None) for part in kernel.modules() for name in ("lengthscale", "period_length")]
        self._lengths = [length.detach() for length in lengths if isinstance(length, Tensor)]

    def prepared(self, x: Tensor) -> Tensor:
        """The inputs without their center."""
        return x - self._center

    @torch.no_grad()
    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """The kernel between inputs."""
        return accurate_values(self._kernel, left, right).clone()

    def roundings(self, rows: Tensor) -> Tensor:
        """The numbers of inputs, by their norms in lengthscales and periods."""
        total = rows.new_full((len(rows),), 250.0 + 4.0 * rows.shape[-1])
        for length in self._lengths:
            scale = length if length.shape[-1] in (1, rows.shape[-1]) else length.min()
            total = total + 64.0 * torch.linalg.vector_norm(rows / scale.reshape(-1, scale.shape[-1])[0], dim=-1)
        return total


_OF_DIFFERENCES = (RQKernel, PeriodicKernel, CosineKernel, SpectralMixtureKernel)
"""Kernels of the differences of inputs, which need not be :class:`StationaryValues`."""


def values_of(kernel: Kernel, x: Tensor) -> KernelValues:
    """How a kernel of one output in float64, which may be changed, is evaluated."""
    stationary = StationaryValues.of(kernel, x)
    if stationary is not None:
        return stationary
    outputscale, inner = 1.0, kernel
    while type(inner) is ScaleKernel:
        outputscale, inner = outputscale * float(inner.outputscale.detach()), inner.base_kernel
    if type(inner) not in (AdditiveKernel, ProductKernel):
        center = x.mean(0)
        return GenericValues(kernel, center if type(inner) in _OF_DIFFERENCES else torch.zeros_like(center))
    columns = [part.active_dims for part in inner.kernels]
    inputs = [x if dims is None else x.index_select(-1, dims) for dims in columns]
    parts = [values_of(part, dims) for part, dims in zip(inner.kernels, inputs, strict=True)]
    return CompositeValues(parts, columns, type(inner) is ProductKernel, outputscale, x)


def _distances(
    x1: Tensor,
    x2: Tensor,
    diag: bool = False,
    last_dim_is_batch: bool = False,
    square_dist: bool = False,
    **params: Any,
) -> Tensor:
    """What GPyTorch's ``Kernel.covar_dist`` gives, with all digits."""
    if last_dim_is_batch:
        x1, x2 = (x.transpose(-1, -2).unsqueeze(-1) for x in (x1, x2))
    if diag:
        distances = torch.linalg.vector_norm(x1 - x2, dim=-1)
    else:
        distances = torch.cdist(x1, x2, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square() if square_dist else distances

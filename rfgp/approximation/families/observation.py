"""Observations that differ from row to row, by plane waves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support.torch_names import has_values
from ...functionals import Operator
from ...functionals.observations import ObservationRows, split
from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.observation import ObservationKernel, has_derivatives
from ...linalg.frequency_grid import FrequencyGrid
from ..family import Family, KernelMoments, approximates, family
from ..maps import SharedMap, WholeMaps
from ..method import FeatureMethod
from ..request import Request
from .grid import SpectralGrid
from .wrapper import WrapperFamily


@approximates(ObservationKernel)
class ObservationFamily(WrapperFamily):
    r"""ObservationKernel with Fourier features: those of the base kernel with a symbol for every row.

    .. math:: \phi(r)_j = e^{\mathrm{i} w_j^\top c}\, a^\top S(w_j)\,
        \mathrm{sinc}(w_j^\top s) \prod_k \mathrm{sinc}(w_{jk} h_k)
    """

    kernel: ObservationKernel
    settings = ("input_dim", "num_nodes")
    passes_on: ClassVar[tuple[type[WholeMaps], ...]] = (SpectralGrid, SharedMap)
    is_complex = False
    has_output_factor = False
    has_residual_covariance = False

    @property
    def inner_kernel(self) -> Kernel:
        inner: Kernel = self.kernel.base_kernel
        return inner

    # How a kernel is drawn

    def inside(self, request: Request) -> Request:
        outer = request.select(self.kernel)
        return replace(outer, input_dim=self.kernel.input_dim, x=None)

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...] | None:
        methods = self.inner.applicable(self.kernel.input_dim)
        return None if methods is None else tuple(m for m in methods if m.is_fourier or m.is_exact)

    def draw_landmarks(self, request: Request) -> torch.nn.Module:
        return Family.draw_landmarks(self, request)  # rows of observations, not of the function

    def draw_grid(self, request: Request) -> torch.nn.Module:
        outer, dim = request.select(self.kernel), self.kernel.input_dim
        corners = None if outer.x is None else torch.cat(ends_of(split(outer.x, dim)), dim=-2)
        return self.inner.draw_grid(replace(outer, input_dim=dim, x=corners))

    def draw(self, request: Request) -> torch.nn.Module:
        if request.method is not None and request.method.is_complex:
            raise ValueError(
                f"expected real features for observations, got {str(request.method)!r}; write {request.method.name}"
            )
        maps = super().draw(request)
        family(self.kernel.base_kernel, maps).waves(self.kernel.input_dim)  # which raises where there are none
        return maps

    # The features of a kernel with maps

    @property
    def input_dim(self) -> int:
        return int(self.kernel.input_dim)

    @property
    def total_outputscale(self) -> Tensor:
        return self.like.new_ones(())

    def output_factor(self, operator: Operator | None = None) -> Tensor:
        return self.like.new_ones(1, 1)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        return None

    def inner_inputs(self, x: Tensor) -> Tensor:
        return self.inner.selected(self.kernel.coordinates(x))

    def active_real_features(self, x: Tensor) -> Tensor:
        return self.active_features(x)

    def matrix_features(self, x: Tensor) -> Tensor:
        return self.active_features(x)

    def all_features(self, x: Tensor) -> Tensor:
        return self.scalar_features(x)

    @property
    def num_scalar_features(self) -> int:
        """Two columns for every plane wave."""
        with torch.no_grad():
            return 2 * self.inner.waves(self.input_dim).frequencies.shape[-2]

    def active_features(self, x: Tensor) -> Tensor:
        if self._grid is None:
            return self._plain(x)
        features, amplitudes = self._plain(x), self.summed_amplitudes
        features = features if amplitudes is None else features * amplitudes.to(features)
        return features * self._is_near(x).unsqueeze(-1)

    def active_summed_features(self, x: Tensor) -> Tensor:
        is_near = self._is_near(x)
        if not bool(is_near.all()):
            raise ValueError(
                f"expected rows whose regions are in the box of the Fourier grid, got {int((~is_near).sum())} others; "
                "approximate the kernel with train_inputs that cover them"
            )
        return self._plain(x)

    @property
    def summed_amplitudes(self) -> Tensor | None:
        """Those of a scalar function on a grid, whose symbols know no parameters."""
        if self._grid is None or self.inner.has_output_factor:
            return None
        amplitudes = self.inner.waves(self.input_dim).factor.squeeze(-1)
        return torch.cat([amplitudes, amplitudes], dim=-1)

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.feature_parameters() if self.summed_amplitudes is None else iter(())

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        """What a grid of frequencies cuts off; rows that differ in their place alone have one prior variance."""
        if self._grid is None:
            return None
        kinds = x.detach().clone()
        kinds[..., : self.input_dim] = 0.0
        distinct, number = torch.unique(kinds.flatten(0, -2), dim=0, return_inverse=True)
        prior = self.exact_kernel.forward(distinct, distinct, diag=True)[..., number.reshape(x.shape[:-1])]
        missing: Tensor = prior - self.active_features(x).square().sum(-1)
        missing = missing.clamp_min(torch.finfo(missing.dtype).tiny)  # not zero, where its root has no gradient
        return ResidualCovariance.of_variance(missing)

    @property
    def _grid(self) -> FrequencyGrid | None:
        return self.inner.frequency_grid

    def _is_near(self, x: Tensor) -> Tensor:
        """Whether the regions of rows (..., N, k) are in the box of the grid, (..., N)."""
        grid: Any = self.inner.frequency_grid
        ends = ends_of(self.kernel.rows(x))
        return torch.stack([grid.is_inside(grid.phases(end)).all(-1) for end in ends]).all(0)

    def _plain(self, x: Tensor) -> Tensor:
        """The features without the amplitudes that are summed apart from them."""
        rows, (w, factor) = self.kernel.rows(x), self.inner.waves(self.input_dim)
        factor = factor if self.summed_amplitudes is None else torch.ones_like(factor)
        amplitude = _sinc(rows.half_vector, w)
        for k in range(self.input_dim):
            amplitude = amplitude * _sinc(rows.half_widths[..., k : k + 1], w[..., k : k + 1])
        if not self.inner.has_output_factor:
            factor = torch.cat([factor, 1j * w * factor], dim=-1) if has_derivatives(rows) else factor
        outputs = rows.weights[..., : factor.shape[-1]].to(factor.dtype) @ factor.mT
        waves = torch.polar(*torch.broadcast_tensors(amplitude, rows.center @ w.mT)) * outputs
        return torch.cat([waves.real, waves.imag], dim=-1)


def ends_of(rows: ObservationRows) -> tuple[Tensor, Tensor]:
    """The lower and the upper corners of the boxes around regions, (..., N, d)."""
    half = rows.half_widths + rows.half_vector.abs()
    return rows.center - half, rows.center + half


def _sinc(extent: Tensor, w: Tensor) -> Tensor:
    """The averages of exp(i w x) over [-extent, extent], (..., N, k) and (..., m, k) to (..., N, m)."""
    if has_values() and not bool((extent != 0).any()):
        return extent.new_ones(*extent.shape[:-1], w.shape[-2])
    return torch.sinc(extent @ w.mT / math.pi)

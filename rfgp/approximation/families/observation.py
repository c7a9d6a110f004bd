"""Observations that differ from row to row, by plane waves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ..._support.torch_names import has_values
from ...functionals.observations import ObservationRows, split
from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.observation import ObservationKernel, ObservesRows, has_derivatives
from ...linalg.frequency_grid import FrequencyGrid
from ..family import Family, approximates, family
from ..method import Method
from ..random_feature_kernel import RandomFeatureKernel, check_parts
from ..request import Request
from .wrapper import WrapperFamily


class FeatureObservationKernel(ObservesRows, RandomFeatureKernel):
    r"""An ObservationKernel with Fourier features: those of the base kernel with a symbol for every row.

    .. math:: \phi(r)_j = e^{\mathrm{i} w_j^\top c}\, a^\top S(w_j)\,
        \mathrm{sinc}(w_j^\top s) \prod_k \mathrm{sinc}(w_{jk} h_k)
    """

    def __init__(self, base_kernel: Kernel, kernel: ObservationKernel) -> None:
        check_parts([base_kernel])
        checks.instance("kernel", kernel, ObservationKernel, "an ObservationKernel", "whose settings are taken")
        super().__init__(active_dims=kernel.active_dims)
        self.base_kernel = base_kernel
        self._input_dim = kernel.input_dim
        self.num_nodes = kernel.num_nodes

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def exact_kernel(self) -> ObservationKernel:
        return ObservationKernel(
            self.base_kernel.exact_kernel, self.input_dim, self.num_nodes, active_dims=self.active_dims
        )

    @property
    def observed_kernel(self) -> Kernel:
        return self.base_kernel.exact_kernel

    @property
    def parts(self) -> list[Any]:
        return [self.base_kernel]

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def num_scalar_features(self) -> int:
        """Two columns for every plane wave."""
        with torch.no_grad():
            return 2 * self.base_kernel.waves(self.input_dim).frequencies.shape[-2]

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
        if self._grid is None or self.base_kernel.has_output_factor:
            return None
        amplitudes = self.base_kernel.waves(self.input_dim).factor.squeeze(-1)
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
        grid: FrequencyGrid | None = self.base_kernel.frequency_grid
        return grid

    def _is_near(self, x: Tensor) -> Tensor:
        """Whether the regions of rows (..., N, k) are in the box of the grid, (..., N)."""
        grid, ends = self.base_kernel.frequency_grid, ends_of(self.rows(x))
        return torch.stack([grid.is_inside(grid.phases(end)).all(-1) for end in ends]).all(0)

    def _plain(self, x: Tensor) -> Tensor:
        """The features without the amplitudes that are summed apart from them."""
        rows, (w, factor) = self.rows(x), self.base_kernel.waves(self.input_dim)
        factor = factor if self.summed_amplitudes is None else torch.ones_like(factor)
        amplitude = _sinc(rows.half_vector, w)
        for k in range(self.input_dim):
            amplitude = amplitude * _sinc(rows.half_widths[..., k : k + 1], w[..., k : k + 1])
        if not self.base_kernel.has_output_factor:
            factor = torch.cat([factor, 1j * w * factor], dim=-1) if has_derivatives(rows) else factor
        outputs = rows.weights[..., : factor.shape[-1]].to(factor.dtype) @ factor.mT
        waves = torch.polar(*torch.broadcast_tensors(amplitude, rows.center @ w.mT)) * outputs
        return torch.cat([waves.real, waves.imag], dim=-1)

    def _with(self, base_kernel: Kernel) -> FeatureObservationKernel:
        exact = ObservationKernel(Kernel(), self.input_dim, self.num_nodes, active_dims=self.active_dims)
        return FeatureObservationKernel(base_kernel, exact).train(self.training)

    def __getitem__(self, index: Any) -> FeatureObservationKernel:
        return self._with(self.base_kernel[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> FeatureObservationKernel:
        return self._with(self.base_kernel.expand_batch(*sizes))


def ends_of(rows: ObservationRows) -> tuple[Tensor, Tensor]:
    """The lower and the upper corners of the boxes around regions, (..., N, d)."""
    half = rows.half_widths + rows.half_vector.abs()
    return rows.center - half, rows.center + half


def _sinc(extent: Tensor, w: Tensor) -> Tensor:
    """The averages of exp(i w x) over [-extent, extent], (..., N, k) and (..., m, k) to (..., N, m)."""
    if has_values() and not bool((extent != 0).any()):
        return extent.new_ones(*extent.shape[:-1], w.shape[-2])
    return torch.sinc(extent @ w.mT / math.pi)


@approximates(ObservationKernel)
class ObservationFamily(WrapperFamily):
    """ObservationKernel, whose features are those of its base kernel with a symbol for every row."""

    kernel: ObservationKernel
    settings = ("input_dim", "num_nodes")

    @property
    def inner(self) -> Family:
        return family(self.kernel.base_kernel)

    def inside(self, request: Request) -> Request:
        outer = request.select(self.kernel)
        return replace(outer, input_dim=self.kernel.input_dim, x=None)

    def _applicable(self, input_dim: int) -> tuple[Method, ...] | None:
        methods = self.inner.applicable(self.kernel.input_dim)
        return None if methods is None else tuple(m for m in methods if m.is_fourier or m.is_exact)

    def around(self, kernel: Any) -> FeatureObservationKernel:
        return FeatureObservationKernel(kernel, self.kernel)

    def with_landmarks(self, request: Request) -> Any:
        return Family.with_landmarks(self, request)  # rows of observations, not of the function

    def on_grid(self, request: Request) -> FeatureObservationKernel:
        outer, dim = request.select(self.kernel), self.kernel.input_dim
        corners = None if outer.x is None else torch.cat(ends_of(split(outer.x, dim)), dim=-2)
        return self.around(self.inner.on_grid(replace(outer, input_dim=dim, x=corners)))

    def approximate(self, request: Request) -> FeatureObservationKernel:
        if request.method is not None and request.method.is_complex:
            raise ValueError(
                f"expected real features for observations, got {str(request.method)!r}; write {request.method.name}"
            )
        made: FeatureObservationKernel = super().approximate(request)
        made.base_kernel.waves(self.kernel.input_dim)  # which raises where there are none
        return made

"""The features of a kernel as plane waves, where that is what they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ...approximation import Family
from ...approximation.families.multitask import MultitaskFamily
from ...approximation.families.product import FactorsFamily, ProductFamily
from ...approximation.families.scale import ScaleFamily
from ...approximation.families.sum import SharedMeasureFamily, SumFamily
from ...approximation.map_family import MapFamily
from ...features import FeatureMap, FourierSeries, LinearFeatures, RandomFourier


@dataclass(frozen=True)
class PlaneWaves:
    r"""Scalar features that are sums of plane waves and linear functions of the full inputs.

    .. math:: \psi_k(x) = s_k^\top x + \sum_{p:\, k_p = k} a_p e^{\mathrm{i} \omega_p^\top x}

    with frequencies (P, d), complex amplitudes a (P,), columns k (P,) and real slopes s (n, d); or the real part.
    """

    frequency: Tensor
    amplitude: Tensor
    column: Tensor
    slope: Tensor
    is_complex: bool

    @property
    def num_columns(self) -> int:
        """The number n of features."""
        return len(self.slope)

    def as_complex(self) -> PlaneWaves:
        """The same features as complex ones: real ones are the mean of a wave and its conjugate."""
        if self.is_complex:
            return self
        frequency, column = torch.cat([self.frequency, -self.frequency]), self.column.repeat(2)
        amplitude = 0.5 * torch.cat([self.amplitude, self.amplitude.conj()])
        return PlaneWaves(frequency, amplitude, column, self.slope, True)

    def as_real(self) -> PlaneWaves:
        """Real and imaginary part of complex features side by side."""
        frequency, amplitude = self.frequency.repeat(2, 1), torch.cat([self.amplitude, -1j * self.amplitude])
        column = torch.cat([self.column, self.num_columns + self.column])
        return PlaneWaves(frequency, amplitude, column, self.slope.repeat(2, 1), False)

    def times(self, scale: Tensor) -> PlaneWaves:
        """The features times a number."""
        return replace(self, amplitude=self.amplitude * scale, slope=self.slope * scale)


def plane_waves(kernel: Any, input_dim: int) -> PlaneWaves | None:
    """The scalar features of a kernel as plane waves; None where they are something else."""
    return _scalar(kernel.family, torch.arange(input_dim), input_dim)


def _scalar(kernel: Family, columns: Tensor, dim: int) -> PlaneWaves | None:
    """Those of ``kernel.scalar_features``, of an input that has these columns of all."""
    return _active(kernel, columns if kernel.active_dims is None else columns[kernel.active_dims.cpu()], dim)


def _all(kernel: Family, columns: Tensor, dim: int) -> PlaneWaves | None:
    """Those of ``kernel.all_features`` of a scalar kernel: with its output scale."""
    waves = _scalar(kernel, columns, dim)
    scale = kernel.total_outputscale.detach().double().cpu()
    return None if waves is None or scale.dim() else waves.times(scale.sqrt())


def _active(kernel: Family, columns: Tensor, dim: int) -> PlaneWaves | None:
    """Those of ``kernel.active_features``."""
    if isinstance(kernel, MapFamily):
        return _leaf(kernel, columns, dim)
    if isinstance(kernel, ScaleFamily | MultitaskFamily):
        return _active(kernel.inner, columns, dim)
    if isinstance(kernel, SharedMeasureFamily):
        return _scalar(kernel.parts[0], columns, dim)
    if isinstance(kernel, ProductFamily):
        products = [_factors(part, columns, dim) for part in kernel.parts if isinstance(part, FactorsFamily)]
        return _beside([part for part in products if part is not None]) if None not in products else None
    if isinstance(kernel, SumFamily):
        of_part = _scalar if kernel.has_output_factor else _all
        parts = [of_part(part, columns, dim) for part in kernel.parts]
        return _beside([part for part in parts if part is not None]) if None not in parts else None
    return None


@torch.no_grad()
def _leaf(kernel: MapFamily, columns: Tensor, dim: int) -> PlaneWaves | None:
    """Those of a feature map, whose inputs are an affine function of those of the kernel."""
    feature_map, count = kernel.feature_map, len(columns)
    probes = torch.cat([torch.zeros(1, count), 2.0 * torch.eye(count), torch.ones(1, count)]).to(kernel.like)
    inputs = kernel.map_inputs(feature_map, kernel.centered(probes))
    waves = _of_map(feature_map, kernel.hyperparameters(feature_map), inputs[..., :1, :])
    if waves is None or inputs.dim() > 2:
        return None
    inputs = inputs.double().cpu()
    waves = waves.times(torch.tensor(kernel.scale(feature_map)))
    offset, jacobian = inputs[0], 0.5 * (inputs[1:-1] - inputs[0])
    if not torch.allclose(inputs[-1], offset + jacobian.sum(0), rtol=1e-5):
        return None
    frequency = waves.frequency.new_zeros(len(waves.frequency), dim)
    frequency[:, columns] = waves.frequency @ jacobian.mT
    slope = waves.slope.new_zeros(waves.num_columns, dim)
    slope[:, columns] = waves.slope @ jacobian.mT
    constant = waves.slope @ offset
    shifted = waves.amplitude * torch.exp(1j * (waves.frequency @ offset))
    if not bool(constant.any()):
        return PlaneWaves(frequency, shifted, waves.column, slope, waves.is_complex)
    return PlaneWaves(
        torch.cat([frequency, torch.zeros_like(slope)]),
        torch.cat([shifted, constant.to(shifted.dtype)]),
        torch.cat([waves.column, torch.arange(waves.num_columns)]),
        slope,
        waves.is_complex,
    )


def _of_map(feature_map: FeatureMap, hyperparameters: dict[str, Tensor], like: Tensor) -> PlaneWaves | None:
    """Those of a map in its own inputs; amplitudes are what the cosines are at zero."""
    if isinstance(feature_map, LinearFeatures):
        slope = torch.eye(feature_map.input_dim, dtype=torch.float64)
        none = torch.zeros(0, dtype=torch.complex128)
        return PlaneWaves(slope[:0], none, none.real.long(), slope, False)
    if isinstance(feature_map, RandomFourier):
        frequency = feature_map.frequencies(**hyperparameters)
        sines = torch.ones(len(frequency), dtype=torch.bool)
    elif isinstance(feature_map, FourierSeries):
        frequency, sines = feature_map.orders, feature_map.get_buffer("is_wave").cpu()
    else:
        return None
    at_zero = feature_map(torch.zeros_like(like).reshape(-1, like.shape[-1])[:1], **hyperparameters)
    if frequency.dim() > 2 or at_zero.dim() > 2:
        return None
    frequency, width = frequency.double().cpu(), feature_map.num_features
    amplitude = at_zero[0, : len(frequency)].cpu().to(torch.complex128)
    if not feature_map.is_complex:
        frequency = torch.cat([frequency, frequency[sines]])
        amplitude = torch.cat([amplitude, -1j * amplitude[sines]])
    slope = frequency.new_zeros(width, frequency.shape[-1])
    return PlaneWaves(frequency, amplitude, torch.arange(width), slope, feature_map.is_complex)


def _beside(parts: Sequence[PlaneWaves]) -> PlaneWaves:
    """The features of several parts side by side."""
    if any(part.is_complex for part in parts):
        parts = [part.as_complex() for part in parts]
    starts = itertools.accumulate([part.num_columns for part in parts], initial=0)
    return PlaneWaves(
        torch.cat([part.frequency for part in parts]),
        torch.cat([part.amplitude for part in parts]),
        torch.cat([start + part.column for start, part in zip(starts, parts, strict=False)]),
        torch.cat([part.slope for part in parts]),
        parts[0].is_complex,
    )


def _factors(kernel: FactorsFamily, columns: Tensor, dim: int) -> PlaneWaves | None:
    """Those of a product: column by column for parts of one width without bias, and all pairs of columns of others."""
    groups: dict[int, list[PlaneWaves]] = {}
    others = []
    for part in kernel.parts:
        waves = _all(part, columns, dim)
        if waves is None or bool(waves.slope.any()):
            return None
        if part.has_unbiased_columns:
            groups.setdefault(waves.num_columns, []).append(waves)
        else:
            others.append(waves)
    product = reduce(_kronecker, [*(reduce(_elementwise, group) for group in groups.values()), *others])
    for scale in kernel.product.scales:
        factor: Tensor = scale.outputscale.detach().double().cpu()
        if factor.dim():
            return None
        product = product.times(factor.sqrt())
    return product.as_real() if product.is_complex and not kernel.maps.is_complex else product


def _elementwise(left: PlaneWaves, right: PlaneWaves) -> PlaneWaves:
    """Products of columns of complex Fourier features, each of which is one wave."""
    amplitude = left.amplitude * right.amplitude * left.num_columns**0.5
    return replace(left, frequency=left.frequency + right.frequency, amplitude=amplitude)


def _kronecker(left: PlaneWaves, right: PlaneWaves) -> PlaneWaves:
    """Products of all pairs of columns; a real factor is the mean of a wave and its conjugate."""
    is_complex = left.is_complex or right.is_complex
    if not is_complex:
        right = right.as_complex()
    elif not (left.is_complex and right.is_complex):
        left, right = left.as_complex(), right.as_complex()
    dim = left.frequency.shape[-1]
    return PlaneWaves(
        (left.frequency[:, None] + right.frequency).reshape(-1, dim),
        (left.amplitude[:, None] * right.amplitude).flatten(),
        (left.column[:, None] * right.num_columns + right.column).flatten(),
        left.slope.new_zeros(left.num_columns * right.num_columns, dim),
        is_complex,
    )

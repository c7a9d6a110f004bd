"""Periodic, cosine and constant kernels."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import scipy
import torch
from gpytorch.kernels import ConstantKernel, CosineKernel, PeriodicKernel
from torch import Tensor

from ...features import FeatureMap, FourierSeries, Periodic, RandomFourier
from ...features.spectra import scaled_bessel
from ..family import approximates
from ..map_family import MapFamily, random_fourier
from ..maps import MapRecipe
from ..method import FeatureMethod
from ..spectral_weights import GridFrequencies, SpectralWeights

_NEGLIGIBLE, _SMALL_SHARE = 1e-10, 1e-14


@approximates(PeriodicKernel)
class PeriodicFamily(MapFamily):
    r"""PeriodicKernel, by the terms of its Fourier series: the first ones in one dimension, or random ones in any.

    .. math:: \exp\Big(-2 z \sin^2 \frac{\pi \tau}{p}\Big) = I_0(z) e^{-z} + 2 \sum_{n \ge 1} I_n(z) e^{-z}
        \cos \frac{2 \pi n \tau}{p}, \qquad z = 1 / \ell
    """

    kernel: PeriodicKernel
    is_shift_invariant: ClassVar[bool] = True
    methods = ("series", "fourier", "fourier_qmc")
    default = "series"
    in_products = "fourier"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        if recipe.method.is_fourier or input_dim > 1:
            return random_fourier(recipe, input_dim, Periodic())
        columns = self.num_exact_columns(recipe.method, input_dim) or recipe.num_features
        count = (min(columns, recipe.num_features) + 1) // 2
        orders = torch.arange(count)[:, None]
        return FourierSeries(orders, torch.ones(count), recipe.dtype)

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...]:
        names = ("series",) if input_dim == 1 else ("fourier", "fourier_qmc")
        return tuple(map(FeatureMethod.parse, names))

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_periodic = isinstance(feature_map, RandomFourier) and isinstance(feature_map.spectrum, Periodic)
        return (
            "" if is_periodic or isinstance(feature_map, FourierSeries) else "FourierSeries or periodic RandomFourier"
        )

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return 2.0 * math.pi * x / self.kernel.period_length

    def _concentration(self) -> Tensor:
        return 1.0 / self.kernel.lengthscale.squeeze(-2)

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        if isinstance(feature_map, RandomFourier):
            return {"concentration": self._concentration()}
        orders = feature_map.get_buffer("orders")[:, 0]
        bessel = scaled_bessel(self._concentration(), orders)
        return {"coefficients": torch.where(orders > 0, 2.0 * bessel, bessel)}

    def spectral_lines(self, at: GridFrequencies) -> tuple[Tensor, Tensor]:
        z, count = self._concentration().double(), len(at.dims)
        largest = float(z.detach().max())
        orders = torch.arange(int(20.0 + 8.0 * math.sqrt(largest) + largest), device=z.device).double()
        share = scaled_bessel(z.expand(*z.shape[:-1], count).unsqueeze(-1), orders)
        orders, share = torch.cat([-orders[1:].flip(0), orders]), torch.cat([share[..., 1:].flip(-1), share], dim=-1)
        numbers = torch.cartesian_prod(*[torch.arange(len(orders), device=z.device)] * count).reshape(-1, count)
        shares = [share[..., axis, numbers[:, axis]] for axis in range(count)]
        total = math.prod(shares[1:], start=shares[0])
        largest_shares = total.detach().reshape(-1, total.shape[-1]).amax(0)
        kept = largest_shares > _SMALL_SHARE * largest_shares.max()
        period = self.kernel.period_length.double().reshape(-1)
        return orders[numbers[kept]] * (2.0 * math.pi / period), total[..., kept]

    def num_exact_columns(self, method: FeatureMethod, input_dim: int | None) -> int | None:
        """As many as leave a tail below 1e-10 at a quarter of the lengthscale, in one dimension."""
        if method.name != "series" or input_dim != 1:
            return None
        z = 4.0 * float(self._concentration().detach().max())
        orders = np.arange(1, 20 + int(4.0 * z + 12.0 * math.sqrt(z)))
        tail = 2.0 * scipy.special.ive(orders, z)[::-1].cumsum()[::-1]
        return 1 + 2 * int((tail > _NEGLIGIBLE).sum())


@approximates(CosineKernel)
class CosineFamily(MapFamily):
    r"""CosineKernel of one input column: :math:`\cos(\pi (x - y)/p)`, whose features are one cosine and one sine."""

    kernel: CosineKernel
    num_exact_features = 2
    is_shift_invariant: ClassVar[bool] = True
    methods = ("series",)
    default = "series"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        if input_dim > 1:
            raise ValueError(
                f"expected one input column for CosineKernel, got {input_dim}; it is not positive definite in more, so "
                "sum or multiply kernels over active_dims instead"
            )
        return FourierSeries(torch.ones(1, 1), torch.ones(1), recipe.dtype)

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_cosine = isinstance(feature_map, FourierSeries) and feature_map.num_features == 2
        return "" if is_cosine and feature_map.input_dim == 1 else "a FourierSeries of one order in one dimension"

    def spectral_lines(self, at: GridFrequencies) -> tuple[Tensor, Tensor]:
        frequency = math.pi / self.kernel.period_length.double().reshape(1, 1)
        return torch.cat([-frequency, frequency]), frequency.new_full((2,), 0.5)

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return math.pi * x / self.kernel.period_length

    def num_exact_columns(self, method: FeatureMethod, input_dim: int | None) -> int | None:
        return 2


@approximates(ConstantKernel)
class ConstantFamily(MapFamily):
    """ConstantKernel, whose feature is the root of the constant."""

    kernel: ConstantKernel
    num_exact_features = 1
    is_shift_invariant: ClassVar[bool] = True
    methods = ("series",)
    default = "series"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return FourierSeries(torch.zeros(1, input_dim), torch.ones(1), recipe.dtype)

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_constant = isinstance(feature_map, FourierSeries) and feature_map.num_features == 1
        return "" if is_constant else "a FourierSeries of order zero"

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        constant = self.kernel.constant.double().squeeze(-1)
        return SpectralWeights(constant.unsqueeze(-1).expand(*constant.shape, len(at.values)), frozenset(), constant)

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Any]:
        return {"coefficients": self.kernel.constant}

    def num_exact_columns(self, method: FeatureMethod, input_dim: int | None) -> int | None:
        return 1

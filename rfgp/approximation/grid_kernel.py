"""An exact kernel together with an equispaced grid of frequencies, whose cosines and sines are its features."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..kernels.operator_valued import without_dims
from ..linalg.frequency_grid import FrequencyGrid
from .exact_parameters import ExactParameters
from .family import family
from .grid_choice import bounds_of, chosen_grid
from .random_feature_kernel import KernelMoments, RandomFeatureKernel
from .reference_tensor import reference_tensor
from .registry import described
from .request import Request
from .spectral_weights import GridFrequencies, weights_on_grid, zero_and
from .values import accurate_values
from .waves import Waves


class FourierGridKernel(ExactParameters, RandomFeatureKernel):
    r"""A stationary kernel with the features of a grid of frequencies :math:`\omega_j = h j`.

    .. math:: k(x, y) \approx \sum_j w_j \cos(\omega_j^\top (x - y)), \qquad w_j = S(\omega_j) \prod_a h_a

    with the spectral density S. The frequencies are fixed, and the amplitudes :math:`\sqrt{w_j}` follow the parameters.
    Sums over rows contain no amplitudes, so that they hold for all parameters. What the grid cuts off,
    :math:`k(0) - \sum_j w_j`, is residual variance.

    :param base_kernel: an exact kernel with a spectral density: a sum, scaled or not, of stationary kernels of some
        columns, their products over different columns, and products with periodic kernels.
    :param grid: the frequencies, and the box in which inputs lie.
    :raises ValueError: for a kernel without a spectral density, or more than three columns.

    Source: Greengard, Rachh and Barnett (2022), arXiv 2210.10210.
    """

    orders: Tensor
    spacing: Tensor
    bounds: Tensor

    def __init__(self, base_kernel: Kernel, grid: FrequencyGrid) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        checks.instance("grid", grid, FrequencyGrid, "a FrequencyGrid", "see rfgp.approximate")
        super().__init__(active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel
        for name in ("orders", "spacing", "bounds"):
            self.register_buffer(name, getattr(grid, name).detach().clone())
        with torch.no_grad():
            self._weights()

    @property
    def active_frequency_grid(self) -> FrequencyGrid:
        return FrequencyGrid(self.orders, self.spacing.double(), self.bounds.double())

    @property
    def num_scalar_features(self) -> int:
        return 2 * len(self.orders) + 1

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def input_dim(self) -> int:
        return len(self.spacing)

    @property
    def summed_amplitudes(self) -> Tensor:
        weights = self._weights().clamp_min(torch.finfo(torch.float64).tiny).sqrt()  # not zero, where roots have none
        return torch.cat([weights, weights[..., 1:]], dim=-1)

    def active_features(self, x: Tensor) -> Tensor:
        grid = self.active_frequency_grid
        return (grid.features(grid.phases(x)) * self.summed_amplitudes.unsqueeze(-2)).to(x.dtype)

    def active_residual_variance(self, x: Tensor) -> Tensor:
        weights = self._weights()
        missing = self._prior() - 2.0 * weights.sum(-1) + weights[..., 0]
        floor = torch.finfo(x.dtype).tiny  # not zero, where its root has no gradient
        return missing.clamp_min(floor).unsqueeze(-1).expand(*missing.shape, x.shape[-2]).to(x.dtype)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        mean = self.active_features(x) @ self.active_features(y).mT
        return KernelMoments(mean, torch.zeros_like(mean))

    def active_waves(self, input_dim: int) -> Waves:
        checks.inputs(self.spacing.unsqueeze(0), input_dim)
        weights = torch.cat([self._weights()[..., :1], 2.0 * self._weights()[..., 1:]], dim=-1)
        like = reference_tensor(self)
        return Waves((zero_and(self.orders) * self.spacing).to(like), weights.sqrt().unsqueeze(-1).to(like))

    def _weights(self) -> Tensor:
        """The weights of zero and of the orders, (..., H + 1), in float64, whose sum is at most the prior variance."""
        weights = spectral_weights(self.base_kernel, zero_and(self.orders), self.spacing.double())
        zero, others = weights[..., :1], weights[..., 1:]
        left = self._prior().unsqueeze(-1) - 2.0 * others.sum(-1, keepdim=True)
        return torch.cat([torch.minimum(zero, left).clamp_min(0.0), others], dim=-1)

    def _prior(self) -> Tensor:
        """The prior variance (...), in float64."""
        zero = self.spacing.double().new_zeros(1, self.input_dim)
        return accurate_values(self.base_kernel, zero, zero, diag=True).squeeze(-1)

    def _with_base(self, base_kernel: Kernel) -> FourierGridKernel:
        base_kernel.active_dims = self.active_dims
        return FourierGridKernel(base_kernel, self.active_frequency_grid).train(self.training)

    def __getitem__(self, index: Any) -> FourierGridKernel:
        return self._with_base(without_dims(self.base_kernel)[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> FourierGridKernel:
        return self._with_base(without_dims(self.base_kernel).expand_batch(*sizes))

    @property
    def description(self) -> str:
        return f"{type(self).__name__}({described(self.base_kernel)})"


def spectral_weights(kernel: Kernel, orders: Tensor, spacing: Tensor) -> Tensor:
    """The spectral density of a kernel at orders (J, d) of a grid, times the volume of a cell, (..., J)."""
    at = GridFrequencies.of(orders * spacing, spacing)
    return weights_on_grid(family(kernel).spectral_weights(at), at)


def grid_kernel(kernel: Kernel, request: Request) -> FourierGridKernel:
    """The kernel on a grid for training inputs; a ValueError without them, or for more than three columns."""
    x = request.select(kernel).x
    if x is None:
        raise ValueError(
            'expected train_inputs for "fourier_grid", whose frequencies follow from the box that they lie in, got '
            "none; pass train_inputs, or the corners of a box"
        )
    bounds = bounds_of(x)
    if bounds.shape[-1] > 3:
        raise ValueError(
            f'expected up to three input columns for "fourier_grid", got {bounds.shape[-1]}; use another method, such '
            'as "fourier_orthogonal" or "landmarks"'
        )

    def weights(orders: Tensor, spacing: Tensor) -> Tensor:
        found = spectral_weights(kernel, orders, spacing)
        return found.reshape(-1, found.shape[-1]).mean(0)

    def values(differences: Tensor) -> Tensor:
        found = accurate_values(kernel, differences, torch.zeros_like(differences[:1])).squeeze(-1)
        return found.reshape(-1, found.shape[-1]).mean(0)

    with torch.no_grad():
        return FourierGridKernel(kernel, chosen_grid(weights, values, bounds, request.num_features))

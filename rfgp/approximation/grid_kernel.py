"""An exact kernel together with an equispaced grid of frequencies, whose cosines and sines are its features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..inference.posterior.covariance import ResidualCovariance
from ..kernels.operator_valued import without_dims
from ..linalg.frequency_grid import FrequencyGrid
from .exact_parameters import ExactParameters
from .family import family
from .grid_choice import GridChoice, bounds_of, common_grid
from .kept_value import KeptValue
from .map_holder import GridHolder
from .random_feature_kernel import KernelMoments, RandomFeatureKernel
from .reference_tensor import reference_tensor
from .registry import described
from .request import Request
from .spectral_weights import GridFrequencies, zero_and
from .values import accurate_values
from .waves import Waves

MOST_COLUMNS = 3
_BETTER, _NEGLIGIBLE = 0.5, 0.01
"""A grid is replaced by one with which at most this share of what it loses is lost, if that is not negligible."""
_FEWER = 0.5
"""A grid that has all frequencies is replaced by one with at most this share of them."""
_MUCH = 0.1
"""With this share of the rows those that a grid lacks would not matter, where it lacks little."""
_FEWEST_ROWS, _NOISE = 1000, 0.01
"""Rows that are to be expected at least, and their noise, relative to the variance of the function."""


class FourierGridKernel(GridHolder, ExactParameters, RandomFeatureKernel):
    r"""A stationary kernel with the features of a grid of frequencies :math:`\omega_j = h j`.

    .. math:: k(x, y) \approx \sum_j w_j \cos(\omega_j^\top (x - y)), \qquad w_j = S(\omega_j) \prod_a h_a, \qquad
        w_0 = k(0) - \sum_{j \ne 0} w_j

    with the spectral density S; the sum for zero is over all frequencies. The frequencies are fixed, and the amplitudes
    :math:`\sqrt{w_j}` follow the parameters. Sums over rows contain no amplitudes, so that they hold for all
    parameters, but for rows with weights or known noise. What the grid cuts off, k(0) less its weights, is residual
    variance. The features repeat with a period, so that they serve a box of
    inputs: predictions outside are those of the prior.

    :param base_kernel: an exact kernel with a spectral density: a sum, scaled or not, of stationary kernels of some
        columns, their products over different columns, and products with periodic kernels.
    :param grid: the frequencies, and the box in which inputs lie.
    :param num_features: how many features the grid may have for other parameters; default: as many as rows tell from
        noise, see :func:`rfgp.approximate`.
    :raises ValueError: for a kernel without a spectral density, or more than three columns.

    Source: Greengard, Rachh and Barnett (2022), arXiv 2210.10210.
    """

    orders: Tensor
    spacing: Tensor
    bounds: Tensor

    def __init__(self, base_kernel: Kernel, grid: FrequencyGrid, num_features: int | None = None) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        checks.instance("grid", grid, FrequencyGrid, "a FrequencyGrid", "see rfgp.approximate")
        most = None if num_features is None else checks.positive_integer("num_features", num_features)
        super().__init__(active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel
        self.num_features = most
        for name in ("orders", "spacing", "bounds"):
            self.register_buffer(name, getattr(grid, name).detach().clone())
        self._spectrum, self._prior_variance = KeptValue(), KeptValue()
        with torch.no_grad():
            self.active_waves(self.input_dim)  # which raises without a spectral density

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
        weights, _ = self._weights()
        weights = weights.clamp_min(torch.finfo(torch.float64).tiny).sqrt()  # not zero, where roots have no gradient
        return torch.cat([weights, weights[..., 1:]], dim=-1)

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        return iter(())

    def active_features(self, x: Tensor) -> Tensor:
        grid = self.active_frequency_grid
        phases = grid.phases(x)
        features = grid.features(phases) * self.summed_amplitudes.unsqueeze(-2)
        return (features * grid.is_inside(phases).all(-1, keepdim=True)).to(x.dtype)

    def active_residual(self, x: Tensor) -> ResidualCovariance:
        weights, total = self._weights()
        missing = total - 2.0 * weights.sum(-1) + weights[..., 0]
        missing = missing.clamp_min(torch.finfo(x.dtype).tiny)  # not zero, where its root has no gradient
        grid = self.active_frequency_grid
        is_near = grid.is_inside(grid.phases(x)).all(-1)
        variance = torch.where(is_near, missing.unsqueeze(-1), self._prior().unsqueeze(-1)).to(x.dtype)
        return ResidualCovariance.of_variance(variance)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        mean = self.active_features(x) @ self.active_features(y).mT
        return KernelMoments(mean, torch.zeros_like(mean))

    def active_waves(self, input_dim: int) -> Waves:
        checks.inputs(self.spacing.unsqueeze(0), input_dim)
        weights, _ = self._weights()
        weights = torch.cat([weights[..., :1], 2.0 * weights[..., 1:]], dim=-1)
        like = reference_tensor(self)
        return Waves((zero_and(self.orders) * self.spacing).to(like), weights.sqrt().unsqueeze(-1).to(like))

    @torch.no_grad()
    def regrid(self, precision: float, is_read: bool = True) -> bool:
        """Take the best grid for the present parameters, and say whether it is another one.

        :param precision: that of the rows, see :meth:`GridChoice.best`.
        :param is_read: whether rows have been summed for the present grid, so that another one must be much better.
        """
        grids, grid = self.choice(self.base_kernel, self.bounds.double()), self.active_frequency_grid
        best = grids.best(self.num_features, precision)
        is_other = not torch.equal(best.grid.orders, grid.orders) or not torch.equal(best.grid.spacing, grid.spacing)
        if is_other and is_read:
            is_open = self.num_features is None
            if is_open and grids.has_all(grid, precision):
                is_other = best.grid.num_features < _FEWER * grid.num_features
            elif not is_open or not grids.has_all(best.grid, precision):
                lost = grids.loss(grid).lost
                is_other = best.lost < _BETTER * lost and lost > _NEGLIGIBLE
        if is_other:
            self.orders, self.spacing = best.grid.orders, best.grid.spacing.to(self.spacing)
        return is_other

    @torch.no_grad()
    def lacks_frequencies(self, precision: float) -> bool:
        """Whether rows of a precision tell much of frequencies that a grid of an open number of features lacks."""
        grids = self.choice(self.base_kernel, self.bounds.double())
        return self.num_features is None and not grids.has_all(self.active_frequency_grid, _MUCH * precision)

    @staticmethod
    def choice(kernel: Kernel, bounds: Tensor) -> GridChoice:
        """The choice of a grid for a kernel with its present parameters; batches are averaged."""

        def weights(orders: Tensor, spacing: Tensor) -> tuple[Tensor, Tensor]:
            found, total = spectral_weights(kernel, zero_and(orders), spacing)
            return found.reshape(-1, found.shape[-1]).mean(0).unsqueeze(-1), total.mean().reshape(1)

        def values(differences: Tensor) -> Tensor:
            found = accurate_values(kernel, differences, torch.zeros_like(differences[:1])).squeeze(-1)
            return found.reshape(-1, found.shape[-1]).mean(0).unsqueeze(-1)

        return GridChoice(weights, values, bounds)

    def _prior(self) -> Tensor:
        """The prior variance (...), in float64."""
        zero = self.spacing.double().new_zeros(1, self.input_dim)
        return self._prior_variance.of(
            self._tensors(), lambda: accurate_values(self.base_kernel, zero, zero, diag=True).squeeze(-1)
        )

    def _weights(self) -> tuple[Tensor, Tensor]:
        """The weights of zero and of the orders, (..., H + 1), and the sum of those of all orders, (...)."""
        spectrum = self._spectrum.of(self._tensors(), self._compute_spectrum)
        return spectrum[..., :-1], spectrum[..., -1]

    def _compute_spectrum(self) -> Tensor:
        """Both side by side, (..., H + 2)."""
        weights, total = spectral_weights(self.base_kernel, zero_and(self.orders), self.spacing.double())
        return torch.cat([weights, total.unsqueeze(-1)], dim=-1)

    def _tensors(self) -> list[Tensor]:
        return [self.orders, self.spacing, *self.base_kernel.parameters(), *self.base_kernel.buffers()]

    def _with_base(self, base_kernel: Kernel) -> FourierGridKernel:
        base_kernel.active_dims = self.active_dims
        twin = type(self)(base_kernel, self.active_frequency_grid, self.num_features)
        return twin.train(self.training)

    def __getitem__(self, index: Any) -> FourierGridKernel:
        return self._with_base(without_dims(self.base_kernel)[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> FourierGridKernel:
        return self._with_base(without_dims(self.base_kernel).expand_batch(*sizes))

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make room for as many frequencies as a state has."""
        super().prepare_for(state, prefix)
        saved = state.get(f"{prefix}orders")
        if saved is not None and saved.dim() == 2 and saved.shape[-1] == self.input_dim:
            self.orders = self.orders.new_zeros(saved.shape)

    @property
    def description(self) -> str:
        return f"{type(self).__name__}({described(self.base_kernel)})"


def spectral_weights(kernel: Kernel, orders: Tensor, spacing: Tensor) -> tuple[Tensor, Tensor]:
    """The spectral density at zero and other orders (J, d) of a grid, times the volume of a cell, and the sum of all.

    The weight of zero is what all others leave of the prior variance.
    """
    at = GridFrequencies.of(orders * spacing, spacing)
    weights = family(kernel).spectral_weights(at)
    return weights.at_zero_and(at), weights.total


def grid_kernel(
    kernel: Kernel, request: Request, kind: type[FourierGridKernel] = FourierGridKernel
) -> FourierGridKernel:
    """The kernel on a grid for training inputs; a ValueError without them, or for more than three columns."""
    x = request.select(kernel).x
    if x is None:
        raise ValueError(
            'expected train_inputs for "fourier_grid", whose frequencies follow from the box that they lie in, got '
            "none; pass train_inputs, or the corners of a box"
        )
    bounds = bounds_of(x)
    if bounds.shape[-1] > MOST_COLUMNS:
        raise ValueError(
            f'expected up to three input columns for "fourier_grid", got {bounds.shape[-1]}; use another method, such '
            'as "fourier_orthogonal" or "landmarks"'
        )

    num_features = None if request.is_open_ended else request.num_features
    precision = max(x.shape[-2], _FEWEST_ROWS) / _NOISE
    with torch.no_grad():
        return kind(kernel, kind.choice(kernel, bounds).best(num_features, precision).grid, num_features)


def regrid(kernel: torch.nn.Module, precision: float, is_read: bool) -> bool:
    """Give the grids inside a kernel other frequencies, see :meth:`FourierGridKernel.regrid`; whether any changed."""
    return any([part.regrid(precision, is_read) for part in grids_in(kernel)])


@torch.no_grad()
def share_grid(kernels: Sequence[FourierGridKernel], precisions: Sequence[float]) -> None:
    """Give kernels one grid for the box around theirs, and rows of a precision for each."""
    low, high = torch.stack([kernel.bounds.double() for kernel in kernels]).unbind(1)
    bounds = torch.stack([low.amin(0), high.amax(0)])
    choices = [kernel.choice(kernel.base_kernel, bounds) for kernel in kernels]
    grid = common_grid(choices, precisions, [kernel.num_features for kernel in kernels])
    for kernel in kernels:
        kernel.orders = grid.orders.clone()
        kernel.spacing, kernel.bounds = grid.spacing.to(kernel.spacing), bounds.to(kernel.bounds)


def grids_in(kernel: torch.nn.Module) -> list[FourierGridKernel]:
    """The kernels with grids inside a kernel."""
    return [part for part in kernel.modules() if isinstance(part, FourierGridKernel)]

"""Kernels on an equispaced grid of frequencies, whose cosines and sines are the features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ...inference.posterior.covariance import ResidualCovariance
from ...linalg.frequency_grid import FrequencyGrid
from ..family import Family, KernelMoments, family
from ..grid_choice import GridChoice, bounds_of, common_grid
from ..kept_value import KeptValue
from ..maps import ResizedBuffers, WholeMaps
from ..registry import OF_MAPS, is_approximated
from ..request import Request
from ..spectral_weights import GridFrequencies, zero_and
from ..values import accurate_values
from ..waves import Waves

MOST_COLUMNS = 3
_BETTER, _NEGLIGIBLE = 0.5, 0.01
"""A grid is replaced by one with which at most this share of what it loses is lost, if that is not negligible."""
_FEWER = 0.5
"""A grid that has all frequencies is replaced by one with at most this share of them."""
_MUCH = 0.1
"""With this share of the rows those that a grid lacks would not matter, where it lacks little."""
_FEWEST_ROWS, _NOISE = 1000, 0.01
"""Rows that are to be expected at least, and their noise, relative to the variance of the function."""


class SpectralGrid(ResizedBuffers, WholeMaps):
    """The frequencies of a kernel on a grid, and the box in which inputs lie.

    :param grid: the frequencies and the box.
    :param num_features: how many features the grid may have for other parameters; default: as many as rows tell from
        noise, see :func:`rfgp.approximate`.
    """

    spacing: Tensor
    bounds: Tensor

    def __init__(self, grid: FrequencyGrid, num_features: int | None = None) -> None:
        super().__init__()
        self.num_features = num_features
        for name in ("orders", "spacing", "bounds"):
            self.register_buffer(name, getattr(grid, name).detach().clone())
        self.spectrum, self.prior_variance = KeptValue(), KeptValue()

    @property
    def grid(self) -> FrequencyGrid:
        """The frequencies and the box, in float64."""
        return FrequencyGrid(self.orders, self.spacing.double(), self.bounds.double())

    def replace(self, grid: FrequencyGrid, bounds: Tensor | None = None) -> None:
        """Take the frequencies of another grid, and another box where one is given."""
        self.orders, self.spacing = grid.orders.clone(), grid.spacing.to(self.spacing)
        if bounds is not None:
            self.bounds = bounds.to(self.bounds)

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make room for as many frequencies as a state has."""
        saved = state.get(f"{prefix}orders")
        if saved is not None and saved.dim() == 2 and saved.shape[-1] == len(self.spacing):
            self.orders = self.orders.new_zeros(saved.shape)


class GridFamily(Family):
    r"""A stationary kernel with the features of a grid of frequencies :math:`\omega_j = h j`.

    .. math:: k(x, y) \approx \sum_j w_j \cos(\omega_j^\top (x - y)), \qquad w_j = S(\omega_j) \prod_a h_a, \qquad
        w_0 = k(0) - \sum_{j \ne 0} w_j

    with the spectral density S; the sum for zero is over all frequencies. The frequencies are fixed, and the amplitudes
    :math:`\sqrt{w_j}` follow the parameters. Sums over rows contain no amplitudes, so that they hold for all
    parameters, but for rows with weights or known noise. What the grid cuts off, k(0) less its weights, is residual
    variance. The features repeat with a period, so that they serve a box of inputs: predictions outside are those of
    the prior.

    Kernels are sums, scaled or not, of stationary kernels of some columns, their products over different columns, and
    products with periodic kernels.

    Source: Greengard, Rachh and Barnett (2022), arXiv 2210.10210.
    """

    maps: SpectralGrid
    maps_kind: ClassVar[type[SpectralGrid]] = SpectralGrid

    def draw(self, request: Request) -> torch.nn.Module:
        return self.draw_grid(request)

    @property
    def active_frequency_grid(self) -> FrequencyGrid:
        return self.maps.grid

    @property
    def num_scalar_features(self) -> int:
        return 2 * len(self.maps.orders) + 1

    @property
    def input_dim(self) -> int:
        return len(self.maps.spacing)

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
        checks.inputs(self.maps.spacing.unsqueeze(0), input_dim)
        weights, _ = self._weights()
        weights = torch.cat([weights[..., :1], 2.0 * weights[..., 1:]], dim=-1)
        like = self.like
        return Waves((zero_and(self.maps.orders) * self.maps.spacing).to(like), weights.sqrt().unsqueeze(-1).to(like))

    @torch.no_grad()
    def regrid(self, precision: float, is_read: bool = True) -> bool:
        """Take the best grid for the present parameters, and say whether it is another one.

        :param precision: that of the rows, see :meth:`GridChoice.best`.
        :param is_read: whether rows have been summed for the present grid, so that another one must be much better.
        """
        grids, grid = self.choice(self.kernel, self.maps.bounds.double()), self.maps.grid
        best = grids.best(self.maps.num_features, precision)
        is_other = not torch.equal(best.grid.orders, grid.orders) or not torch.equal(best.grid.spacing, grid.spacing)
        if is_other and is_read:
            is_open = self.maps.num_features is None
            if is_open and grids.has_all(grid, precision):
                is_other = best.grid.num_features < _FEWER * grid.num_features
            elif not is_open or not grids.has_all(best.grid, precision):
                lost = grids.loss(grid).lost
                is_other = best.lost < _BETTER * lost and lost > _NEGLIGIBLE
        if is_other:
            self.maps.replace(best.grid)
        return is_other

    @torch.no_grad()
    def lacks_frequencies(self, precision: float) -> bool:
        """Whether rows of a precision tell much of frequencies outside of a grid of an open number of features."""
        grids = self.choice(self.kernel, self.maps.bounds.double())
        return self.maps.num_features is None and not grids.has_all(self.maps.grid, _MUCH * precision)

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
        zero = self.maps.spacing.double().new_zeros(1, self.input_dim)
        return self.maps.prior_variance.of(
            self._tensors(), lambda: accurate_values(self.kernel, zero, zero, diag=True).squeeze(-1)
        )

    def _weights(self) -> tuple[Tensor, Tensor]:
        """The weights of zero and of the orders, (..., H + 1), and the sum of those of all orders, (...)."""
        spectrum = self.maps.spectrum.of(self._tensors(), self._compute_spectrum)
        return spectrum[..., :-1], spectrum[..., -1]

    def _compute_spectrum(self) -> Tensor:
        """Both side by side, (..., H + 2)."""
        weights, total = spectral_weights(self.kernel, zero_and(self.maps.orders), self.maps.spacing.double())
        return torch.cat([weights, total.unsqueeze(-1)], dim=-1)

    def _tensors(self) -> list[Tensor]:
        return [self.maps.orders, self.maps.spacing, *self.kernel.parameters(), *self.kernel.buffers()]


OF_MAPS[SpectralGrid] = GridFamily


def spectral_weights(kernel: Kernel, orders: Tensor, spacing: Tensor) -> tuple[Tensor, Tensor]:
    """The spectral density at zero and other orders (J, d) of a grid, times the volume of a cell, and the sum of all.

    The weight of zero is what all others leave of the prior variance.
    """
    at = GridFrequencies.of(orders * spacing, spacing)
    weights = family(kernel).spectral_weights(at)
    return weights.at_zero_and(at), weights.total


def draw_grid(kernel: Kernel, request: Request, kind: type[GridFamily] = GridFamily) -> SpectralGrid:
    """The grid of a kernel for training inputs; a ValueError without them, or for more than three columns."""
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
        maps = kind.maps_kind(kind.choice(kernel, bounds).best(num_features, precision).grid, num_features)
        kind(kernel, maps).active_waves(bounds.shape[-1])  # which raises without a spectral density
    return maps


def regrid(module: torch.nn.Module, precision: float, is_read: bool) -> bool:
    """Give the grids inside a module other frequencies, see :meth:`GridFamily.regrid`; whether any changed."""
    return any([grid.regrid(precision, is_read) for grid in grids_in(module)])


@torch.no_grad()
def share_grid(grids: Sequence[GridFamily], precisions: Sequence[float]) -> None:
    """Give kernels one grid for the box around theirs, and rows of a precision for each."""
    low, high = torch.stack([grid.maps.bounds.double() for grid in grids]).unbind(1)
    bounds = torch.stack([low.amin(0), high.amax(0)])
    choices = [grid.choice(grid.kernel, bounds) for grid in grids]
    shared = common_grid(choices, precisions, [grid.maps.num_features for grid in grids])
    for grid in grids:
        grid.maps.replace(shared, bounds)


def grids_in(module: torch.nn.Module) -> list[GridFamily]:
    """The kernels on grids inside a module, each once."""
    families = [leaf for part in module.modules() if is_approximated(part) for leaf, _ in part.family.leaves()]
    grids = {id(leaf.maps): leaf for leaf in families if isinstance(leaf, GridFamily)}
    return list(grids.values())

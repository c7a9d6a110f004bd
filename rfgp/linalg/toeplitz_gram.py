"""Products with the Gram matrix of a frequency grid by fast Fourier transforms, without the matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .frequency_grid import half_of


class ToeplitzGram:
    r"""The Gram matrix :math:`G = \Phi^\top W \Phi` of the features of a :class:`FrequencyGrid`.

    Weights of features are the Fourier coefficients of a function, whose values on a grid of points are multiplied by
    the transform of the lags.

    :param lags: the sums of cosines and of sines of all differences of frequencies, (2, L).
    :param orders: those of the grid, (H, d).
    """

    def __init__(self, lags: Tensor, orders: Tensor) -> None:
        self.lags, self.orders, self.half = lags, orders, half_of(orders)
        self._sizes = [_fast_size(4 * h + 1) for h in self.half]
        self._columns = self._sizes[-1] // 2 + 1
        is_negative = orders[:, -1] < 0
        self._sign = torch.where(is_negative, -1.0, 1.0).to(lags)
        half_space = torch.where(is_negative.unsqueeze(-1), -orders, orders)
        self._places = self._place(half_space)
        self._mirrored = (half_space[:, -1] == 0).nonzero().squeeze(-1)
        self._mirrored_places = self._place(-half_space[self._mirrored])
        self._density = self._transformed_lags()

    @property
    def num_features(self) -> int:
        """D = 2 H + 1."""
        return 2 * len(self.orders) + 1

    @property
    def diagonal(self) -> Tensor:
        """The diagonal of G, (D,)."""
        shape = [4 * h + 1 for h in self.half]
        twice = 2 * (self.orders + self.orders.new_tensor(self.half))
        cosines = self.lags[0].reshape(shape)
        total, doubled = cosines[tuple(2 * h for h in self.half)], cosines[tuple(twice.unbind(-1))]
        return torch.cat([total.reshape(1), total + doubled, total - doubled])

    def product(self, columns: Tensor) -> Tensor:
        """G times columns (D, R), in float64."""
        count, root = len(self.orders), math.sqrt(2.0)
        cosines, sines = columns[1 : 1 + count].mT, columns[1 + count :].mT * self._sign
        waves = torch.complex(cosines, -sines) / root
        spectrum = waves.new_zeros(columns.shape[-1], math.prod(self._sizes[:-1]) * self._columns)
        spectrum[:, self._places] = waves
        spectrum[:, self._mirrored_places] = waves[:, self._mirrored].conj()
        spectrum[:, 0] = columns[0].to(spectrum.dtype)
        shape, axes = (len(spectrum), *self._sizes[:-1], self._columns), tuple(range(1, 1 + len(self._sizes)))
        values = torch.fft.irfftn(spectrum.reshape(shape), s=self._sizes, dim=axes, norm="forward")
        found = torch.fft.rfftn(values.mul_(self._density), dim=axes).flatten(1)
        waves = root * found[:, self._places]
        return torch.cat([found[:, :1].real, waves.real, -self._sign * waves.imag], dim=-1).mT

    def _transformed_lags(self) -> Tensor:
        """The weights of the rows as a density on the grid of points, with the transform of the lags."""
        cosines, sines = self.lags
        sums = torch.complex(cosines, -sines).reshape([4 * h + 1 for h in self.half])
        padded = sums.new_zeros(self._sizes)
        padded[tuple(slice(0, 4 * h + 1) for h in self.half)] = sums
        axes = tuple(range(len(self.half)))
        return torch.fft.ifftn(padded.roll([-2 * h for h in self.half], axes)).real.contiguous()

    def _place(self, orders: Tensor) -> Tensor:
        """Where orders (J, d) are in a flattened half spectrum."""
        place = torch.zeros_like(orders[:, 0])
        for axis, size in enumerate([*self._sizes[:-1], self._columns]):
            place = place * size + orders[:, axis] % self._sizes[axis]
        return place


def _fast_size(size: int, factors: Sequence[int] = (2, 3, 5)) -> int:
    """The smallest number without other prime factors that is not below a size."""
    rest = size
    for factor in factors:
        while rest % factor == 0:
            rest //= factor
    return size if rest == 1 else _fast_size(size + 1, factors)

"""The spectral density of an exact kernel at the frequencies of a grid."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .values import accurate_values

_MOST_COPIES, _NEGLIGIBLE = 2**14, 1e-12


class GridFrequencies(NamedTuple):
    """Frequencies at which a kernel sees some columns of the inputs.

    :param values: frequencies, (J, d), in float64.
    :param cell: the spacing of the grid, (d,).
    :param dims: the columns that the kernel sees.
    :param is_shifted: whether they are those of a grid no longer.
    """

    values: Tensor
    cell: Tensor
    dims: tuple[int, ...]
    is_shifted: bool = False

    @classmethod
    def of(cls, values: Tensor, cell: Tensor) -> Self:
        """All columns."""
        return cls(values, cell, tuple(range(len(cell))))

    def select(self, kernel: Kernel) -> Self:
        """The columns that ``active_dims`` of a part select."""
        if kernel.active_dims is None:
            return self
        return self._replace(dims=tuple(self.dims[dim] for dim in kernel.active_dims.tolist()))

    @property
    def seen(self) -> Tensor:
        """The frequencies of the columns that the kernel sees, (J, k)."""
        return self.values[:, list(self.dims)]

    @property
    def zero(self) -> Self:
        """Frequency zero alone."""
        return self._replace(values=torch.zeros_like(self.values[:1]))

    @property
    def origin(self) -> Tensor:
        """The difference zero in these columns, (1, k)."""
        return self.cell.new_zeros(1, len(self.dims))

    @property
    def periods(self) -> Tensor:
        """The period of the grid in every one of these columns, (k,)."""
        return 2.0 * math.pi / self.cell[list(self.dims)]

    def copies_within(self, reach: float) -> Tensor:
        """Where a periodic kernel has copies of the origin, two at least and if they are not too many, (n, k)."""
        return self.copies(math.ceil(reach / float(self.periods.min())))

    def copies(self, count: int) -> Tensor:
        """Where a periodic kernel has copies of the origin, as far as some periods, (n, k)."""
        last = max(2, min(count, self.most_copies))
        shifts = torch.arange(-last, last + 1, dtype=self.cell.dtype, device=self.cell.device)
        return torch.cartesian_prod(*[shifts] * len(self.dims)).reshape(-1, len(self.dims)) * self.periods

    @property
    def most_copies(self) -> int:
        """As far as so many periods copies are not too many."""
        return int(_MOST_COPIES ** (1.0 / len(self.dims)) - 1) // 2

    @property
    def volume(self) -> Tensor:
        """The volume of a cell in these columns."""
        return self.cell[list(self.dims)].prod()

    def shifted(self, lines: Tensor) -> Self:
        """The frequencies less lines (n, k) in these columns, (J n, d)."""
        moved = self.values.unsqueeze(1).repeat(1, len(lines), 1)
        moved[..., list(self.dims)] -= lines
        return self._replace(values=moved.flatten(0, 1), is_shifted=True)


class SpectralWeights(NamedTuple):
    """Densities times volumes of cells in some columns; in the others the spectrum is concentrated at zero.

    :param values: (..., J).
    :param dims: these columns.
    :param total: the sum of the values at all frequencies of a grid, (...): the variance of the periodic kernel.
    """

    values: Tensor
    dims: frozenset[int]
    total: Tensor

    def with_variance(self, prior: Tensor, beside_zero: Tensor, at: GridFrequencies) -> SpectralWeights:
        r"""Those of a periodic kernel with the prior variance (...): zero gets what all other frequencies leave of it.

        .. math:: w_0 = k(0) - \sum_{j \ne 0} w_j, \qquad w_j = S(\omega_j) \prod_a h_a

        A constant is taken from the sum :math:`\sum_n k(x + n P) = \sum_j w_j \cos(\omega_j^\top x)` of the kernel and
        its copies, so that it is k(0) at zero, and what a set of frequencies lacks of k(0) is what it cuts off.

        :param beside_zero: the sum of the weights of all frequencies but zero, (...).
        """
        zero = (prior - beside_zero).clamp_min(0.0)
        is_zero = (at.seen.abs() < 0.5 * at.cell[list(at.dims)]).all(-1)
        return self._replace(values=torch.where(is_zero, zero.unsqueeze(-1), self.values), total=zero + beside_zero)

    def scaled(self, scale: Tensor) -> SpectralWeights:
        """Those of the kernel times numbers (...)."""
        factor = scale.double()
        return SpectralWeights(factor.unsqueeze(-1) * self.values, self.dims, factor * self.total)

    def in_all(self, at: GridFrequencies, dims: frozenset[int]) -> Tensor:
        """The values for more columns: zero where a frequency is not zero in one of the others."""
        others = sorted(dims - self.dims)
        if others and at.is_shifted:
            raise ValueError(
                "expected a periodic factor beside parts of the same columns on a Fourier grid, got a sum with parts "
                "of others; multiply the parts one by one"
            )
        is_zero = at.values[:, others].abs() < 0.5 * at.cell[others]
        return self.values * is_zero.all(-1)

    def at_zero_and(self, at: GridFrequencies) -> Tensor:
        """The values at zero and others in all columns."""
        return self.in_all(at, frozenset(range(len(at.cell))))

    def roots(self, at: GridFrequencies) -> Tensor:
        """The roots of :meth:`at_zero_and`, which are not zero, where they have no gradient."""
        return self.at_zero_and(at).clamp_min(torch.finfo(torch.float64).tiny).sqrt()

    def plus(self, other: SpectralWeights, at: GridFrequencies) -> SpectralWeights:
        """Those of a sum of kernels."""
        dims = self.dims | other.dims
        return SpectralWeights(self.in_all(at, dims) + other.in_all(at, dims), dims, self.total + other.total)

    def times(self, other: SpectralWeights) -> SpectralWeights:
        """Those of a product of kernels of different columns; a ValueError for common ones."""
        if self.dims & other.dims:
            raise ValueError(
                "expected factors of different columns, or a periodic one, in a product on a Fourier grid, got two "
                'stationary ones of the same columns; use method="fourier" or "landmarks"'
            )
        return SpectralWeights(self.values * other.values, self.dims | other.dims, self.total * other.total)


def variance_of_copies(kernel: Kernel, at: GridFrequencies, dims: frozenset[int] | None = None) -> Tensor:
    """The variance (...) of the sum of a stationary kernel and its copies, as far as these are more than rounding.

    :param dims: the columns that it depends on; default: all that it sees.
    """
    used = at if dims is None else at._replace(dims=tuple(sorted(dims)))
    places = [at.dims.index(dim) for dim in used.dims]

    def values(differences: Tensor) -> Tensor:
        rows = differences.new_zeros(len(differences), len(at.dims))
        rows[:, places] = differences
        return accurate_values(kernel, rows, at.origin).squeeze(-1)

    count = 2
    while count < used.most_copies:
        with torch.no_grad():
            found = values(torch.cat([used.origin, torch.diag(count * used.periods)])).abs()
        if float(found[..., 1:].max()) <= _NEGLIGIBLE * float(found[..., 0].max()):
            break
        count *= 2
    copies = used.copies(count)
    return values(used.origin).squeeze(-1) + values(copies[copies.any(-1)]).sum(-1)


def no_density(kernel: object) -> ValueError:
    """The error for a kernel without a spectral density in closed form."""
    return ValueError(
        f'expected a stationary kernel with a spectral density for "fourier_grid", got {type(kernel).__name__}; use '
        'another method, such as "landmarks"'
    )


def convolved(values: Tensor, lines: Tensor, shares: Tensor) -> Tensor:
    """Weights at shifted frequencies (..., J n), summed with the shares (..., n) of the lines, (..., J)."""
    return (values.unflatten(-1, (-1, len(lines))) * shares.unsqueeze(-2)).sum(-1)


def zero_and(orders: Tensor) -> Tensor:
    """Orders (H, d) with zero before them."""
    return torch.cat([orders.new_zeros(1, orders.shape[-1]), orders])

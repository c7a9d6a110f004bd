"""A sum of smooth functions of single inputs, as a part of a mean function that stays as it is."""

from __future__ import annotations

import math

import torch
from gpytorch.means import ConstantMean
from torch import Tensor

_MOST_KNOTS, _MOST_IN_ALL = 16, 512
"""Knots of a column, and of all columns together."""
_RATIOS = tuple(2.0 ** (0.5 * power) for power in range(-40, 41))
"""Prior variances of the functions over the noise variance, of which the one of the largest evidence is taken."""
_JITTER = 1e-10
"""What is added to the variances of functions at knots, which may be very near each other."""
_ROWS = 2**10
"""Rows at a time."""


class AdditiveMean(ConstantMean):
    r"""A constant that is learned, and a sum of functions of single inputs that data have taught, which stays.

    .. math:: m(x) = c + g(x), \qquad g(x) = \sum_k g_k(x_k), \qquad g_k \sim GP(0, s \kappa), \qquad
        \kappa(t) = \big(1 + \sqrt 5\, |t| + \tfrac53 t^2\big)\, e^{-\sqrt 5\, |t|}

    The function g is the posterior mean by all rows with independent noise, where the functions are known by their
    values at up to 16 knots of every column and 512 in all: a sparse approximation by a subset of regressors. The prior
    variance s and the noise are those of the largest evidence, with a flat prior of the constant. Far from all rows g
    goes back to zero. All is in float64.

    :param x: inputs (N, d) in units of their standard deviations.
    :param y: targets (N,).

    ``gain`` are the nats of evidence per row that the functions gain over a constant.

    Source: D. Duvenaud, H. Nickisch and C. E. Rasmussen, Additive Gaussian processes, 2011; E. Snelson and Z.
    Ghahramani, Sparse Gaussian processes using pseudo-inputs, 2006.

    >>> x = torch.randn(200, 3, dtype=torch.float64)
    >>> mean = AdditiveMean(x, x[:, 0] + (2.0 * x[:, 1]).sin())
    >>> bool((mean(x) - x[:, 0] - (2.0 * x[:, 1]).sin()).abs().mean() < 0.1), mean.gain > 1.0
    (True, True)
    """

    knots: Tensor
    """Where the functions are known, (D,)."""
    columns: Tensor
    """The numbers of the columns of the knots, (D,)."""
    whitening: Tensor
    """What makes a basis of unit variance of the kernels at the knots, (D, D)."""
    center: Tensor
    """The means of this basis over the rows, (D,)."""
    weights: Tensor
    """The posterior mean of its coefficients, (D,)."""
    root: Tensor
    """A square root of their posterior covariance, (D, D)."""
    prior_variance: Tensor
    """The prior variance s of each function, ()."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.double()
        with torch.no_grad():
            self._learn(x.detach().double(), y.detach().double())

    @staticmethod
    def most_knots(num_columns: int) -> int:
        """How many knots so many columns have, at most."""
        return num_columns * _knots_per_column(num_columns)

    def forward(self, x: Tensor) -> Tensor:
        """The mean function at inputs (..., N, d), (..., N)."""
        constant: Tensor = super().forward(x)
        return constant + self.function(x)

    def function(self, x: Tensor) -> Tensor:
        """The sum g at inputs (..., N, d), (..., N)."""
        weights = self.whitening @ self.weights
        blocks = x.reshape(-1, x.shape[-1]).to(self.knots).split(_ROWS)
        return torch.cat([self._kernels(rows) @ weights for rows in blocks]).reshape(x.shape[:-1]).to(x.dtype)

    def variance(self, x: Tensor) -> Tensor:
        r"""The posterior variance of the mean function at inputs (N, d), (N,).

        .. math:: s \sum_k \big(1 - |\phi_k(x)|^2\big) + (\phi(x) - \bar\phi)^\top \Sigma\, (\phi(x) - \bar\phi)
        """
        return torch.cat([self._variance(rows) for rows in x.to(self.knots).split(_ROWS)]).to(x.dtype)

    @property
    def learned(self) -> ConstantMean:
        """The constant alone, with the same parameter."""
        constant = ConstantMean()
        constant.raw_constant = self.raw_constant
        return constant

    def _variance(self, x: Tensor) -> Tensor:
        basis, num_functions = self._kernels(x) @ self.whitening, len(self.columns.unique())
        missing = (num_functions - basis.square().sum(-1)).clamp_min(0.0)
        return self.prior_variance * missing + ((basis - self.center) @ self.root).square().sum(-1)

    def _kernels(self, x: Tensor) -> Tensor:
        """The kernels of inputs (N, d) with the knots, (N, D)."""
        return _matern(x[:, self.columns] - self.knots)

    def _learn(self, x: Tensor, y: Tensor) -> None:
        knots = _knots(x)
        self.register_buffer("knots", torch.cat(knots))
        numbers = [torch.full_like(values, k, dtype=torch.long) for k, values in enumerate(knots)]
        self.register_buffer("columns", torch.cat(numbers))
        self.register_buffer("whitening", torch.block_diag(*map(_whitening, knots)))
        level, count = y.mean(), len(y)
        gram, cross, center = (x.new_zeros(*(len(self.knots),) * dim) for dim in (2, 1, 1))
        for rows, targets in zip(x.split(_ROWS), y.split(_ROWS), strict=True):
            basis = self._kernels(rows) @ self.whitening
            gram.addmm_(basis.mT, basis)
            cross.addmv_(basis.mT, targets - level)
            center += basis.sum(0) / count
        gram.addr_(center, center, alpha=-count)
        values, vectors = torch.linalg.eigh(gram)
        values, cross = values.clamp_min(0.0), vectors.mT @ cross
        square = (y - level).square().sum()
        ratios = values.new_tensor(_RATIOS)
        shrunk = 1.0 + ratios.unsqueeze(-1) * values
        left = square - (ratios.unsqueeze(-1) * cross.square() / shrunk).sum(-1)
        left = left.clamp_min(torch.finfo(left.dtype).eps * square)
        gains = -0.5 * ((count - 1) * (left / square).log() + shrunk.log().sum(-1)) / count
        best = int(gains.argmax())
        ratio, shrunk = ratios[best], shrunk[best]
        self.gain = float(gains[best])
        prior_variance = ratio * left[best] / (count - 1)
        self.register_buffer("center", center)
        self.register_buffer("weights", vectors @ (ratio * cross / shrunk))
        self.register_buffer("root", vectors * (prior_variance / shrunk).sqrt())
        self.register_buffer("prior_variance", prior_variance)
        self.initialize(constant=level - center @ self.weights)


def _matern(difference: Tensor) -> Tensor:
    """The Matern-5/2 kernel of differences in lengthscales."""
    scaled = math.sqrt(5.0) * difference.abs()
    return (1.0 + scaled * (1.0 + scaled / 3.0)) * (-scaled).exp()


def _knots_per_column(num_columns: int) -> int:
    """How many knots each of so many columns has, at most."""
    return max(2, min(_MOST_KNOTS, _MOST_IN_ALL // num_columns))


def _knots(x: Tensor) -> list[Tensor]:
    """Values of every column of inputs (N, d), all where these are few, and none of a constant column.

    Between two of them lies the same sum of shares of the rows and of the range: where rows are few, functions between
    quantiles would be unknown.
    """
    most, knots = _knots_per_column(x.shape[-1]), []
    shares = torch.linspace(0.0, 1.0, len(x), dtype=x.dtype, device=x.device)
    wanted = torch.linspace(0.0, 2.0, most, dtype=x.dtype, device=x.device)
    for column in x.unbind(-1):
        ordered = column.sort().values
        values = ordered.unique_consecutive()
        if len(values) > most:
            sums = shares + (ordered - ordered[0]) / (ordered[-1] - ordered[0])
            values = ordered[torch.searchsorted(sums, wanted).clamp_max(len(x) - 1)].unique_consecutive()
        knots.append(values if len(values) > 1 else values[:0])
    return knots


def _whitening(knots: Tensor) -> Tensor:
    """The transposed inverse of the Cholesky factor of the kernel matrix of the knots of a column, (D, D)."""
    identity = torch.eye(len(knots), dtype=knots.dtype, device=knots.device)
    factor = torch.linalg.cholesky(_matern(knots.unsqueeze(-1) - knots) + _JITTER * identity)
    return torch.linalg.solve_triangular(factor, identity, upper=False).mT

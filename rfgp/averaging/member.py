"""One model of a small table: a scale of the inputs, one of the target, and draws of the parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..linalg import cholesky
from .half_ranks import InputScale
from .parameter_draws import Floats, most_probable, parameter_draws
from .table_kernel import TableKernel, fixed_matrices
from .target_transform import TargetTransform


class TargetScale:
    """A transform of targets (N,), and then their standardization."""

    def __init__(self, y: Tensor, transform: TargetTransform) -> None:
        self.transform, moved = transform, transform.forward(y)
        self.center, self.unit = moved.mean(), moved.std(correction=0)

    def forward(self, y: Tensor) -> Tensor:
        """Targets on this scale."""
        return (self.transform.forward(y) - self.center) / self.unit

    def inverse(self, z: Tensor) -> Tensor:
        """Targets in their own units."""
        return self.transform.inverse(z * self.unit + self.center)

    def log_slope(self, y: Tensor) -> Tensor:
        """The logarithm of the derivative of :meth:`forward`."""
        return self.transform.log_slope(y) - self.unit.log()


class Moments(NamedTuple):
    """Means and variances (S, M) of new targets on the scale of a member, for each draw of its parameters."""

    mean: Tensor
    variance: Tensor


class Member:
    """Exact processes of rows (N, d) and targets (N,), one for each draw of the parameters.

    :param scale: the scale of the inputs.
    :param target: the scale of the targets.
    :param has_lengthscales: whether each input has a lengthscale.
    :param fixed: the matrices of :func:`fixed_matrices` of the inputs on their scale.
    """

    def __init__(
        self, x: Tensor, y: Tensor, scale: InputScale, target: TargetScale, has_lengthscales: bool, fixed: Tensor
    ) -> None:
        self.scale, self.target, self.has_lengthscales = scale, target, has_lengthscales
        self.kernel = TableKernel(scale(x), target.forward(y), fixed, has_lengthscales)
        self.mode = self.kernel.start
        self.vectors = self.mode[None]

    def learn(self, start: Floats | None, count: int, num_proposals: int) -> None:
        """Find the most probable parameters, and draw from their posterior."""
        self.mode = most_probable(self.kernel, self.kernel.start if start is None else start).vector
        self.vectors = self.mode[None]
        if count > 1:
            self.vectors = parameter_draws(self.kernel, self.mode, count, num_proposals).vectors

    def _factor(self, vector: Floats) -> Tensor:
        """The Cholesky factor (N, N) of the covariance of the targets."""
        kernel = self.kernel
        total = kernel.matrix(vector, kernel.x, kernel.x, kernel.fixed)
        total.diagonal().add_(kernel.noise(vector))
        return cholesky(total)

    def solved(self, place: int, columns: Tensor) -> Tensor:
        """The inverse covariance of the targets times columns (N, C), for one draw."""
        return torch.cholesky_solve(columns, self._factor(self.vectors[place]))

    def _posteriors(self) -> Iterator[tuple[Floats, Tensor, Tensor]]:
        """For each draw its vector, the Cholesky factor (N, N) of the covariance, and its solution (N,)."""
        for vector in self.vectors:
            factor = self._factor(vector)
            yield vector, factor, torch.cholesky_solve(self.kernel.y.unsqueeze(-1), factor).squeeze(-1)

    def left_out(self, groups: Sequence[Tensor] = ()) -> Moments:
        r"""Every target by all others; those of rows in a group by rows outside of it.

        .. math:: \mu_G = y_G - (A^{-1})_{GG}^{-1} \alpha_G, \qquad \Sigma_G = (A^{-1})_{GG}^{-1}

        :param groups: the numbers of rows of each group; rows in none are left out alone.
        """
        y, means, variances = self.kernel.y, [], []
        for _, factor, alpha in self._posteriors():
            inverse = torch.cholesky_inverse(factor)
            variance = 1.0 / inverse.diagonal()
            mean = y - alpha * variance
            for rows in groups:
                block = torch.linalg.inv(inverse[rows][:, rows])
                mean[rows], variance[rows] = y[rows] - block @ alpha[rows], block.diagonal()
            means.append(mean)
            variances.append(variance)
        return Moments(torch.stack(means), torch.stack(variances))

    def log_evidence(self) -> float:
        """The log density of the targets, in their units, at the most probable parameters."""
        kernel, size = self.kernel, len(self.kernel.y)
        loss = kernel.loss(self.mode, has_gradient=False)[0] - kernel.prior(self.mode)[0]
        return -loss - 0.5 * size * math.log(2.0 * math.pi)

    def with_rows(self, x: Tensor, y: Tensor, fixed: Tensor) -> Member:
        """The same scales and draws with other rows."""
        twin = copy.copy(self)
        twin.kernel = TableKernel(self.scale(x), self.target.forward(y), fixed, self.has_lengthscales)
        return twin

    def predict(self, x: Tensor, has_noise: bool = True) -> Moments:
        """New targets at inputs (M, d), or the function there."""
        means, variances = [], []
        for mean, variance, _, vector in self._at(x):
            means.append(mean)
            variances.append(variance if has_noise else variance - self.kernel.noise(vector))
        return Moments(torch.stack(means), torch.stack(variances))

    def _at(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Floats]]:
        """For each draw means and variances (M,) of new targets, half the reduction (N, M), and the vector."""
        kernel, new = self.kernel, self.scale(x)
        fixed = fixed_matrices(kernel.x, new)
        for vector, factor, alpha in self._posteriors():
            cross = kernel.matrix(vector, kernel.x, new, fixed)
            half = torch.linalg.solve_triangular(factor, cross, upper=False)
            latent = (kernel.variance(vector, new) - half.square().sum(0)).clamp_min(0.0)
            yield cross.mT @ alpha, latent + kernel.noise(vector), half, vector

    def joint(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each draw means (M,) and covariances (M, M) of new targets at inputs (M, d), on its scale."""
        kernel, new = self.kernel, self.scale(x)
        fixed = fixed_matrices(new, new)
        for mean, variance, half, vector in self._at(x):
            covariance = kernel.matrix(vector, new, new, fixed) - half.mT @ half
            covariance.diagonal().copy_(variance)
            yield mean, covariance

"""Functions drawn from the posterior of a Gaussian process, as functions of the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

_JOINT_WAVES, _SINGLE_WAVES = 256, 48


class MaternPart(NamedTuple):
    """A Matern kernel times a weight: of all inputs together, or the sum of those of single inputs.

    :param weight: that of all inputs together, (1,), or of single ones, (d,).
    :param smoothness: 1/2, 5/2, or infinity for the RBF kernel.
    :param inverse: inverse lengthscales, (d,).
    """

    weight: Tensor
    smoothness: float
    inverse: Tensor
    is_additive: bool = False


class PriorFunctions:
    r"""S functions drawn from the prior of a constant, a linear kernel and Matern parts, by Fourier features.

    .. math:: k(x, z) = 1 + s_L \frac{x^\top z}{d} + \sum_l k_l(x, z)

    :param linear: the weight of the linear kernel.
    """

    def __init__(
        self, dim: int, linear: float, parts: Sequence[MaternPart], num_functions: int, generator: Generator | None
    ) -> None:
        frequencies, squares = [torch.zeros(0, dim, dtype=torch.float64)], [torch.zeros(0)]
        for part in parts:
            if part.is_additive:
                waves = torch.zeros(dim, _SINGLE_WAVES, dim, dtype=torch.float64)
                for column in range(dim):
                    waves[column, :, column] = matern_frequencies(_SINGLE_WAVES, 1, generator, part.smoothness)[:, 0]
                waves = waves.flatten(0, 1)
            else:
                waves = matern_frequencies(_JOINT_WAVES, dim, generator, part.smoothness)
            frequencies.append(waves * part.inverse)
            each = len(waves) // max(len(part.weight), 1)
            squares.append(part.weight.repeat_interleave(each) / max(each, 1))
        self.frequency, amplitude = torch.cat(frequencies), torch.cat(squares).double().sqrt().unsqueeze(-1)
        counts = [len(amplitude), len(amplitude), dim, 1]
        normal = torch.randn(sum(counts), num_functions, generator=generator, dtype=torch.float64)
        cosines, sines, slopes, self.constants = normal.split(counts)
        self.cosines, self.sines = amplitude * cosines, amplitude * sines
        self.slopes = math.sqrt(linear / max(dim, 1)) * slopes

    def __call__(self, x: Tensor) -> Tensor:
        """Values (M, S) at scaled inputs (M, d)."""
        phase = x @ self.frequency.mT
        return phase.cos() @ self.cosines + phase.sin_() @ self.sines + (x @ self.slopes + self.constants)


class ConditionedKernel(NamedTuple):
    """A kernel given rows: training inputs (N, d) and targets (N, T), and the noise variance.

    :param solve: the inverse covariance of the targets times columns (N, C).
    :param cross: the kernel (M, N) between new and training inputs.
    :param scale: by what kernel and noise of each target are multiplied, (T,).
    """

    x: Tensor
    y: Tensor
    noise: float
    solve: Callable[[Tensor], Tensor]
    cross: Callable[[Tensor], Tensor]
    scale: Tensor


class DrawnFunctions:
    r"""The most probable function of each target and S draws.

    .. math:: f_s(x) = \phi(x)^\top w_s + k(x, X) (K + \sigma^2 I)^{-1} (y - \phi(X)^\top w_s - \epsilon_s)

    :param prior: draws of the prior, S for each of T targets.

    Source: Wilson et al. (2020), pathwise conditioning.
    """

    def __init__(self, prior: PriorFunctions, given: ConditionedKernel, generator: Generator | None) -> None:
        self.prior, self.cross = prior, given.cross
        self.root, num_targets = given.scale.sqrt(), given.y.shape[1]
        at_rows = self._of_prior(given.x)
        noise = torch.randn(at_rows.shape, generator=generator, dtype=torch.float64)
        residual = given.y.unsqueeze(1) - at_rows - math.sqrt(given.noise) * self.root * noise
        columns = torch.cat([given.y.unsqueeze(1), residual], dim=1)
        self.solutions = given.solve(columns.flatten(1)).unflatten(1, (-1, num_targets))

    def _of_prior(self, x: Tensor) -> Tensor:
        return self.prior(x).unflatten(1, (-1, len(self.root))) * self.root

    def __call__(self, x: Tensor) -> Tensor:
        """The values at scaled inputs (M, d), (M, 1 + S, T)."""
        values = torch.tensordot(self.cross(x), self.solutions, dims=1)
        values[:, 1:] += self._of_prior(x)
        return values


def decay(x: Tensor, z: Tensor) -> Tensor:
    """Exponentials (N, M) of minus the distances of numbers (N,) and (M,), by as many exponentials as numbers."""
    return torch.minimum(torch.outer(x.exp(), (-z).exp()), torch.outer((-x).exp(), z.exp()))


def matern_frequencies(count: int, dim: int, generator: Generator | None, smoothness: float = 2.5) -> Tensor:
    """Draws (count, d) from the spectral density of a Matern kernel with lengthscales of one."""
    normal = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    if math.isinf(smoothness):
        return normal
    degrees = round(2.0 * smoothness)
    square = torch.randn(count, degrees, generator=generator, dtype=torch.float64).square().sum(-1, keepdim=True)
    return normal * math.sqrt(degrees) / square.sqrt()

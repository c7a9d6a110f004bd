"""Functions drawn from the posterior of a member, as functions of the inputs."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from .member import Member
from .parameter_draws import Floats
from .table_kernel import LENGTHS, fixed_matrices

_JOINT_WAVES, _SINGLE_WAVES = 256, 48


class DrawnFunctions:
    r"""The most probable function and S draws of it for one draw of the parameters, by Fourier features of the prior.

    .. math:: f_s(x) = \phi(x)^\top w_s + k(x, X) (K + \sigma^2 I)^{-1} (y - \phi(X)^\top w_s - \epsilon_s)

    :param member: whose functions they are.
    :param place: which of its draws of the parameters.
    :param num_functions: S.

    Source: Wilson et al. (2020), pathwise conditioning.
    """

    def __init__(self, member: Member, place: int, num_functions: int, generator: Generator | None) -> None:
        self.member, self.vector, kernel = member, member.vectors[place], member.kernel
        inverse, scale, (linear, *additive) = kernel.parts(self.vector)
        dim = len(inverse)
        frequencies = [matern_frequencies(_JOINT_WAVES, dim, generator) * inverse]
        squares = [torch.full((_JOINT_WAVES,), scale / _JOINT_WAVES)]
        for weight, length in zip(additive, LENGTHS, strict=True):
            waves = torch.zeros(dim, _SINGLE_WAVES, dim, dtype=torch.float64)
            for column in range(dim):
                waves[column, :, column] = matern_frequencies(_SINGLE_WAVES, 1, generator).squeeze(-1) / length
            frequencies.append(waves.flatten(0, 1))
            squares.append(torch.full((dim * _SINGLE_WAVES,), weight / (dim * _SINGLE_WAVES)))
        self.frequency, self.amplitude = torch.cat(frequencies), torch.cat(squares).double().sqrt()
        self.slope = math.sqrt(linear / max(dim, 1))
        shape = 2 * len(self.amplitude) + dim + 1, num_functions
        self.weights = torch.randn(*shape, generator=generator, dtype=torch.float64)
        noise = torch.randn(len(kernel.y), num_functions, generator=generator, dtype=torch.float64)
        self.solutions = member.solved(place, self._targets(noise))

    def _targets(self, noise: Tensor) -> Tensor:
        """What the rows say of the mean, and of each draw beside its prior function, (N, 1 + S)."""
        kernel = self.member.kernel
        y = kernel.y.unsqueeze(-1)
        prior = self._features(kernel.x) @ self.weights
        return torch.cat([y, y - prior - math.sqrt(kernel.noise(self.vector)) * noise], dim=-1)

    def _features(self, x: Tensor) -> Tensor:
        """Features of the prior at scaled inputs (N, d)."""
        phase = x @ self.frequency.mT
        waves = [self.amplitude * phase.cos(), self.amplitude * phase.sin()]
        return torch.cat([*waves, self.slope * x, torch.ones_like(x[:, :1])], dim=-1)

    def __call__(self, x: Tensor) -> Tensor:
        """The values at inputs (M, d) in units of the target, (M, 1 + S)."""
        member, new = self.member, self.member.scale(x)
        cross = member.kernel.matrix(self.vector, new, member.kernel.x, fixed_matrices(new, member.kernel.x))
        values = cross @ self.solutions
        values[:, 1:] += self._features(new) @ self.weights
        return member.target.inverse(values)


def chosen_draws(weights: Floats, counts: list[int], most: int) -> list[tuple[int, int]]:
    """Members, and draws of their parameters, that stand for all with equal weight: at most so many."""
    pairs = [(member, place) for member, count in enumerate(counts) for place in range(count)]
    shares = torch.tensor([weights[member] / counts[member] for member, _ in pairs], dtype=torch.float64).cumsum(0)
    count = min(most, len(pairs))
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return [pairs[number] for number in torch.searchsorted(shares, levels).clamp_max(len(pairs) - 1).tolist()]


def matern_frequencies(count: int, dim: int, generator: Generator | None) -> Tensor:
    """Draws (count, d) from the spectral density of a Matern-5/2 kernel with lengthscales of one."""
    normal = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    square = torch.randn(count, 5, generator=generator, dtype=torch.float64).square().sum(-1, keepdim=True)
    return normal * math.sqrt(5.0) / square.sqrt()

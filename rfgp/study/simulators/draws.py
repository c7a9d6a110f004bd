"""Functions drawn from the process of one output of a simulator."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ...averaging.functions import matern_frequencies
from .beyond import Beyond, factors
from .process import Kind, Process

_JOINT_WAVES, _SINGLE_WAVES = 256, 48


class Draws:
    r"""The posterior mean and S functions drawn from the posterior, by Fourier features of the prior.

    .. math:: f_s(x) = \phi(x) w_s + k(x, X) (K + \sigma^2 I)^{-1} (y - \phi(X) w_s - \epsilon_s)

    Beyond the runs they go on as :class:`Beyond` says.

    Source: Wilson et al. (2020), pathwise conditioning.
    """

    def __init__(self, process: Process, num_functions: int, scale: float, generator: Generator) -> None:
        parameters, dim = process.parameters, process.parameters.dim
        joint = _frequencies(_JOINT_WAVES, dim, process.kind, generator) / parameters.lengthscale
        single = torch.zeros(dim, _SINGLE_WAVES, dim, dtype=torch.float64)
        for k in range(dim):
            waves = _frequencies(_SINGLE_WAVES, 1, process.kind, generator).squeeze(-1)
            single[k, :, k] = waves / parameters.single_lengthscale[k]
        self.process, self.scale = process, scale
        self.factors = factors(dim, num_functions, generator)
        self.frequency = torch.cat([joint, single.flatten(0, 1)])
        amplitude = torch.cat(
            [
                (parameters.variance / _JOINT_WAVES).expand(_JOINT_WAVES),
                (parameters.single_variance / _SINGLE_WAVES).repeat_interleave(_SINGLE_WAVES),
            ]
        ).sqrt()
        normal = torch.randn(2 * len(amplitude) + 1, num_functions, generator=generator, dtype=torch.float64)
        self.prior = torch.cat([amplitude, amplitude, torch.ones(1, dtype=torch.float64)]).unsqueeze(-1) * normal
        noise = torch.randn(len(process.x), num_functions, generator=generator, dtype=torch.float64)
        at_runs = self._features(process.x) @ self.prior + parameters.noise.sqrt() * noise
        self.update = process.solve(-at_runs)

    def __call__(self, x: Tensor) -> Tensor:
        """The mean, then the functions at x (M, d), (M, 1 + S)."""
        return Beyond(x).values(self._inside, self.factors)

    def _inside(self, x: Tensor) -> Tensor:
        """Their values in the box of the runs."""
        cross = self.process.cross(x)
        mean = (cross @ self.process.weights).unsqueeze(-1)
        return torch.cat([mean, mean + self.scale * (self._features(x) @ self.prior + cross @ self.update)], dim=-1)

    def _features(self, x: Tensor) -> Tensor:
        phase = x @ self.frequency.mT
        return torch.cat([phase.cos(), phase.sin(), torch.ones_like(phase[:, :1])], dim=-1)


def _frequencies(count: int, dim: int, kind: Kind, generator: Generator) -> Tensor:
    """Draws (count, d) from the spectral density of a kernel with lengthscales of one."""
    if kind == "rbf":
        return torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return matern_frequencies(count, dim, generator)

"""Functions that are sums of products of functions of one input, and their averages over independent inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from .distributions import Quantiles
from .emulator import Emulator
from .kernels import correlation, correlations, frequencies

_NUM_WAVES, _NUM_FUNCTIONS, _NUM_NODES = 128, 16, 64


@dataclass(frozen=True)
class ProductFunctions:
    r"""The posterior mean, S functions drawn, and their differences from it.

    .. math:: f_s(x) = \mathrm{Re} \sum_j c_{js} \prod_k u_{jk}(x_k)

    The terms are the kernel at the runs, waves :math:`e^{\pm \mathrm{i} \omega_j^\top x}`, and a constant.

    :param coefficient: c, (terms, 1 + 2 S).
    """

    kind: str
    runs: Tensor
    lengthscale: Tensor
    frequency: Tensor
    coefficient: Tensor

    def terms(self, k: int, values: Tensor) -> Tensor:
        """The functions u of the input k at values (Q,), (Q, terms)."""
        kernel = correlation(self.kind, (values[:, None] - self.runs[:, k]) / self.lengthscale[k])
        phase = values[:, None] * self.frequency[:, k]
        wave = torch.polar(torch.ones_like(phase), phase)
        constant = torch.ones(len(values), 1, dtype=wave.dtype)
        return torch.cat([kernel.to(wave.dtype), wave, wave.conj(), constant], dim=-1)

    def __call__(self, x: Tensor) -> Tensor:
        """The values (N, 1 + S) of the mean and of functions drawn at scaled inputs (N, d)."""
        count = (self.coefficient.shape[-1] + 1) // 2
        runs, waves = len(self.runs), len(self.frequency)
        weight = self.coefficient[:, :count]
        phase = x @ self.frequency.mT
        kernel = correlations(self.kind, x, self.runs, self.lengthscale)
        wave = 2.0 * weight[runs : runs + waves]
        drawn = torch.cos(phase) @ wave.real - torch.sin(phase) @ wave.imag
        return kernel @ weight[:runs].real + drawn + weight[-1].real


def drawn(emulator: Emulator, scale: float, generator: Generator) -> Iterator[ProductFunctions]:
    """Functions for each draw of the parameters, whose distances from the mean are multiplied by ``scale``."""
    x, y, options = emulator.x, emulator.y, {"generator": generator, "dtype": emulator.x.dtype}
    shape = _NUM_WAVES, _NUM_FUNCTIONS
    for b in range(len(emulator.scale)):
        frequency = frequencies(emulator.kind, _NUM_WAVES, emulator.lengthscale[b], generator)
        wave = torch.complex(torch.randn(shape, **options), torch.randn(shape, **options))
        wave = wave * (emulator.scale[b] / _NUM_WAVES).sqrt()
        constant = torch.randn(_NUM_FUNCTIONS, **options)
        phase = x @ frequency.mT
        prior = torch.cos(phase) @ wave.real - torch.sin(phase) @ wave.imag + constant
        noise = emulator.noise[b].sqrt() * torch.randn(len(x), _NUM_FUNCTIONS, **options)
        change = -torch.cholesky_solve(prior + noise, emulator.factor[b])
        mean = emulator.weights[b, :, None]
        error = torch.cat([emulator.scale[b] * change, 0.5 * wave, 0.5 * wave.conj(), (constant + change.sum(0))[None]])
        middle = torch.cat([emulator.scale[b] * mean, torch.zeros(2 * _NUM_WAVES, 1).to(mean), mean.sum(0)[None]])
        error = scale * error
        coefficient = torch.cat([middle.to(error.dtype), middle + error, error], dim=-1)
        yield ProductFunctions(emulator.kind, x, emulator.lengthscale[b], frequency, coefficient)


@dataclass(frozen=True)
class Averages:
    """Averages of F functions over the inputs: means, variances (F,), those of an input alone or with it, (F, d)."""

    mean: Tensor
    variance: Tensor
    alone: Tensor
    involved: Tensor
    effects: Tensor


def nodes(inputs: Sequence[Quantiles]) -> tuple[Tensor, Tensor]:
    """Values (Q, d) of the inputs, and the weights (Q,) of Gauss and Legendre's rule for their levels."""
    place, weight = np.polynomial.legendre.leggauss(_NUM_NODES)
    levels = torch.from_numpy(0.5 * (place + 1.0))
    return torch.stack([d.quantile(levels) for d in inputs], dim=-1), torch.from_numpy(0.5 * weight)


def averages(functions: ProductFunctions, values: Tensor, weight: Tensor, grid: Tensor) -> Averages:
    r"""The variances :math:`V_k`, :math:`V - V_{-k}` and main effects along a grid (G, d), (G, d, F)."""
    dim, coefficient = values.shape[-1], functions.coefficient
    terms = [functions.terms(k, values[:, k]) for k in range(dim)]
    means = [weight.to(part.dtype) @ part for part in terms]
    products = [part.mH @ (weight[:, None] * part) for part in terms]
    mean = (_product(means)[:, None] * coefficient).sum(0).real
    second = _form(_product(products), coefficient)
    alone, without, effects = [], [], []
    for k in range(dim):
        rest = [part for l, part in enumerate(means) if l != k]
        inside = _product(rest)[:, None] * coefficient if rest else coefficient
        given = (terms[k] @ inside).real
        alone.append(weight @ (given - mean).square())
        effects.append((functions.terms(k, grid[:, k]) @ inside).real)
        others = [part for l, part in enumerate(products) if l != k]
        without.append(_form(_product(others), means[k][:, None] * coefficient) if others else mean.square())
    involved = (second - torch.stack(without)).clamp_min(0.0)
    variance = (second - mean.square()).clamp_min(0.0)
    return Averages(mean, variance, torch.stack(alone, -1), involved.mT, torch.stack(effects, 1))


def _product(parts: list[Tensor]) -> Tensor:
    result = parts[0]
    for part in parts[1:]:
        result = result * part
    return result


def _form(matrix: Tensor, vectors: Tensor) -> Tensor:
    return (vectors.conj() * (matrix @ vectors)).sum(0).real

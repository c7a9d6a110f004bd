"""Sums of exponentials of equispaced frequencies over scattered points."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

_PRECISION = 1e-13
_CHUNK_NUMBERS = 2**20


def exponential_sums(phases: Tensor, columns: Tensor, half: Sequence[int]) -> Tensor:
    r"""Sums :math:`F_k(j) = \sum_n c_{nk} \exp(-\mathrm{i} j^\top \theta_n)` for whole j with :math:`|j_a| \le h_a`.

    By a non-uniform FFT where ``finufft`` is installed and there are no gradients, else by products in chunks.

    :param phases: theta, (N, d), float64.
    :param columns: c, (N, K), real, float64.
    :param half: h, d numbers.
    :returns: (K, 2 h_1 + 1, ..., 2 h_d + 1), complex128.
    """
    count = columns.shape[-1]
    padded = torch.nn.functional.pad(columns, (0, count % 2))
    pairs = torch.complex(padded[:, 0::2].contiguous(), padded[:, 1::2].contiguous()).mT
    is_plain = phases.device.type == "cpu" and not (phases.requires_grad or columns.requires_grad)
    transform = _by_fft if is_plain and has_fft() else _by_products
    both = transform(phases, pairs, half)
    mirrored = both.flip(list(range(1, both.dim()))).conj()
    real, imaginary = 0.5 * (both + mirrored), -0.5j * (both - mirrored)
    sums = torch.stack([real, imaginary], dim=1).flatten(0, 1)[:count]
    is_there = columns.detach().any(0)  # a pair of columns shares its rounding errors, and zeros have none
    return sums * is_there.reshape(-1, *[1] * len(half))


@functools.cache
def has_fft() -> bool:
    """Whether ``finufft`` is installed."""
    return importlib.util.find_spec("finufft") is not None


@functools.cache
def _finufft() -> ModuleType:
    import finufft

    module: ModuleType = finufft
    return module


def _by_fft(phases: Tensor, strengths: Tensor, half: Sequence[int]) -> Tensor:
    """The sums for complex strengths (K, N), by a non-uniform FFT."""
    sizes = tuple(2 * h + 1 for h in half)
    if not len(phases):
        return strengths.new_zeros(len(strengths), *sizes)
    transform = getattr(_finufft(), f"nufft{len(half)}d1")
    points = [phases[:, axis].detach().contiguous().numpy() for axis in range(len(half))]
    values = strengths.detach().resolve_conj().contiguous().numpy()
    found = transform(*points, values, sizes, isign=-1, eps=_PRECISION, nthreads=torch.get_num_threads())
    return torch.from_numpy(found).reshape(len(values), *sizes)


def series_values(coefficients: Tensor, phases: Tensor) -> Tensor:
    r""":math:`\sum_j c_j \exp(-\mathrm{i} j^\top \theta_n)` of series (S, 2 h_1 + 1, ...), (S, N); by finufft."""
    transform = getattr(_finufft(), f"nufft{phases.shape[-1]}d2")
    points = [phases[:, axis].contiguous().numpy() for axis in range(phases.shape[-1])]
    values = coefficients.resolve_conj().contiguous().numpy()
    found = transform(*points, values, isign=-1, eps=_PRECISION, nthreads=torch.get_num_threads())
    return torch.from_numpy(found).reshape(len(coefficients), len(phases))


def _by_products(phases: Tensor, strengths: Tensor, half: Sequence[int]) -> Tensor:
    """The same by products of exponentials of every coordinate, in chunks of points; differentiable."""
    sizes = [2 * h + 1 for h in half]
    total = strengths.new_zeros(len(strengths), *sizes)
    rows = max(1, _CHUNK_NUMBERS // math.prod(sizes[:-1]))
    for part, chunk in zip(phases.split(rows), strengths.split(rows, dim=-1), strict=True):
        left, right = chunk.unsqueeze(-1), exponentials(part[:, -1], half[-1])  # (K, n, 1), (n, L)
        for axis, order in enumerate(half[:-1]):
            left = (left.unsqueeze(-1) * exponentials(part[:, axis], order).unsqueeze(-2)).flatten(-2)
        total = total + (left.mT @ right).reshape(total.shape)
    return total


def exponentials(phases: Tensor, half: int) -> Tensor:
    r"""The values :math:`\exp(-\mathrm{i} j \theta)` for whole j from -h to h, (n,) to (n, 2 h + 1)."""
    angles = phases.unsqueeze(-1) * torch.arange(-half, half + 1, dtype=phases.dtype, device=phases.device)
    return torch.complex(angles.cos(), -angles.sin())

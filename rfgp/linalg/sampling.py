"""Seeded random draws: on the CPU, in float64, from an explicit generator, so that one seed means one draw anywhere."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy
import torch
from torch import Generator, Tensor

from .._support import checks


@contextlib.contextmanager
def drawing_from(generator: Generator | None) -> Iterator[None]:
    """Let what draws from PyTorch's default generators draw from another one, and restore them."""
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def rademacher(shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent signs, +1 or -1 with equal probability, in float64."""
    return _integers(2, shape, generator).to(torch.float64).mul_(2.0).sub_(1.0)


def fourth_roots(shape: Sequence[int], generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Independent fourth roots of unity, with equal probability: real and imaginary parts, in float64."""
    quarter = _integers(4, shape, generator)
    sign = (1 - 2 * (quarter // 2)).to(torch.float64)
    is_real = (quarter % 2 == 0).to(torch.float64)
    return sign * is_real, sign * (1.0 - is_real)


def gaussian(shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent standard normal draws, in float64."""
    shape, generator = _fitting(shape), checks.generator(generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def complex_gaussian(shape: Sequence[int], generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draws from the circular complex normal CN(0, 1): real and imaginary parts of variance 1/2, in float64."""
    planes = gaussian((2, *checks.shape(shape)), generator) / math.sqrt(2.0)
    return planes[0], planes[1]


def uniform(shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent draws from the open interval (0, 1), at the centers of 2^52 equal cells, in float64."""
    return (_integers(2**52, shape, generator).to(torch.float64) + 0.5) / 2.0**52


def sobol(size: int, dim: int, generator: Generator | None = None) -> Tensor:
    """Scrambled Sobol points (size, dim) in the open unit cube, each of them uniform, in a random order."""
    size, dim = checks.positive_integer("size", size), checks.positive_integer("dim", dim)
    largest = torch.quasirandom.SobolEngine.MAXDIM
    if dim > largest:
        raise ValueError(f"expected at most {largest} dimensions of Sobol points, got {dim}; use independent draws")
    checks.fits_in_memory(8.0 * size * dim, f"Sobol points of shape {(size, dim)}", "use fewer features or columns")
    generator = checks.generator(generator)
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    points = torch.quasirandom.SobolEngine(dim, scramble=True, seed=seed).draw(size, dtype=torch.float64)
    order = torch.randperm(size, generator=generator, device="cpu")
    return points[order] + 0.5 ** (torch.quasirandom.SobolEngine.MAXBIT + 1)


def chi(degrees: float, shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent draws from the chi distribution, the norm of a standard normal vector, in float64."""
    quantile = scipy.special.gammaincinv(0.5 * checks.positive("degrees", degrees), uniform(shape, generator).numpy())
    return torch.as_tensor(np.sqrt(2.0 * quantile), device="cpu")


def orthogonal_directions(size: int, dim: int, generator: Generator | None = None) -> Tensor:
    """Unit vectors (size, dim), orthogonal and uniform within blocks of ``dim``, and independent between them."""
    size, dim = checks.positive_integer("size", size), checks.positive_integer("dim", dim)
    blocks = gaussian((-(-size // dim), dim, dim), generator)
    orthogonal, triangular = torch.linalg.qr(blocks)
    signs = triangular.diagonal(dim1=-2, dim2=-1).sign()
    return (orthogonal * signs[:, None, :]).mT.flatten(0, 1)[:size]


def shuffled_copies(size: int, length: int, generator: Generator | None = None) -> Tensor:
    """The first ``length`` entries of a random shuffle of ceil(length/size) copies of 0, ..., size - 1."""
    size, length = checks.positive_integer("size", size), checks.positive_integer("length", length)
    copies = -(-length // size)
    return torch.randperm(copies * size, generator=checks.generator(generator), device="cpu")[:length] % size


def stacked_permutations(size: int, length: int, generator: Generator | None = None) -> Tensor:
    """Indices of ``length`` columns in consecutive blocks of ``size``, each block a random permutation."""
    size, length = checks.positive_integer("size", size), checks.positive_integer("length", length)
    blocks, generator = range(-(-length // size)), checks.generator(generator)
    return torch.cat([b * size + torch.randperm(size, generator=generator, device="cpu") for b in blocks])[:length]


def _integers(high: int, shape: Sequence[int], generator: Generator | None) -> Tensor:
    """Independent integers from 0 to ``high - 1``."""
    return torch.randint(0, high, _fitting(shape), generator=checks.generator(generator), device="cpu")


def _fitting(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of draws in eight bytes each, or raise where it is none, or they do not fit in memory."""
    sizes = checks.shape(shape)
    checks.fits_in_memory(8.0 * math.prod(sizes), f"random numbers of shape {sizes}", "use fewer features or columns")
    return sizes

"""Seeded random draws: on the CPU, in float64, from an explicit generator, so that one seed means one draw anywhere."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy
import torch
from torch import Generator, Tensor

from . import _checks


@contextlib.contextmanager
def drawing_from(generator: Generator | None) -> Iterator[None]:
    """Let what draws from PyTorch's default generators draw from another one, and leave the default ones as they were.

    :param generator: a CPU generator; default: PyTorch's own.

    >>> generator = torch.Generator()
    >>> with drawing_from(generator.manual_seed(0)):
    ...     first = torch.rand(2)
    >>> with drawing_from(generator.manual_seed(0)):
    ...     bool((torch.rand(2) == first).all())
    True
    """
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def rademacher(shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent signs, +1 or -1 with equal probability.

    :param shape: the shape of the result.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: a float64 tensor.

    >>> rademacher((3,), torch.Generator().manual_seed(0))
    tensor([-1.,  1.,  1.], dtype=torch.float64)
    """
    return _integers(2, shape, generator).to(torch.float64).mul_(2.0).sub_(1.0)


def fourth_roots(shape: Sequence[int], generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Independent fourth roots of unity: 1, i, -1 or -i with equal probability.

    :param shape: the shape of the result.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: the real and the imaginary part, float64 tensors; one of the two is zero in every place.

    >>> real, imaginary = fourth_roots((1000,), torch.Generator().manual_seed(0))
    >>> bool((real.abs() + imaginary.abs() == 1).all())
    True
    """
    quarter = _integers(4, shape, generator)
    sign = (1 - 2 * (quarter // 2)).to(torch.float64)
    is_real = (quarter % 2 == 0).to(torch.float64)
    return sign * is_real, sign * (1.0 - is_real)


def gaussian(shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent standard normal draws.

    :param shape: the shape of the result.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: a float64 tensor.
    """
    shape, generator = _fitting(shape), _checks.generator(generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def complex_gaussian(shape: Sequence[int], generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Independent draws from the circular complex normal CN(0, 1), whose parts have variance 1/2 each.

    :param shape: the shape of the result.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: the real and the imaginary part, float64 tensors.
    """
    planes = gaussian((2, *_checks.shape(shape)), generator) / math.sqrt(2.0)
    return planes[0], planes[1]


def uniform(shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent draws from the open interval (0, 1), at the centers of 2^52 equal cells.

    :param shape: the shape of the result.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: a float64 tensor.
    """
    return (_integers(2**52, shape, generator).to(torch.float64) + 0.5) / 2.0**52


def chi(degrees: float, shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Independent draws from the chi distribution, the norm of a standard normal vector.

    :param degrees: the degrees of freedom, a positive number.
    :param shape: the shape of the result.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: a float64 tensor.
    """
    quantile = scipy.special.gammaincinv(0.5 * _checks.positive("degrees", degrees), uniform(shape, generator).numpy())
    return torch.as_tensor(np.sqrt(2.0 * quantile), device="cpu")


def orthogonal_directions(size: int, dim: int, generator: Generator | None = None) -> Tensor:
    """Unit vectors in blocks of ``dim``: orthogonal and uniform within a block, independent between blocks.

    :param size: the number of vectors; the last block is cut to fit.
    :param dim: the dimension d.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: a float64 tensor of shape (size, d).
    """
    size, dim = _checks.positive_integer("size", size), _checks.positive_integer("dim", dim)
    blocks = gaussian((-(-size // dim), dim, dim), generator)
    orthogonal, triangular = torch.linalg.qr(blocks)
    signs = triangular.diagonal(dim1=-2, dim2=-1).sign()
    return (orthogonal * signs[:, None, :]).mT.flatten(0, 1)[:size]


def shuffled_copies(size: int, length: int, generator: Generator | None = None) -> Tensor:
    """The first ``length`` entries of a random shuffle of ceil(length/size) copies of 0, ..., size - 1.

    :param size: the number of distinct indices.
    :param length: the number of indices drawn.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: an int64 tensor of shape (length,).

    >>> shuffled_copies(4, 4, torch.Generator().manual_seed(0)).sort().values
    tensor([0, 1, 2, 3])
    """
    size, length = _checks.positive_integer("size", size), _checks.positive_integer("length", length)
    copies = -(-length // size)
    return torch.randperm(copies * size, generator=_checks.generator(generator), device="cpu")[:length] % size


def stacked_permutations(size: int, length: int, generator: Generator | None = None) -> Tensor:
    """Indices of ``length`` columns in blocks of ``size``, each block an independent random permutation.

    :param size: the number of distinct indices in a block.
    :param length: the number of indices drawn; the last block is cut to fit.
    :param generator: a CPU generator; default: PyTorch's own.
    :returns: an int64 tensor of shape (length,) with values in [0, ceil(length/size) size): block b draws from
        b size, ..., (b + 1) size - 1.

    >>> stacked_permutations(2, 4, torch.Generator().manual_seed(0)) // 2
    tensor([0, 0, 1, 1])
    """
    size, length = _checks.positive_integer("size", size), _checks.positive_integer("length", length)
    blocks, generator = range(-(-length // size)), _checks.generator(generator)
    return torch.cat([b * size + torch.randperm(size, generator=generator, device="cpu") for b in blocks])[:length]


def _integers(high: int, shape: Sequence[int], generator: Generator | None) -> Tensor:
    """Independent integers from 0 to ``high - 1``."""
    return torch.randint(0, high, _fitting(shape), generator=_checks.generator(generator), device="cpu")


def _fitting(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of draws in eight bytes each, or raise where it is none, or they do not fit in memory."""
    known = _checks.shape(shape)
    _checks.fits_in_memory(8.0 * math.prod(known), f"random numbers of shape {known}", "use fewer features or columns")
    return known

"""The squared maximum mean discrepancy, unbiased, with its variance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel, PolynomialKernel
from torch import Tensor

from ..._support import checks
from ...approximation.entry import approximate
from .sums import PairSums, check_samples, checked_value, pair_sums

_ROWS = 4096
"""How many rows of a sample the variance is estimated from, drawn at random."""
_BLOCK = 256
"""Rows of a block, all of whose pairs enter the variance."""


class Discrepancy(NamedTuple):
    """An estimate of a squared maximum mean discrepancy, from :func:`mmd` and others.

    :param squared: the estimate, without bias, so that it can be negative.
    :param standard_error: its standard error over samples.
    :param null_standard_error: what its standard error would be, were both distributions the same.
    """

    squared: float
    standard_error: float
    null_standard_error: float

    @property
    def z(self) -> float:
        """The estimate in standard errors of equal distributions; see :func:`permutation_test` for a p-value."""
        return self.squared / self.null_standard_error if self.null_standard_error > 0 else math.nan


@torch.no_grad()
def mmd(x: Tensor, y: Tensor, kernel: Kernel) -> Discrepancy:
    r"""The unbiased estimate of the squared maximum mean discrepancy of two samples, with its standard error.

    .. math:: \widehat{MMD}^2 = \frac{1}{n (n - 1)} \sum_{i \ne j} k(x_i, x_j) + \frac{1}{m (m - 1)} \sum_{i \ne j}
        k(y_i, y_j) - \frac{2}{n m} \sum_{i, j} k(x_i, y_j)

    With an approximated kernel it takes O((n + m) D), with any other O((n + m)^2). Its variance over samples is

    .. math:: \frac4n \delta^\top C_x \delta + \frac4m \delta^\top C_y \delta + \frac{2 \mathrm{tr}\, C_x^2}{n (n - 1)}
        + \frac{2 \mathrm{tr}\, C_y^2}{m (m - 1)} + \frac{4\, \mathrm{tr}\, C_x C_y}{n m}

    for the difference :math:`\delta` of the mean embeddings and the covariances :math:`C` of the embeddings, estimated
    from up to 4,096 rows of each sample. The variance over draws of the features is not included.

    :param x: the first sample, (n, d), n at least 8.
    :param y: the second sample, (m, d), m at least 8.
    :param kernel: a GPyTorch kernel of one output, exact or from :func:`rfgp.approximate`.
    :raises ValueError: for other samples or kernels.

    Source: T 4.3.2; Gretton et al. (2012), Eq. 3; Sutherland and Schneider (2015), Section 3.

    >>> import gpytorch, rfgp
    >>> x, y = torch.randn(2000, 3), torch.randn(2000, 3) + 0.5
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=128, input_dim=3)
    >>> mmd(x, y, kernel).z > 10
    True
    """
    check_samples(kernel, x, y, 8)
    return _discrepancy(pair_sums(kernel, x, y, _chosen(len(x), len(y), x.device)))


def squared(sums: PairSums) -> float:
    """The unbiased estimate from the sums over pairs."""
    n, m = len(sums.x), len(sums.y)
    within_x, within_y, across = sums.totals()
    return checked_value(within_x / (n * (n - 1)) + within_y / (m * (m - 1)) - 2.0 * across / (n * m), sums.x)


def _discrepancy(sums: PairSums) -> Discrepancy:
    """The estimate and its standard errors, with the noise of the estimated difference of embeddings taken off."""
    n, m = len(sums.x), len(sums.y)
    blocks = [sums.block(a, b) for a, b in _blocks(len(sums.chosen_x), len(sums.chosen_y))]
    witness_x = torch.cat([block.sums_x[0] / (n - 2) - block.sums_x[1] / m for block in blocks])
    witness_y = torch.cat([block.sums_y[0] / (m - 2) - block.sums_y[1] / n for block in blocks])
    traces = [(_trace_of_square(block.xx), _trace_of_square(block.yy), _cross(block.xy)) for block in blocks]
    square_x, square_y, product = torch.tensor(traces, dtype=torch.float64).mean(0).tolist()
    null = 2.0 * square_x / (n * (n - 1)) + 2.0 * square_y / (m * (m - 1)) + 4.0 * product / (n * m)
    first_x = witness_x.var().item() - square_x / (n - 2) - product / m
    first_y = witness_y.var().item() - square_y / (m - 2) - product / n
    variance = null + max(4.0 * first_x / n + 4.0 * first_y / m, 0.0)
    return Discrepancy(squared(sums), math.sqrt(max(variance, 0.0)), math.sqrt(max(null, 0.0)))


def _chosen(n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random rows of both samples."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randperm(size, generator=generator)[:_ROWS].to(device) for size in (n, m))
    return x, y


def _blocks(n: int, m: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The numbers from 0 to n - 1, and those to m - 1, in as many parts of about 256."""
    count = max(min(n, m) // _BLOCK, 1)
    return zip(*(torch.arange(size).tensor_split(count) for size in (n, m)), strict=True)


def _trace_of_square(gram: Tensor) -> float:
    """tr C^2 of embeddings without bias, from the kernel values (b, b) of a block."""
    n = len(gram)
    pairs = _centered(gram).fill_diagonal_(0.0)
    rows = pairs.sum(1)
    total = pairs.square().sum() + rows.sum().square() / ((n - 1) * (n - 2)) - 2.0 * rows.square().sum() / (n - 2)
    return float(total / (n * (n - 3)))


def _cross(gram: Tensor) -> float:
    """tr C_x C_y without bias, from the kernel values (a, b) of two blocks."""
    n, m = gram.shape
    return float(_centered(gram).square().sum() / ((n - 1) * (m - 1)))


def _centered(gram: Tensor) -> Tensor:
    """The kernel values (a, b) with the mean embedding of either side as its origin."""
    return gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()


@torch.no_grad()
def block_mmd(
    x: Tensor, y: Tensor, kernel: Kernel, *, block_size: int = 1000, num_blocks: int = 100, seed: int = 0
) -> Discrepancy:
    """The average of the unbiased discrepancies of random subsets of both samples, as the literature reports the KID.

    The standard error is too small where ``num_blocks * block_size`` exceeds the samples. Samples and kernel
    are those of :func:`mmd`.

    :param block_size: the rows of a subset.
    :param num_blocks: the number of subsets, at least 2.
    :returns: the average; both standard errors are the same.
    :raises ValueError: where a sample has fewer rows than a subset, or arguments are out of range.

    Source: T 4.3.2; Binkowski et al. (2018).

    >>> import gpytorch
    >>> x, y = torch.randn(500, 3), torch.randn(500, 3)
    >>> block_mmd(x, y, gpytorch.kernels.RBFKernel(), block_size=50, num_blocks=10).squared < 0.05
    True
    """
    size = checks.positive_integer("block_size", block_size)
    if checks.positive_integer("num_blocks", num_blocks) < 2:
        raise ValueError("expected num_blocks of at least 2, got 1; a single subset has no standard error")
    check_samples(kernel, x, y, max(size, 2))
    if size < 2:
        raise ValueError("expected block_size of at least 2, got 1; a pair takes two rows")
    generator = torch.Generator().manual_seed(checks.seed(seed))
    values = torch.empty(num_blocks, dtype=torch.float64)
    for i in range(num_blocks):
        rows = (torch.randperm(len(sample), generator=generator)[:size].to(sample.device) for sample in (x, y))
        values[i] = squared(pair_sums(kernel, x[next(rows)], y[next(rows)]))
    error = float(values.std()) / math.sqrt(num_blocks)
    return Discrepancy(float(values.mean()), error, error)


def kernel_inception_distance(
    x: Tensor,
    y: Tensor,
    *,
    degree: int = 3,
    offset: float = 1.0,
    num_features: int | None = None,
    method: str = "tensor_srht:ctr",
    seed: int | None = None,
) -> Discrepancy:
    r"""The kernel inception distance (KID) of two sets of images, from the features that a network has of them.

    It is the squared maximum mean discrepancy with the kernel :math:`(x^\top y / d + c)^p`.

    :param x: features of the first set, (n, d), such as the 2,048 outputs of an Inception network.
    :param y: features of the second set, (m, d).
    :param degree: p, 3 in the literature.
    :param num_features: the number D of random features; default: none, the exact distance.

    :raises ValueError: for other samples or arguments.

    Source: T 4.3.2; Binkowski et al. (2018).

    >>> import torch
    >>> x, y = torch.rand(1000, 64), torch.rand(1000, 64) + 0.1
    >>> exact, fast = kernel_inception_distance(x, y), kernel_inception_distance(x, y, num_features=512, seed=0)
    >>> abs(fast.squared / exact.squared - 1) < 0.2
    True
    """
    a, b, kernel = scaled_inputs_and_kernel(x, y, degree, offset)
    if num_features is not None:
        kernel = approximate(kernel, num_features, input_dim=x.shape[-1], method=method, seed=seed)
    return mmd(a, b, kernel)


def scaled_inputs_and_kernel(x: Tensor, y: Tensor, degree: int, offset: float) -> tuple[Tensor, Tensor, Kernel]:
    """Both samples over the root of d, and the polynomial kernel of these."""
    kernel = PolynomialKernel(power=checks.positive_integer("degree", degree)).to(checks.inputs(x))
    kernel.offset = checks.positive("offset", offset)
    check_samples(kernel, x, y, 8)
    root = math.sqrt(x.shape[-1])
    return x / root, y / root, kernel

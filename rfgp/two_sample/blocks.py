"""The average of discrepancies of small subsets."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .. import _checks
from .discrepancy import Discrepancy, squared
from .sums import check_samples, pair_sums


@torch.no_grad()
def block_mmd(
    x: Tensor, y: Tensor, kernel: Kernel, *, block_size: int = 1000, num_blocks: int = 100, seed: int = 0
) -> Discrepancy:
    r"""The average of the unbiased discrepancies of random subsets of both samples, as the literature reports the KID.

    Every subset has ``block_size`` rows of each sample, drawn without replacement, independently of the other subsets.
    The estimate has no bias, and costs ``num_blocks * block_size**2`` kernel values; the standard error is that over
    subsets, which does not know that they share rows: it is too small where ``num_blocks * block_size`` exceeds the
    samples.

    :param x: the first sample, (n, d).
    :param y: the second sample, (m, d).
    :param kernel: a GPyTorch kernel of one output.
    :param block_size: the rows of a subset.
    :param num_blocks: the number of subsets, at least 2.
    :param seed: that of the subsets.
    :returns: the average; both standard errors are the same.
    :raises ValueError: where a sample has fewer rows than a subset, or arguments are out of range.

    Source: T 4.3.2; Binkowski et al. (2018).

    >>> import gpytorch
    >>> x, y = torch.randn(500, 3), torch.randn(500, 3)
    >>> block_mmd(x, y, gpytorch.kernels.RBFKernel(), block_size=50, num_blocks=10).squared < 0.05
    True
    """
    size = _checks.positive_integer("block_size", block_size)
    if _checks.positive_integer("num_blocks", num_blocks) < 2:
        raise ValueError("expected num_blocks of at least 2, got 1; a single subset has no standard error")
    check_samples(kernel, x, y, max(size, 2))
    if size < 2:
        raise ValueError("expected block_size of at least 2, got 1; a pair takes two rows")
    generator = torch.Generator().manual_seed(_checks.seed(seed))
    values = torch.empty(num_blocks, dtype=torch.float64)
    for i in range(num_blocks):
        rows = (torch.randperm(len(sample), generator=generator)[:size].to(sample.device) for sample in (x, y))
        values[i] = squared(pair_sums(kernel, x[next(rows)], y[next(rows)]))
    error = float(values.std()) / math.sqrt(num_blocks)
    return Discrepancy(float(values.mean()), error, error)

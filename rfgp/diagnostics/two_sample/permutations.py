"""A test of equal distributions by permutations of the rows of both samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ...approximation import FeatureKernel
from .sums import check_samples, checked_value, dense, features, features_of

_TILE = 1024


class PermutationTest(NamedTuple):
    """The result of :func:`permutation_test`.

    :param squared: the unbiased discrepancy of the samples.
    :param p_value: the share of permutations with a discrepancy at least as large, the samples themselves included.
    :param permuted: the discrepancies of the permutations, (B,).
    """

    squared: float
    p_value: float
    permuted: Tensor


@torch.no_grad()
def permutation_test(
    x: Tensor, y: Tensor, kernel: Kernel, *, num_permutations: int = 499, seed: int = 0
) -> PermutationTest:
    """Test whether two samples come from one distribution, at its exact level for any sizes and any kernel.

    It takes O((n + m) B D) with an approximated kernel, and O((n + m)^2 B) with an exact one.

    :param x: the first sample, (n, d).
    :param y: the second sample, (m, d).
    :param kernel: a GPyTorch kernel of one output, whose parameters must not depend on the sample of a row.
    :param num_permutations: B; the smallest p-value is 1/(B + 1).
    :raises ValueError: for other samples, kernels or numbers.

    Source: Gretton et al. (2012), Section 5; Phipson and Smyth (2010).

    >>> import gpytorch, rfgp
    >>> x, y = torch.randn(300, 2), 2 * torch.randn(300, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=64, input_dim=2)
    >>> permutation_test(x, y, kernel, num_permutations=99).p_value
    0.01
    """
    check_samples(kernel, x, y, 2)
    count = checks.positive_integer("num_permutations", num_permutations)
    generator = torch.Generator().manual_seed(checks.seed(seed))
    n, m = len(x), len(y)
    rows = torch.cat([x, y])
    first = torch.arange(n + m) < n
    deals = torch.stack([first, *(first[torch.randperm(n + m, generator=generator)] for _ in range(count))])
    sums = _feature_forms if isinstance(kernel, FeatureKernel) else _dense_forms
    within, begun, total = sums(kernel, rows, deals.to(x.device))
    across, rest = begun - within, total - 2.0 * begun + within
    values = within / (n * (n - 1)) + rest / (m * (m - 1)) - 2.0 * across / (n * m)
    scale = (within.abs() / (n * (n - 1))).max() + (rest.abs() / (m * (m - 1))).max()
    as_large = values[1:] >= values[0] - 1e-12 * scale
    return PermutationTest(
        checked_value(float(values[0]), rows), (1.0 + float(as_large.sum())) / (count + 1.0), values[1:]
    )


def _feature_forms(kernel: FeatureKernel, rows: Tensor, deals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For every deal (B, N), sums over pairs of different rows: both dealt, the first one dealt, and any."""
    size = features_of(kernel, rows[:1]).shape[-1]
    sums, whole = rows.new_zeros(len(deals), size, dtype=torch.float64), rows.new_zeros(size, dtype=torch.float64)
    norms, squares = torch.zeros_like(sums[:, 0]), torch.zeros_like(whole[0])
    for part, phi in features(kernel, rows):
        dealt, exact = deals[:, part].double(), phi.double()
        norms_of_rows = exact.square().sum(-1)
        sums += dealt @ exact
        whole += exact.sum(0)
        norms += dealt @ norms_of_rows
        squares += norms_of_rows.sum()
    return sums.square().sum(-1) - norms, sums @ whole - norms, whole @ whole - squares


def _dense_forms(kernel: Kernel, rows: Tensor, deals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same from kernel values, in tiles of rows."""
    dealt = deals.double()
    within, begun = torch.zeros_like(dealt[:, 0]), torch.zeros_like(dealt[:, 0])
    total = torch.zeros_like(dealt[0, 0])
    for start in range(0, len(rows), _TILE):
        part = slice(start, start + _TILE)
        values = dense(kernel, rows[part], rows)
        values.diagonal(start).zero_()
        sums = values.sum(1)
        within += ((dealt[:, part] @ values) * dealt).sum(-1)
        begun += dealt[:, part] @ sums
        total += sums.sum()
    return within, begun, total

"""Which rows of the training inputs become landmarks."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .values import accurate_values

_ROWS_PER_LANDMARK = 4
"""How many rows the searches look at for every landmark."""
_NOTHING_LEFT = 1e-8
"""Relative to the prior variance: what the jitter of a factor hides."""


def choose_landmarks(kernel: Kernel, x: Tensor, num_landmarks: int, method: str, seed: int) -> Tensor:
    """At most ``num_landmarks`` distinct rows of selected inputs (N, d).

    They are random, greedy by pivoted Cholesky, or seeds of k-means++, the latter two of a sample of 4 M rows; a
    ValueError for "landmarks_greedy" of a batch of kernels or with negative variances.
    """
    if method == "landmarks":
        return _random_rows(x, num_landmarks, seed)
    sample = _random_rows(x, _ROWS_PER_LANDMARK * num_landmarks, seed)
    if method == "landmarks_greedy":
        return sample[_most_uncertain(kernel, sample, num_landmarks)]
    return sample[_far_apart(sample, num_landmarks, seed)]


def _random_rows(x: Tensor, count: int, seed: int) -> Tensor:
    """At most ``count`` rows without duplicates."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
    drawn = count
    while True:
        rows = _distinct(x[order[:drawn]])
        if len(rows) >= count or drawn >= len(x):
            return rows[:count]
        drawn *= 2


def _distinct(x: Tensor) -> Tensor:
    """The rows without those that an earlier one equals."""
    unique, inverse = torch.unique(x, dim=0, return_inverse=True)
    positions = torch.arange(len(x), device=x.device)
    first = positions.new_full((len(unique),), len(x)).scatter_reduce(0, inverse, positions, "amin")
    return x[first.sort().values]


@torch.no_grad()
def _most_uncertain(kernel: Kernel, x: Tensor, count: int) -> list[int]:
    """The pivots of a Cholesky factorization of the kernel matrix, of whose rows only these are evaluated."""
    if kernel.batch_shape:
        raise ValueError(
            f"expected a kernel without batch dimensions for landmarks_greedy, got {tuple(kernel.batch_shape)}; use "
            "landmarks or landmarks_kmeans"
        )
    prior = accurate_values(kernel, x, x, diag=True)
    if not bool((prior >= 0.0).all()):
        raise ValueError(
            f"expected a positive definite {type(kernel).__name__}, got one with negative or infinite variances; "
            "correct the kernel or its parameters"
        )
    left, chosen = prior.clone(), list[int]()
    factor = prior.new_zeros(min(count, len(x)), len(x))
    for row in factor:
        pivot = int(left.argmax())
        if float(left[pivot]) <= _NOTHING_LEFT * float(prior.mean()):
            break
        rows = factor[: len(chosen)]
        values = accurate_values(kernel, x[pivot : pivot + 1], x).squeeze(0)
        row.copy_((values - rows[:, pivot] @ rows) / left[pivot].sqrt())
        left = (left - row.square()).clamp_min(0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
    return chosen


def _far_apart(x: Tensor, count: int, seed: int) -> list[int]:
    """The seeding of k-means++."""
    from sklearn.cluster import kmeans_plusplus

    rows = x.detach().double().cpu().numpy()
    chosen = kmeans_plusplus(rows, min(count, len(rows)), random_state=seed % 2**32)[1]
    return list(dict.fromkeys(chosen.tolist()))

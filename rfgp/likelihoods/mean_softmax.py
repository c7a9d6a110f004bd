"""Class probabilities: the mean softmax of normals, by quadrature, and points that stand for draws of these."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_NUM_POINTS = 256
_STEP, _TAIL, _BELOW, _ABOVE = 0.75, 5.0, 3.0, 14.0
"""Steps of both sums, standard deviations of normals that count, and how far Gumbel variables are followed."""
_LARGEST_POWER = 80.0
"""Of e, beyond which a Gumbel variable has no probability."""
_ROWS, _ENTRIES = 256, 2**15
"""Rows of about the same deviations, and values that are held at a time: they stay in the cache of a processor."""


def mean_softmax(mean: Tensor, deviation: Tensor) -> Tensor:
    r"""The mean (N, C) of the softmax of independent normals, with an error below 1e-5.

    With Gumbel variables G, softmax is the probability that :math:`f_c + G_c` is the largest, so that

    .. math:: E\,\mathrm{softmax}_c(f) = \int F_c'(t) \prod_{k \ne c} F_k(t)\, dt, \qquad
        F_k(t) = E \exp(-e^{f_k - t}), \quad f_k \sim N(m_k, d_k^2)

    Both integrals are sums over equal steps, which are exact up to :math:`e^{-\pi^2 / h}` for a step h = 3/4. Classes
    of a row with the same mean and deviation, such as those that no near row has, are computed once.

    :param mean: m, (N, C).
    :param deviation: d, (N, C), not negative.
    """
    if not mean.numel():
        return torch.zeros_like(mean)
    order = deviation.amax(-1).argsort()
    parts = zip(mean[order].split(_ROWS), deviation[order].split(_ROWS), strict=True)
    found = torch.empty_like(mean)
    found[order] = torch.cat([_of_like_rows(*part) for part in parts])
    return found


def _of_like_rows(mean: Tensor, deviation: Tensor) -> Tensor:
    """The same of rows (n, C) with about the same deviations, which take as many steps as the largest of them does."""
    mean, deviation, counts, places = _distinct(mean, deviation)
    largest = float(deviation.max())
    inner = 2 * math.ceil(_TAIL * max(1.0, largest / _STEP)) + 1
    low = (mean - _TAIL * deviation).amax(-1, keepdim=True) - _BELOW
    width = float(((mean + _TAIL * deviation).amax(-1, keepdim=True) - low).max()) + _ABOVE
    outer = math.ceil(width / _STEP) + 1
    rows = max(1, _ENTRIES // (mean.shape[-1] * outer))
    points = torch.linspace(-_TAIL, _TAIL, inner).to(mean)
    weights = torch.softmax(-0.5 * points.square(), dim=-1)
    steps = _STEP * torch.arange(outer).to(mean)
    parts = zip(mean.split(rows), deviation.split(rows), counts.split(rows), low.split(rows), strict=True)
    found = [_largest_of_gumbels(m, d, n, start + steps, points, weights) for m, d, n, start in parts]
    return torch.cat(found).gather(-1, places)


def _distinct(mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The different pairs of means and deviations (n, K) of rows (n, C), how many classes have each, and which (n, C).

    Rows with fewer than K pairs have some that no class has.
    """
    order = deviation.argsort(-1)
    order = order.gather(-1, mean.gather(-1, order).argsort(dim=-1, stable=True))
    sorted_pairs = torch.stack([mean.gather(-1, order), deviation.gather(-1, order)])
    is_new = (sorted_pairs.diff(dim=-1) != 0.0).any(0)
    numbers = torch.nn.functional.pad(is_new, (1, 0)).cumsum(-1)
    places = torch.empty_like(order).scatter_(-1, order, numbers)
    found = sorted_pairs[..., :1].repeat(1, 1, int(numbers.max()) + 1)
    means, deviations = found.scatter_(-1, numbers.expand(2, -1, -1), sorted_pairs)
    counts = torch.zeros_like(means).scatter_add_(-1, numbers, torch.ones_like(mean))
    return means, deviations, counts, places


def _largest_of_gumbels(
    mean: Tensor, deviation: Tensor, counts: Tensor, t: Tensor, points: Tensor, weights: Tensor
) -> Tensor:
    """The probabilities (n, K) that the normal of a class plus a Gumbel variable is largest, at places t (n, J).

    :param counts: how many classes have each of the normals.
    """
    distribution = torch.zeros(*mean.shape, t.shape[-1]).to(mean)
    density = torch.zeros_like(distribution)
    for point, weight in zip(points, weights, strict=True):
        rate = ((mean + deviation * point).unsqueeze(-1) - t.unsqueeze(-2)).clamp_max(_LARGEST_POWER).exp()
        value = weight * torch.exp(-rate)
        distribution += value
        density += rate.mul_(value)
    logs = distribution.clamp_min(torch.finfo(mean.dtype).tiny).log()
    product = (counts.unsqueeze(-1) * logs).sum(-2, keepdim=True)
    total = (density * (product - logs).exp()).sum(-1)
    return total / (counts * total).sum(-1, keepdim=True)


def normal_points(num_classes: int) -> Tensor:
    """Points (S, C) that stand for draws of standard normals."""
    uniform = torch.quasirandom.SobolEngine(num_classes, scramble=True, seed=0).draw(_NUM_POINTS, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-9, 1.0 - 1e-9))

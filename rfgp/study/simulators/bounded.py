"""Outputs at a bound: the function that is cut off there, as runs inside the bounds tell it."""

from __future__ import annotations

import copy

import scipy
import torch
from torch import Generator, Tensor

from ...averaging import AveragedGP, one_target

_FEWEST, _NUM_DRAWS = 10, 2
"""Different values inside the bounds that tell a function, and how many draws stand for its values at other runs."""
_SMALLEST = 1e-8
"""The smallest eigenvalue of their covariance, as a part of the largest."""


def averages(x: Tensor, y: Tensor, low: Tensor, high: Tensor, generator: Generator) -> list[AveragedGP]:
    r"""Averages for the outputs (N,) of runs x (N, d): of the outputs, or of the function that is cut off at bounds.

    A simulator often gives :math:`y = \min(\max(g(x), l), h)` of a smooth g, so that y has kinks and g has none. Then
    the runs inside the bounds tell the parameters of g, and there is an average for each of two draws of its values at
    the others, in the order of the runs. What predicts left-out runs better, cut off at the bounds, is taken.

    :param x: runs, those inside the bounds first.
    :param low: the lower bound, a number, or minus infinity.
    :param high: the upper bound, or infinity.

    Source: Tobin (1958).
    """
    found = [_averaged(x, y)]
    is_inside = (y > low) & (y < high)
    if bool(is_inside.all()) or len(y[is_inside].unique()) < _FEWEST:
        return found
    inside = _averaged(x[is_inside], y[is_inside])
    drawn = _cut_off(inside, x[~is_inside], y[~is_inside], low, generator)

    def error(averages: list[AveragedGP]) -> float:
        means = [one.leave_one_out(one.x, one.y).mean.clamp(low, high) for one in averages]
        return float((torch.stack(means).mean(0) - y).square().mean())

    return min(found, drawn, key=error)


def without(average: AveragedGP, fold: Tensor, low: Tensor, high: Tensor, generator: Generator) -> list[AveragedGP]:
    """Averages of a function that bounds cut off that know nothing of a fold of runs: its values are drawn anew.

    :param average: one of those of :func:`averages`.
    :param fold: the numbers of the runs that are left out.
    """
    is_kept = torch.ones(len(average.y), dtype=torch.bool).index_fill(0, fold, False)
    is_inside = (average.y > low) & (average.y < high)
    others = ~is_inside & is_kept
    inside = average.without((~(is_inside & is_kept)).nonzero().flatten())
    return _cut_off(inside, average.x[others], average.y[others].clamp(low, high), low, generator)


def _averaged(x: Tensor, y: Tensor) -> AveragedGP:
    """An average of all runs, whose parameters are drawn given the first, as many as averages have draws for."""
    most = one_target.CHOOSING
    found = AveragedGP(x[:most], y[:most])
    return found.update(x[most:], y[most:]) if len(x) > most else found


def _cut_off(inside: AveragedGP, x: Tensor, bound: Tensor, low: Tensor, generator: Generator) -> list[AveragedGP]:
    r"""Averages with draws of a function g at runs x (M, d) that its bounds b (M,) cut off, given the runs inside.

    .. math:: \min_g \, (g - g_0)^\top S^{-1} (g - g_0) \quad \text{where} \quad s_i g_i \le s_i b_i

    With :math:`g_0` a draw from the posterior given the runs inside, of covariance S, and s = 1 at a lower bound, -1 at
    an upper one.

    Source: Bardsley and Fox (2012), draws of nonnegative functions by least squares.
    """
    if not len(x):
        return [inside]
    side = torch.where(bound <= low, 1.0, -1.0).to(bound)
    values, vectors = torch.linalg.eigh(inside.covariance(x, has_noise=False))
    scales = values.clamp_min(_SMALLEST * values[-1]).sqrt()
    root, inverse = vectors * scales, vectors / scales
    mean, found = inside.function(x).mean, []
    for _ in range(_NUM_DRAWS):
        drawn = mean + root @ torch.randn(len(mean), generator=generator, dtype=mean.dtype)
        design = root.mT * side
        weights = scipy.optimize.nnls(design.numpy(), (inverse.mT @ (drawn - bound)).numpy())[0]
        moved = drawn - root @ (design @ torch.from_numpy(weights))
        beyond = torch.where(side > 0.0, torch.minimum(moved, bound), torch.maximum(moved, bound))
        found.append(copy.deepcopy(inside).update(x, beyond))
    return found

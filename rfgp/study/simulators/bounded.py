"""Outputs at a bound: the function that is cut off there, as runs inside the bounds tell it."""

from __future__ import annotations

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
    there is an average for each of two draws of the values of g at runs with an output at a bound. What predicts left
    out runs better, cut off at the bounds, is taken.

    :param low: the lower bound, a number, or minus infinity.
    :param high: the upper bound, or infinity.

    Source: Tobin (1958).
    """
    found = [_averaged(x, y)]
    is_inside = (y > low) & (y < high)
    if bool(is_inside.all()) or len(y[is_inside].unique()) < _FEWEST:
        return found
    drawn = cut_off(x, y, low, high, generator)

    def error(averages: list[AveragedGP]) -> float:
        means = [one.leave_one_out(one.x, one.y).mean.clamp(low, high) for one in averages]
        return float((torch.stack(means).mean(0) - y).square().mean())

    return min(found, drawn, key=error)


def cut_off(x: Tensor, y: Tensor, low: Tensor, high: Tensor, generator: Generator) -> list[AveragedGP]:
    """An average for each of two draws of the function that bounds cut off, given runs as in :func:`averages`."""
    is_inside = (y > low) & (y < high)
    if bool(is_inside.all()):
        return [_averaged(x, y)]
    return [_averaged(x, values) for values in _draws(x, y, is_inside, low, generator)]


def _averaged(x: Tensor, y: Tensor) -> AveragedGP:
    """An average of all runs, whose parameters are drawn given the first, as many as averages have draws for."""
    most = one_target.CHOOSING
    found = AveragedGP(x[:most], y[:most])
    return found.update(x[most:], y[most:]) if len(x) > most else found


def _draws(x: Tensor, y: Tensor, is_inside: Tensor, low: Tensor, generator: Generator) -> list[Tensor]:
    r"""Draws of the function (N,) that is cut off at bounds b, given the runs inside of them, by least squares.

    .. math:: \min_g \, (g - g_0)^\top S^{-1} (g - g_0) \quad \text{where} \quad s_i g_i \le s_i b_i

    With :math:`g_0` a draw from the posterior given the runs inside, of covariance S, and s = 1 at a lower bound, -1 at
    an upper one.

    Source: Bardsley and Fox (2012), draws of nonnegative functions.
    """
    inside, others = AveragedGP(x[is_inside], y[is_inside]), x[~is_inside]
    bound = y[~is_inside]
    side = torch.where(bound <= low, 1.0, -1.0).to(bound)
    values, vectors = torch.linalg.eigh(inside.covariance(others, has_noise=False))
    root = vectors * values.clamp_min(_SMALLEST * values[-1]).sqrt()
    inverse = vectors / values.clamp_min(_SMALLEST * values[-1]).sqrt()
    mean, found = inside.function(others).mean, []
    for _ in range(_NUM_DRAWS):
        drawn = mean + root @ torch.randn(len(mean), generator=generator, dtype=mean.dtype)
        design = root.mT * side
        weights = scipy.optimize.nnls(design.numpy(), (inverse.mT @ (drawn - bound)).numpy())[0]
        moved = drawn - root @ (design @ torch.from_numpy(weights))
        beyond = torch.where(side > 0.0, torch.minimum(moved, bound), torch.maximum(moved, bound))
        found.append(y.masked_scatter(~is_inside, beyond))
    return found

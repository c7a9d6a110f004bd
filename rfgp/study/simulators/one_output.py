"""What the runs of a simulator tell of one output: its function, or one that bounds of the output cut off."""

from __future__ import annotations

import functools

import scipy
import torch
from torch import Generator, Tensor

from ...averaging import AveragedGP, one_target

_NUM_PARAMETERS = 8
"""How many draws of the parameters stand for their posterior."""
_NUM_FOLDS = 10
_FEWEST = 10
"""Different values inside the bounds that tell a function."""
_SMALLEST = 1e-8
"""The smallest eigenvalue of a covariance, as a part of the largest."""


class OutputFunction:
    """The posterior of the function of an output, by its runs: exact processes with draws of its parameters.

    :param x: runs (N, d), in random order.
    :param y: the output of each, (N,).
    :param generator: the source of random numbers.
    """

    is_cut_off = False

    def __init__(self, x: Tensor, y: Tensor, generator: Generator) -> None:
        self.x, self.y, self.generator = x, y, generator
        self.average = _averaged(x, y)

    @functools.cached_property
    def processes(self) -> list[AveragedGP]:
        """Processes with single draws of the parameters, which have the same weight."""
        return self.average.single_draws(_NUM_PARAMETERS)

    def without(self, fold: Tensor) -> list[AveragedGP]:
        """Processes that have never seen the runs of some numbers: parameters are learned anew."""
        return [self.average.thinned(_NUM_PARAMETERS).without(fold)]

    @functools.cached_property
    def left_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (N,) of every run by those of other folds, noise included.

        Parameters that were learned from a run, too, predict it better than a new one: by a fifth for 200 runs and 23
        parameters. So they are learned anew for every fold.
        """
        mean, variance = torch.empty(2, len(self.y), dtype=torch.float64)
        for fold in torch.randperm(len(self.y), generator=self.generator).chunk(min(_NUM_FOLDS, len(self.y))):
            found = [process.predictive(self.x[fold]) for process in self.without(fold)]
            moments = torch.stack([one.mean for one in found]), torch.stack([one.variance for one in found])
            mean[fold], variance[fold] = mixed(*moments)
        return mean, variance


class CutOffFunction(OutputFunction):
    r"""The posterior of a function g of which an output shows what lies within bounds, :math:`\min(\max(g, l), h)`.

    The output has kinks and g has none. The runs inside the bounds tell the parameters of g. With each draw of these,
    the values of g at the other runs are drawn beyond the bound,

    .. math:: \min_g \, (g - g_0)^\top S^{-1} (g - g_0) \quad \text{where} \quad s_i g_i \le s_i b_i

    With :math:`g_0` a draw from the posterior given the runs inside, of covariance S, and s = 1 at a lower bound
    :math:`b_i`, -1 at an upper one.

    :param is_inside: which runs (N,) lie inside the bounds.
    :param is_low: which runs are at the lower bound, or would be.

    Source: Tobin (1958); Bardsley and Fox (2012), draws of nonnegative functions by least squares.
    """

    is_cut_off = True

    def __init__(self, x: Tensor, y: Tensor, is_inside: Tensor, is_low: Tensor, generator: Generator) -> None:
        self.x, self.y, self.is_inside, self.is_low, self.generator = x, y, is_inside, is_low, generator
        self.places = is_inside.cumsum(0) - 1
        self.average = _averaged(x[is_inside], y[is_inside])

    @functools.cached_property
    def processes(self) -> list[AveragedGP]:
        return self._drawn(self.average, ~self.is_inside)

    def without(self, fold: Tensor) -> list[AveragedGP]:
        """Such processes: values of g beyond the bounds are drawn given the other runs."""
        is_left = torch.zeros_like(self.is_inside).index_fill(0, fold, True)
        others = self.average.thinned(_NUM_PARAMETERS).without(self.places[is_left & self.is_inside])
        return self._drawn(others, ~self.is_inside & ~is_left)

    def _drawn(self, average: AveragedGP, is_beyond: Tensor) -> list[AveragedGP]:
        """Single draws of the parameters, each with a draw of the values of g at runs beyond the bounds."""
        if not bool(is_beyond.any()):
            return average.single_draws(_NUM_PARAMETERS)
        x, bound, is_low = self.x[is_beyond], self.y[is_beyond], self.is_low[is_beyond]
        side, found = torch.where(is_low, 1.0, -1.0).to(bound), []
        for process in average.single_draws(_NUM_PARAMETERS):
            values, vectors = torch.linalg.eigh(process.covariance(x, has_noise=False))
            scales = values.clamp_min(_SMALLEST * values[-1]).sqrt()
            root, inverse = vectors * scales, vectors / scales
            noise = torch.randn(len(x), generator=self.generator, dtype=bound.dtype)
            drawn = process.function(x).mean + root @ noise
            design = root.mT * side
            weights = scipy.optimize.nnls(design.numpy(), (inverse.mT @ (drawn - bound)).numpy())[0]
            moved = drawn - root @ (design @ torch.from_numpy(weights))
            beyond = torch.where(is_low, torch.minimum(moved, bound), torch.maximum(moved, bound))
            found.append(process.update(x, beyond))
        return found


def output_function(x: Tensor, y: Tensor, low: Tensor, high: Tensor, generator: Generator) -> OutputFunction:
    """The function of an output (N,) of runs x (N, d): one that its bounds cut off where left-out errors are smaller.

    :param low: the lower bound, a number, or minus infinity.
    :param high: the upper bound, or infinity.
    """
    found = OutputFunction(x, y, generator)
    is_inside = (y > low) & (y < high)
    if bool(is_inside.all()) or len(y[is_inside].unique()) < _FEWEST:
        return found
    cut_off = CutOffFunction(x, y, is_inside, y <= low, generator)

    def error(output: OutputFunction) -> float:
        return float((output.left_out[0].clamp(low, high) - y).square().mean())

    return min(found, cut_off, key=error)


def mixed(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance of an equal mixture, of the first dimension."""
    return means.mean(0), variances.mean(0) + means.var(0, correction=0)


def _averaged(x: Tensor, y: Tensor) -> AveragedGP:
    """An average of all runs, whose parameters are drawn given the first, as many as averages have draws for."""
    most = one_target.CHOOSING
    found = AveragedGP(x[:most], y[:most])
    return found.update(x[most:], y[most:]) if len(x) > most else found

"""The kernel, the mean function and the number of neighbors that predict held-out rows best."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from torch import Tensor

from .._support import checks
from ..approximation.entry import approximate
from ..inference.sums.additive_mean import AdditiveMean
from ..models import WeightSpaceGP
from ..training import timing
from ..training.comparison import compare, neighbor_score
from ..training.costs import covariance_seconds, slowness
from ..training.starts import random_rows
from ..training.timing import Deadline
from ..training.tuning import num_held_out
from .kernels import KERNELS as NAMED
from .kernels import fix_maps, mapped_kernel
from .model_size import USUAL_WIDTH

KERNELS = ("matern32", "rbf", "matern52")
"""What "auto" chooses from, for several outputs from the Matern kernels; the first where targets are missing."""
NEIGHBORS = (64, 128, 256)
_FEWEST_ROWS, _LANDMARKS, _SCORED_ROWS = 50, 64, 300
_SHARE_OF_TIME = 0.25
_SMALLEST_GAIN = 0.03
"""More neighbors cost more: they are taken where a target gains so many nats."""
_MOST_CELLS, _MOST_OPERATIONS = 64, 2e7
"""The most that models with blocks have: cells of a row, and operations C D^2 of a prediction of C classes, with D up
to 512. By blocks 1,200 rows of 60 cells gain .35 nats, take 18 s, and 1.3 s for the predictions of 100. 76 classes are
too many: 40 gain .005 nats by blocks, 200 lose .02 and are predicted nine times as slowly."""
_ROWS_PER_WEIGHT, _GAIN_OF_MAP, _SHARE_OF_MAPS = 10, 0.02, 0.5
"""Rows for every weight of a linear map, with fewer of which it follows noise, the nats that it has to gain, and the
part of the time that is left that its choice may take, which is about as long as that of a kernel."""
_OF_MAPS = ("matern52", "matern32")
"""What is chosen from with a map: with it the Gaussian kernel is confident where functions are not so smooth."""
_GAIN_OF_FUNCTIONS, _LOSS_AT_FIRST = 0.02, 0.01
"""The nats that functions of single inputs have to gain, and that they may lose before the kernel is tuned for them."""
_ROWS_PER_KNOT, _SECONDS_PER_SQUARE = 5, 1e-9
"""Rows for every knot of these functions, at least, and what they take, in seconds of a row over the square of the
number of knots."""
_NEGLIGIBLE_GAIN = 0.005
"""Nats per target by which another kernel has to be better than the first ones: less is chance."""


class Parts(NamedTuple):
    """What a model is made of."""

    kernel: Kernel
    likelihood: Likelihood
    mean: Mean
    seed: int
    num_cells: int = 1
    """The outputs of a row that its block takes together, because some are missing."""
    is_tuned: bool = False
    """Whether the parameters have been learned, so that training goes on from them."""
    num_classes: int = 1
    """The classes of which every row has one."""

    def can_have_blocks(self, num_features: int) -> bool:
        """Whether rows have few cells, and classes for which predictions of so many features are quick."""
        operations = self.num_classes * min(num_features, USUAL_WIDTH) ** 2
        return self.num_cells <= _MOST_CELLS and operations <= _MOST_OPERATIONS


MakeParts = Callable[[str | Kernel], Parts]


def chosen_parts(make: MakeParts, kernel: str | Kernel, x: Tensor, y: Tensor, deadline: Deadline) -> Parts:
    """The parts of the kernel that is given, or of the one that predicts held-out rows best, with its parameters."""
    if not isinstance(kernel, str) or kernel in NAMED:
        return make(kernel)
    checks.choice("kernel", kernel, ("auto", *NAMED))
    if len(x) < _FEWEST_ROWS or bool(torch.isnan(y).any()) or not deadline.allows():
        return make(KERNELS[0])
    names = KERNELS[::2] if y.dim() > 1 else KERNELS
    if deadline.is_set and not deadline.allows(len(names) * covariance_seconds(y) / _SHARE_OF_TIME):
        return make(KERNELS[0])  # the covariance of the outputs is learned with each
    options, began = {name: make(name) for name in names}, timing.clock()
    chosen, scores = _best(options, x, y, deadline)
    num_columns, has_time = x.shape[-1], deadline.share(_SHARE_OF_MAPS).allows(timing.clock() - began)
    if num_columns < 2 or len(x) < _ROWS_PER_WEIGHT * num_columns**2 or not has_time:
        return options[chosen]._replace(is_tuned=True)
    mapped = {name: _with_map(options[name], x) for name in _OF_MAPS}
    best, with_maps = _best(mapped, x, y, deadline, is_tuned=True)
    if with_maps[best] < scores[chosen] + _GAIN_OF_MAP * y.numel() / len(y):
        return options[chosen]._replace(is_tuned=True)
    fix_maps(mapped[best].kernel)
    return mapped[best]._replace(is_tuned=True)


def with_additive_mean(parts: Parts, x: Tensor, y: Tensor, deadline: Deadline) -> Parts:
    """The parts of one target with functions of single inputs beside the kernel, where held-out rows gain by them.

    The rows that judge have not taught these functions. The kernel is tuned further with them.
    """
    held, columns = num_held_out(len(x)), x.shape[-1]
    num_knots = AdditiveMean.most_knots(columns)
    is_one = isinstance(parts.likelihood, GaussianLikelihood) and parts.is_tuned and columns > 1
    if not is_one or _ROWS_PER_KNOT * num_knots > len(x):
        return parts
    if not deadline.allows(slowness() * _SECONDS_PER_SQUARE * len(x) * num_knots**2 / _SHARE_OF_TIME):
        return parts
    others = random_rows(len(x), len(x))[held:]
    functions = AdditiveMean(x[others], y[others])
    if functions.gain < _GAIN_OF_FUNCTIONS:
        return parts
    kernel, likelihood = copy.deepcopy((parts.kernel, parts.likelihood))
    added = parts._replace(kernel=kernel, likelihood=likelihood, mean=functions)
    without, score = (neighbor_score(_probe(each, x), x, y, num_rows=held) for each in (parts, added))
    if score < without - _LOSS_AT_FIRST or not deadline.allows():
        return parts
    _best({"with": added}, x, y, deadline, is_tuned=True)
    if neighbor_score(_probe(added, x), x, y, num_rows=held) < without + _GAIN_OF_FUNCTIONS:
        return parts
    return added._replace(mean=AdditiveMean(x, y))


def _best(
    options: dict[str, Parts], x: Tensor, y: Tensor, deadline: Deadline, is_tuned: bool = False
) -> tuple[str, dict[str, float]]:
    """The first of those that predict held-out rows about best, and the scores of all, which are tuned."""
    limit = deadline.share(_SHARE_OF_TIME).limit
    probes = {name: _probe(parts, x) for name, parts in options.items()}
    with torch.enable_grad():
        scores = compare(probes, x, y, time_limit=limit, initialize=not is_tuned)
    least = max(scores.values()) - _NEGLIGIBLE_GAIN * y.numel() / len(y)
    return next(name for name in options if scores[name] >= least), scores


def _with_map(parts: Parts, x: Tensor) -> Parts:
    """A copy of the parts with a linear map of the inputs in place of lengthscales."""
    likelihood, mean = copy.deepcopy(parts.likelihood), copy.deepcopy(parts.mean)
    return parts._replace(kernel=mapped_kernel(parts.kernel, x), likelihood=likelihood, mean=mean)


def plain_kernel(kernel: str | Kernel) -> str | Kernel:
    """The kernel that is given; the first of those to choose from, where outliers would mislead the choice."""
    return KERNELS[0] if isinstance(kernel, str) and kernel == "auto" else kernel


def chosen_neighbors(parts: Parts, x: Tensor, y: Tensor) -> int:
    """The number of neighbors from which on more of them tell little, at the present parameters."""
    model, best = _probe(parts, x), NEIGHBORS[0]
    smallest_gain = _SMALLEST_GAIN * y.numel() / len(y)
    score = neighbor_score(model, x, y, num_neighbors=best, num_rows=_SCORED_ROWS)
    for count in NEIGHBORS[1:]:
        other = neighbor_score(model, x, y, num_neighbors=count, num_rows=_SCORED_ROWS)
        if other < score + smallest_gain:
            break
        best, score = count, other
    return best


def _probe(parts: Parts, x: Tensor) -> WeightSpaceGP:
    """A small model, whose exact kernel counts."""
    kernel = approximate(parts.kernel, _LANDMARKS, method="landmarks", train_inputs=x[:_LANDMARKS], seed=parts.seed)
    return WeightSpaceGP(kernel, parts.likelihood, parts.mean)

"""How many features, how large blocks, and how long a search for parameters: by default, or in a given time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..models import WeightSpaceGP
from ..training import timing
from ..training.costs import covariance_seconds
from ..training.timing import Deadline

NUM_EXACT_ROWS = 1000
"""Up to so many rows every row is a landmark, and the model is the exact one."""
DEFAULT_BLOCK_SIZE, USUAL_WIDTH = 256, 512
_MANY_ROWS, _MANY_NEIGHBORS = 10_000, 128
_SIZES = ((128, None), (128, 128), (256, 128), (512, 256), (1024, 256), (1024, 512), (2048, 512), (4096, 512))
"""Numbers of features and of rows in a block, in the order of their costs."""
_FIT_SHARE, _CELLS_SHARE, _EVIDENCE_SHARE = 0.35, 0.7, 0.03
"""The part of a time limit that the fit of the feature model may take: more for the first blocks of cells, and less
where its evidence is evaluated again and again, because the exact kernel of few rows cannot tell parameters."""
_SMALLEST_TRAINING_SHARE, _FEWEST_SECONDS = 0.2, 0.01
_PROBE_ROWS, _FEWEST_PROBED = 2048, 256
_FEWEST_FEATURES, _FEWEST_NEIGHBORS, _FEWEST_ROWS_NEAR, _CELLS_NEAR = 32, 16, 8, 320
"""Of rows with several cells: neighbors are fewer where 16 have more cells, but at least eight."""
_FITS, _FITS_OF_SIZE = 4, 2
"""As many fits as outputs allow at any size have to fit into a time limit where sizes are measured, and as many of a
size after its measurement."""
_OPERATIONS_PER_SECOND, _MOST_OPERATIONS, _FITS_LEFT_OUT = 1e9, 5e9, 8
"""Of predictions of rows by all others, for N rows with D features: N D^2 operations for every class; with blocks they
take up to eight fits."""


class ModelSize(NamedTuple):
    """Numbers of features, of rows in a block and of neighbors, and the seconds that the search and a fit take."""

    num_features: int
    block_size: int | None
    num_neighbors: int | None = 64
    training_seconds: float | None = None
    fit_seconds: float = 0.0

    def of_cells(self, count: int) -> ModelSize:
        """A size for rows of so many cells, which blocks count, whose weights are as many."""
        if count == 1 or self.block_size is None:
            return self
        least = min(_FEWEST_NEIGHBORS, max(_FEWEST_ROWS_NEAR, _CELLS_NEAR // count))
        neighbors = None if self.num_neighbors is None else max(least, self.num_neighbors // count)
        return self._replace(
            num_features=max(_FEWEST_FEATURES, self.num_features // count),
            num_neighbors=neighbors,
        )


def default_size(num_rows: int, is_local: bool, num_neighbors: int = 64) -> ModelSize:
    """All rows as landmarks of a small table; else as many as serve most tables, and blocks.

    Where predictions gain from many neighbors, they gain from models with many features too.
    """
    if num_rows <= NUM_EXACT_ROWS:
        return ModelSize(num_rows, None)
    if num_neighbors > _MANY_NEIGHBORS:
        return ModelSize(min(num_rows, 1024), 2 * DEFAULT_BLOCK_SIZE, num_neighbors)
    return ModelSize(
        min(num_rows, USUAL_WIDTH if is_local or num_rows > _MANY_ROWS else 1024), DEFAULT_BLOCK_SIZE, num_neighbors
    )


def timed_size(
    complete: Callable[[ModelSize], ModelSize],
    make: Callable[[ModelSize], WeightSpaceGP],
    x: Tensor,
    y: Tensor,
    deadline: Deadline,
    after: float,
    takes_evidence: bool,
    num_cells: int = 1,
) -> ModelSize:
    """The widest model whose fit takes a given share of a time limit, and what is left to find its parameters.

    Wider and wider models are fitted to some rows, until the time that all rows would take exceeds the share. It is
    the least one where outputs are so many that the fits would take all time.

    The search makes one fit; held-out rows take another one afterwards.

    :param after: the seconds that are needed after that.
    :param num_cells: those that a row takes in blocks.
    """
    sizes, time_limit = list(dict.fromkeys(complete(ModelSize(*size)) for size in _SIZES)), deadline.left
    probed = max(_FEWEST_PROBED, _PROBE_ROWS // num_cells)
    began, least = timing.clock(), max(_SMALLEST_TRAINING_SHARE * time_limit, _FEWEST_SECONDS)
    of_outputs = covariance_seconds(y)
    if of_outputs > 0.0 and not deadline.allows(_FITS * of_outputs):
        return sizes[0]._replace(fit_seconds=of_outputs, training_seconds=max(deadline.left - of_outputs, least))
    make(sizes[0]).condition(x[:probed], y[:probed])  # what only the first one takes
    if deadline.left <= 0.0:
        return sizes[0]._replace(fit_seconds=timing.clock() - began, training_seconds=least)
    share = _EVIDENCE_SHARE if takes_evidence else _FIT_SHARE
    chosen = sizes[0]._replace(fit_seconds=condition_seconds(make(sizes[0]), x, y, probed))
    for size in sizes[1:]:
        is_needed = num_cells > 1 and chosen.block_size is None
        most = (_CELLS_SHARE if is_needed else share) * time_limit
        expected = chosen.fit_seconds * (size.num_features / chosen.num_features) ** 2
        if expected > most or not deadline.allows(after + (_FITS_OF_SIZE + min(1.0, probed / len(x))) * expected):
            break
        cost = condition_seconds(make(size), x, y, probed)
        if cost > most:
            break
        chosen = size._replace(fit_seconds=cost)
    left = deadline.left - after - chosen.fit_seconds
    return chosen._replace(training_seconds=max(left, least))


@torch.no_grad()
def condition_seconds(model: WeightSpaceGP, x: Tensor, y: Tensor, num_rows: int = _PROBE_ROWS) -> float:
    """The seconds that a fit to all rows takes, from one to some of them."""
    began = timing.clock()
    model.covar_module.scalar_features(x[:1])
    ready = timing.clock()
    model.condition(x[:num_rows], y[:num_rows])
    fitted = timing.clock()
    model.weight_posterior()
    once = ready - began + timing.clock() - fitted
    return once + (fitted - ready) * max(1.0, len(x) / num_rows)


def left_out_seconds(model: WeightSpaceGP, num_rows: int, of_fit: float = 0.0) -> float:
    """About how long it takes to predict each of some rows by all others; endless where it is not worth it.

    :param of_fit: the seconds that a fit takes, where these are known.
    """
    noise, width = model.noise, model.covar_module.num_scalar_features
    operations = float(num_rows * noise.num_systems * (noise.num_outputs * width) ** 2)
    if operations >= _MOST_OPERATIONS:
        return math.inf
    return max(operations / _OPERATIONS_PER_SECOND, _FITS_LEFT_OUT * of_fit)

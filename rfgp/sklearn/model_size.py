"""How many features, how large blocks, and how long a search for parameters: by default, or in a given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..models import WeightSpaceGP

NUM_EXACT_ROWS = 1000
"""Up to so many rows every row is a landmark, and the model is the exact one."""
DEFAULT_BLOCK_SIZE = 256
_MANY_ROWS = 10_000
_SIZES = ((128, 128), (256, 128), (512, 256), (1024, 256), (1024, 512), (2048, 512), (4096, 512))
"""Numbers of features and of rows in a block, in the order of their costs."""
_FIT_SHARE, _EVIDENCE_SHARE = 0.35, 0.03
"""The part of a time limit that the fit of the wide model may take: less where its evidence is evaluated again and
again, because parameters cannot be found on few rows with the exact kernel."""
_SMALLEST_TRAINING_SHARE = 0.2
_PROBE_ROWS = 2048


class ModelSize(NamedTuple):
    """The number of rows in a block, and the seconds for the search for parameters and the fit; None for none."""

    num_features: int
    block_size: int | None
    training_seconds: float | None = None


def default_size(num_rows: int, is_local: bool) -> ModelSize:
    """All rows as landmarks of a small table; else as many as serve most tables, and blocks."""
    if num_rows <= NUM_EXACT_ROWS:
        return ModelSize(num_rows, None)
    return ModelSize(min(num_rows, 512 if is_local or num_rows > _MANY_ROWS else 1024), DEFAULT_BLOCK_SIZE)


def timed_size(
    complete: Callable[[ModelSize], ModelSize],
    make: Callable[[ModelSize], WeightSpaceGP],
    x: Tensor,
    y: Tensor,
    began: float,
    time_limit: float,
    takes_evidence: bool,
) -> ModelSize:
    """The widest model whose fit takes a given share of a time limit, and what is left to find its parameters.

    Wider and wider models are fitted to some rows, until the time that all rows would take exceeds the share.
    """
    sizes = list(dict.fromkeys(complete(ModelSize(*size)) for size in _SIZES))
    make(sizes[0]).condition(x[:_PROBE_ROWS], y[:_PROBE_ROWS])  # what only the first one takes
    chosen, most = sizes[0], (_EVIDENCE_SHARE if takes_evidence else _FIT_SHARE) * time_limit
    cost = _fit_seconds(make(chosen), x, y)
    for size in sizes[1:]:
        if cost * (size.num_features / chosen.num_features) ** 2 > most:
            break
        cost = _fit_seconds(make(size), x, y)
        if cost > most:
            break
        chosen = size
    left = began + time_limit - time.perf_counter()
    return chosen._replace(training_seconds=max(left, _SMALLEST_TRAINING_SHARE * time_limit))


@torch.no_grad()
def _fit_seconds(model: WeightSpaceGP, x: Tensor, y: Tensor) -> float:
    """The seconds that a fit to all rows takes, from one to some of them."""
    began = time.perf_counter()
    model.covar_module.scalar_features(x[:1])
    ready = time.perf_counter()
    model.condition(x[:_PROBE_ROWS], y[:_PROBE_ROWS])
    fitted = time.perf_counter()
    model.weight_posterior()
    once = ready - began + time.perf_counter() - fitted
    return once + (fitted - ready) * max(1.0, len(x) / _PROBE_ROWS)

"""A forest as the baseline of Gaussian processes of few rows."""

from __future__ import annotations

import warnings

from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from ..averaging.trees import Trees

_TREES, _INPUTS = 100, 1 / 3
MOST_VALUES = 100_000
"""Other models of more training targets than that, over all outputs, take longer than all else."""


def forest_baseline(x: Tensor, y: Tensor, seed: int) -> Trees:
    """A random forest of inputs (N, d) and targets (N, T), as :class:`rfgp.averaging.AveragedGP` takes it."""
    forest = RandomForestRegressor(_TREES, max_features=_INPUTS, oob_score=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
        return Trees(forest.fit(x.numpy(), y.squeeze(-1).numpy()))

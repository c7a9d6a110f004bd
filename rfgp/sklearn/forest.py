"""A forest as the baseline of Gaussian processes of few rows."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

_TREES, _INPUTS = 100, 1 / 3
MOST_VALUES = 100_000
"""Other models of more training targets than that, over all outputs, take longer than all else."""


class ForestBaseline:
    """A random forest of inputs (N, d) and targets (N, T), as :class:`rfgp.averaging.AveragedGP` takes it.

    :ivar left_out: out-of-bag predictions of the training rows, (N, T).
    """

    def __init__(self, x: Tensor, y: Tensor, seed: int) -> None:
        forest = RandomForestRegressor(_TREES, max_features=_INPUTS, oob_score=True, random_state=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
            self.forest = forest.fit(x.numpy(), y.squeeze(-1).numpy())
        self.left_out = torch.from_numpy(np.nan_to_num(forest.oob_prediction_).reshape(y.shape))

    def __call__(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.forest.predict(x.numpy()).reshape(len(x), -1))

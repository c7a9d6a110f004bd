"""The folds of scikit-learn's splitters as labels of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import check_cv
from torch import Tensor


def fold_labels(cv: Any, X: Any, y: Any, groups: Any, is_classifier: bool) -> Tensor:
    """The number of the fold that each row is tested in, (N,); every row alone without ``cv``."""
    if cv is None:
        return torch.arange(len(X))
    labels = np.full(len(X), -1)
    for number, (_, test) in enumerate(check_cv(cv, y, classifier=is_classifier).split(X, y, groups)):
        if (labels[test] >= 0).any():
            raise ValueError("expected folds that have every row once, got some twice; use a splitter such as KFold")
        labels[test] = number
    if (labels < 0).any():
        raise ValueError("expected folds that have every row once, got some in none; use a splitter such as KFold")
    return torch.from_numpy(labels)

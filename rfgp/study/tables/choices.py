"""What small fits choose on held-out rows: the inputs of many categories, and the transform of a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.distributions import Normal

from ...training.timing import Deadline
from .spread import learned_spreads
from .table import Table
from .target_transform import TargetTransform

_SKEWED = 0.75
"""The modulus of the skewness of a target from which on transforms are tried."""
_GAIN = 0.02
"""The nats per row that a transform has to gain on held-out rows."""
_FEWEST, _HELD = 60, 400
_ROWS, _ROWS_OF_LEVELS = 500, 1000
"""The rows of a small fit, and that of a kernel on levels, of which each has few rows."""
_EVALUATIONS, _SMALLEST = 60, 1e-12


@dataclass(frozen=True)
class Trials:
    """Small fits to a part of the training rows, with the density of others as their scores.

    :param deadline: when they are to have ended; what is not tried until then is not taken.
    """

    deadline: Deadline

    def inputs(
        self, table: Table, kernel: str | Kernel, transform: TargetTransform, test_share: float, seed: int
    ) -> tuple[Table, str | Kernel]:
        """The table with a kernel on levels, or with means of targets, for text of many values."""
        from ...sklearn.frames.columns import FEWEST_LEVELS, levels, most_levels
        from ...sklearn.kernels import kernel_of_levels

        each = table.with_categories(most_levels(len(table.x)))
        groups = levels(each.encoding.columns)
        if not groups or isinstance(kernel, Kernel):
            return table, kernel
        means = table.with_categories(FEWEST_LEVELS - 1)
        effects = [kernel_of_levels(kernel, each.x.shape[1], groups, has_functions) for has_functions in (False, True)]
        options = [*((each, effect) for effect in effects), (means, kernel)]
        scores = []
        for option, of_option in options:
            data = option.split(test_share, seed)
            y = data.y_train if data.y_train.dim() == 1 else data.y_train[:, 0]
            there = ~y.isnan()
            known = data.x_train[there], y[there]
            scores.append(self._score(*known, of_option, data.num_classes, transform, _ROWS_OF_LEVELS))
        return options[int(np.argmax(scores))]

    def transforms(self, x: Tensor, y: Tensor, kernel: str | Kernel) -> tuple[TargetTransform, ...]:
        """The transforms of targets (N,) or (N, T) that predict best in their units; skewed targets have one.

        :returns: one for each target; nothing where none has one.
        """
        found = tuple(self._transform(x, column, kernel) for column in y.reshape(len(y), -1).unbind(-1))
        return () if all(transform.kind == "none" for transform in found) else found

    def _transform(self, x: Tensor, y: Tensor, kernel: str | Kernel) -> TargetTransform:
        there = ~y.isnan()
        x, y = x[there], y[there]
        is_skewed = abs(float(scipy.stats.skew(y.numpy()))) > _SKEWED
        if len(y) < _FEWEST or not is_skewed or len(y.unique()) < _FEWEST // 2:
            return TargetTransform()
        plain, *others = TargetTransform.candidates(y)
        scores = {one: self._score(x, y, kernel, None, one) for one in others}
        best = max(scores, key=lambda one: scores[one], default=plain)
        least = self._score(x, y, kernel, None, plain, has_spread=True) + _GAIN
        return best if self._score(x, y, kernel, None, best, has_spread=True) > least else plain

    def _score(
        self,
        x: Tensor,
        y: Tensor,
        kernel: Any,
        num_classes: int | None,
        transform: TargetTransform,
        num_rows: int = _ROWS,
        has_spread: bool = False,
    ) -> float:
        """The mean log density of held-out targets or labels (N,), in their units; minus infinity without time.

        :param has_spread: whether standard deviations may depend on the inputs.
        """
        from ...sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor
        from ...sklearn.comparison import without_advice

        if not self.deadline.allows():
            return -math.inf
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        count = min(_HELD, len(y) // 4)
        held, rest = order[:count], order[count : count + num_rows]
        new, inputs = x[held].numpy(), x[rest].numpy()
        settings: dict[str, Any] = {"random_state": 0, "max_evaluations": _EVALUATIONS}
        if self.deadline.is_set:
            settings["time_limit"] = self.deadline.left
        named = "matern32" if isinstance(kernel, str) and kernel == "auto" else kernel
        with without_advice():
            if num_classes:
                classes = RandomFeatureGPClassifier(named, **settings)
                classes.partial_fit(inputs, y[rest].numpy(), classes=range(num_classes))
                chances = torch.from_numpy(classes.predict_proba(new)).gather(1, y[held].unsqueeze(1))
                return float(chances.clamp_min(_SMALLEST).log().mean())
            z = transform.forward(y)
            estimator = RandomFeatureGPRegressor(named, **settings).fit(inputs, z[rest].numpy())
            mean, std = (torch.from_numpy(part) for part in estimator.predict(new, return_std=True))
            if has_spread:
                for spread in learned_spreads(estimator, x[rest], z[rest], tuple(range(x.shape[1])), self.deadline, 0):
                    std = std if spread is None else std * spread(x[held], mean)
        latent = Normal(mean, std, validate_args=False)
        return float((latent.log_prob(z[held]) + transform.log_slope(y[held])).mean())

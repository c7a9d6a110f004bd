"""What small fits choose on held-out rows: the inputs of many categories, and the transform of a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.distributions import Normal

from ...training.timing import Deadline
from .table import Table
from .target_transform import TargetTransform

_SKEWED = 0.75
"""The modulus of the skewness of a target from which on transforms are tried."""
_GAIN = 0.02
"""The nats per row that a transform has to gain on held-out rows."""
_FEWEST, _TRAINING, _HELD = 60, 500, 400
_EVALUATIONS = 25


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
        options = [(each, kernel_of_levels(kernel, each.x.shape[1], groups)), (means, kernel)]
        scores = []
        for option, of_option in options:
            data = option.split(test_share, seed)
            y = data.y_train if data.y_train.dim() == 1 else data.y_train[:, 0]
            there = ~y.isnan()
            scores.append(self._score(data.x_train[there], y[there], of_option, data.num_classes, transform))
        return options[int(np.argmax([-np.inf if score is None else score for score in scores]))]

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
        tried = {one: self._score(x, y, kernel, None, one) for one in TargetTransform.candidates(y)}
        scores = {one: score for one, score in tried.items() if score is not None}
        best = max(scores, key=lambda one: scores[one], default=TargetTransform())
        plain = scores.get(TargetTransform())
        return best if plain is not None and scores[best] > plain + _GAIN else TargetTransform()

    def _score(
        self,
        x: Tensor,
        y: Tensor,
        kernel: Any,
        num_classes: int | None,
        transform: TargetTransform = TargetTransform(),  # noqa: B008
    ) -> float | None:
        """The mean log density of held-out targets or labels (N,), in their units; None without time."""
        from ...sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

        if not self.deadline.allows():
            return None
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        count = min(_HELD, len(y) // 4)
        held, rest = order[:count], order[count : count + _TRAINING]
        settings: dict[str, Any] = {"random_state": 0, "max_evaluations": _EVALUATIONS}
        if self.deadline.is_set:
            settings["time_limit"] = self.deadline.left
        named = "matern32" if isinstance(kernel, str) and kernel == "auto" else kernel
        if num_classes:
            chances = RandomFeatureGPClassifier(named, **settings)
            chances.partial_fit(x[rest].numpy(), y[rest].numpy(), classes=range(num_classes))
            probabilities = torch.from_numpy(chances.predict_proba(x[held].numpy()))
            return float(probabilities.gather(1, y[held].unsqueeze(1)).clamp_min(1e-12).log().mean())
        z = transform.forward(y)
        estimator = RandomFeatureGPRegressor(named, **settings).fit(x[rest].numpy(), z[rest].numpy())
        mean, std = estimator.predict(x[held].numpy(), return_std=True)
        latent = Normal(torch.from_numpy(mean), torch.from_numpy(std), validate_args=False)
        return float((latent.log_prob(z[held]) + transform.log_slope(y[held])).mean())

"""What small fits choose on held-out rows: the inputs of many categories, and the transform of a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import scipy.stats
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.distributions import Normal

from ...sklearn.comparison import without_advice
from ...training.timing import Deadline
from .spread import learned_spreads, normal_deviation
from .table import Table
from .target_transform import ShareLogit, TargetTransform, TransformedNormal, Untransformed, candidates, transformed

_SKEWED = 0.75
"""The modulus of the skewness of a target from which on transforms are tried."""
_GAIN = 0.02
"""The nats per row that a choice has to gain on held-out rows over a simpler one, beside two standard errors."""
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
        from ...sklearn.frames.columns import FEWEST_LEVELS, most_levels
        from ...sklearn.kernels import kernel_of_levels

        each = table.with_categories(most_levels(len(table.x)))
        groups = each.encoding.levels
        if not groups or isinstance(kernel, Kernel):
            return table, kernel
        means = table.with_categories(FEWEST_LEVELS - 1)
        effects = [kernel_of_levels(kernel, each.x.shape[1], groups, has_functions) for has_functions in (False, True)]
        chosen, best = (each, effects[0]), torch.tensor([-math.inf])
        for option, of_option in (chosen, (means, kernel), (each, effects[1])):
            data = option.split(test_share, seed)
            y = data.y_train if data.y_train.dim() == 1 else data.y_train[:, 0]
            there = ~y.isnan()
            known = data.x_train[there], y[there]
            densities = self._densities(*known, of_option, (transform,), data.num_classes, _ROWS_OF_LEVELS)
            if bool(best.isinf().all()) or _is_better(densities, best):
                chosen, best = (option, of_option), densities
        return chosen

    def transforms(self, x: Tensor, y: Tensor, kernel: str | Kernel, every: Tensor) -> tuple[TargetTransform, ...]:
        """The transforms of targets (N,) or (N, T) that predict best in their units; skewed ones and shares have one.

        :param every: all targets (M,) or (M, T), also those that are held out.
        :returns: one for each target; nothing where none has one.
        """
        columns, known = (part.reshape(len(part), -1).unbind(-1) for part in (y, every))
        pairs = zip(columns, known, strict=True)
        found = tuple(self._transform(x, column, kernel, of_all) for column, of_all in pairs)
        if all(transform.kind == "none" for transform in found):
            return ()
        if len(columns) > 1:
            plain = self._densities(x, y, kernel, tuple(Untransformed() for _ in columns))
            return found if _is_better(self._densities(x, y, kernel, found), plain) else ()
        return found

    def _transform(self, x: Tensor, y: Tensor, kernel: str | Kernel, every: Tensor) -> TargetTransform:
        there, every = ~y.isnan(), every[~every.isnan()]
        x, y = x[there], y[there]
        if not _may_gain(y, every):
            return Untransformed()
        plain, *others = candidates(y, every)
        best = max(others, key=lambda one: float(self._densities(x, y, kernel, (one,)).mean()))
        pair = (self._densities(x, y, kernel, (one,), has_spread=True) for one in (best, plain))
        return best if _is_better(*pair) else plain

    def _densities(
        self,
        x: Tensor,
        y: Tensor,
        kernel: Any,
        transforms: tuple[TargetTransform, ...],
        num_classes: int | None = None,
        num_rows: int = _ROWS,
        has_spread: bool = False,
    ) -> Tensor:
        """The log densities of held-out targets, means over several, or labels (M,); minus infinity without time.

        :param has_spread: whether standard deviations may depend on the inputs.
        """
        from ...sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

        if not self.deadline.allows():
            return torch.tensor([-math.inf])
        held, rest = _split(len(y), num_rows)
        new, inputs = x[held].numpy(), x[rest].numpy()
        with without_advice():
            if num_classes:
                classes = RandomFeatureGPClassifier(_named(kernel), **self._settings)
                classes.partial_fit(inputs, y[rest].numpy(), classes=range(num_classes))
                chances = torch.from_numpy(classes.predict_proba(new)).gather(1, y[held].unsqueeze(1))
                return chances.squeeze(1).clamp_min(_SMALLEST).log()
            z = transformed(y[rest], transforms)
            estimator = RandomFeatureGPRegressor(_named(kernel), average=False, **self._settings).fit(inputs, z.numpy())
            mean, std = (torch.from_numpy(part) for part in estimator.predict(new, return_std=True))
            std = normal_deviation(estimator, std)
            if has_spread:
                for spread in learned_spreads(estimator, x[rest], z, tuple(range(x.shape[1])), self.deadline, 0):
                    std = std if spread is None else std * spread(x[held], mean)
        densities = TransformedNormal(Normal(mean, std, validate_args=False), transforms).log_prob(y[held])
        return densities.reshape(len(held), -1).nanmean(-1)

    @property
    def _settings(self) -> dict[str, Any]:
        """The parameters of a small estimator."""
        return {"random_state": 0, "max_evaluations": _EVALUATIONS, "time_limit": self.deadline.limit}


def num_tried(y: Tensor) -> int:
    """How many of targets (N,) or (N, T) transforms are tried of."""
    columns = [column[~column.isnan()] for column in y.reshape(len(y), -1).unbind(-1)]
    return sum(_may_gain(column, column) for column in columns)


def _may_gain(y: Tensor, every: Tensor) -> bool:
    """Whether transforms of targets (N,) are tried: of skewed ones and shares, where all known ones (M,) are those."""
    is_skewed, is_share = abs(float(scipy.stats.skew(y.numpy()))) > _SKEWED, bool(ShareLogit.allows(every).all())
    return len(y) >= _FEWEST and (is_skewed or is_share) and len(y.unique()) >= _FEWEST // 2


def _is_better(densities: Tensor, of_simpler: Tensor) -> bool:
    """Whether log densities (M,) are larger than those of a simpler choice, by more than chance explains."""
    gains = (densities - of_simpler)[~(densities - of_simpler).isnan()]
    return len(gains) > 1 and float(gains.mean()) > max(_GAIN, 2.0 * float(gains.std()) / len(gains) ** 0.5)


def _named(kernel: str | Kernel) -> str | Kernel:
    """The kernel of small fits, without a choice of its own."""
    return "matern32" if isinstance(kernel, str) and kernel == "auto" else kernel


def _split(count: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """The rows that are held out, and up to ``num_rows`` others."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    held = min(_HELD, count // 4)
    return order[:held], order[held : held + num_rows]

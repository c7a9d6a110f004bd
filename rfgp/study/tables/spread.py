"""Error bars that depend on the inputs: by how much left-out rows miss their predictions."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor

from ...averaging.member import equal_rows
from ...averaging.mixture import Tail
from ...linalg.column_scales import standardized
from ...models import WeightSpaceGP
from ...training.timing import Deadline

_POWER = 2.0 / 3.0
_MEAN = 2.0 ** (1.0 / 3.0) * math.gamma(5.0 / 6.0) / math.sqrt(math.pi)
"""The mean of the power 2/3 of the modulus of a standard normal, whose distribution is about normal."""
_LOWEST, _HIGHEST = 0.2, 5.0
_MOST_ROWS, _FEWEST_ROWS, _GAIN = 2000, 200, 0.02
"""How many rows the factor is learned from, and the nats per row that it has to gain on others."""
_MANY_ROWS = 10_000
"""Of more rows it takes long to leave each out: some are not learned from at first."""


class Spread(torch.nn.Module):
    r"""A factor of standard deviations that depends on the inputs and on the mean, by a second Gaussian process.

    .. math:: s(x) = \big(E[\,|z|^{2/3} \mid x, \mu(x)] \,/\, E\,|N(0, 1)|^{2/3}\big)^{3/2}

    Here z are errors of rows that are left out, in predicted standard deviations.

    :param model: of the power 2/3, for standardized inputs.
    :param columns: the inputs that it sees, before the mean.
    :param scales: means and scales of its inputs, (2, d + 1) or (3, d + 1), and of its target (2, 1).
    """

    x_scales: Tensor
    y_scales: Tensor

    def __init__(self, model: WeightSpaceGP, columns: tuple[int, ...], scales: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        self.model, self.columns = model, columns
        self.register_buffer("x_scales", scales[0])
        self.register_buffer("y_scales", scales[1])

    @classmethod
    def learned(
        cls, x: Tensor, mean: Tensor, z: Tensor, columns: tuple[int, ...], deadline: Deadline, seed: int
    ) -> Self | None:
        """The factor that is learned from inputs (N, d), means (N,) and errors (N,); None where it gains nothing."""
        there = ~z.isnan()
        inputs, z = torch.column_stack([x[:, columns], mean])[there], z[there]
        order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:_MOST_ROWS]
        held, rest = order[: len(order) // 4], order[len(order) // 4 :]
        if len(z) < _FEWEST_ROWS or not deadline.allows():
            return None
        factor = cls._of(inputs[rest], z[rest], columns, deadline, seed).factor(inputs[held, :-1], inputs[held, -1])
        gain = 0.5 * z[held].square() * (1.0 - factor.square().reciprocal()) - factor.log()
        if float(gain.mean()) < _GAIN or not deadline.allows():
            return None
        return cls._of(inputs[order], z[order], columns, deadline, seed)

    @classmethod
    def _of(cls, inputs: Tensor, z: Tensor, columns: tuple[int, ...], deadline: Deadline, seed: int) -> Self:
        from ...sklearn import RandomFeatureGPRegressor
        from ...sklearn.comparison import without_advice

        estimator = RandomFeatureGPRegressor("rbf", random_state=seed, time_limit=deadline.limit)
        with without_advice():
            estimator.fit(inputs.numpy(), z.abs().pow(_POWER).numpy())
        return cls(estimator.model_, columns, (estimator.x_scaler_.scales, estimator.y_scaler_.scales))

    @torch.no_grad()
    def factor(self, x: Tensor, mean: Tensor) -> Tensor:
        """The factor (N,) at the inputs that it sees (N, d) and at means (N,)."""
        inputs = standardized(torch.column_stack([x, mean]), self.x_scales)
        center, scale = self.y_scales[:, 0]
        power = self.model.posterior(inputs).mean * scale + center
        return (power / _MEAN).clamp_min(0.0).pow(1.0 / _POWER).clamp(_LOWEST, _HIGHEST)

    def __call__(self, x: Tensor, mean: Tensor) -> Tensor:
        """The factor (N,) at all inputs (N, d) and at means (N,)."""
        return self.factor(x[:, self.columns], mean)


def normal_deviation(estimator: Any, std: Tensor) -> Tensor:
    """The standard deviations of a model, from those of predictions, which have tails and widths (N[, T])."""
    tail = Tail(torch.from_numpy(estimator.tail_degrees_), torch.from_numpy(estimator.tail_widths_))
    unit = tail.variance.sqrt()
    return (std.reshape(len(std), -1) / unit).reshape(std.shape)


def learned_spreads(
    estimator: Any,
    x: Tensor,
    y: Tensor,
    columns: tuple[int, ...],
    deadline: Deadline,
    seed: int,
    is_unseen: bool = False,
    is_whole: Tensor | slice = slice(None),
) -> list[Spread | None]:
    """Factors for targets (N,) or (N, T), by the errors of an estimator at rows that it has not seen, or leaves out.

    :param is_unseen: whether the estimator has not seen these rows; else it was fitted to them.
    :param is_whole: the rows that tell the factors, (N,), those without missing cells; default: all.
    """
    if len(x) < _FEWEST_ROWS or not deadline.allows():
        return []
    found = estimator.predict(x, return_std=True) if is_unseen else estimator.cross_val_predict(x, y, return_std=True)
    unseen, std = (torch.from_numpy(part) for part in found)
    deviation = normal_deviation(estimator, std)
    mean = unseen if is_unseen else _of_equal_rows(unseen, x)
    parts = [part.reshape(len(y), -1)[is_whole].unbind(-1) for part in (mean, (y - unseen) / deviation)]
    rows = zip(*parts, strict=True)
    return [Spread.learned(x[is_whole], center, errors, columns, deadline, seed) for center, errors in rows]


def _of_equal_rows(means: Tensor, x: Tensor) -> Tensor:
    """Left-out means (N,) or (N, T), averaged over rows with the same inputs (N, d).

    That of a single one of these follows from the targets of the others, and so tells its error.
    """
    groups = equal_rows(x)
    sums = torch.zeros_like(means).index_add(0, groups, means)
    return (sums / torch.bincount(groups, minlength=len(means)).reshape(-1, *[1] * (means.dim() - 1)))[groups]


def rows_of_spreads(count: int, seed: int) -> Tensor:
    """The numbers of rows whose errors tell factors before a model has seen them: some of many rows, else none."""
    if count <= _MANY_ROWS:
        return torch.arange(0)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:_MOST_ROWS]

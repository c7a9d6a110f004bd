"""Sums that were computed elsewhere, whose missing gradients are noticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..inference import GramStatistics, SufficientStatistics


def untracked(model: Any, draws: Iterable[SufficientStatistics]) -> tuple[SufficientStatistics, ...]:
    """The same sums, of which a gradient that would run to what they depend on raises, in place of being zero.

    :param model: the model that they are of.
    :param draws: sums without gradients for every draw of the weights.
    """
    kernel, has_all = model.covar_module, model._contains_noise
    known = [
        *(kernel.parameters() if has_all or model.residual != "none" else kernel.feature_parameters()),
        *(model.likelihood.parameters() if has_all else model._noise.parameters().values()),
    ]
    leaves = [parameter for parameter in known if parameter.requires_grad]
    return tuple(_of_leaves(draw, leaves) if leaves and torch.is_grad_enabled() else draw for draw in draws)


def _of_leaves(statistics: SufficientStatistics, leaves: list[Tensor]) -> SufficientStatistics:
    sums = statistics.sums()
    for name in ("gram", "cross", "target_gram", "log_noise"):
        sums[name] = _Untracked.apply(sums[name], *leaves)
    return GramStatistics.from_sums(sums, statistics.shift)


class _Untracked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, *leaves: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise ValueError(
            "expected sums with gradients for the parameters of the features and the noise of the rows, got those of "
            "an executor, which have none; hold these parameters by requires_grad_(False), or fit without an executor"
        )

"""Sums that were computed elsewhere, whose missing gradients are noticed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..inference import GramStatistics
from .row_sums import RowSums


def untracked(model: Any, sums: RowSums) -> RowSums:
    """The same sums, of which a gradient that would run to the features raises, in place of being zero.

    :param model: the model that they are of.
    :param sums: sums without gradients.
    """
    has_all = model.residual != "none" or model.block_size is not None
    known = model.covar_module.parameters() if has_all else model.covar_module.feature_parameters()
    leaves = [parameter for parameter in known if parameter.requires_grad]
    if not leaves or not torch.is_grad_enabled():
        return sums
    return sums._replace(draws=tuple(_of_leaves(draw, leaves) for draw in sums.draws))


def _of_leaves(statistics: GramStatistics, leaves: list[Tensor]) -> GramStatistics:
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
            "expected sums with gradients for the parameters of the features, got those of an executor, which have "
            "none; hold these parameters by requires_grad_(False), or fit without an executor"
        )

"""Rows of a table as a noise model sees them: targets, precisions, and the group that each row belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ... import linalg

Part = slice | Tensor
"""Some rows: a slice, or their numbers."""


class Rows(NamedTuple):
    """Targets, weights and groups of a batch of rows: all that statistics need beside the features.

    A row belongs to one group of rows with equal precision; with weights (..., N, G), to every group of nonzero weight.

    :param targets: the columns that are regressed, (..., N, K).
    :param weights: the precisions of the rows, (..., N) or (..., N, G); default: ones.
    :param log_noise: the log noise variances, of the shape of the weights; default: zeros.
    :param groups: the number of the group of each row, (N,); default: 0.
    :param has_ones: whether the shift is subtracted already, and a column of ones appended, as for whitened rows.
    """

    targets: Tensor
    weights: Tensor | None = None
    log_noise: Tensor | None = None
    groups: Tensor | None = None
    num_groups: int = 1
    has_ones: bool = False

    def with_ones(self, shift: Tensor) -> Tensor:
        """The columns t - s and one of ones, (..., N, K + 1), in double precision, for a shift s (K,)."""
        columns = self.targets.to(linalg.accurate_dtype(self.targets.dtype))
        if self.has_ones:
            return columns
        return torch.cat([columns - shift, columns.new_ones(len(columns), 1)], dim=-1)

    @property
    def center(self) -> Tensor:
        """The mean of the targets, (K,), in double precision: what is subtracted before they are summed."""
        return self.targets.to(linalg.accurate_dtype(self.targets.dtype)).mean(0)

    @property
    def group_numbers(self) -> Tensor:
        """The number of the group of each row, (N,)."""
        if self.groups is not None:
            return self.groups
        return torch.zeros(len(self.targets), dtype=torch.long, device=self.targets.device)

    @property
    def is_in_all_groups(self) -> bool:
        """Whether there are weights for every group."""
        return self.weights is not None and self.weights.dim() == self.targets.dim()

    @property
    def largest_weight(self) -> float:
        """The largest of the weights."""
        return 1.0 if self.weights is None else float(self.weights.detach().max())

    def take(self, rows: Part) -> Rows:
        """These rows alone, or all of them in another order."""
        _, weights, log_noise, groups, *_ = self
        return self._replace(
            targets=self.targets[rows],
            weights=None if weights is None else weights[rows],
            log_noise=None if log_noise is None else log_noise[rows],
            groups=None if groups is None else groups[rows],
        )

    def weighted(self, weights: Tensor) -> Rows:
        """The same rows with their precisions times weights (N,)."""
        if self.weights is None:
            return self._replace(weights=weights, log_noise=-weights.log())
        by_value = weights.reshape(-1, *[1] * (self.weights.dim() - 1)).to(self.weights)
        log_noise = torch.zeros_like(self.weights) if self.log_noise is None else self.log_noise
        log_noise = torch.where(self.weights != 0, log_noise - by_value.log(), log_noise)
        return self._replace(weights=self.weights * by_value, log_noise=log_noise)

    def by_group(self) -> Iterator[tuple[int, Part, Rows]]:
        """The number of every group that has rows, which rows these are, and what they add to it."""
        for group, members, weights in linalg.members_of_groups(self.weights, self.groups):
            noise = None if self.log_noise is None else self.log_noise[members]
            if noise is not None and noise.dim() > 1:
                noise = noise[:, group]
            yield group, members, Rows(self.targets[members], weights, noise, has_ones=self.has_ones)

    @property
    def counts(self) -> Tensor:
        """The numbers of rows of all groups, (G,), in float64."""
        if self.weights is not None and self.is_in_all_groups:
            return (self.weights.detach() != 0).sum(0).double()
        if self.groups is None:
            counts = torch.zeros(self.num_groups, dtype=torch.float64, device=self.targets.device)
            counts[0] = len(self.targets)
            return counts
        return torch.bincount(self.group_numbers.long(), minlength=self.num_groups).double()

    @property
    def log_noises(self) -> Tensor:
        """The sums of log noise variances of all groups, (G,), in float64."""
        if self.log_noise is None:
            return torch.zeros(self.num_groups, dtype=torch.float64, device=self.targets.device)
        noise = self.log_noise.double()
        if self.weights is not None and self.is_in_all_groups:
            return torch.where(self.weights != 0, noise, 0.0).sum(0)
        if self.groups is None:
            return torch.nn.functional.pad(noise.sum().reshape(1), (0, self.num_groups - 1))
        return noise.new_zeros(self.num_groups).index_add(0, self.groups.long(), noise)

    def all_weights(self) -> Tensor:
        """The weight of every row in every group, (N, G), in float64."""
        if self.weights is not None and self.is_in_all_groups:
            return self.weights.double()
        ones = torch.ones(len(self.targets), dtype=torch.float64, device=self.targets.device)
        weights = (ones if self.weights is None else self.weights.double()).unsqueeze(-1)
        return weights if self.groups is None else weights * torch.nn.functional.one_hot(self.groups, self.num_groups)


def has_gradients(tensors: Iterable[Tensor | None]) -> bool:
    """Whether gradients are enabled, and some tensor requires them."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False

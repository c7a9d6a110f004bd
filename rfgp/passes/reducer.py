"""Where the rows of a pass are: what is summed of them, the model says."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..inference.sums.recomputation import recomputed

if TYPE_CHECKING:
    from ..models.weight_space.conditioning import FeatureSummation
    from ..models.weight_space.row_sums import FeatureSums

Gradients = list[Tensor | None]


class Reducer(abc.ABC):
    """Where the rows of a pass are. It sums them, and reads them once more for gradients."""

    @abc.abstractmethod
    def sums(self, summation: FeatureSummation) -> FeatureSums:
        """The sums over all rows, without gradients."""

    def gradients(self, summation: FeatureSummation, sums: FeatureSums, of_sums: Sequence[Tensor]) -> Gradients:
        """The gradients in the parameters, from ``of_sums``, those of ``summation.tensors(sums)``.

        :raises ValueError: where the rows cannot be read once more.
        """
        return _refused(of_sums)

    def reduce(self, summation: FeatureSummation) -> FeatureSums:
        """The sums over all rows, with gradients where these are enabled."""
        with torch.no_grad():
            total = self.sums(summation)
        if not torch.is_grad_enabled():
            return total
        rest = summation.without_rows()  # the graph of the sums does not hold the model that holds them
        return differentiable(rest, total, lambda of_sums: self.gradients(rest, total, of_sums))


def without_gradients(summation: FeatureSummation, sums: FeatureSums) -> FeatureSums:
    """Sums whose gradient in the parameters raises a ValueError, in place of being zero."""
    return differentiable(summation, sums, _refused)


def _refused(of_sums: Sequence[Tensor]) -> Gradients:
    raise ValueError(
        "expected sums with gradients for the parameters of the features and the noise of the rows, got those of "
        "an executor, which have none; hold these parameters by requires_grad_(False), or fit without an executor"
    )


def differentiable(
    summation: FeatureSummation, sums: FeatureSums, gradients: Callable[[Sequence[Tensor]], Gradients]
) -> FeatureSums:
    """Sums that know their gradients, where these are enabled; ``gradients`` takes those of the sums."""
    parameters = summation.parameters
    if not torch.is_grad_enabled() or not parameters:
        return sums
    tensors = recomputed(summation.tensors(sums), lambda of_sums, *_: gradients(of_sums), parameters=parameters)
    return summation.with_tensors(sums, tensors)

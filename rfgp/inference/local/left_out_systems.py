"""Functions of several outputs or classes at rows that are left out of a model with blocks of near rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..leave_out.leave_out import FunctionPrediction, FunctionsWithoutGroup, ObservationPrediction
from ..posterior.posterior import WeightPosterior
from ..sums.rows import Part
from .left_out_blocks import LeftOutBlocks
from .system_regression import SystemRegression


class LeftOutSystems:
    """The functions at groups of rows without these: every system leaves them out alone.

    The arguments are those of :class:`LeftOutBlocks`, with the posterior of all systems.
    """

    is_separable = False

    @torch.no_grad()
    def __init__(
        self,
        regression: SystemRegression,
        x: Tensor,
        numbers: Tensor,
        posterior: WeightPosterior,
        product_dtype: torch.dtype,
    ) -> None:
        systems = regression.systems
        self.systems = [
            LeftOutBlocks(regression.system(s), x, numbers, None, posterior.of_batch(s), product_dtype)
            for s in range(systems.num_systems)
        ]
        self.mixing = regression.mixing
        self.num_outputs = 1 if self.mixing is None else len(self.mixing)
        self.largest = len(x) * self.num_outputs

    def chunks(self) -> list[slice]:
        """Chunks of the rows."""
        return self.systems[0].chunks()

    def separable(self, chosen: Part, size: int) -> tuple[ObservationPrediction, Tensor]:
        """Not for blocks: see ``is_separable``."""
        return self.systems[0].separable(chosen, size)

    def without_large(self, parts: Sequence[Tensor]) -> Iterator[FunctionsWithoutGroup]:
        """Nothing: all groups are left out by :meth:`prediction`."""
        return iter(())

    @torch.no_grad()
    def prediction(self, chosen: Part, size: int) -> tuple[FunctionPrediction, Tensor]:
        """What the other rows predict at groups of rows, and which groups lose digits, (g,)."""
        parts, flags = zip(*(system.prediction(chosen, size) for system in self.systems), strict=True)
        return self._outputs(parts), torch.stack(flags).any(0)

    @torch.no_grad()
    def prediction_from_rows(self, chosen: Tensor, size: int) -> FunctionPrediction:
        """The same by sums over all other rows."""
        return self._outputs([system.prediction_from_rows(chosen, size) for system in self.systems])

    def _outputs(self, parts: Sequence[FunctionPrediction]) -> FunctionPrediction:
        """Errors and covariances of classes (C, g, m, ...), or of outputs (g, m T, ...)."""
        error, covariance = (torch.stack(values) for values in zip(*parts, strict=True))
        if self.mixing is None:
            return FunctionPrediction(error, covariance)
        mixed = torch.einsum("sgm,ts->gmt", error, self.mixing).flatten(-2)
        joint = torch.einsum("sgmn,ts,us->gmtnu", covariance, self.mixing, self.mixing)
        return FunctionPrediction(mixed, joint.flatten(-2).flatten(-3, -2))

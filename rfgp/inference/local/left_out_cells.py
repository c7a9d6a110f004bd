"""Functions of several outputs at rows whose observed cells are left out of a model with blocks of near cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...linalg import row_chunks
from ..leave_out.group_densities import block_diagonal
from ..leave_out.leave_out import FunctionPrediction, FunctionsWithoutGroup, ObservationPrediction
from ..posterior.posterior import WeightPosterior
from ..sums.rows import Part
from .cell_kernel import parts_of
from .cells import CellRegression
from .left_out_blocks import LeftOutBlocks


class LeftOutCells:
    """The functions at groups of rows without these: every row leaves with all its observed cells.

    Errors and covariances are zero where a target is missing.

    :param combinations: of the outputs of every row, (N, T, T), whose noise is independent; see :class:`CellSystem`.
    :param observed: which targets of the rows are there, (N, T).
    :param numbers: the numbers that the observed cells, row by row, have in the regression, (n,).
    """

    is_separable = False

    @torch.no_grad()
    def __init__(
        self,
        regression: CellRegression,
        combinations: Tensor,
        observed: Tensor,
        numbers: Tensor,
        posterior: WeightPosterior,
        product_dtype: torch.dtype,
    ) -> None:
        system = regression.system(0)
        rows = system, system.local.x, numbers, None, posterior.of_batch(0), product_dtype
        if regression.num_neighbors is None:
            self.cells = LeftOutBlocks(*rows)
        else:
            self.cells = _Outputs(*rows)
            self.cells.take_outputs(combinations, observed)
            combinations = torch.eye(observed.shape[-1]).to(combinations).expand_as(combinations)
        self.places = torch.where(observed, observed.flatten().cumsum(0).sub(1).view_as(observed), -1)
        """The places of the cells (N, T) among those that are observed; -1 where a target is missing."""
        self.combinations, self.num_outputs, self.largest = combinations, observed.shape[-1], observed.numel()

    def chunks(self) -> list[slice]:
        """Chunks of the rows."""
        return row_chunks(len(self.places), self.num_outputs * self.cells.factor.num_columns)

    def separable(self, chosen: Part, size: int) -> tuple[ObservationPrediction, Tensor]:
        """Not for blocks: see ``is_separable``."""
        return self.cells.separable(chosen, size)

    def without_large(self, parts: Sequence[Tensor]) -> Iterator[FunctionsWithoutGroup]:
        """Nothing: all groups are left out by :meth:`prediction`."""
        return iter(())

    @torch.no_grad()
    def prediction(self, chosen: Part, size: int) -> tuple[FunctionPrediction, Tensor]:
        """What the other rows predict at groups of rows, and which groups lose digits, (g,)."""
        whole = self._empty(chosen, size)
        is_lossy = torch.zeros(len(whole.error), dtype=torch.bool, device=whole.error.device)
        for groups, cells, count in self._of_one_count(chosen, size):
            part, is_lossy[groups] = self.cells.prediction(cells, count)
            self._write(whole, groups, part, chosen, size)
        return self._of_outputs(whole, chosen, size), is_lossy

    @torch.no_grad()
    def prediction_from_rows(self, chosen: Tensor, size: int) -> FunctionPrediction:
        """The same by sums over all other rows."""
        whole = self._empty(chosen, size)
        for groups, cells, count in self._of_one_count(chosen, size):
            self._write(whole, groups, self.cells.prediction_from_rows(cells, count), chosen, size)
        return self._of_outputs(whole, chosen, size)

    def _of_groups(self, chosen: Part, size: int) -> Tensor:
        """The places of the cells of groups of so many rows, (g, m T)."""
        return self.places[chosen].unflatten(0, (-1, size)).flatten(1)

    def _of_one_count(self, chosen: Part, size: int) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Groups (h,) that have the same number of observed cells, these (h n,), and n."""
        places = self._of_groups(chosen, size)
        counts = (places >= 0).sum(-1)
        for count in counts.unique().tolist():
            if count:
                groups = (counts == count).nonzero().squeeze(-1)
                of_groups = places[groups]
                yield groups, of_groups[of_groups >= 0], count

    def _empty(self, chosen: Part, size: int) -> FunctionPrediction:
        shape = self._of_groups(chosen, size).shape
        error = torch.zeros(shape, dtype=torch.float64, device=self.places.device)
        return FunctionPrediction(error, error.new_zeros(*shape, shape[-1]))

    def _write(
        self, whole: FunctionPrediction, groups: Tensor, part: FunctionPrediction, chosen: Part, size: int
    ) -> None:
        """Write the predictions of observed cells to their places in all cells of the groups."""
        is_there = self._of_groups(chosen, size)[groups] >= 0
        numbers, groups = is_there.nonzero()[:, 1].view_as(part.error), groups.unsqueeze(-1)
        whole.error[groups, numbers] = part.error
        whole.covariance[groups.unsqueeze(-1), numbers.unsqueeze(-1), numbers.unsqueeze(-2)] = part.covariance

    def _of_outputs(self, whole: FunctionPrediction, chosen: Part, size: int) -> FunctionPrediction:
        """Errors and covariances of outputs, from those of their combinations."""
        combinations = block_diagonal(self.combinations[chosen], size)
        error = torch.linalg.solve_triangular(combinations, whole.error.unsqueeze(-1), upper=True).squeeze(-1)
        half = torch.linalg.solve_triangular(combinations, whole.covariance, upper=True)
        return FunctionPrediction(error, torch.linalg.solve_triangular(combinations, half.mT, upper=True))


class _Outputs(LeftOutBlocks):
    """Cells that leave neighbors, where the outputs are predicted in place of their combinations."""

    def take_outputs(self, combinations: Tensor, observed: Tensor) -> None:
        """Make the cells and targets of outputs; the arguments are those of :class:`LeftOutCells`."""
        self.num_cells = num_outputs = observed.shape[-1]
        combined = torch.zeros(observed.shape, dtype=torch.float64, device=observed.device)
        combined[observed] = self.local.columns[self.numbers].squeeze(-1)
        outputs = torch.linalg.solve_triangular(combinations, combined.unsqueeze(-1), upper=True).squeeze(-1)
        self.cells, self.values = self.local.x.clone(), outputs.new_empty(len(self.local.x))
        every = torch.eye(num_outputs).to(self.cells).expand(*observed.shape, -1)
        self.cells[self.numbers, -num_outputs:], self.values[self.numbers] = every[observed], outputs[observed]

    def predicted(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        return self.cells[numbers.flatten()], self.values[numbers]

    def together(self, numbers: Tensor) -> int:
        inputs = parts_of(self.cells[numbers], self.num_cells)[0]
        return numbers.shape[-1] if torch.equal(inputs, inputs[:, :1].expand_as(inputs)) else 1

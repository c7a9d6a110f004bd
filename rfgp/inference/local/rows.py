"""Rows of a table in blocks of near ones, whitened block by block for the statistics, and kept for predictions."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.nearest import NearestRows, scaled_points
from ..sums.accumulation import summed
from ..sums.rows import Rows
from ..sums.statistics import GramStatistics
from ..sums.sufficient_statistics import SufficientStatistics
from .partition import BlockPartition

if TYPE_CHECKING:
    from .systems import LocalSystems


_TENSORS = ("x", "columns", "variances", "scales", "powers")


class LocalRows:
    r"""Rows in blocks of near ones, with a residual of the features that is independent between blocks.

    .. math:: y_b = \Phi_b w + r_b + \epsilon_b, \qquad C_b C_b^\top = K_b - \Phi_b \Phi_b^\top + \Sigma_b

    Whitened by :math:`C_b^{-1}`, they are rows of unit noise, and their sums are additive.

    :param x: inputs, (N, d).
    :param columns: the columns that are regressed, (N, K), in float64.
    :param variances: what makes the noise variances of the systems, (N,), in float64.
    :param scales: what the inputs are multiplied by before distances are measured, (d,) or (d, r).
    :param has_cells: whether every row is a cell of several outputs.
    :param powers: the powers of the densities of the rows in the evidence, (N,), in float64, by which variances have
        been divided; default: ones.

    Source: E. Snelson and Z. Ghahramani, Local and global sparse Gaussian process approximations, 2007; errata,
    identity 7 of the last section.
    """

    def __init__(
        self,
        x: Tensor,
        columns: Tensor,
        variances: Tensor,
        scales: Tensor,
        partition: BlockPartition,
        has_cells: bool = False,
        powers: Tensor | None = None,
    ) -> None:
        self.x, self.columns, self.variances, self.scales, self.partition = x, columns, variances, scales, partition
        self.has_cells = has_cells
        self.powers = torch.ones(len(x), dtype=torch.float64, device=x.device) if powers is None else powers

    @classmethod
    def of(
        cls,
        x: Tensor,
        columns: Tensor,
        variances: Tensor,
        scales: Tensor,
        size: int,
        before: LocalRows | None = None,
        has_cells: bool = False,
    ) -> Self:
        """Rows in blocks of at most ``size``.

        :param before: keeps these blocks where inputs are the same and gradients run, so that an evidence has no jumps.
        """
        near = scales.reshape(len(scales), -1).any(-1)
        if before is not None and torch.is_grad_enabled() and torch.equal(before.x[:, near], x[:, near]):
            return cls(x, columns, variances, before.scales, before.partition, has_cells)
        return cls(x, columns, variances, scales, BlockPartition(scaled_points(x, scales), size), has_cells)

    def points(self, x: Tensor) -> Tensor:
        """Scaled inputs (n, d), between which distances are measured, in float64."""
        return scaled_points(checks.inputs(x, len(self.scales)), self.scales)

    @functools.cached_property
    def nearest(self) -> NearestRows:
        """What finds the nearest rows."""
        return NearestRows(self.points(self.x))

    @functools.cached_property
    def block_of(self) -> Tensor:
        """The number of the block of every row, (N,)."""
        return self.partition.block_of_rows().to(self.x.device)

    @property
    def tensors(self) -> list[Tensor]:
        """What the sums depend on beside the kernel."""
        return [self.x, self.columns, self.variances]

    def statistics(
        self, systems: LocalSystems, product_dtype: torch.dtype, shift: Tensor, blocks: Iterable[int] | None = None
    ) -> SufficientStatistics:
        """The sums over whitened rows of some or all blocks, with a shift (K,) subtracted from the columns."""
        chosen = self.partition.blocks if blocks is None else [self.partition.blocks[block] for block in blocks]
        return sums_of_blocks(systems, self.tensors, chosen, product_dtype, shift)

    def extended(
        self, x: Tensor, columns: Tensor, variances: Tensor, powers: Tensor | None = None
    ) -> tuple[Self, list[int]]:
        """These rows and more, and the numbers of the blocks that changed; see :meth:`BlockPartition.extended`."""
        checks.inputs(x, len(self.scales))
        powers = self.powers.new_ones(len(x)) if powers is None else powers
        parts = zip((*self.tensors, self.powers), (x, columns, variances, powers), strict=True)
        inputs, targets, noise, powers = (torch.cat([old, new.to(old)]) for old, new in parts)
        partition, touched = self.partition.extended(self.points(inputs), len(x))
        return self._with(inputs, targets, noise, partition, powers), touched

    def updated(
        self,
        systems: LocalSystems,
        statistics: SufficientStatistics,
        product_dtype: torch.dtype,
        added: tuple[Tensor, Tensor, Tensor, Tensor],
    ) -> tuple[SufficientStatistics, Self]:
        """The sums with more rows, and all rows; only the blocks that the new ones fall into are computed again."""
        num_blocks, shift = len(self.partition.blocks), statistics.shift
        extended, touched = self.extended(*added)
        if 2 * len(touched) > num_blocks:
            return extended.statistics(systems, product_dtype, shift), extended
        before = self.statistics(systems, product_dtype, shift, touched)
        changed = [*touched, *range(num_blocks, len(extended.partition.blocks))]
        after = extended.statistics(systems, product_dtype, shift, changed)
        return statistics.subtract(before).merge(after), extended

    def _with(self, x: Tensor, columns: Tensor, variances: Tensor, partition: BlockPartition, powers: Tensor) -> Self:
        return type(self)(x, columns, variances, self.scales, partition, self.has_cells, powers)

    def of_one_output(self, targets: Tensor, variances: Tensor) -> Self:
        """The same rows in the same blocks with one target each, (N,), and its noise variances."""
        twin = copy.copy(self)
        twin.columns, twin.variances = targets.unsqueeze(-1), variances
        return twin

    def without(self, numbers: Tensor) -> tuple[Self, list[int]]:
        """These rows without those with numbers (n,), and the old numbers of the blocks."""
        is_removed = torch.zeros(len(self.x), dtype=torch.bool)
        is_removed[numbers] = True
        partition, numbers_before = self.partition.without(self.points(self.x), is_removed)
        is_kept = ~is_removed.to(self.x.device)
        x, columns, variances, powers = (tensor[is_kept] for tensor in (*self.tensors, self.powers))
        return self._with(x, columns, variances, partition, powers), numbers_before

    def reduced(
        self, systems: LocalSystems, statistics: SufficientStatistics, product_dtype: torch.dtype, numbers: Tensor
    ) -> tuple[SufficientStatistics, Self]:
        """The sums without the rows with numbers (n,), and the other rows; only changed blocks are computed again."""
        left, numbers_before = self.without(numbers)
        touched = {block for block, rows in enumerate(self.partition.blocks) if bool(torch.isin(rows, numbers).any())}
        if 2 * len(touched) > len(self.partition.blocks):
            return left.statistics(systems, product_dtype, statistics.shift), left
        before = self.statistics(systems, product_dtype, statistics.shift, sorted(touched))
        changed = [new for new, old in enumerate(numbers_before) if old in touched]
        after = left.statistics(systems, product_dtype, statistics.shift, changed)
        return statistics.subtract(before).merge(after), left

    def forgotten(self, factor: float) -> Self:
        """These rows with their precisions times a factor, without those whose precision is lost in rounding."""
        variances = self.variances / factor
        lost = variances * torch.finfo(torch.float64).eps > variances.min()
        rows = self._with(self.x, self.columns, variances, self.partition, factor * self.powers)
        return rows.without(lost.nonzero().squeeze(-1).cpu())[0] if bool(lost.any()) else rows

    def log_faded(self, systems: LocalSystems) -> Tensor | float:
        r"""The log evidence of rows whose densities have the powers :math:`\gamma_i` less that of rows of unit power.

        .. math:: \sum_i \log N(y_i; f_i, s_i)^{\gamma_i} - \log N(y_i; f_i, s_i / \gamma_i) =
            \tfrac12 \sum_i (1 - \gamma_i) \log 2 \pi s_i - \log \gamma_i
        """
        if bool((self.powers == 1.0).all()):
            return 0.0
        variances, lost = systems.variances(self.columns, self.variances), 1.0 - self.powers
        logs = lost * (2.0 * math.pi * self.powers * variances).log() - self.powers.log()
        return 0.5 * (logs.sum() + systems.log_scale(float(lost.sum())))

    def detached(self) -> Self:
        """The same rows without gradients."""
        x, columns, variances = (tensor.detach() for tensor in self.tensors)
        return self._with(x, columns, variances, self.partition, self.powers)

    def to(self, device: torch.device) -> Self:
        """The same rows on a device."""
        x, columns, variances, scales, powers = (getattr(self, name).to(device) for name in _TENSORS)
        return type(self)(x, columns, variances, scales, self.partition, self.has_cells, powers)

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name, from which :meth:`from_state_dict` makes the rows again."""
        state = {name: getattr(self, name).detach().clone() for name in _TENSORS}
        state["has_cells"] = torch.tensor(self.has_cells)
        return state | {f"partition.{name}": value for name, value in self.partition.state_dict().items()}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Self:
        """Rows from :meth:`state_dict`."""
        parts = {name.removeprefix("partition."): v for name, v in state.items() if name.startswith("partition.")}
        x, columns, variances, scales, powers = (state[name].clone() for name in _TENSORS)
        partition = BlockPartition.from_state_dict(parts)
        return cls(x, columns, variances, scales, partition, bool(state["has_cells"]), powers)


def sums_of_blocks(
    systems: LocalSystems,
    tensors: Sequence[Tensor],
    blocks: Iterable[Tensor],
    product_dtype: torch.dtype,
    shift: Tensor,
) -> SufficientStatistics:
    """The sums over rows that are whitened block by block, with a shift (K,) subtracted from the columns.

    :param tensors: inputs (N, d), columns (N, K) and noise variances (N,).
    """
    x, columns, variances = tensors
    width, count = systems.kernel.num_scalar_features, systems.num_groups
    total = GramStatistics(width, len(shift), count, device=x.device, shift=shift.detach())

    def make(x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        return systems.whitened(x, rows, total.shift)

    rows, parts = Rows(columns, 1.0 / variances), [block.to(x.device) for block in blocks]
    return summed(make, x, rows, parts, systems.parameters, total, product_dtype)

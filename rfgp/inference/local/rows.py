"""Rows of a table in blocks of near ones, whitened block by block for the statistics, and kept for predictions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Self

import torch
from scipy.spatial import KDTree
from torch import Tensor

from ...linalg import cholesky
from ..rows import Rows
from ..statistics import GramStatistics
from .partition import Partition
from .residual import ResidualProcess

_TENSORS = ("x", "columns", "variances", "points")


class LocalRows:
    r"""Rows in blocks of near ones, between which what the features leave over is taken as independent.

    .. math:: y_b = \Phi_b w + r_b + \epsilon_b, \qquad C_b C_b^\top = K_b - \Phi_b \Phi_b^\top + \Sigma_b

    Each block whitens its rows with :math:`C_b^{-1}`; then they are rows of unit noise like any others, and their sums
    are additive.

    :param x: inputs, (N, d).
    :param columns: the columns that are regressed, (N, K), in float64.
    :param variances: the noise variances of the rows, (N,), in float64.
    :param points: the inputs in units in which they are near or far, (N, d).
    :param partition: the blocks.

    Source: E. Snelson and Z. Ghahramani, Local and global sparse Gaussian process approximations, 2007; errata,
    identity 7 of the last section.
    """

    def __init__(self, x: Tensor, columns: Tensor, variances: Tensor, points: Tensor, partition: Partition) -> None:
        self.x, self.columns, self.variances, self.partition = x, columns, variances, partition
        self.points = points.detach().double().cpu()

    @functools.cached_property
    def tree(self) -> KDTree:
        """A tree that finds the nearest rows."""
        return KDTree(self.points.numpy())

    @property
    def tensors(self) -> list[Tensor]:
        """What the sums depend on beside the kernel."""
        return [self.x, self.columns, self.variances]

    def statistics(
        self, kernel: Any, product_dtype: torch.dtype, shift: Tensor, blocks: Iterable[int] | None = None
    ) -> GramStatistics:
        """The sums over whitened rows.

        :param kernel: a kernel with landmarks.
        :param product_dtype: the dtype of products.
        :param shift: what is subtracted from the columns, (K,).
        :param blocks: the numbers of the blocks; default: all.
        """
        chosen = range(len(self.partition.blocks)) if blocks is None else blocks
        total = GramStatistics(kernel.num_scalar_features, len(shift), device=self.x.device, shift=shift)
        for block in chosen:
            total.add(*self.whitened(kernel, shift, block), product_dtype)
        return total

    def whitened(self, kernel: Any, shift: Tensor, block: int) -> tuple[Tensor, Rows]:
        """The features and the rows of one block, whitened.

        :param kernel: a kernel with landmarks.
        :param shift: what is subtracted from the columns, (K,).
        :param block: the number of the block.
        """
        rows = self.partition.blocks[block].to(self.x.device)
        x, residual = self.x[rows], ResidualProcess(kernel)
        scalar = kernel.scalar_features(x).double()
        covariance = residual.covariance(x, residual.root * scalar) + torch.diag(self.variances[rows])
        factor = cholesky(covariance)
        columns = Rows(self.columns[rows]).lifted(shift)
        white = torch.linalg.solve_triangular(factor, torch.cat([scalar, columns], dim=-1), upper=False)
        features, targets = white.split([scalar.shape[-1], columns.shape[-1]], dim=-1)
        return features, Rows(targets, log_noise=2.0 * factor.diagonal().log(), is_lifted=True)

    def extended(self, x: Tensor, columns: Tensor, variances: Tensor, points: Tensor) -> tuple[Self, list[int]]:
        """These rows and more, and the numbers of the blocks that changed; the other arguments are those of the class.

        Blocks that grow too large are split: the later halves are new blocks, with the numbers that follow.
        """
        parts = zip(self.tensors, (x, columns, variances), strict=True)
        every = [torch.cat([old, new.to(old)]) for old, new in parts]
        places = torch.cat([self.points, points.detach().double().cpu()])
        partition, touched = self.partition.extended(places, len(x))
        return type(self)(*every, places, partition), touched

    def detached(self) -> Self:
        """The same rows without gradients."""
        return type(self)(*[t.detach() for t in self.tensors], self.points, self.partition)

    def to(self, device: torch.device) -> Self:
        """The same rows on a device."""
        return type(self)(*[t.to(device) for t in self.tensors], self.points, self.partition)

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name, from which :meth:`from_state_dict` makes the rows again."""
        own = {name: getattr(self, name).detach().clone() for name in _TENSORS}
        return own | {f"partition.{name}": value for name, value in self.partition.state_dict().items()}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Self:
        """Rows from :meth:`state_dict`.

        :param state: the tensors by name.
        """
        parts = {name.removeprefix("partition."): v for name, v in state.items() if name.startswith("partition.")}
        return cls(*[state[name].clone() for name in _TENSORS], Partition.from_state_dict(parts))

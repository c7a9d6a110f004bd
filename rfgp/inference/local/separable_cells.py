"""Predictions of cells of a separable kernel, by covariances and features of its scalar kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .cell_kernel import parts_of
from .residual import ResidualProcess
from .rows import LocalRows
from .system_prediction import SystemConditioning
from .systems import LocalSystems


class CellResidual(ResidualProcess):
    r"""The process that the features of :math:`k \otimes \Gamma` leave over at cells; features are the scalar ones.

    .. math:: R((x, c), (x', c')) = (k(x, x') - \phi(x) \phi(x')^\top) \, c^\top \Gamma c'

    :param kernel: the scalar kernel.
    :param outputs: the covariance of the outputs, (T, T).
    """

    def __init__(self, kernel: Any, outputs: Tensor, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(kernel, dtype)
        self.outputs = outputs.to(dtype)

    def features(self, x: Tensor) -> Tensor:
        return super().features(self.parts(x)[0])

    def covariance(self, x: Tensor, features: Tensor) -> Tensor:
        inputs, outputs = self.parts(x)
        return super().covariance(inputs, features) * (outputs @ self.outputs @ outputs.mT)

    def cross_covariance(self, x: Tensor, features: Tensor, y: Tensor, other: Tensor) -> Tensor:
        (inputs, outputs), (others, of_others) = self.parts(x), self.parts(y)
        exact = super().cross_covariance(inputs, features, others, other)
        return exact * (outputs @ self.outputs @ of_others.mT)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and the coefficients of cells, the latter in the dtype of covariances."""
        inputs, outputs = parts_of(x, len(self.outputs))
        return inputs, outputs.to(self.dtype)


class SeparableCells(SystemConditioning):
    r"""The residual at cells given near ones; features of cells are made of scalar ones after the conditioning.

    .. math:: \phi_* \otimes A^\top c_* - \sum_j S_{*j} \, \phi_j \otimes A^\top c_j, \qquad \Gamma = A A^\top
    """

    residual: CellResidual

    def __init__(
        self, systems: LocalSystems, rows: LocalRows, num_neighbors: int | None, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__(systems, rows, num_neighbors, dtype)
        kernel = systems.kernel.kernel
        scalar, outputs = kernel.separated()
        self.residual = CellResidual(scalar, outputs, dtype)
        self.root = (kernel.outputs_factor().covariance_root / self.residual.root).to(dtype)

    def _left(self, x: Tensor, scalar: Tensor, weights: Tensor, given: Tensor, near: Tensor) -> Tensor:
        own, others = (self.residual.parts(cells)[1] @ self.root for cells in (x, self.rows.x[given]))
        known = weights.unsqueeze(-2) * others.mT.unsqueeze(-3).unsqueeze(-4)
        explained = (known.flatten(-4, -2) @ near).unflatten(-2, known.shape[-4:-1])
        return ((scalar.unsqueeze(-2) * own.unsqueeze(-1)).unsqueeze(-4) - explained).mT.flatten(-2)

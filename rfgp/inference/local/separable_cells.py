"""Predictions of cells of a separable kernel, by covariances and features of its scalar kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .residual import ResidualProcess
from .rows import LocalRows
from .system_prediction import SystemConditioning
from .systems import LocalSystems


class CellResidual(ResidualProcess):
    r"""The process that the features of :math:`k \Gamma_{tt'}` leave over at cells; features are the scalar ones.

    .. math:: R((x, t), (x', t')) = (k(x, x') - \phi(x) \phi(x')^\top) \, \Gamma_{tt'}

    :param kernel: the scalar kernel.
    :param outputs: the covariance of the outputs, (T, T).
    """

    def __init__(self, kernel: Any, outputs: Tensor, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(kernel, dtype)
        self.outputs = outputs.to(dtype)

    def features(self, x: Tensor) -> Tensor:
        return super().features(x[..., :-1])

    def covariance(self, x: Tensor, features: Tensor) -> Tensor:
        return super().covariance(x[..., :-1], features) * self._of_outputs(x, x)

    def cross_covariance(self, x: Tensor, features: Tensor, y: Tensor, other: Tensor) -> Tensor:
        return super().cross_covariance(x[..., :-1], features, y[..., :-1], other) * self._of_outputs(x, y)

    def _of_outputs(self, x: Tensor, y: Tensor) -> Tensor:
        return self.outputs[x[..., -1].long().unsqueeze(-1), y[..., -1].long().unsqueeze(-2)]


class SeparableCells(SystemConditioning):
    r"""The residual at cells given near ones; features of cells are made of scalar ones after the conditioning.

    .. math:: \phi_* \otimes a_t - \sum_j S_{*j} \, \phi_j \otimes a_{t_j}, \qquad \Gamma = A A^\top
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
        own, others = (self.root[cells[..., -1].long()] for cells in (x, self.rows.x[given]))
        known = weights.unsqueeze(-2) * others.mT.unsqueeze(-3).unsqueeze(-4)
        explained = (known.flatten(-4, -2) @ near).unflatten(-2, known.shape[-4:-1])
        return ((scalar.unsqueeze(-2) * own.unsqueeze(-1)).unsqueeze(-4) - explained).mT.flatten(-2)

"""The noise that a linear operator of interleaved rows stands for."""

from __future__ import annotations

import abc

import torch
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    ConstantMulLinearOperator,
    DiagLinearOperator,
    KroneckerProductDiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
)
from torch import Tensor

from ..._support.gpytorch_names import constant_of, diagonal_of
from ...inference.noise import CorrelatedNoise, IndependentNoise, KnownNoise, Targets
from ...inference.noise.base import ObservedTargets, unit_matrices
from ...inference.sums.rows import Rows


class OperatorNoise(abc.ABC):
    """The noise of N rows of T outputs, and its noise model."""

    num_outputs: int

    @abc.abstractmethod
    def weigh(self, columns: Tensor, observed: Tensor | None) -> tuple[Rows, list[Tensor | None]]:
        """Rows of columns (..., N, K) with outputs ``observed`` (..., N, T), and the precision of each group."""

    @abc.abstractmethod
    def solve(self, rows: Tensor) -> Tensor:
        """The noise covariance solved against rows (..., N, T, S)."""

    @abc.abstractmethod
    def variances(self, num_rows: int) -> Tensor:
        """The variances of one output, (..., N)."""

    @abc.abstractmethod
    def log_determinant(self, num_rows: int) -> Tensor:
        """Logarithm of the determinant of the noise covariance of all rows, (...)."""

    @property
    @abc.abstractmethod
    def smallest(self) -> float:
        """The smallest noise variance in any direction."""


class ConstantNoise(OperatorNoise):
    """A covariance (..., T, T) of the outputs that is the same for all rows, in float64."""

    def __init__(self, covariance: Tensor) -> None:
        self.covariance = covariance
        self.num_outputs = covariance.shape[-1]

    def weigh(self, columns: Tensor, observed: Tensor | None) -> tuple[Rows, list[Tensor | None]]:
        targets, covariance = Targets(self.num_outputs, has_columns=True), self.covariance
        variances = covariance.diagonal(dim1=-2, dim2=-1)
        is_diagonal = bool((covariance == torch.diag_embed(variances)).all())
        model: IndependentNoise | CorrelatedNoise = (
            IndependentNoise(targets, lambda: variances)
            if is_diagonal
            else CorrelatedNoise(targets, lambda: covariance)
        )
        rows = model.weigh(ObservedTargets(columns, observed))
        return rows, model.precisions(rows.num_groups)

    def solve(self, rows: Tensor) -> Tensor:
        covariance = self.covariance.unsqueeze(-3)
        return rows / covariance if self.num_outputs == 1 else torch.linalg.solve(covariance, rows)

    def variances(self, num_rows: int) -> Tensor:
        return self.covariance[..., 0].expand(*self.covariance.shape[:-2], num_rows)

    def log_determinant(self, num_rows: int) -> Tensor:
        return num_rows * torch.logdet(self.covariance)

    @property
    def smallest(self) -> float:
        return float(torch.linalg.eigvalsh(self.covariance.detach()).min())


class NoiseByRow(OperatorNoise):
    """A variance for every observation, (..., N, T), in float64."""

    def __init__(self, by_row: Tensor) -> None:
        self.by_row = by_row
        self.num_outputs = by_row.shape[-1]

    def weigh(self, columns: Tensor, observed: Tensor | None) -> tuple[Rows, list[Tensor | None]]:
        noise = KnownNoise(Targets(self.num_outputs, has_columns=True))
        rows = noise.weigh(ObservedTargets(columns, observed, self.by_row))
        return rows, [*unit_matrices(self.num_outputs, self.by_row.device)]

    def solve(self, rows: Tensor) -> Tensor:
        return rows / self.by_row.unsqueeze(-1)

    def variances(self, num_rows: int) -> Tensor:
        return self.by_row.squeeze(-1)

    def log_determinant(self, num_rows: int) -> Tensor:
        return self.by_row.log().sum((-2, -1))

    @property
    def smallest(self) -> float:
        return float(self.by_row.detach().min())


def operator_noise(noise: LinearOperator, num_outputs: int) -> OperatorNoise | None:
    """The noise that an operator (..., N T, N T) stands for, rows interleaved; None where it is of another kind."""
    if noise.batch_shape and num_outputs > 1:
        return None
    if (covariance := _covariance(noise, num_outputs)) is not None:
        return ConstantNoise(covariance)
    if isinstance(noise, DiagLinearOperator):
        return NoiseByRow(diagonal_of(noise).double().unflatten(-1, (-1, num_outputs)))
    return None


def _covariance(noise: LinearOperator, num_outputs: int) -> Tensor | None:
    """The covariance (..., T, T) of the outputs where it is the same for all rows, in float64."""
    if isinstance(noise, ConstantMulLinearOperator) and constant_of(noise).numel() == 1:
        noise_of_outputs = _covariance(noise.base_linear_op, num_outputs)
        return None if noise_of_outputs is None else constant_of(noise).double().reshape(()) * noise_of_outputs
    if isinstance(noise, ConstantDiagLinearOperator):
        identity = torch.eye(num_outputs, dtype=torch.float64, device=noise.device)
        return noise.diag_values.double().unsqueeze(-1) * identity
    is_kronecker = isinstance(noise, KroneckerProductDiagLinearOperator | KroneckerProductLinearOperator)
    if is_kronecker and len(noise.linear_ops) == 2 and noise.linear_ops[1].shape[-1] == num_outputs:
        rows, outputs = noise.linear_ops
        if isinstance(rows, ConstantDiagLinearOperator):
            covariance: Tensor = rows.diag_values.double() * outputs.to_dense().double()
            return covariance
    return None

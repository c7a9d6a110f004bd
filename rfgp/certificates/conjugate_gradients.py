"""Conjugate gradients for many right-hand sides, which say how far they may be off."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .kernel_matrix import EPS, KernelMatrix
from .preconditioner import FeaturePreconditioner


class Step(NamedTuple):
    """What an iteration did: the coefficients of conjugate gradients, (R,) each.

    :param length: along the direction.
    :param turn: of the last direction in the next one.
    """

    length: Tensor
    turn: Tensor


class ConjugateGradients:
    r"""Solutions of :math:`(K + S) \alpha = b` for columns b, by iterations that can be gone on with.

    :param matrix: K.
    :param noise: the diagonal of S, (N,).
    :param preconditioner: the features.
    :param right: b, (N, R).
    :param right_error: a bound on the errors of b, (N, R); default: none.

    Source: M. R. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems, 1952; residuals
    are replaced as in H. A. van der Vorst and Q. Ye, 2000.
    """

    def __init__(
        self,
        matrix: KernelMatrix,
        noise: Tensor,
        preconditioner: FeaturePreconditioner,
        right: Tensor,
        right_error: Tensor | None = None,
    ) -> None:
        self._matrix, self._noise, self._preconditioner, self._right = matrix, noise, preconditioner, right
        self._right_error = torch.zeros_like(right) if right_error is None else right_error
        self.solution = torch.zeros_like(right)
        self.residual = right.clone()
        self.steps: list[Step] = []
        self._direction = preconditioner.solve(right)
        self._energy = (right * self._direction).sum(0)

    @property
    def energy(self) -> Tensor:
        r""":math:`r^\top M^{-1} r` (R,), as the iterations have it."""
        return self._energy

    def step(self) -> None:
        """One iteration: a product with K. Columns that are solved to the last digit stay."""
        product = self._times(self._direction)
        curvature = (self._direction * product).sum(0)
        length = torch.where(curvature > 0.0, self._energy / curvature, 0.0)
        self.solution += length * self._direction
        self.residual -= length * product
        turned = self._preconditioner.solve(self.residual)
        energy = (self.residual * turned).sum(0).clamp_min(0.0)
        turn = torch.where(self._energy > 0.0, energy / self._energy, 0.0)
        self._direction.mul_(turn).add_(turned)
        self._energy = energy
        self.steps.append(Step(length, turn))

    def replace_residual(self) -> None:
        """Compute the residuals anew from the solutions, which takes another product with K."""
        self.residual = self._right - self._times(self.solution)
        self._energy = (self.residual * self._preconditioner.solve(self.residual)).sum(0).clamp_min(0.0)

    def rounding(self) -> Tensor:
        """A bound on what rounding may have done to residuals that were computed anew, (N, R)."""
        sizes = self._right.abs() + self._noise.unsqueeze(-1) * self.solution.abs()
        return self._matrix.rounding(self.solution) + 4.0 * EPS * sizes + self._right_error

    def _times(self, columns: Tensor) -> Tensor:
        return self._matrix.times(columns).addcmul_(self._noise.unsqueeze(-1), columns)

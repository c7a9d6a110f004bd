"""Conjugate gradients for one or many right sides, which can be gone on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Columns = Callable[[Tensor], Tensor]


class Iteration(NamedTuple):
    """The coefficients (R,) of an iteration: the step length, and the share of the last direction in the next one."""

    length: Tensor
    turn: Tensor


class ConjugateGradients:
    """Solutions of :math:`A x = b` for columns b, by preconditioned iterations.

    :param product: A, positive definite, times columns (N, R).
    :param precondition: the inverse of a matrix M near A times columns.
    :param right: b, (N, R).

    Source: Hestenes and Stiefel, 1952; residuals are replaced as in van der Vorst and Ye, 2000.

    >>> solver = ConjugateGradients(lambda x: 4.0 * x, lambda x: x, torch.ones(1, 1))
    >>> solver.step()
    >>> solver.solution
    tensor([[0.2500]])
    """

    def __init__(self, product: Columns, precondition: Columns, right: Tensor) -> None:
        self._product, self._precondition, self.right = product, precondition, right
        self.solution = torch.zeros_like(right)
        self.residual = right.clone()
        self.steps: list[Iteration] = []
        self._direction = precondition(right)
        self.energy = (right * self._direction).sum(0)
        r""":math:`r^\top M^{-1} r` (R,), as the iterations have it."""

    def step(self) -> None:
        """One iteration: one product with A. Columns that are solved to the last digit stay."""
        product = self._product(self._direction)
        curvature = (self._direction * product).sum(0)
        length = torch.where(curvature > 0.0, self.energy / curvature, 0.0)
        self.solution += length * self._direction
        self.residual -= length * product
        turned = self._precondition(self.residual)
        energy = (self.residual * turned).sum(0).clamp_min(0.0)
        turn = torch.where(self.energy > 0.0, energy / self.energy, 0.0)
        self._direction.mul_(turn).add_(turned)
        self.energy = energy
        self.steps.append(Iteration(length, turn))

    def replace_residual(self) -> None:
        """Compute the residuals anew from the solutions, which takes another product with A."""
        self.residual = self.right - self._product(self.solution)
        self.energy = (self.residual * self._precondition(self.residual)).sum(0).clamp_min(0.0)

"""Several operators at once."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Operator
from .polynomials import PolynomialMatrix


class Stacked(Operator):
    """Several operators, whose components come one after the other.

    >>> from rfgp.functionals import Gradient, Value
    >>> Stacked(Value(), Gradient()).symbol(torch.ones(5, 2), components=1).shape
    torch.Size([5, 3, 1])
    """

    def __init__(self, *operators: Operator) -> None:
        if not operators or not all(isinstance(operator, Operator) for operator in operators):
            raise ValueError(f"expected operators one by one, got {operators!r}; write Stacked(Value(), Gradient())")
        self.operators = operators

    @property
    def _parts(self) -> tuple[Operator, ...]:
        return self.operators

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        return [row for operator in self.operators for row in operator.matrix(input_dim, components)]

    def symbol(self, w: Tensor, components: int) -> Tensor:
        return torch.cat([operator.symbol(w, components) for operator in self.operators], dim=-2)

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        return torch.cat([operator.of_constant(constants, input_dim) for operator in self.operators])

    def __repr__(self) -> str:
        return f"Stacked{self.operators}"

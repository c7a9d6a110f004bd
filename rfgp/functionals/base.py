"""What every linear operator has: a symbol, and how operators are added, multiplied and composed."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._support import checks
from .polynomials import PolynomialMatrix, add, matrix_product


class Operator(abc.ABC):
    """A linear operator that takes fields with T components on R^d to fields with T' components.

    Operators can be added, multiplied by numbers, and composed.

    >>> import torch
    >>> from rfgp.functionals import Divergence, Gradient
    >>> (2.0 * Divergence() @ Gradient()).symbol(torch.tensor([[1.0, 2.0]]), components=1).real
    tensor([[[-10.]]])
    """

    @abc.abstractmethod
    def symbol(self, w: Tensor, components: int) -> Tensor:
        """The matrix S(w) of the multiplier at frequencies in radians per unit, (..., d) to (..., T', T), complex."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        """The (T', T) matrix of polynomials in the partial derivatives; a ValueError where there is none."""
        raise ValueError(
            f"expected a differential operator, got {self}, which exact kernels cannot apply; predict it from a model "
            "with features"
        )

    @property
    def is_differential(self) -> bool:
        """Whether the operator is a matrix of polynomials in the derivatives."""
        return all(part.is_differential for part in self._parts)

    @property
    def _parts(self) -> tuple[Operator, ...]:
        """The operators that it consists of."""
        return ()

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        """What becomes of a constant field (T,); zero for results that are determined up to a constant."""
        rows = self.matrix(input_dim, num_components(constants))
        zero = (0,) * input_dim
        return constants.new_tensor([[entry.get(zero, 0.0) for entry in row] for row in rows]) @ constants

    def __add__(self, other: Operator) -> Operator:
        return _Sum(self, check_operator(other))

    def __sub__(self, other: Operator) -> Operator:
        return _Sum(self, -1.0 * check_operator(other))

    def __mul__(self, number: float) -> Operator:
        return _Multiple(self, _factor(number))

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> Operator:
        if _factor(number) == 0.0:
            raise ValueError("expected a number other than 0 to divide an operator by, got 0; use another")
        return _Multiple(self, 1.0 / _factor(number))

    def __neg__(self) -> Operator:
        return -1.0 * self

    def __matmul__(self, other: Operator) -> Operator:
        return _Composition(self, check_operator(other))

    def __radd__(self, other: object) -> Operator:
        """What stands on the left of +, -, @ or / is no operator here, or Python would have asked that."""
        return check_operator(other)

    __rsub__ = __rmatmul__ = __rtruediv__ = __radd__


def check_operator(value: Any) -> Operator:
    """Return an operator, or raise."""
    checks.instance("both sides of +, - and @", value, Operator, "an operator of rfgp.functionals", "such as Value()")
    return value


def _factor(value: Any) -> float:
    """A finite number as a float, or raise."""
    number = checks.number(value)
    if not math.isfinite(number):
        raise ValueError(
            f"expected a finite number to multiply an operator by, or divide, got {value!r}; use @ to compose"
        )
    return number


@dataclass(frozen=True)
class _Sum(Operator):
    left: Operator
    right: Operator

    @property
    def _parts(self) -> tuple[Operator, ...]:
        return self.left, self.right

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        left, right = (part.matrix(input_dim, components) for part in (self.left, self.right))
        _check_sum(self, len(left), len(right))
        return [[add(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]

    def symbol(self, w: Tensor, components: int) -> Tensor:
        left, right = self.left.symbol(w, components), self.right.symbol(w, components)
        _check_sum(self, left.shape[-2], right.shape[-2])
        return left + right

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        return self.left.of_constant(constants, input_dim) + self.right.of_constant(constants, input_dim)


def _check_sum(operator: _Sum, left: int, right: int) -> None:
    if left != right:
        raise ValueError(
            f"expected operators with equally many components to add, got {operator.left} with {left} and "
            f"{operator.right} with {right}; use Stacked for one after the other"
        )


@dataclass(frozen=True)
class _Multiple(Operator):
    operator: Operator
    number: float

    @property
    def _parts(self) -> tuple[Operator, ...]:
        return (self.operator,)

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        rows = self.operator.matrix(input_dim, components)
        return [[add({}, entry, self.number) for entry in row] for row in rows]

    def symbol(self, w: Tensor, components: int) -> Tensor:
        return self.number * self.operator.symbol(w, components)

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        return self.number * self.operator.of_constant(constants, input_dim)


@dataclass(frozen=True)
class _Composition(Operator):
    outer: Operator
    inner: Operator

    @property
    def _parts(self) -> tuple[Operator, ...]:
        return self.outer, self.inner

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        inner = self.inner.matrix(input_dim, components)
        return matrix_product(self.outer.matrix(input_dim, len(inner)), inner)

    def symbol(self, w: Tensor, components: int) -> Tensor:
        inner = self.inner.symbol(w, components)
        return self.outer.symbol(w, inner.shape[-2]) @ inner

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        return self.outer.of_constant(self.inner.of_constant(constants, input_dim), input_dim)


def num_coordinates(w: Any) -> int:
    """The number of coordinates of frequencies (..., d), or raise."""
    if checks.floating(w, "w").dim() == 0:
        raise ValueError("expected frequencies w of shape (..., d), got a single number; use w.reshape(1, 1)")
    return w.shape[-1]


def num_components(constants: Any) -> int:
    """The number of components of a constant field (T,), or raise."""
    if checks.floating(constants, "constants").dim() != 1:
        raise ValueError(f"expected constants of shape (T,), got {tuple(constants.shape)}; pass one per component")
    return len(checks.finite(constants, "constants"))


def check_vector_field(name: str, input_dim: int, components: int, dims: Sequence[int] | None = None) -> int:
    """Return d, or raise where a field on R^d has not a component per coordinate, or d is not in ``dims``."""
    input_dim = checks.positive_integer("input_dim", input_dim)
    components = checks.positive_integer("components", components)
    if input_dim != components or (dims is not None and input_dim not in dims):
        space = f"R^{input_dim}" if dims is None else " or ".join(f"R^{d}" for d in dims)
        raise ValueError(
            f"expected a vector field on {space} for {name}, got {components} components of {input_dim} coordinates; "
            "apply it to a field with a component per coordinate"
        )
    return input_dim

r"""Linear operators with constant coefficients on functions and fields: what is observed, and what is predicted.

Every operator is a Fourier multiplier: it takes :math:`e^{i w^\top x} b` to :math:`e^{i w^\top x} S(w) b` with a symbol
S(w). Differential operators have polynomials in i w as symbols, so that they act on exact kernels too; potentials and
the parts of a Helmholtz decomposition have quotients of polynomials, and act on features alone.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import _checks

__all__ = [
    "Component",
    "Curl",
    "CurlFreePart",
    "DifferentialOperator",
    "Divergence",
    "DivergenceFreePart",
    "Gradient",
    "Laplacian",
    "Operator",
    "Partial",
    "Potential",
    "RotatedGradient",
    "Stacked",
    "Streamfunction",
    "Value",
    "Vorticity",
]

Polynomial = dict[tuple[int, ...], float]
"""Coefficients by multi-index: a polynomial in the partial derivatives of d coordinates."""

PolynomialMatrix = list[list[Polynomial]]


def add(left: Polynomial, right: Polynomial, factor: float = 1.0) -> Polynomial:
    """The polynomial ``left + factor * right``."""
    result = dict(left)
    for powers, coefficient in right.items():
        result[powers] = result.get(powers, 0.0) + factor * coefficient
    return {powers: coefficient for powers, coefficient in result.items() if coefficient != 0.0}


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    result: Polynomial = {}
    for p, a in left.items():
        result = add(result, {tuple(i + j for i, j in zip(p, q, strict=True)): a * b for q, b in right.items()})
    return result


def adjoint(polynomial: Polynomial) -> Polynomial:
    """The polynomial of minus the derivatives: what acts on the second argument of a kernel k(x - y)."""
    return {powers: coefficient * (-1.0) ** sum(powers) for powers, coefficient in polynomial.items()}


def degree(polynomial: Polynomial) -> int:
    """The largest order of a derivative."""
    return max((sum(powers) for powers in polynomial), default=0)


def matrix_product(left: PolynomialMatrix, right: PolynomialMatrix) -> PolynomialMatrix:
    """The product of two matrices of polynomials."""
    columns = list(zip(*right, strict=True))
    result = []
    for row in left:
        entries = []
        for column in columns:
            total: Polynomial = {}
            for a, b in zip(row, column, strict=True):
                if a and b:
                    total = add(total, multiply(a, b))
            entries.append(total)
        result.append(entries)
    return result


def adjoint_matrix(matrix: PolynomialMatrix) -> PolynomialMatrix:
    """The transposed matrix of adjoint polynomials."""
    return [[adjoint(entry) for entry in column] for column in zip(*matrix, strict=True)]


def evaluate(polynomial: Polynomial, w: Tensor) -> Tensor:
    """The polynomial at i w, (..., d) to (...), complex."""
    total = torch.zeros(w.shape[:-1], dtype=w.dtype.to_complex(), device=w.device)
    for powers, coefficient in polynomial.items():
        factor = w.new_ones(w.shape[:-1])
        for k, power in enumerate(powers):
            factor = factor * w[..., k] ** power if power else factor
        total = total + coefficient * 1j ** sum(powers) * factor
    return total


class Operator(abc.ABC):
    """A linear operator that takes fields with T components on R^d to fields with T' components.

    Operators can be added, multiplied by numbers, and composed: ``Divergence() @ Gradient()`` is the Laplacian.
    """

    @abc.abstractmethod
    def symbol(self, w: Tensor, components: int) -> Tensor:
        """The matrix S(w) of the multiplier, (..., d) to (..., T', T), complex.

        :param w: frequencies, in radians per unit of the inputs.
        :param components: T.
        :raises ValueError: where the operator is not defined for so many components or coordinates.
        """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        """The operator as a (T', T) matrix of polynomials in the partial derivatives.

        :param input_dim: d.
        :param components: T.
        :raises ValueError: where it is not a differential operator.
        """
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
        """What becomes of a constant field (T,); zero for operators that determine their result up to a constant.

        :param constants: the field.
        :param input_dim: d.
        """
        rows = self.matrix(input_dim, _num_constants(constants))
        zero = (0,) * input_dim
        return constants.new_tensor([[entry.get(zero, 0.0) for entry in row] for row in rows]) @ constants

    def __add__(self, other: Operator) -> Operator:
        return _Sum(self, _operator(other))

    def __sub__(self, other: Operator) -> Operator:
        return _Sum(self, -1.0 * _operator(other))

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
        return _Composition(self, _operator(other))

    def __radd__(self, other: object) -> Operator:
        """What stands on the left of +, -, @ or / is no operator here, or Python would have asked that."""
        return _operator(other)

    __rsub__ = __rmatmul__ = __rtruediv__ = __radd__


def _operator(value: Any) -> Operator:
    _checks.instance("both sides of +, - and @", value, Operator, "an operator of rfgp.operators", "such as Value()")
    return value


def _factor(value: Any) -> float:
    """A finite number as a float, or raise."""
    number = _checks.number(value)
    if not math.isfinite(number):
        raise ValueError(
            f"expected a finite number to multiply an operator by, or divide, got {value!r}; use @ to compose"
        )
    return number


def _columns(w: Any) -> int:
    """The number of coordinates of frequencies (..., d), or raise."""
    if _checks.floating(w, "w").dim() == 0:
        raise ValueError("expected frequencies w of shape (..., d), got a single number; use w.reshape(1, 1)")
    return w.shape[-1]


def _num_constants(constants: Any) -> int:
    """The number of components of a constant field (T,), or raise."""
    if _checks.floating(constants, "constants").dim() != 1:
        raise ValueError(f"expected constants of shape (T,), got {tuple(constants.shape)}; pass one per component")
    return len(_checks.finite(constants, "constants"))


class DifferentialOperator(Operator):
    """An operator that is a matrix of polynomials in the partial derivatives."""

    @abc.abstractmethod
    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix: ...

    def symbol(self, w: Tensor, components: int) -> Tensor:
        rows = self.matrix(_columns(w), components)
        return torch.stack([torch.stack([evaluate(entry, w) for entry in row], dim=-1) for row in rows], dim=-2)


def _unit(input_dim: int, *coordinates: int) -> Polynomial:
    """The polynomial of the partial derivative in the given coordinates, each as often as it is named."""
    input_dim = _checks.positive_integer("input_dim", input_dim)
    if any(not 0 <= k < input_dim for k in coordinates):
        raise ValueError(f"expected coordinates below {input_dim}, got {coordinates}; correct the operator")
    return {tuple(coordinates.count(k) for k in range(input_dim)): 1.0}


def _diagonal(polynomial: Polynomial, components: int) -> PolynomialMatrix:
    components = _checks.positive_integer("components", components)
    return [[polynomial if s == t else {} for t in range(components)] for s in range(components)]


def _check_field(name: str, input_dim: int, components: int, dims: Sequence[int] | None = None) -> None:
    components = _checks.positive_integer("components", components)
    if input_dim != components or (dims is not None and input_dim not in dims):
        space = f"R^{input_dim}" if dims is None else " or ".join(f"R^{d}" for d in dims)
        raise ValueError(
            f"expected a vector field on {space} for {name}, got {components} components of {input_dim} coordinates; "
            "apply it to a field with a component per coordinate"
        )


@dataclass(frozen=True)
class Value(DifferentialOperator):
    """The function or field itself."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        return _diagonal(_unit(input_dim), components)


@dataclass(frozen=True)
class Component(DifferentialOperator):
    """One component of a field.

    :param index: which one, from 0.
    """

    index: int

    def __post_init__(self) -> None:
        if type(self.index) is not int or self.index < 0:
            raise ValueError(f"expected an integer of at least 0 for index, got {self.index!r}; the first one is 0")

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        components = _checks.positive_integer("components", components)
        if not 0 <= self.index < components:
            raise ValueError(f"expected a component below {components}, got {self.index}; correct the operator")
        return _diagonal(_unit(input_dim), components)[self.index : self.index + 1]


class Partial(DifferentialOperator):
    """A partial derivative of every component, of any order.

    :param coordinates: the coordinates of the derivative, from 0, each as often as its order.

    >>> Partial(0, 0, 1).matrix(2, 1)
    [[{(2, 1): 1.0}]]
    """

    def __init__(self, *coordinates: int) -> None:
        if not all(type(k) is int and k >= 0 for k in coordinates):
            raise ValueError(
                f"expected integers of at least 0 for the coordinates, got {coordinates}; write Partial(0, 0, 1)"
            )
        self.coordinates = coordinates

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        return _diagonal(_unit(input_dim, *self.coordinates), components)

    def __repr__(self) -> str:
        return f"Partial{self.coordinates}"


@dataclass(frozen=True)
class Gradient(DifferentialOperator):
    """All first derivatives, d for each component: those of the first component first."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        components = _checks.positive_integer("components", components)
        input_dim = _checks.positive_integer("input_dim", input_dim)
        return [
            [_unit(input_dim, k) if s == t else {} for t in range(components)]
            for s in range(components)
            for k in range(input_dim)
        ]


@dataclass(frozen=True)
class Laplacian(DifferentialOperator):
    """The sum of the second derivatives, of every component."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        total: Polynomial = {}
        for k in range(_checks.positive_integer("input_dim", input_dim)):
            total = add(total, _unit(input_dim, k, k))
        return _diagonal(total, components)


@dataclass(frozen=True)
class Divergence(DifferentialOperator):
    """The divergence of a vector field."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        _check_field("the divergence", input_dim, components)
        return [[_unit(input_dim, k) for k in range(input_dim)]]


@dataclass(frozen=True)
class Vorticity(DifferentialOperator):
    r"""The vorticity :math:`\partial_1 f_2 - \partial_2 f_1` of a vector field in the plane."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        _check_field("the vorticity", input_dim, components, (2,))
        return [[{(0, 1): -1.0}, {(1, 0): 1.0}]]


@dataclass(frozen=True)
class Curl(DifferentialOperator):
    """The curl of a vector field in three dimensions."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        _check_field("the curl", input_dim, components, (3,))
        x, y, z = (_unit(3, k) for k in range(3))
        return [[{}, add({}, z, -1.0), y], [z, {}, add({}, x, -1.0)], [add({}, y, -1.0), x, {}]]


@dataclass(frozen=True)
class RotatedGradient(DifferentialOperator):
    r"""The field :math:`(\partial_2 s, -\partial_1 s)` of a streamfunction s in the plane, which has no divergence."""

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        if (input_dim, components) != (2, 1):
            raise ValueError(
                f"expected a function on R^2, got {components} components of {input_dim} coordinates; apply it to a "
                "streamfunction in the plane"
            )
        return [[{(0, 1): 1.0}], [{(1, 0): -1.0}]]


class _UpToConstant(Operator):
    """An operator whose result is determined up to a constant, which constant fields have no part in."""

    @property
    def is_differential(self) -> bool:
        return False

    def of_constant(self, constants: Tensor, input_dim: int) -> Tensor:
        components = _num_constants(constants)
        ones = constants.new_ones(1, _checks.positive_integer("input_dim", input_dim))
        return constants.new_zeros(self.symbol(ones, components).shape[-2])


@dataclass(frozen=True)
class Potential(_UpToConstant):
    r"""The function g with :math:`\nabla g` the curl-free part of a field, up to a constant.

    .. math:: S(w) = \overline{(i w)}^\top / \|w\|^2
    """

    def symbol(self, w: Tensor, components: int) -> Tensor:
        _check_field("the potential", _columns(w), components)
        return (-1j * w / w.square().sum(-1, keepdim=True)).unsqueeze(-2)


@dataclass(frozen=True)
class Streamfunction(_UpToConstant):
    r"""The function s with :math:`(\partial_2 s, -\partial_1 s)` the divergence-free part of a field in the plane.

    It is determined up to a constant.
    """

    def symbol(self, w: Tensor, components: int) -> Tensor:
        _check_field("the streamfunction", _columns(w), components, (2,))
        rotated = torch.stack([w[..., 1], -w[..., 0]], dim=-1)
        return (-1j * rotated / w.square().sum(-1, keepdim=True)).unsqueeze(-2)


@dataclass(frozen=True)
class CurlFreePart(_UpToConstant):
    r"""The part of a field that is a gradient: :math:`S(w) = w w^\top / \|w\|^2`."""

    def symbol(self, w: Tensor, components: int) -> Tensor:
        _check_field("the curl-free part", _columns(w), components)
        unit = torch.nn.functional.normalize(w, dim=-1)
        return (unit.unsqueeze(-1) * unit.unsqueeze(-2)).to(w.dtype.to_complex())


@dataclass(frozen=True)
class DivergenceFreePart(_UpToConstant):
    r"""The part of a field without divergence: :math:`S(w) = I - w w^\top / \|w\|^2`."""

    def symbol(self, w: Tensor, components: int) -> Tensor:
        _check_field("the divergence-free part", _columns(w), components)
        identity = torch.eye(components, dtype=w.dtype, device=w.device)
        return identity - CurlFreePart().symbol(w, components)


class Stacked(Operator):
    """Several operators, whose components come one after the other.

    :param operators: what they are.
    """

    def __init__(self, *operators: Operator) -> None:
        if not all(isinstance(operator, Operator) for operator in operators):
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

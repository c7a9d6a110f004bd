"""Differential operators."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from .._support import checks
from .base import Operator, check_vector_field, num_coordinates
from .polynomials import Polynomial, PolynomialMatrix, add, evaluate, on_every_component, partial


class DifferentialOperator(Operator):
    """An operator that is a matrix of polynomials in the partial derivatives.

    >>> Laplacian().matrix(input_dim=2, components=1)
    [[{(2, 0): 1.0, (0, 2): 1.0}]]
    """

    @abc.abstractmethod
    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix: ...

    def symbol(self, w: Tensor, components: int) -> Tensor:
        rows = self.matrix(num_coordinates(w), components)
        return torch.stack([torch.stack([evaluate(entry, w) for entry in row], dim=-1) for row in rows], dim=-2)


@dataclass(frozen=True)
class Value(DifferentialOperator):
    """The function or field itself.

    >>> Value().matrix(input_dim=2, components=1)
    [[{(0, 0): 1.0}]]
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        return on_every_component(partial(input_dim), components)


@dataclass(frozen=True)
class Component(DifferentialOperator):
    """Component ``index`` of a field, from 0.

    >>> Component(1).matrix(input_dim=1, components=2)
    [[{}, {(0,): 1.0}]]
    """

    index: int

    def __post_init__(self) -> None:
        if type(self.index) is not int or self.index < 0:
            raise ValueError(f"expected an integer of at least 0 for index, got {self.index!r}; the first one is 0")

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        components = checks.positive_integer("components", components)
        if not 0 <= self.index < components:
            raise ValueError(f"expected a component below {components}, got {self.index}; correct the operator")
        return on_every_component(partial(input_dim), components)[self.index : self.index + 1]


class Partial(DifferentialOperator):
    """A partial derivative of every component, by coordinates from 0, each as often as its order.

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
        return on_every_component(partial(input_dim, *self.coordinates), components)

    def __repr__(self) -> str:
        return f"Partial{self.coordinates}"


@dataclass(frozen=True)
class Gradient(DifferentialOperator):
    """All first derivatives, d for each component: those of the first component first.

    >>> Gradient().matrix(input_dim=2, components=1)
    [[{(1, 0): 1.0}], [{(0, 1): 1.0}]]
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        components = checks.positive_integer("components", components)
        input_dim = checks.positive_integer("input_dim", input_dim)
        return [
            [partial(input_dim, k) if s == t else {} for t in range(components)]
            for s in range(components)
            for k in range(input_dim)
        ]


@dataclass(frozen=True)
class Laplacian(DifferentialOperator):
    """The sum of the second derivatives, of every component.

    >>> Laplacian().matrix(input_dim=2, components=1)
    [[{(2, 0): 1.0, (0, 2): 1.0}]]
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        total: Polynomial = {}
        for k in range(checks.positive_integer("input_dim", input_dim)):
            total = add(total, partial(input_dim, k, k))
        return on_every_component(total, components)


@dataclass(frozen=True)
class Divergence(DifferentialOperator):
    """The divergence of a vector field.

    >>> Divergence().matrix(input_dim=2, components=2)
    [[{(1, 0): 1.0}, {(0, 1): 1.0}]]
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        input_dim = check_vector_field("the divergence", input_dim, components)
        return [[partial(input_dim, k) for k in range(input_dim)]]


@dataclass(frozen=True)
class Vorticity(DifferentialOperator):
    r"""The vorticity :math:`\partial_1 f_2 - \partial_2 f_1` of a vector field in the plane.

    >>> Vorticity().matrix(input_dim=2, components=2)
    [[{(0, 1): -1.0}, {(1, 0): 1.0}]]
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        check_vector_field("the vorticity", input_dim, components, (2,))
        return [[{(0, 1): -1.0}, {(1, 0): 1.0}]]


@dataclass(frozen=True)
class Curl(DifferentialOperator):
    """The curl of a vector field in three dimensions.

    >>> len(Curl().matrix(input_dim=3, components=3))
    3
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        check_vector_field("the curl", input_dim, components, (3,))
        x, y, z = (partial(3, k) for k in range(3))
        return [[{}, add({}, z, -1.0), y], [z, {}, add({}, x, -1.0)], [add({}, y, -1.0), x, {}]]


@dataclass(frozen=True)
class RotatedGradient(DifferentialOperator):
    r"""The field :math:`(\partial_2 s, -\partial_1 s)` of a streamfunction s in the plane, which has no divergence.

    >>> RotatedGradient().matrix(input_dim=2, components=1)
    [[{(0, 1): 1.0}], [{(1, 0): -1.0}]]
    """

    def matrix(self, input_dim: int, components: int) -> PolynomialMatrix:
        input_dim = checks.positive_integer("input_dim", input_dim)
        components = checks.positive_integer("components", components)
        if (input_dim, components) != (2, 1):
            raise ValueError(
                f"expected a function on R^2, got {components} components of {input_dim} coordinates; apply it to a "
                "streamfunction in the plane"
            )
        return [[{(0, 1): 1.0}], [{(1, 0): -1.0}]]

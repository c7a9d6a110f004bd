"""Polynomials in the partial derivatives, and matrices of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .._support import checks

Polynomial = dict[tuple[int, ...], float | Tensor]
"""Coefficients by multi-index: a polynomial in the partial derivatives of d coordinates.

Those that are learned are tensors () with gradients.
"""

PolynomialMatrix = list[list[Polynomial]]
"""Rows of polynomials: what every output is made of, one entry for each component."""


def add(left: Polynomial, right: Polynomial, factor: float = 1.0) -> Polynomial:
    """The polynomial ``left + factor * right``.

    >>> add({(1, 0): 2.0}, {(0, 1): 1.0}, factor=-1.0)
    {(1, 0): 2.0, (0, 1): -1.0}
    """
    result = dict(left)
    for powers, coefficient in right.items():
        result[powers] = result.get(powers, 0.0) + factor * coefficient
    return {powers: value for powers, value in result.items() if isinstance(value, Tensor) or value != 0.0}


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product of two polynomials.

    >>> multiply({(1, 0): 2.0}, {(1, 1): 3.0})
    {(2, 1): 6.0}
    """
    result: Polynomial = {}
    for p, a in left.items():
        result = add(result, {tuple(i + j for i, j in zip(p, q, strict=True)): a * b for q, b in right.items()})
    return result


def adjoint(polynomial: Polynomial) -> Polynomial:
    """The polynomial of minus the derivatives: what acts on the second argument of a kernel k(x - y).

    >>> adjoint({(1, 0): 2.0, (2, 0): 1.0})
    {(1, 0): -2.0, (2, 0): 1.0}
    """
    return {powers: coefficient * (-1.0) ** sum(powers) for powers, coefficient in polynomial.items()}


def degree(polynomial: Polynomial) -> int:
    """The largest order of a derivative.

    >>> degree({(1, 0): 2.0, (2, 1): 1.0})
    3
    """
    return max((sum(powers) for powers in polynomial), default=0)


def partial(input_dim: int, *coordinates: int) -> Polynomial:
    """The polynomial of the partial derivative in the given coordinates, each as often as it is named."""
    input_dim = checks.positive_integer("input_dim", input_dim)
    if any(not 0 <= k < input_dim for k in coordinates):
        raise ValueError(f"expected coordinates below {input_dim}, got {coordinates}; correct the operator")
    return {tuple(coordinates.count(k) for k in range(input_dim)): 1.0}


def evaluate(polynomial: Polynomial, w: Tensor) -> Tensor:
    """The polynomial at i w, (..., d) to (...), complex.

    >>> evaluate({(2, 0): 1.0}, torch.tensor([[3.0, 0.0]])).real
    tensor([-9.])
    """
    total = torch.zeros(w.shape[:-1], dtype=w.dtype.to_complex(), device=w.device)
    for powers, coefficient in polynomial.items():
        factor = w.new_ones(w.shape[:-1])
        for k, power in enumerate(powers):
            factor = factor * w[..., k] ** power if power else factor
        total = total + coefficient * 1j ** sum(powers) * factor
    return total


def matrix_product(left: PolynomialMatrix, right: PolynomialMatrix) -> PolynomialMatrix:
    """The product of two matrices of polynomials.

    >>> matrix_product([[{(1, 0): 1.0}, {(0, 1): 1.0}]], [[{(1, 0): 1.0}], [{(0, 1): 1.0}]])
    [[{(2, 0): 1.0, (0, 2): 1.0}]]
    """
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
    """The transposed matrix of adjoint polynomials.

    >>> adjoint_matrix([[{(1, 0): 1.0}, {(0, 2): 1.0}]])
    [[{(1, 0): -1.0}], [{(0, 2): 1.0}]]
    """
    return [[adjoint(entry) for entry in column] for column in zip(*matrix, strict=True)]


def on_every_component(polynomial: Polynomial, components: int) -> PolynomialMatrix:
    """The diagonal matrix that applies a polynomial to every component."""
    components = checks.positive_integer("components", components)
    return [[polynomial if s == t else {} for t in range(components)] for s in range(components)]

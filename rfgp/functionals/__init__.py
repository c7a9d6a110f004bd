r"""Linear operators with constant coefficients on functions and fields: what is observed, and what is predicted.

Every operator is a Fourier multiplier: it takes :math:`e^{i w^\top x} b` to :math:`e^{i w^\top x} S(w) b` with a symbol
S(w). Differential operators have polynomials in i w as symbols, so that they act on exact kernels too; potentials and
the parts of a Helmholtz decomposition have quotients of polynomials, and act on features alone.
"""

from .base import Operator
from .differential import (
    Component,
    Curl,
    DifferentialOperator,
    Divergence,
    Gradient,
    Laplacian,
    Partial,
    RotatedGradient,
    Value,
    Vorticity,
)
from .helmholtz import CurlFreePart, DivergenceFreePart, Potential, Streamfunction
from .polynomials import (
    Polynomial,
    PolynomialMatrix,
    add,
    adjoint,
    adjoint_matrix,
    degree,
    evaluate,
    matrix_product,
    multiply,
)
from .stacked import Stacked

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
    "Polynomial",
    "PolynomialMatrix",
    "Potential",
    "RotatedGradient",
    "Stacked",
    "Streamfunction",
    "Value",
    "Vorticity",
    "add",
    "adjoint",
    "adjoint_matrix",
    "degree",
    "evaluate",
    "matrix_product",
    "multiply",
]

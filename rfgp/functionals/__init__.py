"""Linear operators on functions and fields, by their Fourier symbols S(w), and observations. They know no kernel.

Differential operators act on kernels and features, potentials and parts of a Helmholtz decomposition on features.
"""

from . import observations as observations
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

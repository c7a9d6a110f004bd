"""What the names of a study stand for: exact kernels, and the methods that suit them."""

from __future__ import annotations

import re

from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel

from .. import _checks

METHODS = (
    "rademacher:real",
    "rademacher:ctr",
    "tensor_srht:real",
    "tensor_srht:ctr",
    "tensor_sketch:real",
    "gaussian:real",
)
"""The methods that a study of a polynomial or linear kernel compares by default."""

FOURIER_METHODS = ("fourier", "fourier_orthogonal", "fourier_hadamard")
"""Those of a shift-invariant kernel; "rbf" has optimized_maclaurin:real and :ctr besides."""


def exact_kernel(name: str) -> Kernel:
    """The exact kernel of a name, in float64.

    :param name: "polynomial:p" for (x . y + offset)^p, "rbf", "matern:nu" with nu 0.5, 1.5 or 2.5, or "rq", with an
        output scale; or "linear".
    :raises ValueError: for another name, degree or nu.

    >>> exact_kernel("polynomial:3").base_kernel.power
    3
    """
    _checks.instance("kernel", name, str, "the name of a kernel", 'such as "polynomial:3"')
    family, _, argument = name.partition(":")
    if family == "polynomial" and re.fullmatch("[1-9][0-9]{0,9}", argument):
        return ScaleKernel(PolynomialKernel(power=int(argument))).double()
    if family == "matern" and argument in ("0.5", "1.5", "2.5"):
        return ScaleKernel(MaternKernel(nu=float(argument))).double()
    if name in ("rbf", "rq"):
        return ScaleKernel(RBFKernel() if name == "rbf" else RQKernel()).double()
    if name == "linear":
        return LinearKernel().double()
    raise ValueError(
        "expected polynomial:p with a degree p, linear, rbf, rq, or matern:nu with nu 0.5, 1.5 or 2.5 as the kernel, "
        f"got {name!r}; choose one of these"
    )


def default_methods(kernel: str) -> tuple[str, ...]:
    """The methods that a study of a kernel compares by default.

    :param kernel: the name of a kernel, see :func:`exact_kernel`.
    :raises ValueError: for another name.

    >>> default_methods("matern:1.5")
    ('fourier', 'fourier_orthogonal', 'fourier_hadamard')
    """
    exact_kernel(kernel)
    if kernel.startswith(("polynomial", "linear")):
        return METHODS
    return FOURIER_METHODS + (("optimized_maclaurin:real", "optimized_maclaurin:ctr") if kernel == "rbf" else ())

"""What the names of a study stand for: exact kernels, and the methods that suit them."""

from __future__ import annotations

import re

import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from .._support import checks
from ..kernels import CurlFreeKernel, DivergenceFreeKernel, HelmholtzKernel
from ..linalg.sampling import drawing_from

METHODS = (
    "rademacher:real",
    "rademacher:ctr",
    "tensor_srht:real",
    "tensor_srht:ctr",
    "tensor_sketch:real",
    "gaussian:real",
    "landmarks",
)
"""The methods that a study of a polynomial or linear kernel compares by default."""

FOURIER_METHODS = ("fourier", "fourier_orthogonal", "fourier_hadamard", "landmarks")
"""Those of a shift-invariant kernel; "rbf" has optimized_maclaurin:real and :ctr besides."""

FIELD_KERNELS = ("curl_free", "divergence_free", "helmholtz")
"""Kernels of vector fields, of which "fourier" and "fourier_orthogonal" are the methods."""

CANDIDATES = ("rbf", "matern:0.5", "matern:1.5", "matern:2.5", "rq", "linear", "polynomial:2", "polynomial:3")
"""The kernels among which "auto" chooses."""

_LARGEST_RANK = 2
"""How many factors outputs share at most, beside a variance of each one's own."""


def exact_kernel(name: str, num_outputs: int = 1) -> Kernel:
    """The exact kernel of a name, in float64.

    :param name: "polynomial:p" for (x . y + offset)^p, "rbf", "matern:nu" with nu 0.5, 1.5 or 2.5, "rq", "linear", or
        one of FIELD_KERNELS, of as many outputs as inputs; "matern12", "matern32" and "matern52" are known too.
    :param num_outputs: the number of outputs; several share a covariance, except for fields.
    :raises ValueError: for another name, degree or nu, or a field of one output.

    >>> exact_kernel("polynomial:3").base_kernel.power
    3
    """
    checks.instance("kernel", name, str, "the name of a kernel", 'such as "polynomial:3"')
    num_outputs = checks.positive_integer("num_outputs", num_outputs)
    if name in FIELD_KERNELS:
        if num_outputs == 1:
            raise ValueError(f"expected several outputs for the field {name}, got one; name a target per component")
        fields = {"curl_free": CurlFreeKernel, "divergence_free": DivergenceFreeKernel}
        field = ScaleKernel(fields[name](RBFKernel())) if name in fields else HelmholtzKernel(RBFKernel())
        return field.double()
    base = _base(name)
    if num_outputs > 1:
        with drawing_from(torch.Generator().manual_seed(0)):
            return MultitaskKernel(base, num_tasks=num_outputs, rank=min(num_outputs, _LARGEST_RANK)).double()
    return (base if name == "linear" else ScaleKernel(base)).double()


_SHORT = {"matern12": "matern:0.5", "matern32": "matern:1.5", "matern52": "matern:2.5", "polynomial": "polynomial:2"}
"""The names that estimators have too."""


def _base(name: str) -> Kernel:
    name = _SHORT.get(name, name)
    family, _, argument = name.partition(":")
    if family == "polynomial" and re.fullmatch("[1-9][0-9]{0,9}", argument):
        return PolynomialKernel(power=int(argument))
    if family == "matern" and argument in ("0.5", "1.5", "2.5"):
        return MaternKernel(nu=float(argument))
    simple = {"rbf": RBFKernel, "rq": RQKernel, "linear": LinearKernel}
    if name in simple:
        return simple[name]()
    raise ValueError(
        "expected polynomial:p with a degree p, linear, rbf, rq, or matern:nu with nu 0.5, 1.5 or 2.5 as the kernel, "
        f"got {name!r}; choose one of these, auto, or a field ({', '.join(FIELD_KERNELS)})"
    )


def default_methods(kernel: str) -> tuple[str, ...]:
    """The methods that a study of a kernel compares by default.

    :raises ValueError: for another name.

    >>> default_methods("matern:1.5")
    ('fourier', 'fourier_orthogonal', 'fourier_hadamard', 'landmarks')
    """
    if kernel in FIELD_KERNELS:
        return FOURIER_METHODS[:2]
    exact_kernel(kernel)
    if kernel.startswith(("polynomial", "linear")):
        return METHODS
    return FOURIER_METHODS + (("optimized_maclaurin:real", "optimized_maclaurin:ctr") if kernel == "rbf" else ())


_SPOKEN = {
    "auto": "the method with the smallest predicted error of the kernel",
    "fourier": "random Fourier features (Rahimi and Recht, 2007)",
    "fourier_orthogonal": "orthogonal random Fourier features (Yu et al., 2016)",
    "fourier_hadamard": "random Fourier features by Hadamard transforms",
    "fourier_qmc": "Fourier features of quasi-random frequencies",
    "fourier_grid": "equispaced Fourier features",
    "landmarks": "landmarks, also called inducing points (Nyström)",
    "gaussian": "Gaussian sketch of the polynomial",
    "rademacher": "Rademacher sketch of the polynomial",
    "tensor_srht": "TensorSRHT: subsampled Hadamard transforms",
    "tensor_sketch": "TensorSketch (Pham and Pagh, 2013)",
    "optimized_maclaurin": "Maclaurin series with optimized numbers of features",
}
_FORMS = {"complex": "complex features", "ctr": "complex features, written as real ones", "real": "real features"}


def spoken(method: str) -> str:
    """A method in words; its own name where there are none.

    >>> spoken("tensor_sketch:real")
    'TensorSketch (Pham and Pagh, 2013); real features'
    """
    name, _, form = method.partition(":")
    return "; ".join([_SPOKEN.get(name, name), *([_FORMS[form]] if form in _FORMS else [])])

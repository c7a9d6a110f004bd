"""Families of exact kernels: which feature maps each has, and what it feeds to them."""

from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    SpectralMixtureKernel,
)

from ..dot_product import DotProductKernel
from ..exponential import ExponentialDotProductKernel
from ..optical import OpticalKernel
from ..skewed_chi2 import SkewedChiSquaredKernel
from .base import Family, inside
from .dot_product import DotProductFamily, ExponentialFamily, OpticalFamily
from .periodic import ConstantFamily, CosineFamily, PeriodicFamily
from .polynomial import LinearFamily, PolynomialFamily
from .stationary import GaussianFamily, IsotropicFamily, SkewedChiSquaredFamily, SpectralMixtureFamily

FAMILIES: dict[type[Kernel], type[Family]] = {
    PolynomialKernel: PolynomialFamily,
    LinearKernel: LinearFamily,
    RBFKernel: GaussianFamily,
    MaternKernel: IsotropicFamily,
    RQKernel: IsotropicFamily,
    SpectralMixtureKernel: SpectralMixtureFamily,
    PeriodicKernel: PeriodicFamily,
    CosineKernel: CosineFamily,
    ConstantKernel: ConstantFamily,
    SkewedChiSquaredKernel: SkewedChiSquaredFamily,
    DotProductKernel: DotProductFamily,
    ExponentialDotProductKernel: ExponentialFamily,
    OpticalKernel: OpticalFamily,
}

SUPPORTED = (
    f"{', '.join(kernel.__name__ for kernel in FAMILIES)}, and ScaleKernel, AdditiveKernel and ProductKernel of them"
)


def family(kernel: Kernel) -> Family:
    """The family of an exact kernel.

    :raises ValueError: where it has none, with those that have.
    """
    if type(kernel) not in FAMILIES:
        raise unsupported(kernel)
    return FAMILIES[type(kernel)](kernel)


def unsupported(kernel: object) -> ValueError:
    """The error for a kernel that has no feature map."""
    return ValueError(
        f"expected a kernel with random features ({SUPPORTED}), got {type(kernel).__name__}; use one of these"
    )


__all__ = ["FAMILIES", "SUPPORTED", "Family", "family", "inside", "unsupported"]

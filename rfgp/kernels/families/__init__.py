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

from ..curl_free import CurlFreeKernel
from ..divergence_free import DivergenceFreeKernel
from ..dot_product import DotProductKernel
from ..exponential import ExponentialDotProductKernel
from ..laplace import LaplaceKernel
from ..observed import LinearlyObservedKernel
from ..operator_valued import OperatorValuedKernel
from ..optical import OpticalKernel
from ..skewed_chi2 import SkewedChiSquaredKernel
from ..spectral_density import SpectralDensityKernel
from .base import Family, inside
from .dot_product import DotProductFamily, ExponentialFamily, OpticalFamily
from .operator_valued import OperatorFamily, SpectralDensityFamily
from .periodic import ConstantFamily, CosineFamily, PeriodicFamily
from .polynomial import LinearFamily, PolynomialFamily
from .stationary import GaussianFamily, IsotropicFamily, LaplaceFamily, SkewedChiSquaredFamily, SpectralMixtureFamily

FAMILIES: dict[type[Kernel], type[Family]] = {
    PolynomialKernel: PolynomialFamily,
    LinearKernel: LinearFamily,
    RBFKernel: GaussianFamily,
    MaternKernel: IsotropicFamily,
    RQKernel: IsotropicFamily,
    LaplaceKernel: LaplaceFamily,
    SpectralMixtureKernel: SpectralMixtureFamily,
    PeriodicKernel: PeriodicFamily,
    CosineKernel: CosineFamily,
    ConstantKernel: ConstantFamily,
    SkewedChiSquaredKernel: SkewedChiSquaredFamily,
    DotProductKernel: DotProductFamily,
    ExponentialDotProductKernel: ExponentialFamily,
    OpticalKernel: OpticalFamily,
    CurlFreeKernel: OperatorFamily,
    DivergenceFreeKernel: OperatorFamily,
    LinearlyObservedKernel: OperatorFamily,
    SpectralDensityKernel: SpectralDensityFamily,
}

SUPPORTED = (
    f"{', '.join(kernel.__name__ for kernel in FAMILIES)}, and ScaleKernel, AdditiveKernel, ProductKernel and "
    "MultitaskKernel of them"
)


def family(kernel: Kernel) -> Family:
    """The family of an exact kernel.

    :raises ValueError: where it has none, with those that have.
    """
    if type(kernel) in FAMILIES:
        return FAMILIES[type(kernel)](kernel)
    if isinstance(kernel, OperatorValuedKernel):
        return OperatorFamily(kernel)
    raise unsupported(kernel)


_GRADIENTS = ", here LinearlyObservedKernel(base_kernel, [Value(), Gradient()])"
_ADVICE = {
    "RBFKernelGrad": _GRADIENTS,
    "Matern52KernelGrad": _GRADIENTS,
    "LCMKernel": ", here a sum of MultitaskKernels",
}


def unsupported(kernel: object) -> ValueError:
    """The error for a kernel that has no feature map."""
    advice = _ADVICE.get(type(kernel).__name__, "")
    return ValueError(
        f"expected a kernel with random features ({SUPPORTED}), got {type(kernel).__name__}; use one of these{advice}"
    )


__all__ = ["FAMILIES", "SUPPORTED", "Family", "family", "inside", "unsupported"]

"""Families of exact kernels, one file for every kind of kernel or composition; importing them registers them."""

from ..family import FAMILIES, Family, approximates, family
from ..map_family import MapFamily
from .approximated import ApproximatedFamily
from .composite import CompositeFamily
from .dot_product import DotProductFamily, ExponentialFamily, OpticalFamily
from .index import IndexFamily
from .leaf import LeafFamily
from .multitask import MultitaskFamily
from .operator_valued import ObservedFamily, OperatorFamily, SpectralDensityFamily
from .periodic import ConstantFamily, CosineFamily, PeriodicFamily
from .polynomial import LinearFamily, PolynomialFamily
from .product import ProductFamily
from .scale import ScaleFamily
from .shared_measure import AdditiveFamily
from .stationary import (
    FourierFamily,
    GaussianFamily,
    IsotropicFamily,
    LaplaceFamily,
    MaternFamily,
    RationalQuadraticFamily,
    SkewedChiSquaredFamily,
    SpectralMixtureFamily,
)
from .sum import SumFamily
from .wrapper import WrapperFamily

__all__ = [
    "FAMILIES",
    "AdditiveFamily",
    "ApproximatedFamily",
    "CompositeFamily",
    "ConstantFamily",
    "CosineFamily",
    "DotProductFamily",
    "ExponentialFamily",
    "Family",
    "FourierFamily",
    "GaussianFamily",
    "IndexFamily",
    "IsotropicFamily",
    "LaplaceFamily",
    "LeafFamily",
    "LinearFamily",
    "MapFamily",
    "MaternFamily",
    "MultitaskFamily",
    "ObservedFamily",
    "OperatorFamily",
    "OpticalFamily",
    "PeriodicFamily",
    "PolynomialFamily",
    "ProductFamily",
    "RationalQuadraticFamily",
    "ScaleFamily",
    "SkewedChiSquaredFamily",
    "SpectralDensityFamily",
    "SpectralMixtureFamily",
    "SumFamily",
    "WrapperFamily",
    "approximates",
    "family",
]

"""Random feature maps: one class per file, all with the contract of :class:`FeatureMap`."""

from .base import FeatureMap, Moments, PolynomialSketch
from .ctr import ComplexToReal
from .linear import LinearFeatures
from .product import ProductSketch
from .srht import TensorSRHT
from .tensor_sketch import TensorSketch

__all__ = [
    "ComplexToReal",
    "FeatureMap",
    "LinearFeatures",
    "Moments",
    "PolynomialSketch",
    "ProductSketch",
    "TensorSRHT",
    "TensorSketch",
]

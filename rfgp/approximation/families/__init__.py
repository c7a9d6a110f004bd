"""Families of exact kernels, one file for every kind of kernel or composition. Every file here registers its own."""

import importlib
import pkgutil

from ..family import FAMILIES, Family, approximates, family
from ..map_family import MapFamily
from .composite import CompositeFamily
from .operator_valued import OperatorFamily
from .stationary import FourierFamily, GaussianFamily
from .wrapper import WrapperFamily

for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)

__all__ = [
    "FAMILIES",
    "CompositeFamily",
    "Family",
    "FourierFamily",
    "GaussianFamily",
    "MapFamily",
    "OperatorFamily",
    "WrapperFamily",
    "approximates",
    "family",
]

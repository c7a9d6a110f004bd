"""Local blocks: what features leave over, inside blocks of near rows and between near rows and test points."""

from .local_points import LocalPoints
from .noise import WhitenedNoise
from .output_regression import OutputRegression
from .partition import BlockPartition
from .regression import LocalRegression
from .rows import LocalRows, sums_of_blocks
from .system_regression import SystemRegression
from .systems import LocalSystems
from .systems_of import regression_of, systems_of

__all__ = [
    "BlockPartition",
    "LocalPoints",
    "LocalRegression",
    "LocalRows",
    "LocalSystems",
    "OutputRegression",
    "SystemRegression",
    "WhitenedNoise",
    "regression_of",
    "sums_of_blocks",
    "systems_of",
]

"""Local blocks: what features leave over, inside blocks of near rows and between near rows and test points."""

from .local_points import LocalPoints
from .partition import BlockPartition
from .regression import LocalRegression, WhitenedNoise
from .rows import LocalRows, sums_of_blocks
from .shared_rows import SharedRows
from .system_regression import SystemRegression, regression_of, systems_of
from .systems import LocalSystems

__all__ = [
    "BlockPartition",
    "LocalPoints",
    "LocalRegression",
    "LocalRows",
    "LocalSystems",
    "SharedRows",
    "SystemRegression",
    "WhitenedNoise",
    "regression_of",
    "sums_of_blocks",
    "systems_of",
]

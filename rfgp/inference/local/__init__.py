"""Local blocks: what features leave over, inside blocks of near rows and between near rows and test points."""

from .noise import WhitenedNoise
from .partition import BlockPartition
from .regression import LocalRegression
from .rows import LocalRows, sums_of_blocks

__all__ = ["BlockPartition", "LocalRegression", "LocalRows", "WhitenedNoise", "sums_of_blocks"]

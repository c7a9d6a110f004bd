"""How many features every degree of a Maclaurin series gets: drawn at random, or optimized for the data."""

from .optimized import CONVEX_SKETCHES, Allocation, allocate, optimized_maclaurin
from .random_degrees import random_maclaurin
from .terms import MAX_DEGREE

__all__ = ["CONVEX_SKETCHES", "MAX_DEGREE", "Allocation", "allocate", "optimized_maclaurin", "random_maclaurin"]

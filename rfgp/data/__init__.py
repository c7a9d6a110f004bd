"""Rows of tables that need not fit in memory, in batches. They know no model."""

from .arrays import ArraySource
from .base import Source
from .blocks import ArrowSource, ParquetSource
from .csv import CsvSource
from .grid import GridSource
from .mapped import MappedSource, Standardize
from .reservoir import ColumnMoments, Sample, sample

__all__ = [
    "ArraySource",
    "ArrowSource",
    "ColumnMoments",
    "CsvSource",
    "GridSource",
    "MappedSource",
    "ParquetSource",
    "Sample",
    "Source",
    "Standardize",
    "sample",
]

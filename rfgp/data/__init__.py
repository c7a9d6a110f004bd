"""Rows of tables that need not fit in memory, in batches for a model's ``condition`` and for :func:`rfgp.fit`."""

from .arrays import ArraySource
from .arrow import ArrowSource
from .base import Source
from .csv import CsvSource
from .grid import GridSource
from .mapped import MappedSource
from .moments import ColumnMoments
from .parquet import ParquetSource
from .reservoir import Sample, sample
from .standardize import Standardize

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

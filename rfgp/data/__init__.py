"""Rows of tables that need not fit in memory, in batches for :meth:`rfgp.WeightSpaceGP.fit` and :func:`rfgp.fit`."""

from .arrays import ArraySource
from .base import Batch, Source
from .parquet import ParquetSource

__all__ = ["ArraySource", "Batch", "ParquetSource", "Source"]

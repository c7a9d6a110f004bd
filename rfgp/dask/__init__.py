"""Fits to the data frames and arrays of Dask, whose partitions stay on the workers where they are."""

from .fits import condition

__all__ = ["condition"]

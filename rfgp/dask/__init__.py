"""Fits to the data frames and arrays of Dask, whose partitions stay on the workers where they are."""

from .fits import fit

__all__ = ["fit"]

"""Passes over rows: in this process, on ranks, or with the workers of an executor. They know no kernel.

A :class:`Reducer` knows where rows are, and a :class:`Summation` what is summed; neither knows kernels or likelihoods.
"""

from .ranks import Shard, broadcast

__all__ = ["Shard", "broadcast"]

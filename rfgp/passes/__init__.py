"""Passes over rows: in this process, on ranks, or with the workers of an executor. They know no kernel.

A :class:`Reducer` knows where rows are, and a :class:`Summation` what is summed; neither knows kernels or likelihoods.
"""

from .broadcast import broadcast
from .shard import Shard

__all__ = ["Shard", "broadcast"]

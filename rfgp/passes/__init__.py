"""Passes over rows: in this process, on ranks, or with the workers of an executor. They know no kernel.

A :class:`Reducer` knows where rows are. What is summed of them, the model says.
"""

from .ranks import Shard, broadcast

__all__ = ["Shard", "broadcast"]

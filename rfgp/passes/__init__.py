"""Passes over rows: in this process, on ranks of torch.distributed, or with the workers of an executor.

A :class:`Reducer` knows where rows are, and a :class:`Summation` what is summed; neither knows kernels or likelihoods.
"""

from .._support.ranks import Ranks
from .broadcast import broadcast
from .executor import ExecutorReducer
from .local import LocalReducer
from .partitions import Partition, Partitions
from .rank_reducer import RankReducer
from .reducer import Reducer, Summation
from .shard import Shard
from .tree_sum import TreeSum

__all__ = [
    "ExecutorReducer",
    "LocalReducer",
    "Partition",
    "Partitions",
    "RankReducer",
    "Ranks",
    "Reducer",
    "Shard",
    "Summation",
    "TreeSum",
    "broadcast",
]

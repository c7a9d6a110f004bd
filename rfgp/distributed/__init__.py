"""Fits of many processes by ``torch.distributed``: every rank reads its shard of the rows.

Ranks talk to each other here, and nowhere else.
"""

from .broadcast import broadcast
from .shard import Shard

__all__ = ["Shard", "broadcast"]

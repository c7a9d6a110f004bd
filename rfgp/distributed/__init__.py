"""Fits of many processes by ``torch.distributed``: every rank reads its shard of the rows."""

from .broadcast import broadcast
from .shard import Shard

__all__ = ["Shard", "broadcast"]

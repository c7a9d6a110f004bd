"""The same model on all ranks."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from .._support.ranks import Ranks

_Model = TypeVar("_Model", bound=torch.nn.Module)


def broadcast(model: _Model, group: Any = None) -> _Model:
    """Give all ranks the parameters and random weights that the model of the first rank has.

    :param model: a model, made with the same classes and sizes on all ranks.
    :param group: a process group; default: all ranks.
    :raises ValueError: where there is no process group, or the state does not fit the model of a rank.

    >>> import torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> broadcast(torch.nn.Linear(2, 1))
    Linear(in_features=2, out_features=1, bias=True)
    >>> dist.destroy_process_group()
    """
    ranks = Ranks(group)
    state: Any = ranks.every(model.state_dict() if ranks.rank == 0 else None)[0]
    ranks.attempt(lambda: model.load_state_dict(state), "a model of the same kind")
    return model

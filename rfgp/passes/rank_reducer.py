"""Rows of all ranks of a job of torch.distributed, of which every rank reads its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from .local import LocalReducer
from .reducer import Gradients, Reducer, Summation, Sums
from .shard import Shard

_PASS = "a pass over the rows"


class RankReducer(Reducer[Sums]):
    """Sums and gradients over the rows of all ranks, with the same bits on all of them."""

    def __init__(self, shard: Shard, local: LocalReducer[Sums]) -> None:
        self.shard, self.local, self.ranks = shard, local, shard.ranks
        self._has_rows = False

    def sums(self, summation: Summation[Sums]) -> Sums:
        def of_this_rank() -> tuple[Sums | None, int]:
            first = next(iter(self.shard), None)
            return (None, 0) if first is None else (self.local.sums(summation), first[0].shape[-1])

        sums, width = self.ranks.attempt(of_this_rank, _PASS)
        self._has_rows = sums is not None
        widths = [number for number in self.ranks.every(width) if number]
        if sums is None and widths:
            summation.make_for(widths[0])
        self._check(summation)
        return summation.all_reduce(sums, self.ranks)

    def gradients(self, summation: Summation[Sums], sums: Sums, of_sums: Sequence[Tensor]) -> Gradients:
        def of_this_rank() -> Gradients:
            return self.local.gradients(summation, sums, of_sums) if self._has_rows else [None] * len(parameters)

        parameters = summation.parameters
        found = self.ranks.attempt(of_this_rank, _PASS)
        pairs = zip(parameters, found, strict=True)
        total = [(torch.zeros_like(p) if gradient is None else gradient).contiguous() for p, gradient in pairs]
        self.ranks.sum_(total)
        return list(total)

    def _check(self, summation: Summation[Sums]) -> None:
        """Raise a ValueError on all ranks where they have different models."""
        state = summation.states()[0]
        digests = {name: hashlib.sha256(_bytes(value)).hexdigest() for name, value in state.items()}
        every = self.ranks.every(digests)
        changed = {
            name for other in every for name in digests.keys() | other.keys() if other.get(name) != every[0].get(name)
        }
        if changed:
            raise ValueError(
                f"expected the same model on all ranks, got another {', '.join(changed)}; call "
                "rfgp.passes.broadcast(model) on all ranks first"
            )


def _bytes(value: Tensor) -> bytes:
    real = torch.view_as_real(value) if value.is_complex() else value
    return real.cpu().contiguous().numpy().tobytes()

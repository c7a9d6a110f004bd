"""What the ranks of a job of torch.distributed tell each other, so that all of them go on, or all of them stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

_T = TypeVar("_T")


class Ranks:
    """The ranks of a process group of ``torch.distributed``; all call every method, and raise if one has died."""

    def __init__(self, group: Any = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                "expected a process group of torch.distributed, got none; start the script by torchrun and call "
                'torch.distributed.init_process_group("gloo")'
            )
        self.group = group

    @property
    def rank(self) -> int:
        """The number of this rank in the group."""
        return dist.get_rank(self.group)

    @property
    def count(self) -> int:
        """The number of ranks."""
        return dist.get_world_size(self.group)

    def every(self, value: _T) -> list[_T]:
        """The value of every rank, in their order."""
        values: list[Any] = [None] * self.count
        self._call("gather", dist.all_gather_object, values, value, group=self.group)
        return values

    def attempt(self, action: Callable[[], _T], what: str) -> _T:
        """Do something without the others on every rank, or raise on all of them where one rank fails."""
        error: BaseException | None = None
        result: Any = None
        try:
            result = action()
        except Exception as raised:
            error = raised
        failures = self.every(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, failure in enumerate(failures):
            if failure is not None:
                raise ValueError(f"expected {what} on all ranks, got an error on rank {rank}; {failure}")
        return result

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over all ranks, in place; all ranks have the same bits then."""
        for tensor in tensors:
            if not tensor.is_contiguous():
                raise ValueError("expected contiguous tensors to sum, got others; call contiguous()")
            parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            self._call("sum", dist.all_reduce, parts, group=self.group)
            self.broadcast_([parts])

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the values that the first one has, in place."""
        source = dist.get_global_rank(self.group, 0) if self.group is not None else 0
        for tensor in tensors:
            parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            self._call("broadcast", dist.broadcast, parts, source, group=self.group)

    def rows(self, rows: Tensor) -> Tensor:
        """The rows (n, ...) of the tensors of all ranks, in the order of the ranks, with one dtype and width."""
        lengths = self.every(len(rows))
        padded = rows.new_zeros(max(lengths), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.zeros_like(padded) for _ in lengths]
        real = [torch.view_as_real(part) if part.is_complex() else part for part in (*parts, padded)]
        self._call("gather", dist.all_gather, real[:-1], real[-1], group=self.group)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def _call(self, what: str, operation: Callable[..., Any], *args: Any, **options: Any) -> None:
        try:
            operation(*args, **options)
        except RuntimeError as error:
            raise ConnectionError(
                f"expected {self.count} ranks for a {what}, got no answer from one; it has died, or comes later than "
                "the timeout of init_process_group. Start the job again"
            ) from error

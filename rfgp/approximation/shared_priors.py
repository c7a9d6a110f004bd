"""Kernels that occur twice, whose priors count once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from gpytorch.kernels import Kernel

from .._support.gpytorch_names import priors_of


def count_priors_once(kernels: Iterable[Any]) -> Iterator[Any]:
    """Kernels with features, replaced by copies so that only the first around an exact kernel lists its priors."""
    seen: set[int] = set()
    objects: set[int] = set()
    for kernel in kernels:
        holders = _holders(kernel)
        if any(id(holder) in objects for holder in holders):
            shared = [*kernel.parameters(), *(part for holder in holders for part in holder.exact_parts)]
            kernel = copy.deepcopy(kernel, {id(part): part for part in shared})
            holders = _holders(kernel)
        for holder in holders:
            if holder.counts_priors and any(id(part) in seen for part in holder.exact_parts):
                holder.hide_priors()
        seen |= {id(part) for holder in holders for part in holder.exact_parts}
        objects |= {id(holder) for holder in holders}
        yield kernel


def _holders(kernel: Any) -> list[Any]:
    return [part for part in kernel.modules() if hasattr(part, "hide_priors")]


def without_priors(kernel: Kernel) -> Kernel:
    """A copy of an exact kernel with the very parameters and constraints, and without priors."""
    shared = [*kernel.parameters(), *(constraint for _, constraint in kernel.named_constraints())]
    twin = copy.deepcopy(kernel, {id(part): part for part in shared})
    for module in twin.modules():
        if isinstance(module, Kernel):
            priors_of(module).clear()
    return twin

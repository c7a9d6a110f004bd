"""Kernels that occur twice, whose priors count once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import gpytorch
from gpytorch.kernels import Kernel

from .._gpytorch import priors_of


def with_priors_once(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """The kernels one after the other; where priors of one have been there before, a twin that leaves those out.

    GPyTorch counts a prior as often as its kernel occurs. Twins have the very same parameters and constraints.
    """
    seen: set[tuple[int, ...]] = set()
    for kernel in kernels:
        own = {key for module in kernel.modules() for key in _keys(module).values()}
        yield _without_priors(kernel, seen) if own & seen else kernel
        seen |= own


def _keys(module: object) -> dict[str, tuple[int, ...]]:
    """What tells a prior of given parameters from others, by the names of the priors of a module."""
    if not isinstance(module, gpytorch.Module):
        return {}
    parameters = [id(parameter) for parameter in module.parameters(recurse=False)]
    return {name: (id(prior), *parameters) for name, (prior, *_) in priors_of(module).items()}


def _without_priors(kernel: Kernel, known: set[tuple[int, ...]]) -> Kernel:
    shared = [*kernel.parameters(), *(constraint for _, constraint in kernel.named_constraints())]
    twin = copy.deepcopy(kernel, {id(part): part for part in shared})
    for module, original in zip(twin.modules(), kernel.modules(), strict=True):
        for name, key in _keys(original).items():
            if key in known:
                del priors_of(module)[name]
    return twin

"""Kinds of arguments: a good value of each, and hypothesis for what is none.

A bad value is anything at all, or a good value with one fault, that the kind does not admit.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gpytorch
import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.int64, torch.uint64, torch.bool]


def _tensor(draw: Callable[[Any], Any]) -> Tensor:
    """Of any shape and dtype, with any number in all cells."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 12]), max_size=4))
    dtype = draw(st.sampled_from(DTYPES))
    number = draw(st.sampled_from([1.0, -1.0, 0.0, math.nan, math.inf])) if dtype.is_floating_point else 1
    return torch.full(shape, number).to(dtype)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3) | st.sampled_from([2**70, 10**400]),
    st.floats(-2.0, 2.0) | st.sampled_from([math.nan, math.inf, -math.inf, 0.5]),
    st.complex_numbers(max_magnitude=2.0),
    st.text("ab:,/", max_size=3),
    st.sampled_from([b"a", dict, object(), np.random.default_rng(0), range(2), torch.float32, torch.int64, set()]),
    st.lists(st.none() | st.floats(-1.0, 1.0) | st.text("ab", max_size=1), max_size=2),
    st.dictionaries(st.text("ab", max_size=1), st.integers(0, 2), max_size=1),
    st.composite(_tensor)(),
)


@dataclass(frozen=True, repr=False, eq=False)
class Kind:
    """What an argument is.

    :param good: a value with which calls work.
    :param admits: whether a value may be good too.
    :param near: good values with a fault.
    """

    good: Any
    admits: Callable[[Any], bool]
    near: Sequence[Any] = ()

    def bad(self) -> st.SearchStrategy[Any]:
        values = st.one_of(st.sampled_from(list(self.near)), ANYTHING) if self.near else ANYTHING
        return values.filter(lambda value: not self.admits(value))

    def or_(self, *others: Any) -> Kind:
        """A kind that admits other values, or what other kinds admit, too."""
        kinds = [other for other in others if isinstance(other, Kind)]
        values = [other for other in others if not isinstance(other, Kind)]

        def admits(value: Any) -> bool:
            is_value = any(value is other or (type(value) is type(other) and value == other) for other in values)
            return is_value or self.admits(value) or any(kind.admits(value) for kind in kinds)

        return replace(self, admits=admits)

    def at(self, good: Any) -> Kind:
        """The same kind with another good value."""
        return replace(self, good=good)


# Numbers


def number(value: Any) -> float:
    """A number or a tensor of one as a float, and NaN for anything else."""
    value = value.item() if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta else value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    return (
        float(value)
        if -(10**300) < value < 10**300
        else math.inf
        if value > 0
        else -math.inf
        if value < 0
        else math.nan
    )


def real(good: float, low: float = -math.inf, high: float = math.inf, has_low: bool = False) -> Kind:
    """A finite number above ``low`` and below ``high``."""
    near = [low if math.isfinite(low) and not has_low else math.nan, low - 1.0, high, high + 1.0, torch.ones(2), True]
    is_above = (lambda value: value >= low) if has_low else (lambda value: value > low)
    return Kind(good, lambda value: is_above(number(value)) and number(value) < high, near)


def count(good: int, least: int = 1, most: int | None = None) -> Kind:
    """An integer in ``least..most``."""
    near = [least - 1, -1, good + 0.5, str(good), torch.tensor([good, good]), [good], 1j, True]
    near += [2**70] if most is None else [most + 1, 2**40]

    def admits(value: Any) -> bool:
        return number(value).is_integer() and least <= number(value) <= (2**62 if most is None else most)

    return Kind(good, admits, near)


# Tensors

FAULTS: dict[str, Callable[[Tensor], Any]] = {
    "NaN": lambda x: torch.where(torch.arange(x.numel()).reshape(x.shape) == x.numel() - 1, math.nan, x.real.float()),
    "infinite": lambda x: torch.where(torch.arange(x.numel()).reshape(x.shape) == 0, math.inf, x.real.float()),
    "complex": lambda x: x.cfloat(),
    "integers": lambda x: x.real.long(),
    "uint64": lambda x: x.real.abs().to(torch.uint64),
    "booleans": lambda x: x.real > 0.5,
    "floats": lambda x: x.real.float(),
    "negative": lambda x: -1 - x.real.abs(),
    "huge": lambda x: x + 2**40,
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "array": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
}
CUTS: dict[str, Callable[[Tensor], Any]] = {
    "no rows": lambda x: x[:0],
    "a row less": lambda x: x[:-1],
    "one row": lambda x: x[0],
    "a column": lambda x: x.unsqueeze(-1),
    "a batch": lambda x: x.unsqueeze(0),
    "wide": lambda x: torch.cat([x, x], -1),
}
"""What cannot be done to a single number."""


def tensor(good: Tensor, admits: Callable[[Tensor], bool]) -> Kind:
    """A dense tensor with numbers, of which ``admits`` says more."""

    def is_one(value: Any) -> bool:
        if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
            return False
        return admits(value.long() if value.dtype is torch.uint64 else value)

    faults = FAULTS | (CUTS if good.dim() else {})
    return Kind(good, is_one, [fault(good) for fault in faults.values()])


def is_real(value: Tensor) -> bool:
    return value.is_floating_point() and bool(value.isfinite().all())


def inputs(good: Tensor) -> Kind:
    """Inputs (..., N, d) of as many columns, or (N,) of one; of another number of rows they are good on their own."""
    width = good.shape[-1]
    return tensor(good, lambda v: is_real(v) and v.dim() >= 2 and v.shape[-1] == width and v.shape[-2] > 0)


def free_inputs(good: Tensor) -> Kind:
    """Inputs of any number of columns."""
    return tensor(good, lambda v: is_real(v) and v.dim() > 0 and 0 not in v.shape[-2:])


def values(good: Tensor, is_above: float = -math.inf) -> Kind:
    """Finite real numbers of this shape, which may be integers."""
    return tensor(
        good,
        lambda v: v.shape == good.shape and not v.is_complex() and bool(v.isfinite().all() & (v > is_above).all()),
    )


def labels(good: Tensor, most: int) -> Kind:
    """Integers in 0..most of this shape."""
    is_whole = lambda v: not v.is_floating_point() and not v.is_complex() and v.dtype is not torch.bool  # noqa: E731
    return tensor(good, lambda v: is_whole(v) and v.shape == good.shape and bool(((v >= 0) & (v <= most)).all()))


# Everything else


def instance(good: Any, *kinds: type) -> Kind:
    """An object of a class, by default that of the good one."""
    kinds = kinds or (type(good),)
    return Kind(good, lambda value: isinstance(value, kinds))


def word(good: str, *others: str) -> Kind:
    """One of some words."""
    return Kind(good, lambda value: isinstance(value, str) and value in (good, *others), ["foo", good.upper(), [good]])


FLAG = Kind(False, lambda value: isinstance(value, bool), [0, 1, "no", None])
SEED = Kind(
    0,
    lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63,
    [-1, 1.5, 2**70, "8", [0], True, torch.tensor(1), math.nan, math.inf],
)
GENERATOR = Kind(None, lambda value: value is None or isinstance(value, torch.Generator), [0, np.random.default_rng(0)])
FLOATING = Kind(
    torch.float64,
    lambda value: isinstance(value, torch.dtype) and value.is_floating_point,
    ["float64", torch.int64, torch.complex64, 0],
)
PATH = Kind("model.pt", lambda value: isinstance(value, str | os.PathLike), [0.5, b"model.pt"])
KERNEL = instance(gpytorch.kernels.RBFKernel(), gpytorch.kernels.Kernel)
MODULE = Kind(None, lambda value: value is None or isinstance(value, torch.nn.Module))
ANY = Kind(None, lambda value: True)
"""Of which no value is bad on its own."""


def is_tried(kind: Kind) -> bool:
    """Whether some values are bad."""
    return kind.admits is not ANY.admits

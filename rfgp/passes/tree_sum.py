"""Sums of values that come one after the other, in an order that their number alone decides."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class TreeSum(Generic[Value]):
    r"""A sum of values, added up by pairs, then pairs of pairs: rounding errors grow like :math:`\log n` at most.

    :param add: takes two values, those of earlier ones first, and returns their sum.

    Source: N. J. Higham, The accuracy of floating point summation, 1993.

    >>> total = TreeSum(lambda a, b: f"({a}{b})")
    >>> for letter in "abcdefg":
    ...     total.add(letter)
    >>> total.value()
    '(((ab)(cd))((ef)g))'
    """

    def __init__(self, add: Callable[[Value, Value], Value]) -> None:
        self._add = add
        self._parts: list[tuple[int, Value]] = []

    def add(self, value: Value) -> None:
        """Add the next value."""
        count = 1
        while self._parts and self._parts[-1][0] == count:
            value = self._add(self._parts.pop()[1], value)
            count *= 2
        self._parts.append((count, value))

    def value(self) -> Value:
        """The sum of what was added so far; a ValueError where there is nothing."""
        if not self._parts:
            raise ValueError("expected at least one value to sum, got none; add some")
        return functools.reduce(lambda later, part: self._add(part, later), [v for _, v in reversed(self._parts)])

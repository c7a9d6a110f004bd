"""Types of options that several commands share: each makes a value of a text, or raises what is wrong with it."""

from __future__ import annotations

import argparse
import math

_MOST_DIGITS = 18


def names(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def integers(text: str) -> list[int]:
    """Positive integers between commas."""
    return [integer(part) for part in names(text)]


def integer(text: str) -> int:
    """A positive integer."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"expected a positive integer, got {text[:40]!r}; choose one of up to {_MOST_DIGITS} digits"
        )
    return int(text)


def number(text: str) -> float:
    """A positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text[:40]!r}; choose another")
    return value

"""Units of inputs and outputs: what their names have in square brackets at their end, such as ``temperature [K]``."""

from __future__ import annotations

import re

_NAME = re.compile(r"(.*\S)\s*\[\s*([^\[\]]*[^\[\]\s])\s*\]\s*")


def without_unit(name: str) -> str:
    """A name without its unit.

    >>> without_unit("temperature [K]")
    'temperature'
    """
    found = _NAME.fullmatch(name)
    return name if found is None else found[1]


def quantity(value: float, name: str, digits: int = 4) -> str:
    """A value of the input or the output of that name, with its unit where the name has one.

    >>> quantity(302.31, "temperature [K]"), quantity(0.5, "porosity")
    ('302.3 K', '0.5')
    """
    found = _NAME.fullmatch(name)
    return f"{value:.{digits}g}" + ("" if found is None else f" {found[2]}")

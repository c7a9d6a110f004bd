"""The names of sketches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .._support import checks
from .polynomial_sketch import PolynomialSketch

FORMS = ("real", "complex", "ctr")
OTHERS = (
    "fourier",
    "fourier_orthogonal",
    "fourier_hadamard",
    "fourier_qmc",
    "spherical",
    "spherical_orthogonal",
    "spherical_hadamard",
    "optical",
    "random_maclaurin",
    "optimized_maclaurin",
    "linear",
    "series",
    "fourier_grid",
    "landmarks",
    "landmarks_greedy",
    "landmarks_kmeans",
)
"""Names of methods that are no sketches."""
TAKEN = ("auto", *OTHERS)
"""Names that a sketch cannot have."""
_Sketch = TypeVar("_Sketch", bound=PolynomialSketch)


class NamedSketch(NamedTuple):
    """What a name stands for: how a sketch is made, and its form where none is named."""

    make: Callable[..., PolynomialSketch]
    default_form: str


SKETCHES: dict[str, NamedSketch] = {}
"""Every sketch by its name; :func:`register_sketch` adds one."""


def register_sketch(name: str, default_form: str = "ctr", **options: Any) -> Callable[[type[_Sketch]], type[_Sketch]]:
    """A class decorator that names a sketch for :func:`rfgp.approximate` and :func:`rfgp.rank_methods`.

    :param name: the name of the method, of polynomial and linear kernels.
    :param default_form: the form where none is named; "real" for sketches that gain nothing by complex weights.
    :param options: further arguments of the constructor, beside those of every polynomial sketch.
    :raises ValueError: for a name that is taken, or an unknown form.

    >>> from rfgp.features import ProductSketch
    >>> named = register_sketch("signs", default_form="real")(ProductSketch)
    >>> SKETCHES.pop("signs").default_form
    'real'
    """
    checks.choice("default_form", default_form, FORMS)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"expected a word of letters, digits and _ for name, got {name!r}; such as 'my_sketch'")
    if name in TAKEN or name in SKETCHES:
        raise ValueError(f"expected a name other than {', '.join((*SKETCHES, *TAKEN))}, got {name!r}; choose another")

    def register(cls: type[_Sketch]) -> type[_Sketch]:
        SKETCHES[name] = NamedSketch(functools.partial(cls, **options), default_form)
        return cls

    return register

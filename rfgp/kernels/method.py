"""Names of methods: what a string such as "tensor_srht:ctr" says, read once."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import _checks
from ..features.by_name import FORMS, SKETCHES

METHODS = (
    *SKETCHES,
    "fourier",
    "fourier_orthogonal",
    "fourier_hadamard",
    "spherical",
    "spherical_orthogonal",
    "spherical_hadamard",
    "optical",
    "random_maclaurin",
    "optimized_maclaurin",
    "linear",
    "series",
)
"""Names of the methods; each may be followed by ":real", ":complex" or ":ctr". The last two are exact, and real."""

_REAL = ("optical", "linear", "series")


@dataclass(frozen=True)
class Method:
    """How features are made: the name of a method, and the form in which its columns come out.

    :param name: a name in METHODS.
    :param form: "real", "complex" or "ctr".

    >>> Method.parse("rademacher") == Method.parse("rademacher:ctr")
    True
    """

    name: str
    form: str
    written: str = field(default="", compare=False, repr=False)
    """How it was asked for, which messages repeat."""

    @classmethod
    def parse(cls, text: str) -> Method:
        """The method that a string stands for.

        :param text: a name in METHODS with an optional ":real", ":complex" or ":ctr" behind it; default: ":ctr" where a
            complex form exists (cosines and sines for Fourier features), and ":real" for tensor_sketch.
        :raises ValueError: for an unknown name or form.
        """
        _checks.instance("method", text, str, "the name of a method", f"one of {', '.join(METHODS)}")
        name, _, form = text.partition(":")
        if name not in METHODS or form not in ("", *FORMS):
            raise ValueError(
                f"expected a method among {', '.join(METHODS)}, optionally followed by :real, :complex or :ctr, got "
                f"{text!r}; choose one of these, or pass a FeatureMap"
            )
        if name in _REAL and form not in ("", "real"):
            raise ValueError(f"expected a real form of {name}, got {text!r}; write {name}")
        return cls(name, form or _default_form(name), text)

    @property
    def is_complex(self) -> bool:
        """Whether the map is complex."""
        return self.form == "complex"

    @property
    def is_exact(self) -> bool:
        """Whether the features are exact."""
        return self.name in ("linear", "series")

    @property
    def is_fourier(self) -> bool:
        """Whether the real form has cosines and sines."""
        return self.name.startswith(("fourier", "spherical"))

    @property
    def orthogonality(self) -> bool | str:
        """What RandomFourier calls the kind of frequencies that the name ends with."""
        return {"orthogonal": "dense", "hadamard": "hadamard"}.get(self.name.partition("_")[2], False)

    @property
    def is_maclaurin(self) -> bool:
        """Whether the features are those of a power series."""
        return self.name.endswith("maclaurin")

    @property
    def has_pairs(self) -> bool:
        """Whether columns come in pairs."""
        return (self.is_fourier and not self.is_complex) or (self.form == "ctr" and self.name in SKETCHES)

    @property
    def has_unbiased_columns(self) -> bool:
        """Whether single columns, complex ones where they exist, are without bias."""
        return not (self.is_exact or self.is_maclaurin or self.name.endswith("hadamard"))

    @property
    def columnwise(self) -> Method:
        """The same in the form whose single columns are without bias: complex where it exists."""
        return Method(self.name, "real" if self.name in _REAL else "complex")

    @property
    def real_forms(self) -> tuple[Method, ...]:
        """The same with every form whose columns are real, and that is worth a trial."""
        if self.is_fourier or self.name in (*_REAL, "tensor_sketch"):
            return (Method(self.name, _default_form(self.name)),)
        return Method(self.name, "real"), Method(self.name, "ctr")

    def __str__(self) -> str:
        return self.written or (self.name if self.real_forms == (self,) else f"{self.name}:{self.form}")


def _default_form(name: str) -> str:
    return "real" if name in ("tensor_sketch", *_REAL) else "ctr"

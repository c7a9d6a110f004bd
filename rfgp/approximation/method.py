"""Names of methods: what a string such as "tensor_srht:ctr" says, read once."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._support import checks
from ..features.sketch_registry import FORMS, OTHERS, SKETCHES

_LANDMARKS = ("landmarks", "landmarks_greedy", "landmarks_kmeans")


def method_names() -> tuple[str, ...]:
    """The names of all methods, with those of sketches that were registered since."""
    return (*SKETCHES, *OTHERS)


METHODS = method_names()
"""Names of the methods; each may be followed by ":real", ":complex" or ":ctr", where they have such forms."""

_GRID = "fourier_grid"
_REAL = ("optical", "linear", "series", _GRID, *_LANDMARKS)


@dataclass(frozen=True)
class FeatureMethod:
    """A feature method: the name of a map, and the form of its columns, "real", "complex" or "ctr"."""

    name: str
    form: str
    written: str = field(default="", compare=False, repr=False)
    """How it was asked for, which messages repeat."""

    @classmethod
    def parse(cls, text: str) -> FeatureMethod:
        """The method of a name in METHODS with an optional ":real", ":complex" or ":ctr"; a ValueError for others.

        The default is ":ctr" where a complex form exists, and ":real" for tensor_sketch.
        """
        checks.instance("method", text, str, "the name of a method", f"one of {', '.join(method_names())}")
        name, _, form = text.partition(":")
        if name not in method_names() or form not in ("", *FORMS):
            raise ValueError(
                f"expected a method among {', '.join(method_names())}, optionally followed by :real, :complex or :ctr, "
                f"got {text!r}; choose one of these, or pass a FeatureMap"
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
    def is_landmarks(self) -> bool:
        """Whether the features are values of the kernel at landmarks."""
        return self.name in _LANDMARKS

    @property
    def is_grid(self) -> bool:
        """Whether the features are cosines and sines of a grid of frequencies."""
        return self.name == _GRID

    @property
    def is_of_whole(self) -> bool:
        """Whether a sum has the features of one kernel, and not those of its parts."""
        return self.is_landmarks or self.is_grid

    @property
    def is_fourier(self) -> bool:
        """Whether the real form has random cosines and sines."""
        return self.name.startswith(("fourier", "spherical")) and not self.is_grid

    @property
    def structure(self) -> str:
        """The structure of the frequencies of Fourier features, which the name ends with."""
        return self.name.partition("_")[2] or "independent"

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
        return not (self.is_exact or self.is_of_whole or self.is_maclaurin or self.name.endswith("hadamard"))

    @property
    def columnwise(self) -> FeatureMethod:
        """The same in the form whose single columns are without bias: complex where it exists."""
        return FeatureMethod(self.name, "real" if self.name in _REAL else "complex")

    @property
    def real_forms(self) -> tuple[FeatureMethod, ...]:
        """The same with every form whose columns are real, and that is worth a trial."""
        default = _default_form(self.name)
        if self.is_fourier or default == "real":
            return (FeatureMethod(self.name, default),)
        return FeatureMethod(self.name, "real"), FeatureMethod(self.name, "ctr")

    def __str__(self) -> str:
        return self.written or (self.name if self.real_forms == (self,) else f"{self.name}:{self.form}")


def _default_form(name: str) -> str:
    if name in SKETCHES:
        return SKETCHES[name].default_form
    return "real" if name in _REAL else "ctr"

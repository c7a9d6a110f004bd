"""Every concrete feature map, collected once for the generic suites."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping

import pytest
import torch

import rfgp.features
from rfgp.features import FeatureMap


def _subclasses(cls):
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


@functools.cache
def map_classes() -> list[type[FeatureMap]]:
    """All concrete feature maps defined anywhere in rfgp.features, by name."""
    for module in pkgutil.walk_packages(rfgp.features.__path__, "rfgp.features."):
        importlib.import_module(module.name)
    concrete = {c for c in _subclasses(FeatureMap) if not inspect.isabstract(c) and c.__module__.startswith("rfgp.")}
    return sorted(concrete, key=lambda c: c.__qualname__)


@functools.cache
def _examples(cls):
    examples = cls.examples()
    if not examples or not all(type(example) is cls for example in examples):
        raise TypeError(f"expected {cls.__qualname__}.examples() to return instances of the class, got {examples!r}")
    return examples


@dataclasses.dataclass(frozen=True)
class Example:
    """Calling it gives a fresh copy of one example of a feature map, in float64."""

    cls: type[FeatureMap]
    index: int

    def __call__(self) -> FeatureMap:
        return copy.deepcopy(_examples(self.cls)[self.index]).to(torch.float64)

    @property
    def kind(self) -> str:
        """The class and its options without numbers: examples of one kind run the same lines."""
        return re.sub(r"\w+=[-\d.e ]+(, )?", "", _name(_examples(self.cls)[self.index]))


def _text(value) -> str:
    """An argument in a few characters, on one line."""
    if isinstance(value, torch.Tensor):
        return " ".join(f"{entry:.3g}" for entry in value.flatten().tolist())
    return str(value)


@functools.cache
def _name(feature_map: FeatureMap) -> str:
    """The class and its arguments; of an example made once, since collection asks for it with every test of it."""
    inner, options = [], []
    for key, value in _arguments(feature_map).items():
        if isinstance(value, FeatureMap):
            inner.append(_name(value))
        elif isinstance(value, Mapping):
            counts = collections.Counter(type(part).__name__ for part in value.values())
            inner += [f"{name} x{count}" for name, count in counts.items()]
        else:
            options.append(f"{key}={_text(value)}")
    return f"{type(feature_map).__name__}({', '.join(inner + options)})"


def map_examples(condition: Callable[[FeatureMap], bool] = lambda feature_map: True) -> list:
    """One pytest parameter per example, of every concrete feature map, that satisfies a condition."""
    cases = [Example(cls, index) for cls in map_classes() for index in range(len(_examples(cls)))]
    named = [(case, _examples(case.cls)[case.index]) for case in cases]
    return [pytest.param(case, id=_name(feature_map)) for case, feature_map in named if condition(feature_map)]


def _arguments(feature_map: FeatureMap) -> dict:
    names = [name for name in inspect.signature(type(feature_map)).parameters if name not in ("generator", "dtype")]
    missing = [name for name in names if not hasattr(feature_map, name)]
    if missing:
        raise TypeError(f"expected {type(feature_map).__name__} to keep its arguments {missing} as attributes")
    return {name: getattr(feature_map, name) for name in names}


def _rebuilt(value, generator):
    if isinstance(value, FeatureMap):
        return rebuilt(value, generator)
    return {key: _rebuilt(part, generator) for key, part in value.items()} if isinstance(value, Mapping) else value


def rebuilt(feature_map: FeatureMap, generator: torch.Generator, **changes) -> FeatureMap:
    """A map made by the constructor with the same arguments, but for ``changes``, and new weights, in float64."""
    arguments = {name: _rebuilt(value, generator) for name, value in _arguments(feature_map).items()} | changes
    if "generator" in inspect.signature(type(feature_map)).parameters:
        arguments["generator"] = generator
    return type(feature_map)(**arguments).to(torch.float64)


def is_deterministic(feature_map: FeatureMap) -> bool:
    """Whether neither a map nor one inside it draws any weights."""
    parts = [part for part in feature_map.modules() if isinstance(part, FeatureMap)]
    return not any(part._draw(torch.Generator()) for part in parts)


def inner_map(feature_map: FeatureMap) -> FeatureMap:
    """The complex map inside a complex-to-real one, else the map itself."""
    return getattr(feature_map, "feature_map", feature_map)

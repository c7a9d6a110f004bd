"""A model made again of its description, or put into one that is alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

import gpytorch
import torch
from torch import Tensor

from .._support.gpytorch_names import bare_module, fill_module, forget_priors_with, refill_module
from .names import find_class, find_function, name_of

_ABSENT = object()


class Decoder:
    """The objects of a file: they are made without their constructors, and filled when all of them are there."""

    def __init__(self, objects: Sequence[Any], tensors: Mapping[str, Tensor], classes: Sequence[type]) -> None:
        self._objects, self._tensors = objects, tensors
        self._classes = {kind.__qualname__: kind for kind in classes}
        self._made: dict[int, Any] = {}
        self._fill: list[Callable[[], Any]] = []
        self._is_into = False

    def build(self, description: Any, into: Any = None) -> Any:
        """The model; ``into`` takes over what the file has, and stays as it was where anything is raised."""
        self._is_into = into is not None
        model = self._value(description, into, ())
        for fill in self._fill:
            fill()
        for made in self._made.values():
            if isinstance(made, gpytorch.Module):
                forget_priors_with(made, _ABSENT)
        return model

    def _value(self, code: Any, present: Any, path: tuple[str, ...]) -> Any:
        """What a description stands for; ``present`` is what is in its place in the model that is loaded into."""
        if not isinstance(code, dict):
            return code
        kind, content = next(iter(code.items()))
        if kind == "@":
            if content not in self._made:
                inner, parts = next(iter(self._objects[content].items()))
                _OBJECTS[inner](self, content, parts, present, path)
            return self._made[content]
        return _PLAIN[kind](content) if kind in _PLAIN else _VALUES[kind](self, content, present, path)

    def _values(self, codes: Sequence[Any], present: Any, path: tuple[str, ...]) -> list[Any]:
        """The values of several descriptions."""
        old = list(present) if isinstance(present, list | tuple) and len(present) == len(codes) else [None] * len(codes)
        return [self._value(code, k, (*path, str(i))) for i, (code, k) in enumerate(zip(codes, old, strict=True))]

    def _tuple(self, content: Any, present: Any, path: tuple[str, ...]) -> Any:
        return tuple(self._values(content, present, path))

    def _named_tuple(self, content: Any, present: Any, path: tuple[str, ...]) -> Any:
        name, codes = content
        kind: Any = self._class(name, present)
        if not issubclass(kind, tuple):
            raise ValueError(f"expected a class of tuples, got {name}; the file is not one that rfgp.save wrote")
        defaults = getattr(kind, "_field_defaults", {})  # of fields that the class has gained since
        gained = [defaults[name] for name in getattr(kind, "_fields", ())[len(codes) :] if name in defaults]
        return tuple.__new__(kind, [*self._values(codes, present, path), *gained])

    def _class_of_name(self, content: str, present: Any, path: tuple[str, ...]) -> type:
        return self._class(content, None)

    def _left_out(self, content: str, present: Any, path: tuple[str, ...]) -> Any:
        if present is not None:
            return present
        if "_priors" in path:
            return _ABSENT
        raise ValueError(
            f"expected a model that a file can hold, got one that was saved without {content}; make a model as the "
            "saved one was, and pass it as into="
        )

    def _class(self, name: str, present: Any) -> type:
        """The class of a name, which is that of the present object where this has the name."""
        is_same = present is not None and name_of(type(present)) == name
        return type(present) if is_same else find_class(name, self._classes)

    def _tensor(self, number: int, name: str, present: Any, path: tuple[str, ...]) -> None:
        self._made[number] = self._tensors[name]

    def _array(self, number: int, name: str, present: Any, path: tuple[str, ...]) -> None:
        self._made[number] = self._tensors[name].numpy()

    def _parameter(self, number: int, content: Any, present: Any, path: tuple[str, ...]) -> None:
        name, requires_grad = content
        if isinstance(present, torch.nn.Parameter):
            self._made[number] = present
            self._fill.append(partial(_set_parameter, present, self._tensors[name], requires_grad))
        else:
            self._made[number] = torch.nn.Parameter(self._tensors[name], requires_grad)

    def _dict(self, number: int, items: Any, present: Any, path: tuple[str, ...], kind: type = dict) -> None:
        old: Any = present if type(present) is kind else None
        target: Any = kind() if old is None else old
        self._made[number] = target
        pairs = []
        for key, code in items:
            name = self._value(key, None, path)
            pairs.append((name, self._value(code, None if old is None else old.get(name), (*path, str(name)))))
        self._fill.append(partial(_set_items, target, pairs))

    def _ordered_dict(self, number: int, items: Any, present: Any, path: tuple[str, ...]) -> None:
        self._dict(number, items, present, path, OrderedDict)

    def _list(self, number: int, codes: Any, present: Any, path: tuple[str, ...]) -> None:
        target = self._made[number] = present if type(present) is list else []
        self._fill.append(partial(target.__setitem__, slice(None), self._values(codes, present, path)))

    def _set(self, number: int, codes: Any, present: Any, path: tuple[str, ...]) -> None:
        self._made[number] = set(self._values(codes, None, path))

    def _frozenset(self, number: int, codes: Any, present: Any, path: tuple[str, ...]) -> None:
        self._made[number] = frozenset(self._values(codes, None, path))

    def _method(self, number: int, content: Any, present: Any, path: tuple[str, ...]) -> None:
        owner = self._value(content[0], getattr(present, "__self__", None), path)
        function = getattr(type(owner), content[1])
        if not isinstance(owner, gpytorch.Module) or not callable(function):
            raise ValueError(f"expected a method of a module, got {content[1]}; the file is not one of rfgp.save")
        self._made[number] = MethodType(function, owner)

    def _partial(self, number: int, content: Any, present: Any, path: tuple[str, ...]) -> None:
        function, codes = content
        arguments = self._values(codes, getattr(present, "args", None), path)
        self._made[number] = partial(self._value(function, None, path), *arguments)

    def _new(self, number: int, name: str, present: Any, path: tuple[str, ...]) -> None:
        self._made[number] = find_class(name, {})()

    def _state(self, number: int, content: Any, present: Any, path: tuple[str, ...]) -> None:
        name, codes = content
        kind: Any = find_class(name, {})
        self._made[number] = kind.from_state_dict({key: self._value(code, None, path) for key, code in codes.items()})

    def _object(self, number: int, content: Any, present: Any, path: tuple[str, ...]) -> None:
        name, codes = content
        kind: Any = self._class(name, present)
        is_present = type(present) is kind
        if self._is_into and isinstance(present, torch.nn.Module) and not is_present:
            raise ValueError(
                f"expected {kind.__name__} at {'.'.join(path) or 'into'} as in the file, got {type(present).__name__}; "
                "make the model as the saved one was"
            )
        is_module = issubclass(kind, torch.nn.Module)
        target: Any = present if is_present else (bare_module(kind) if is_module else kind.__new__(kind))
        self._made[number] = target
        old = vars(present) if is_present else {}
        state = {key: self._value(code, old.get(key), (*path, key)) for key, code in codes.items()}
        fill: Any = _set_attributes if not is_module else refill_module if is_present else fill_module
        self._fill.append(partial(fill, target, state))


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"expected a dtype, got {name}; the file is not one that rfgp.save wrote")
    return dtype


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda parts: complex(*map(float, parts)),
    "size": torch.Size,
    "slice": lambda ends: slice(*ends),
    "dtype": _dtype,
    "device": lambda name: torch.device("cpu"),
    "function": find_function,
}
_VALUES: dict[str, Callable[..., Any]] = {
    "tuple": Decoder._tuple,
    "named tuple": Decoder._named_tuple,
    "class": Decoder._class_of_name,
    "left out": Decoder._left_out,
}
_OBJECTS: dict[str, Callable[..., None]] = {
    "tensor": Decoder._tensor,
    "array": Decoder._array,
    "parameter": Decoder._parameter,
    "dict": Decoder._dict,
    "ordered dict": Decoder._ordered_dict,
    "list": Decoder._list,
    "set": Decoder._set,
    "frozenset": Decoder._frozenset,
    "method": Decoder._method,
    "partial": Decoder._partial,
    "new": Decoder._new,
    "state": Decoder._state,
    "object": Decoder._object,
}


def _set_parameter(parameter: torch.nn.Parameter, value: Tensor, requires_grad: bool) -> None:
    parameter.data, parameter.grad = value, None
    parameter.requires_grad_(requires_grad)


def _set_items(target: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    target.clear()
    target.update(items)


def _set_attributes(target: Any, state: Mapping[str, Any]) -> None:
    vars(target).clear()
    set_state = getattr(target, "__setstate__", vars(target).update)  # which makes what the state lacks
    set_state(state)

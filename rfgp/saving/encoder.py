"""A model as JSON and tensors: every object once, with its class and its attributes."""

from __future__ import annotations

import numbers
from collections import OrderedDict
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from .._support.states import HasRows
from .contents import attributes
from .names import function_name, is_known_class, name_of

_PLAIN = (type(None), bool, int, str)
_NUMBERS = (np.float64, np.float32, np.int64, np.int32, np.bool_)
"""The kinds of arrays that are tensors in a file."""


class Encoder:
    """The objects of a model and their tensors; what is shared in the model is shared in the file.

    What JSON does not have is a mapping with one entry, named by what it is, or ``{"@": i}`` for the object number i.
    """

    def __init__(self, with_rows: bool) -> None:
        self.with_rows, self.num_rows = with_rows, 0
        self.objects: list[Any] = []
        self.tensors: dict[str, Tensor] = {}
        self.left_out: list[str] = []
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []

    def of(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """The description of a value."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, float):
            return {"float": repr(float(value))}
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, complex):
            return {"complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, type):
            return {"class": name_of(value)}
        if isinstance(value, FunctionType | BuiltinFunctionType):
            name = function_name(value)
            return self._left_out(value, path) if name is None else {"function": name}
        if id(value) not in self._known:
            self._known[id(value)] = len(self.objects)
            self._alive.append(value)
            number = len(self.objects)
            self.objects.append(None)
            self.objects[number] = self._object(value, path)
        return {"@": self._known[id(value)]}

    def _tuple(self, value: tuple[Any, ...], path: tuple[str, ...]) -> Any:
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        items = [self.of(item, (*path, str(index))) for index, item in enumerate(value)]
        return {"tuple": items} if type(value) is tuple else {"named tuple": [name_of(type(value)), items]}

    def _object(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if type(value) is np.ndarray and value.dtype in _NUMBERS:
            return {"array": self._stored(torch.from_numpy(value.copy()), path)}
        if type(value) in (dict, OrderedDict):
            items = [[self.of(key, path), self.of(item, (*path, str(key)))] for key, item in value.items()]
            return {"dict" if type(value) is dict else "ordered dict": items}
        if type(value) in (list, set, frozenset):
            items = [self.of(item, (*path, str(index))) for index, item in enumerate(value)]
            return {type(value).__name__: items}
        if isinstance(value, MethodType) and isinstance(value.__self__, gpytorch.Module):
            return {"method": [self.of(value.__self__, path), value.__name__]}
        if type(value) is partial and not value.keywords and function_name(value.func):
            return {"partial": [self.of(value.func), [self.of(argument, path) for argument in value.args]]}
        return self._instance(value, path)

    def _tensor(self, value: Tensor, path: tuple[str, ...]) -> Any:
        is_parameter = isinstance(value, torch.nn.Parameter)
        plain = value.detach().resolve_conj().resolve_neg()
        if type(plain) is not Tensor or plain.layout is not torch.strided:
            return self._left_out(value, path)
        name = self._stored(plain, path)
        return {"parameter": [name, value.requires_grad]} if is_parameter else {"tensor": name}

    def _stored(self, plain: Tensor, path: tuple[str, ...]) -> str:
        """The name of a tensor in the file."""
        if plain.untyped_storage().nbytes() != plain.numel() * plain.element_size():
            plain = plain.clone()  # torch.save would write all of the storage
        name = ".".join(path)
        while name in self.tensors:
            name += "'"
        self.tensors[name] = plain
        return name

    def _instance(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if isinstance(value, gpytorch.models.ExactGP):
            raise ValueError(
                f"expected a model that predicts without training data, got {kind.__name__}, an ExactGP, at "
                f"{_name(path)}; save its kernel, or fit a rfgp.models.WeightSpaceGP"
            )
        if hasattr(kind, "from_state_dict") and is_known_class(kind):
            state = {name: self.of(tensor, (*path, name)) for name, tensor in value.state_dict().items()}
            return {"state": [name_of(kind), state]}
        reduce = getattr(kind, "__reduce__", None)
        if is_known_class(kind) and reduce is not object.__reduce__:
            is_new = value.__reduce__() == (kind, ())
            return {"new": name_of(kind)} if is_new else self._left_out(value, path)
        if not isinstance(value, torch.nn.Module) and (
            isinstance(value, ModuleType | FunctionType) or not hasattr(value, "__dict__") or not _is_plain(kind)
        ):
            return self._left_out(value, path)
        if isinstance(value, HasRows):
            self.num_rows = max(self.num_rows, value.num_rows_kept)
        state = attributes(value, self.with_rows)
        return {"object": [name_of(kind), {name: self.of(item, _inside(path, name)) for name, item in state.items()}]}

    def _left_out(self, value: Any, path: tuple[str, ...]) -> Any:
        self.left_out.append(f"{_name(path)}, a {type(value).__name__}")
        return {"left out": self.left_out[-1]}


def _is_plain(kind: Any) -> bool:
    """Whether the attributes of the instances of a class are all that there is to them."""
    return kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__


def _inside(path: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The path of an attribute; parameters, buffers and parts of modules are attributes of these."""
    return path if name in ("_parameters", "_buffers", "_modules") else (*path, name)


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the model"

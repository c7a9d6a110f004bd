"""A device that is none: its tensors claim to be elsewhere, compute on the CPU, and tell what travels.

A tensor on the pretend device has its numbers in a CPU tensor. An operation that mixes such tensors with tensors on the
CPU raises, as it does on a GPU. What a GPU has to wait for is recorded: copies in both directions, and numbers that
Python asks for. The same is recorded of a real device.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import rfgp

PRETEND = torch.device("meta")
"""The label of the pretend device; real tensors of this label have no numbers, and are refused."""

DOWN, UP, SYNC = "to the CPU", "from the CPU", "waits"
ROOT = str(Path(rfgp.__file__).parent)

# Operations whose result has a shape, or is a number, that depends on numbers on the device.
_WAITING = {
    "_linalg_check_errors",
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}
# What only marks a tensor, as the operations of a mode do not see.
_WITHOUT_BITS = {torch.ops.aten._conj.default: torch.conj_physical, torch.ops.aten._neg_view.default: torch.neg}
_MOVING = {"_to_copy", "copy_"}
_TAKING_NUMBERS = {"fill_", "fill", "masked_fill", "masked_fill_", "where", "index_fill", "index_fill_"}


class Event(NamedTuple):
    """A copy, or a number that Python waits for.

    :param kind: DOWN, UP or SYNC.
    :param place: the function inside rfgp that caused it, as "file:name"; None where no function of rfgp did.
    :param operation: the name of the operation.
    """

    kind: str
    place: str | None
    operation: str


class PretendTensor(torch.Tensor):
    """A tensor that claims to be on the pretend device.

    :param numbers: its numbers, on the CPU.
    """

    is_meta = False
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers):
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(cls, numbers.size(), dtype=numbers.dtype, device=PRETEND, **layout)

    def __init__(self, numbers):
        self.numbers = numbers

    def __repr__(self):
        return f"PretendTensor({self.numbers})"

    def tolist(self):
        return self.cpu().tolist()

    def __getitem__(self, index):
        return super().__getitem__(self._moved(index, isinstance(index, list)))

    def _moved(self, index, is_list):
        """Numbers of rows, which are a list, as a tensor where this one is."""
        if is_list:
            return torch.tensor(index, dtype=None if index else torch.long).to(self.device)
        if not isinstance(index, tuple):
            return index
        return tuple(self._moved(part, isinstance(part, list | tuple)) for part in index)

    def new_tensor(self, data, dtype=None, device=None, requires_grad=False):
        made = torch.tensor(data, dtype=self.dtype if dtype is None else dtype, device="cpu")
        return made.to(self.device if device is None else device).requires_grad_(requires_grad)

    def __reduce_ex__(self, protocol):
        return PretendTensor, (self.numbers,)

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, other):
        torch.Tensor.data.__set__(self, other)
        self.numbers = other.numbers

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        raise AssertionError(f"expected {operation} on the pretend device inside Watch, got it outside of it")


def _by_copy(create):
    """What makes tensors of Python numbers on the pretend device, where PyTorch makes empty ones."""

    @functools.wraps(create)
    def made(data, *args, device=None, requires_grad=False, **kwargs):
        if device is None or torch.device(device) != PRETEND:
            kwargs |= {"requires_grad": True} if requires_grad else {}
            return create(data, *args, device=device, **kwargs)
        moved = create(data, *args, **kwargs).to(device)
        return moved.requires_grad_() if requires_grad else moved

    return made


class Watch(TorchDispatchMode):
    """A context in which a device is watched; ``events`` has what was copied, and what was waited for.

    :param device: the pretend device, or a real one.
    """

    def __init__(self, device):
        super().__init__()
        self.device, self.events = torch.device(device), []
        self._patches = contextlib.ExitStack()

    def __enter__(self):
        if self.device == PRETEND:
            for create in (torch.tensor, torch.as_tensor):
                self._patches.enter_context(mock.patch.object(torch, create.__name__, _by_copy(create)))
            self._patches.enter_context(torch.serialization.safe_globals([PretendTensor]))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._patches.close()

    def count(self, *kinds):
        """How often each function of rfgp caused an event of one of the kinds."""
        return collections.Counter(e.place for e in self.events if e.kind in kinds and e.place is not None)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        there = [tensor for tensor in tensors if tensor.device.type == self.device.type]
        name = operation.overloadpacket.__name__
        wanted = None if kwargs.get("device") is None else torch.device(kwargs["device"])
        self._note(name, args, there, tensors, wanted)
        if self.device != PRETEND:
            return operation(*args, **kwargs)
        _check_devices(operation, name, args, there, tensors)
        is_there = there if wanted is None else wanted == PRETEND
        return _run(operation, args, kwargs, is_there)

    def _note(self, name, args, there, tensors, wanted):
        here = len(there) < len(tensors)
        if name == "_to_copy" and wanted is not None:
            if there and wanted.type == "cpu":
                self._add(DOWN, name)
            if here and wanted.type == self.device.type:
                self._add(UP, name)
        elif name == "copy_" and there and here:
            self._add(UP if args[0] is there[0] else DOWN, name)
        elif there and here and name.startswith(("index", "_index")):
            self._add(UP, name)
        if there and (name in _WAITING or _has_mask(name, args)):
            self._add(SYNC, name)

    def _add(self, kind, name):
        self.events.append(Event(kind, _place(), name))


def _has_mask(name, args):
    """Whether an operation indexes by a mask, whose number of entries it has to know."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    is_mask = any(index is not None and index.dtype == torch.bool for index in args[1])
    return is_mask and (name == "index" or args[2].numel() > 1)


def _check_devices(operation, name, args, there, tensors):
    """Raise where an operation mixes devices as no GPU can."""
    if any(tensor.device == PRETEND and not isinstance(tensor, PretendTensor) for tensor in tensors):
        raise AssertionError(f"expected tensors with numbers in {operation}, got one on the meta device")
    others = [tensor for tensor in tensors if tensor.device != PRETEND]
    if not there or not others or name in _MOVING:
        return
    writes_here = name.endswith("_") and args[0] is others[0]
    takes_numbers = torch.Tag.pointwise in operation.tags or name in _TAKING_NUMBERS
    if takes_numbers and all(tensor.dim() == 0 for tensor in others) and not writes_here:
        return
    if name.startswith(("index", "_index")) and isinstance(args[0], PretendTensor):
        is_index = [any(tensor is index for index in args[1] or ()) for tensor in others]
        if isinstance(args[1], list | tuple) and all(i or t.dim() == 0 for i, t in zip(is_index, others, strict=True)):
            return
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in others)
    raise RuntimeError(f"Expected all tensors to be on the same device, but {operation} got some on cpu: {shapes}")


def _run(operation, args, kwargs, is_there):
    """Run an operation on the numbers, and give the result the device that it has."""
    known = {}

    def numbers_of(value):
        if isinstance(value, PretendTensor):
            known[id(value.numbers)] = value
            return value.numbers
        return torch.device("cpu") if isinstance(value, torch.device) and value == PRETEND else value

    args, kwargs = tree_map(numbers_of, args), tree_map(numbers_of, kwargs)
    if operation in _WITHOUT_BITS:
        found = _WITHOUT_BITS[operation](torch.as_tensor(args[0]))
    else:
        found = operation(*args, **kwargs)
    if torch.Tag.inplace_view in operation.tags and known:
        _change_shape(operation, next(iter(known.values())), args)

    def wrapped(value):
        if not isinstance(value, torch.Tensor):
            return value
        return known[id(value)] if id(value) in known else PretendTensor(value) if is_there else value

    return tree_map(wrapped, found)


def _change_shape(operation, tensor, args):
    """Let a tensor have the shape that an operation in place has given its numbers."""
    with no_dispatch():
        is_included = torch._C._meta_in_tls_dispatch_include()
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            operation(tensor, *args[1:])
        finally:
            torch._C._set_meta_in_tls_dispatch_include(is_included)


def _place():
    """The innermost function of rfgp that is running, but for those that move modules."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(ROOT) and code.co_name not in ("_apply", "to"):
            return f"{code.co_filename.removeprefix(ROOT)[1:]}:{code.co_qualname.replace('.<locals>', '')}"
        frame = frame.f_back
    return None


def numbers(value):
    """The numbers of a tensor on any device, on the CPU."""
    value = value.detach() if not isinstance(value, PretendTensor) else value
    return value.numbers if isinstance(value, PretendTensor) else value.cpu()

"""Copies of what predictions depend on, which later changes of the model do not reach."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from gpytorch.means import Mean
from torch import Tensor

from .._support.gpytorch_names import TensorMark, tensor_marks

if TYPE_CHECKING:
    from ..approximation.feature_kernel import FeatureKernel


class Snapshot(NamedTuple):
    """Copies of a kernel and a mean function, whose parameters are clones in the autograd graph of the originals."""

    kernel: FeatureKernel
    mean: Mean


class Snapshots:
    """The snapshot of kernel and mean of one model, taken anew where these have changed; copies start empty."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def take(self, kernel: FeatureKernel, mean: Mean, *others: torch.nn.Module) -> Snapshot:
        """The kernel, whose maps are made, and the mean function as they are now.

        It is the same object as before if nothing has changed in these or in other modules, which are not copied.
        """
        modules = (kernel, mean, *others)
        if self._known is None or not self._known.is_of(modules):
            copies, clones = frozen((kernel, mean))
            with torch.inference_mode(False), torch.no_grad():
                clones += [(p, p.clone()) for module in others for p in module.parameters()]
            self._known = _Known(modules, tensor_marks(modules), clones, Snapshot(*copies))
        return self._known.snapshot

    def __reduce__(self) -> tuple[type[Snapshots], tuple[()]]:
        return Snapshots, ()


def frozen(
    modules: tuple[torch.nn.Module, ...], without: Iterable[Any] = ()
) -> tuple[tuple[Any, ...], list[tuple[Tensor, Tensor]]]:
    """Copies of modules, with None for ``without``, and the parameters with their clones in the autograd graph."""
    with torch.inference_mode(False), torch.enable_grad():
        clones: list[tuple[Tensor, Tensor]] = [(p, p.clone()) for module in modules for p in module.parameters()]
        known = {id(part): None for part in without} | {id(p): clone for p, clone in clones}
        return copy.deepcopy(modules, known), clones


class _Known(NamedTuple):
    """A snapshot, what it was taken of, and the parameters with their clones."""

    modules: tuple[torch.nn.Module, ...]
    marks: list[TensorMark]
    clones: list[tuple[Tensor, Tensor]]
    snapshot: Snapshot

    def is_of(self, modules: tuple[torch.nn.Module, ...]) -> bool:
        """Whether it would be taken of these modules now; GPyTorch changes parameters by ``.data``: compare values."""
        marks = tensor_marks(modules)
        if len(marks) != len(self.marks) or [*map(id, modules)] != [*map(id, self.modules)]:
            return False
        for now, then in zip(marks, self.marks, strict=True):
            if now.tensor is not then.tensor or now[1:] != then[1:]:
                return False
        for parameter, clone in self.clones:
            is_alike = parameter.shape == clone.shape and parameter.dtype == clone.dtype
            if not is_alike or parameter.device != clone.device or not torch.equal(parameter, clone):
                return False
        return True

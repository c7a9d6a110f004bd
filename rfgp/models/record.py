"""Records of the tensors that a result depends on, by which later changes are noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from .._support.torch_names import assert_in_graph
from ..features import FeatureMap

if TYPE_CHECKING:
    from ..approximation.feature_kernel import FeatureKernel

WEIGHTS = "set of random weights"
_CHANGED = (
    "expected the parameters of the last prediction outside of compiled functions, got others; predict once, or call "
    "condition(x, y) again"
)


class Record:
    """Copies of the named tensors that a result depends on."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {name: value.detach().clone() for name, value in tensors.items()}

    def changes(self, now: Mapping[str, Tensor]) -> list[str]:
        """The names of the tensors that have changed."""
        return [name for name, value in self.tensors.items() if not _are_equal(value, now.get(name))]

    def is_of(self, now: Mapping[str, Tensor]) -> bool:
        """Whether these are the tensors that were recorded, and no others."""
        return self.tensors.keys() == now.keys() and not self.changes(now)

    def check(self, now: Mapping[str, Tensor], result: str, advice: str = "call condition(x, y) again") -> None:
        """Raise a ValueError with advice where a tensor has changed since the result was computed."""
        if changed := self.changes(now):
            raise ValueError(f"expected the parameters that {result} with, got a new {', '.join(changed)}; {advice}")

    def to(self, device: torch.device) -> Self:
        """Move the copies, in place; the code of random weights stays on the CPU, where it is made."""
        self.tensors = {name: value if name == WEIGHTS else value.to(device) for name, value in self.tensors.items()}
        return self


class _HasRecord(Protocol):
    @property
    def record(self) -> Record: ...


_Fitted = TypeVar("_Fitted", bound=_HasRecord)


class Recorded(Generic[_Fitted]):
    """A model that knows what it was fitted to as long as nothing that this depends on has changed."""

    _fitted: _Fitted | None = None
    _verb = "condition(x, y)"

    def _state(self) -> Mapping[str, Tensor]:
        """What the fit depends on, by name."""
        raise NotImplementedError

    def _known(self) -> _Fitted:
        """What was fitted, or a ValueError where there is none, or it is stale."""
        if self._fitted is None:
            raise ValueError(f"expected a fitted model, got one without data; call {self._verb} first")
        self._fitted.record.check(self._state(), "the model was fitted", f"call {self._verb} again")
        return self._fitted


class WeightsCode:
    """A number that stands for the random weights of a kernel: equal for equal weights, also after loading them."""

    def __init__(self) -> None:
        self._known: tuple[int, Tensor] | None = None

    def of(self, kernel: FeatureKernel) -> Tensor:
        """The code of a kernel's present weights, computed once for every draw of them."""
        if self._known is None or self._known[0] != kernel.version:
            digest = hashlib.blake2b(digest_size=7)
            for feature_map in kernel.modules():
                if isinstance(feature_map, FeatureMap):
                    for name, buffer in feature_map.named_buffers(recurse=False):
                        digest.update(name.encode() + buffer.detach().cpu().contiguous().numpy().tobytes())
            self._known = kernel.version, torch.tensor(int.from_bytes(digest.digest(), "big"))
        return self._known[1]


def _are_equal(a: Tensor, b: Tensor | None) -> bool:
    """Whether two tensors are equal; a compiled function takes it that they are, and raises as it runs if not."""
    if b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.compiler.is_compiling():
        assert_in_graph((a == b.to(a.device)).all(), _CHANGED)
        return True
    return torch.equal(a, b.to(a.device))

"""One thread at a time: a model that several threads read is seen before or after a change, never between."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar, cast

import torch

_Method = TypeVar("_Method", bound=Callable[..., Any])


class ModelLock:
    """The lock of one model; copies and pickles of the model have locks of their own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


@contextmanager
def together(models: Iterable[Any]) -> Iterator[None]:
    """Lock several models, in one order for all threads."""
    with ExitStack() as held:
        for lock in sorted((model.lock for model in models), key=id):
            held.enter_context(lock)
        yield


def alone(method: _Method) -> _Method:
    """Let a method wait until no other thread is in one of the same model, by its ``lock``."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(self, *args, **options)
        with self.lock:
            return method(self, *args, **options)

    return cast(_Method, locked)

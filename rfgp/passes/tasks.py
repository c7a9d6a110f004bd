"""Tasks of an executor: results in their order, so many at a time, and errors that name the task."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from typing import Any

from .._support import checks

_WORKERS = 32
"""How many workers an executor is taken to have that does not say."""


def results(
    executor: Executor, function: Callable[..., Any], tasks: Iterable[tuple[str, tuple[Any, ...]]]
) -> Iterator[Any]:
    """The results of a function, in the order of the tasks; at most two tasks for each worker wait at a time."""
    checks.instance("executor", executor, Executor, "an Executor", "such as concurrent.futures.ProcessPoolExecutor()")
    ahead, waiting = 2 * _num_workers(executor), deque[tuple[str, Future[Any]]]()
    try:
        for name, arguments in tasks:
            with errors_of(name):
                waiting.append((name, executor.submit(function, *arguments)))
            if len(waiting) > ahead:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    finally:
        for _, future in waiting:
            future.cancel()


def pickled(value: Any, name: str) -> bytes:
    """The bytes that a value is sent to a worker as; a ValueError for something that cannot be pickled."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"expected something that can be pickled for {name}, got {type(value).__name__}: {error}; define classes "
            "and functions in a module, under their own names"
        ) from error


def _next(waiting: deque[tuple[str, Future[Any]]]) -> Any:
    name, future = waiting.popleft()
    with errors_of(name):
        return future.result()


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Let errors say of what they are: a ValueError, or a BrokenExecutor that says what to do."""
    try:
        yield
    except BrokenExecutor as error:
        raise BrokenExecutor(
            f"expected {name} from the workers, got the news that one died, perhaps for lack of memory; this executor "
            "does not try again: make a new one with fewer workers or smaller partitions, or use Dask's, which does"
        ) from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    except Exception as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from error


def _num_workers(executor: Any) -> int:
    known = getattr(executor, "num_workers", None) or getattr(executor, "_max_workers", None)
    return known if isinstance(known, int) else _WORKERS

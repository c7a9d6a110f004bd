"""The parts of a map, one after the other or by the workers of an executor."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from typing import NamedTuple

import numpy as np
import torch

from .evaluation import BatchValues, Evaluator, Float32Error
from .points import MapPart
from .writers import Writer

_AHEAD = 64
"""So many parts are handed to an executor before the first of them is done."""

_Results = Future[list[tuple["Progress", int, dict[str, np.ndarray]]]]


class Progress(NamedTuple):
    """What is known of rows whose values are written; ``error`` is None without float32 values."""

    num_rows: int
    error: Float32Error | None
    float64_rows: int

    @classmethod
    def of(cls, values: BatchValues) -> Progress:
        """What is known of a batch."""
        return cls(values.num_rows, values.error, values.num_rows if values.is_replaced else 0)

    def plus(self, other: Progress) -> Progress:
        """What is known of these and other rows."""
        errors = [error for error in (self.error, other.error) if error is not None]
        largest = Float32Error(*map(max, zip(*errors, strict=True))) if errors else None
        return Progress(self.num_rows + other.num_rows, largest, self.float64_rows + other.float64_rows)


def one_after_the_other(evaluation: Evaluator, parts: Sequence[MapPart], out: Writer) -> Iterator[Progress]:
    """Write the values of all parts, and say what is done batch by batch."""
    for part in parts:
        with _rows_named(part):
            for values in evaluation.of(part):
                out.write(values.start, values.arrays)
                yield Progress.of(values)


def by_executor(evaluation: Evaluator, parts: Sequence[MapPart], out: Writer, executor: Executor) -> Iterator[Progress]:
    """Write the values of all parts by the workers, through this process unless ``out`` is shared, in order."""
    task = pickle.dumps((evaluation, out if out.is_shared else None))
    futures: deque[tuple[MapPart, _Results]] = deque()
    try:
        for part in parts:
            futures.append((part, executor.submit(_work, task, part, os.getpid())))
            if len(futures) >= _AHEAD:
                yield from _written(*futures.popleft(), out)
        while futures:
            yield from _written(*futures.popleft(), out)
    finally:
        for _, future in futures:
            future.cancel()
        wait([future for _, future in futures])


def _written(part: MapPart, future: _Results, out: Writer) -> Iterator[Progress]:
    """Wait for a part, and write what its worker has not written."""
    with _rows_named(part):
        results = future.result()
    for done, start, arrays in results:
        if arrays:
            out.write(start, arrays)
        yield done


@contextlib.contextmanager
def _rows_named(part: MapPart) -> Iterator[None]:
    """Let errors that do not name rows, such as those of files and of workers, name those of a part."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        rows = f"rows {part.start} to {part.start + part.num_rows} of the map"
        raise RuntimeError(f"{rows}: {type(error).__name__}: {error}") from error


def _work(task: bytes, part: MapPart, process: int) -> list[tuple[Progress, int, dict[str, np.ndarray]]]:
    """Evaluate a part, in a process of its own by one thread."""
    if os.getpid() != process:
        torch.set_num_threads(1)
    evaluation, out = pickle.loads(task)
    result = []
    for values in evaluation.of(part):
        if out is not None:
            out.write(values.start, values.arrays)
        result.append((Progress.of(values), values.start, {} if out is not None else values.arrays))
    return result

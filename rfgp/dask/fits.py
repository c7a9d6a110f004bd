"""Fits to partitions of Dask."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._support import checks, optional
from ..models import WeightSpaceGP
from ..models.weight_space.conditioning import FeatureSummation
from ..models.weight_space.row_sums import FeatureSums
from ..passes.executor import TreeSum, merged, not_empty, prepare, sums_of_partition
from ..passes.partitions import Partition
from ..passes.reducer import Reducer
from ..passes.tasks import errors_of, pickled
from .parts import NamedPartition, Names, batch_of, full_name, parts_of_arrays, parts_of_frame


def condition(
    model: WeightSpaceGP,
    data: Any,
    y: Any = None,
    noise: Any = None,
    *,
    inputs: Sequence[str] | None = None,
    target: Names | None = None,
    dtype: torch.dtype | None = None,
) -> WeightSpaceGP:
    """Compute the statistics of a Dask DataFrame, or of Dask arrays, on the workers that have them.

    The sums are the same to the last bit whatever the workers, and have no gradients.

    :param model: the model; it forgets earlier data.
    :param data: a Dask DataFrame, or a Dask array of inputs (N, d).
    :param y: beside an array, the Dask array of targets (N,) or (N, T).
    :param noise: noise variances for a fixed-noise likelihood: a column of the frame or several, or a Dask array.
    :param inputs: the columns of the frame that are inputs.
    :param target: the column of the frame that is the target, or several.
    :param dtype: that of the tensors that are made, but for integer labels; default: that of the data.
    :raises ValueError: for bad data, with the partition that has them; the model stays as it was.

    >>> import dask.array, gpytorch, rfgp, rfgp.dask, torch
    >>> x = dask.array.random.default_rng(0).random((1000, 2), chunks=(100, 2))
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> rfgp.dask.condition(model, x, x.sum(axis=1), dtype=torch.float32).statistics.num_rows
    1000.0
    """
    checks.instance("model", model, WeightSpaceGP, "a WeightSpaceGP", "make one of a kernel and a likelihood")
    if model.keep_data or model.block_size is not None:
        raise ValueError(
            "expected a model that keeps no rows, got one with keep_data or block_size; leave these out, or call "
            "model.condition(partitions, executor=client.get_executor())"
        )
    delayed = optional.require("dask", "dask", "its data frames and arrays", "dask").delayed
    reducer = DaskReducer(delayed, _parts(data, y, noise, inputs, target), dtype)
    with model.nothing_lost_on_error():
        model.take(reducer.reduce(FeatureSummation(model)), [])
    return model


def _parts(data: Any, y: Any, noise: Any, inputs: Any, target: Any) -> list[NamedPartition]:
    if not hasattr(data, "columns"):
        if inputs is not None or target is not None:
            raise ValueError("expected inputs= and target= beside a Dask DataFrame, got them beside an array; pass y")
        if y is None:
            raise ValueError("expected a Dask array of targets y beside that of the inputs, got none; pass y")
        return parts_of_arrays(data, y, noise)
    if y is not None or inputs is None or target is None:
        raise ValueError(
            "expected inputs= and target=, which name columns, beside a Dask DataFrame, got others; pass the names"
        )
    return parts_of_frame(data, inputs, target, noise)


class DaskReducer(Reducer):
    """Sums over the partitions of Dask, which its workers have, and a tree of sums that they add up too."""

    def __init__(self, delayed: Any, parts: list[NamedPartition], dtype: torch.dtype | None) -> None:
        self.delayed, self.parts, self.dtype = delayed, parts, dtype

    def sums(self, summation: FeatureSummation) -> FeatureSums:
        prepare(summation, Partition("the partitions", self._first_rows()))
        worker = self.delayed(pickled(summation.without_rows(), "the model"))
        sums, add = self.delayed(_sums, pure=False), self.delayed(_merged, pure=False)
        total = TreeSum[Any](functools.partial(add, worker))
        for part in self.parts:
            total.add(sums(worker, *part, self.dtype))
        return not_empty(total.value().compute())

    def _first_rows(self) -> Iterator[tuple[Tensor, ...]]:
        """A row of every partition that has some, computed once it is asked for."""
        first = self.delayed(_first_row, pure=False)
        for part in self.parts:
            rows = first(*part, self.dtype).compute()
            if rows is not None:
                yield rows


def _merged(worker: bytes, first: FeatureSums | None, second: FeatureSums | None) -> FeatureSums | None:
    return merged(pickle.loads(worker), first, second)


def _first_row(name: str, values: list[Any], columns: list[Any], dtype: Any) -> tuple[Tensor, ...] | None:
    part = NamedPartition(name, values, columns)
    with errors_of(full_name(part)):
        return batch_of(part._replace(values=[value[:1] for value in values]), dtype)


def _sums(
    worker: bytes, name: str, values: list[Any], columns: list[Any], dtype: torch.dtype | None
) -> FeatureSums | None:
    part = NamedPartition(name, values, columns)
    with errors_of(full_name(part)):
        rows = batch_of(part, dtype)
        return None if rows is None else sums_of_partition(pickle.loads(worker), [rows])

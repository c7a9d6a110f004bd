"""One interface for sums over rows: a summation says what is summed, a reducer where the rows are."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from .._support.ranks import Ranks
from ..data.batches import Batch
from ..inference.sums.recomputation import recomputed


class Counted(Protocol):
    """Sums that know over how many rows they are."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        ...


Sums = TypeVar("Sums", bound=Counted)
Gradients = list[Tensor | None]


class Summation(abc.ABC, Generic[Sums]):
    """Sums over rows at the present parameters of a model, and their gradients. Workers get a pickled copy."""

    @property
    @abc.abstractmethod
    def has_gradients_by_part(self) -> bool:
        """Whether gradients of sums over all rows can be computed from some of the rows at a time, in any order."""

    @property
    @abc.abstractmethod
    def parameters(self) -> list[Tensor]:
        """What the sums depend on and wants gradients, in the same order in every process."""

    @abc.abstractmethod
    def running(self, batches: Iterable[Batch], before: Sums | None = None) -> Iterator[Sums]:
        """The sums after every batch, on top of those over earlier batches; those before it change."""

    @abc.abstractmethod
    def merge(self, first: Sums, second: Sums) -> Sums:
        """The sums over the rows of both."""

    @abc.abstractmethod
    def all_reduce(self, sums: Sums | None, ranks: Ranks) -> Sums:
        """The sums over the rows of all ranks, with the same bits on all; None stands for a rank without rows."""

    @abc.abstractmethod
    def tensors(self, sums: Sums) -> list[Tensor]:
        """The sums that have gradients."""

    @abc.abstractmethod
    def with_tensors(self, sums: Sums, tensors: Sequence[Tensor]) -> Sums:
        """Sums with other tensors in place of :meth:`tensors`."""

    @abc.abstractmethod
    def gradients(self, sums: Sums, batches: Iterable[Batch], num_rows: int, of_sums: Sequence[Tensor]) -> Gradients:
        """The gradients in ``parameters`` that rows add, which are read once more.

        :param sums: the sums over all rows, whose tensors do not matter.
        :param num_rows: their number at the first pass.
        :param of_sums: the gradients of ``tensors(sums)``.
        """

    @abc.abstractmethod
    def prepare(self, batch: Batch | None) -> None:
        """Make what waits for its first inputs, so that it is the same in all processes."""

    @property
    @abc.abstractmethod
    def waits(self) -> bool:
        """Whether something waits for its first inputs."""

    @abc.abstractmethod
    def make_for(self, input_dim: int) -> None:
        """Make what waits for its first inputs, by their number of columns."""

    @abc.abstractmethod
    def without_rows(self) -> Self:
        """What workers get."""

    @abc.abstractmethod
    def states(self) -> list[dict[str, Tensor]]:
        """What the sums depend on, by name, for every draw of random weights."""

    @abc.abstractmethod
    def settings(self) -> dict[str, str]:
        """What the sums depend on beside tensors, by name."""

    @abc.abstractmethod
    def saved(self, sums: Sums) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Sums as values for JSON and tensors by name."""

    @abc.abstractmethod
    def restored(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Sums:
        """Sums from what :meth:`saved` has made."""


class Reducer(abc.ABC, Generic[Sums]):
    """Where the rows of a pass are. It sums them, and reads them once more for gradients."""

    @abc.abstractmethod
    def sums(self, summation: Summation[Sums]) -> Sums:
        """The sums over all rows, without gradients."""

    def gradients(self, summation: Summation[Sums], sums: Sums, of_sums: Sequence[Tensor]) -> Gradients:
        """The gradients in the parameters, from ``of_sums``, those of ``summation.tensors(sums)``.

        :raises ValueError: where the rows cannot be read once more.
        """
        return _refused(of_sums)

    def reduce(self, summation: Summation[Sums]) -> Sums:
        """The sums over all rows, with gradients where these are enabled."""
        with torch.no_grad():
            total = self.sums(summation)
        if not torch.is_grad_enabled():
            return total
        rest = summation.without_rows()  # the graph of the sums does not hold the model that holds them
        return differentiable(rest, total, lambda of_sums: self.gradients(rest, total, of_sums))


def without_gradients(summation: Summation[Sums], sums: Sums) -> Sums:
    """Sums whose gradient in the parameters raises a ValueError, in place of being zero."""
    return differentiable(summation, sums, _refused)


def _refused(of_sums: Sequence[Tensor]) -> Gradients:
    raise ValueError(
        "expected sums with gradients for the parameters of the features and the noise of the rows, got those of "
        "an executor, which have none; hold these parameters by requires_grad_(False), or fit without an executor"
    )


def differentiable(summation: Summation[Sums], sums: Sums, gradients: Callable[[Sequence[Tensor]], Gradients]) -> Sums:
    """Sums that know their gradients, where these are enabled; ``gradients`` takes those of the sums."""
    parameters = summation.parameters
    if not torch.is_grad_enabled() or not parameters:
        return sums
    tensors = recomputed(summation.tensors(sums), lambda of_sums, *_: gradients(of_sums), parameters=parameters)
    return summation.with_tensors(sums, tensors)

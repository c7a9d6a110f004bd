"""Rows of a source after a function, such as a scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._support import checks
from .base import Batch, Source, check_source


class MappedSource(Source):
    """Batches of a source after a function of a batch, such as :class:`Standardize`.

    :param source: whose batches are changed.
    :param function: takes the tensors of a batch, and returns the new one, with as many rows; no lambda if pickled.
    :raises ValueError: for something that is no source or no function, or another number of rows.

    >>> import torch, rfgp
    >>> source = rfgp.data.ArraySource(torch.ones(5, 2), torch.ones(5))
    >>> halved = rfgp.data.MappedSource(source, lambda x, y: (x / 2.0, y))
    >>> next(iter(halved))[0][0]
    tensor([0.5000, 0.5000])
    """

    def __init__(self, source: Source, function: Callable[..., Batch]) -> None:
        self.source = check_source(source)
        if not callable(function):
            raise ValueError(f"expected a function of a batch, got {type(function).__name__}; pass one of x and y")
        self.function = function

    @property
    def num_rows(self) -> int | None:
        return self.source.num_rows

    @property
    def first_row(self) -> int:
        return self.source.first_row

    @property
    def description(self) -> str:
        name = getattr(self.function, "__qualname__", None) or repr(self.function)
        return f"{self.source.description}, after {name}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        return (self._mapped(batch) for batch in self.source.batches(start))

    def _mapped(self, batch: Batch) -> Batch:
        """The batch that the function makes of one, checked."""
        made = self.function(*batch)
        is_batch = isinstance(made, tuple | list) and all(isinstance(values, Tensor) for values in made)
        if not is_batch or not 1 <= len(made) <= 3:
            raise ValueError(f"expected a batch (x,), (x, y) or (x, y, noise), got {_kind(made)}; return a tuple")
        if any(values.shape[:1] != batch[0].shape[:1] for values in made):
            raise ValueError(
                f"expected a batch of {len(batch[0])} rows as before the function, got shapes "
                f"{[tuple(values.shape) for values in made]}; leave no row out"
            )
        return tuple(made)

    def partitions(self, count: int) -> list[Source]:
        return [MappedSource(part, self.function) for part in self.source.partitions(count)]


def _kind(made: Any) -> str:
    """What a function returned, in words."""
    if not isinstance(made, tuple | list):
        return type(made).__name__
    return f"({', '.join(type(value).__name__ for value in made)})"


@dataclass(frozen=True)
class Standardize:
    """The function (x, y, noise) -> ((x - m)/s, (y - m')/s', noise/s'^2) of a batch, for :class:`MappedSource`.

    :param mean: of the columns of the inputs, (d,).
    :param std: their standard deviations, (d,); a column with zero is only centered.
    :param target_mean: of the targets, () or (T,); default: targets and noise stay as they are.
    :param target_std: their standard deviations.
    :raises ValueError: where only one of the last two is given, or for bad numbers or columns.

    >>> import torch, rfgp
    >>> source = rfgp.data.ArraySource(1e3 * torch.rand(500, 2) + 7.0, torch.rand(500))
    >>> known = rfgp.data.sample(source, 100, seed=0)
    >>> scaled = rfgp.data.MappedSource(source, rfgp.data.Standardize(known.inputs.mean, known.inputs.std))
    >>> bool((next(iter(scaled))[0].std(0, correction=0) - 1.0 < 1e-5).all())
    True
    """

    mean: Tensor
    std: Tensor
    target_mean: Tensor | None = None
    target_std: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.target_mean is None) != (self.target_std is None):
            raise ValueError("expected both target_mean and target_std, got one of them; pass both or none")
        _check_scale(self.mean, self.std, "mean", "std", (1,))
        if self.target_mean is not None and self.target_std is not None:
            _check_scale(self.target_mean, self.target_std, "target_mean", "target_std", (0, 1))

    def __call__(self, x: Tensor, y: Tensor | None = None, noise: Tensor | None = None) -> Batch:
        result = [_scaled(checks.inputs(x, len(self.mean)), self.mean, self.std)]
        if y is not None and self.target_mean is not None and self.target_std is not None:
            if not (y.is_floating_point() or y.is_complex()):
                raise ValueError(
                    f"expected numbers for y, got {y.dtype} as of labels; leave target_mean and target_std out"
                )
            if self.target_mean.dim() == 1 and y.shape[1:] != self.target_mean.shape:
                raise ValueError(
                    f"expected y with {len(self.target_mean)} columns as target_mean has, got shape {tuple(y.shape)}; "
                    "take both from one source"
                )
            y = _scaled(y, self.target_mean, self.target_std)
            noise = None if noise is None else noise / _nonzero(self.target_std).square().to(noise)
        return tuple([*result, *(values for values in (y, noise) if values is not None)])

    def __repr__(self) -> str:
        numbers = [self.mean, self.std, self.target_mean, self.target_std]
        return f"Standardize({', '.join(str(None if value is None else value.tolist()) for value in numbers)})"


def _check_scale(mean: Any, std: Any, mean_name: str, std_name: str, dims: tuple[int, ...]) -> None:
    """Raise where a mean and a standard deviation are not finite numbers of columns, in as many dimensions."""
    for name, value in ((mean_name, mean), (std_name, std)):
        checks.finite(checks.floating(value, name), name)
    if mean.shape != std.shape or mean.dim() not in dims:
        raise ValueError(
            f"expected {mean_name} and {std_name} with a number per column, got {tuple(mean.shape)} and "
            f"{tuple(std.shape)}; take both from rfgp.data.sample"
        )
    if bool((std < 0).any()):
        raise ValueError(f"expected {std_name} of at least 0, got {float(std.min()):g}; pass standard deviations")


def _scaled(values: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return ((values - mean) / _nonzero(std)).to(values.dtype)


def _nonzero(std: Tensor) -> Tensor:
    return torch.where(std > 0, std, torch.ones_like(std))

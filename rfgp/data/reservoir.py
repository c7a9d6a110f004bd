"""Random rows of a source, from one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._support import checks
from .base import Batch, Source, with_same_columns

_LARGEST_KEY = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Sample:
    """Rows drawn uniformly without replacement, in random order: the first k of them are such a sample too.

    Each row of a table has a random key, and the rows with the smallest keys are the sample.

    :param tensors: x, and where there are any y and noise, of the rows.
    :param rows: their numbers in the table.
    :param keys: their keys, which increase.
    :param count: how many rows were asked for.
    :param num_rows: how many rows there are in all.
    :param inputs: moments of the inputs of all rows.
    :param targets: those of the targets; None where there are none.

    >>> import rfgp
    >>> source = rfgp.data.ArraySource(torch.randn(100, 2), torch.randn(100))
    >>> drawn = rfgp.data.sample(source, 20, seed=0)
    >>> drawn.x.shape, drawn.num_rows, drawn.inputs.mean.shape
    (torch.Size([20, 2]), 100, torch.Size([2]))
    """

    tensors: Batch
    rows: np.ndarray
    keys: np.ndarray
    count: int
    num_rows: int
    inputs: ColumnMoments
    targets: ColumnMoments | None

    @property
    def x(self) -> Tensor:
        """Inputs, (count, d)."""
        return self.tensors[0]

    @property
    def y(self) -> Tensor | None:
        """Targets, (count,) or (count, T)."""
        return self.tensors[1] if len(self.tensors) > 1 else None

    @property
    def noise(self) -> Tensor | None:
        """Noise variances, of the shape of y."""
        return self.tensors[2] if len(self.tensors) > 2 else None

    def merge(self, other: Sample) -> Sample:
        """The sample of the rows of both, for samples of as many rows with the same seed of two parts of a table."""
        checks.instance("other", other, Sample, "a Sample", "use rfgp.data.sample")
        if other.count != self.count or len(other.tensors) != len(self.tensors):
            raise ValueError(
                f"expected a sample of {self.count} rows with {len(self.tensors)} tensors, got one of {other.count} "
                f"rows with {len(other.tensors)}; draw both alike"
            )
        if len(np.intersect1d(self.rows, other.rows)):
            raise ValueError(
                "expected samples of different rows, got some rows in both; sample those of source.partitions(count)"
            )
        return _smallest([self, other], self.count)


def sample(source: Source | Iterable[tuple[Tensor | None, ...]], count: int, seed: int | None = None) -> Sample:
    """Draw rows uniformly without replacement, and moments of all, in one pass over a source.

    The same seed draws the same rows, whatever the batches are.

    Source: Salmon et al. (2011), the generator Philox; Cohen and Kaplan (2007), bottom-k samples.

    :param source: a source, or other batches (x,), (x, y) or (x, y, noise).
    :param count: how many rows; all where there are fewer.
    :param seed: of the keys; default: a random one.
    :returns: the rows, and means, standard deviations and ranges of the columns of all rows, NaN left out.
    :raises ValueError: where there are no rows, or only some batches have targets or noise.

    >>> import gpytorch, rfgp, torch
    >>> source = rfgp.data.ArraySource(torch.rand(10_000, 2), torch.rand(10_000), batch_size=1000)
    >>> known = rfgp.data.sample(source, 50, seed=0)
    >>> known.x.shape, known.num_rows, known.inputs.std.shape
    (torch.Size([50, 2]), 10000, torch.Size([2]))
    """
    count = checks.positive_integer("count", count)
    chosen = int(torch.randint(2**62, (), device="cpu")) if seed is None else checks.seed(seed)
    if not isinstance(source, Iterable) or isinstance(source, Tensor):
        raise ValueError(f"expected a source or other batches of rows, got {type(source).__name__}; pass a source")
    parts: list[Sample] = []
    row = source.first_row if isinstance(source, Source) else 0
    largest, kept = _LARGEST_KEY, 0
    for batch in with_same_columns(source):
        tensors = _tensors(batch)
        if parts and len(tensors) != len(parts[0].tensors):
            raise ValueError("expected targets and noise in all batches or none, got them in some; give them to all")
        if parts and any(a.shape[1:] != b.shape[1:] for a, b in zip(tensors, parts[0].tensors, strict=True)):
            shapes = [[tuple(values.shape) for values in part_tensors] for part_tensors in (parts[0].tensors, tensors)]
            raise ValueError(f"expected batches with the same columns, got shapes {shapes}; give all the same")
        parts.append(_candidates(tensors, row, row_keys(row, len(tensors[0]), chosen), largest, count))
        row, kept = row + len(tensors[0]), kept + len(parts[-1].keys)
        if kept >= 2 * count:
            parts = [_smallest(parts, count)]
            largest, kept = parts[0].keys[-1], count
    if not parts:
        raise ValueError("expected at least one batch of rows, got none; check that the source is not used up")
    return _smallest(parts, count)


def row_keys(first: int, num_rows: int, seed: int) -> np.ndarray:
    """Random 64-bit keys of the rows of a table, which depend on nothing but their numbers and the seed."""
    block, rest = divmod(first, 4)
    return np.random.Philox(key=seed, counter=block).random_raw(rest + num_rows)[rest:]


def _tensors(batch: Any) -> Batch:
    tensors = tuple(values for values in batch if values is not None) if isinstance(batch, list | tuple) else ()
    if not 1 <= len(tensors) <= 3:
        raise ValueError(f"expected batches (x,), (x, y) or (x, y, noise), got {type(batch).__name__}; yield tensors")
    checks.inputs(tensors[0])
    for name, values in zip(("y", "noise"), tensors[1:], strict=False):
        if len(checks.tensor(values, name)) != len(tensors[0]):
            raise ValueError(f"expected {len(tensors[0])} rows in {name}, got {len(values)}; pass one per row of x")
    return tuple(values.detach() for values in tensors)


def _candidates(tensors: Batch, first: int, keys: np.ndarray, largest: np.uint64, count: int) -> Sample:
    """The rows of a batch that may be in the sample of all."""
    places = np.flatnonzero(keys <= largest)
    some = tuple(values[torch.from_numpy(places).to(values.device)] for values in tensors)
    targets = ColumnMoments.of(tensors[1]) if len(tensors) > 1 else None
    return Sample(some, first + places, keys[places], count, len(keys), ColumnMoments.of(tensors[0]), targets)


def _smallest(parts: Sequence[Sample], count: int) -> Sample:
    """The rows with the smallest keys among those of several samples."""
    rows, keys = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "keys"))
    order = np.argsort(keys, kind="stable")[:count]
    tensors = tuple(
        torch.cat(values)[torch.from_numpy(order).to(values[0].device)]
        for values in zip(*(part.tensors for part in parts), strict=True)
    )
    targets = [part.targets for part in parts if part.targets is not None]
    return Sample(
        tensors,
        rows[order],
        keys[order],
        count,
        sum(part.num_rows for part in parts),
        reduce(ColumnMoments.merge, (part.inputs for part in parts)),
        reduce(ColumnMoments.merge, targets) if targets else None,
    )


@dataclass(frozen=True)
class ColumnMoments:
    """Moments of the columns of rows in float64, which can be merged with those of other rows.

    .. math:: S = S_A + S_B + (m_B - m_A)^2 n_A n_B / (n_A + n_B)

    :param count: the number of values that are not NaN in each column, (d,), or () for one column.
    :param mean: their mean.
    :param squares: the sum of their squared distances from it.
    :param minimum: the smallest value; of complex columns NaN, as the largest one.
    :param maximum: the largest value.

    Source: Chan, Golub and LeVeque (1979), Eq. 2.1b.

    >>> left, right = (ColumnMoments.of(torch.randn(rows, 3)) for rows in (50, 80))
    >>> left.merge(right).count
    tensor([130., 130., 130.], dtype=torch.float64)
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    minimum: Tensor
    maximum: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Those of rows (N, d), or (N,) for one column; NaN where a value is missing."""
        exact = values.detach().to(torch.complex128 if values.is_complex() else torch.float64)
        columns = exact.movedim(0, -1).contiguous()
        missing = columns.isnan() if bool(columns.sum().isnan()) else None
        present = _filled(columns, missing, 0.0)
        every = torch.full(present.shape[:-1], present.shape[-1], dtype=torch.float64, device=present.device)
        count = every if missing is None else every - missing.sum(-1)
        start = present[..., :1]
        centered = _filled(present - start, missing, 0.0)
        shift = centered.sum(-1, keepdim=True) / count.unsqueeze(-1).clamp_min(1.0)
        squares = torch.linalg.vector_norm(_filled(centered - shift, missing, 0.0), dim=-1).square()
        mean = (start + shift).squeeze(-1)
        if exact.is_complex():
            return cls(count, mean, squares, torch.full_like(count, torch.nan), torch.full_like(count, torch.nan))
        low, high = (_filled(columns, missing, end) for end in (torch.inf, -torch.inf))
        return cls(count, mean, squares, low.amin(-1), high.amax(-1))

    @property
    def std(self) -> Tensor:
        """The standard deviation, with the number of values in the denominator."""
        return (self.squares / self.count.clamp_min(1.0)).sqrt()

    def merge(self, other: ColumnMoments) -> ColumnMoments:
        """Those of these rows and others, of as many columns."""
        checks.instance("other", other, ColumnMoments, "moments of columns", "make them by ColumnMoments.of(rows)")
        count = self.count + other.count
        share = other.count / count.clamp_min(1.0)
        distance = other.mean - self.mean
        return ColumnMoments(
            count,
            self.mean + share * distance,
            self.squares + other.squares + distance.abs().square() * share * self.count,
            torch.minimum(self.minimum, other.minimum),
            torch.maximum(self.maximum, other.maximum),
        )


def _filled(values: Tensor, missing: Tensor | None, with_value: float) -> Tensor:
    return values if missing is None else values.masked_fill(missing, with_value)

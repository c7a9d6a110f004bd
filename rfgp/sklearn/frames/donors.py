"""Rows whose cells stand in for the missing cells of rows that are like them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics.pairwise import nan_euclidean_distances
from torch import Tensor

from ..arrays import Floats

NUM_IMPUTATIONS = 10
"""How many rows stand in for each row with missing cells, where there are as many."""
_MOST_DONORS, _FEWEST_DONORS, _MOST_NUMBERS = 512, 64, 200_000
"""From how many rows they are chosen: fewer where there are many inputs, by the numbers that are kept of them."""
_FARTHEST = 10.0
"""So many scales from the center, inputs are equally far."""
_UNKNOWN = 1e300
"""The distance to rows that have nothing of what is known."""
_DECIMALS = 6
"""Of distances, so that equal ones are equal in every batch of rows."""
_CHUNK = 2048


class Imputations(NamedTuple):
    """Rows of a table with missing cells, and inputs that have the cells of other rows in their place.

    :param rows: the numbers of these rows in the table, (G,).
    :param x: their inputs, (S, G, d), where nothing is marked as missing.
    :param is_marked: whether an input of the table marks some of what is missing of a row, (G,).
    """

    rows: Tensor
    x: Tensor
    is_marked: Tensor

    @property
    def unmarked(self) -> Imputations | None:
        """Those of rows where nothing that is missing is marked; None without any."""
        chosen = ~self.is_marked
        return Imputations(self.rows[chosen], self.x[:, chosen], self.is_marked[chosen]) if bool(chosen.any()) else None

    def completed(self, x: Tensor, num_samples: int, random: np.random.RandomState) -> Iterator[tuple[Tensor, int]]:
        """Inputs (N, d) of the table with one imputation of each row, and how many of so many samples have them.

        Each row begins with a random one, so that rows are independent.
        """
        count, places = len(self.x), torch.arange(len(self.rows))
        first = torch.from_numpy(random.randint(count, size=len(places)))
        for number, samples in enumerate(np.array_split(np.arange(num_samples), count)):
            if len(samples):
                yield x.index_copy(0, self.rows, self.x[(first + number) % count, places]), len(samples)


@dataclass(frozen=True)
class Donors:
    """Rows of a table, whose inputs stand in for what is missing of other rows: hot deck imputation.

    :param rows: inputs of these rows, (D, d), None where they have none themselves.
    :param centers: what is subtracted from inputs in distances between rows, (d,).
    :param scales: by what they are divided then; infinite for those that do not count.

    Source: Andridge and Little, A Review of Hot Deck Imputation for Survey Non-response, 2010.
    """

    rows: tuple[tuple[float | None, ...], ...]
    centers: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def of(cls, x: Floats, is_missing: NDArray[np.bool_], columns: Sequence[Sequence[int]]) -> Self:
        """Random rows of a table of inputs (N, d).

        :param is_missing: which of the inputs are missing, (N, d).
        :param columns: the inputs of each column of the table; in distances columns have the same variance.
        """
        count = max(_FEWEST_DONORS, min(_MOST_DONORS, _MOST_NUMBERS // max(1, x.shape[1])))
        chosen = np.random.default_rng(0).permutation(len(x))[:count]
        x, is_missing = x[chosen], is_missing[chosen]
        centers, scales = np.zeros(x.shape[1]), np.full(x.shape[1], np.inf)
        for column in columns:
            variance = 0.0
            for place in column:
                known = x[~is_missing[:, place], place]
                if not len(known) or np.ptp(known) == 0.0:
                    continue
                low, centers[place], high = np.quantile(known, [0.05, 0.5, 0.95])
                scales[place] = high - low if high > low else np.ptp(known)
                variance += float(np.var(_scaled(known, centers[place], scales[place])))
            if variance > 0.0:
                scales[list(column)] *= variance**0.5
        rows = x.astype(object)
        rows[is_missing] = None
        return cls(tuple(map(tuple, rows.tolist())), tuple(centers.tolist()), tuple(scales.tolist()))

    @classmethod
    def of_complete(cls, x: Floats) -> Self:
        """Random rows of a table of numbers (N, d), of which none is missing."""
        return cls.of(x, np.zeros(x.shape, dtype=bool), [[place] for place in range(x.shape[1])])

    def imputed(self, x: Floats) -> tuple[Floats, Imputations | None]:
        """A table of numbers (N, d) with missing ones, NaN, filled in, and what may be in their place."""
        is_missing = np.isnan(x)
        rows = np.flatnonzero(is_missing.any(1))
        if not len(rows):
            return x, None
        filled, complete = x.copy(), torch.from_numpy(self.imputations(x[rows], is_missing[rows]))
        filled[rows] = self.filled(x[rows], is_missing[rows])
        return filled, Imputations(torch.from_numpy(rows), complete, torch.zeros(len(rows), dtype=torch.bool))

    def imputations(self, x: Floats, is_missing: NDArray[np.bool_]) -> Floats:
        """The inputs (S, N, d) of rows with those of the nearest donors in place of missing ones.

        Donors have all that is missing of a row, or each of its inputs has donors of its own where too few have all.
        Where no donor has it, an input stays as it is.

        :param x: inputs (N, d).
        :param is_missing: which of them are missing, (N, d).
        """
        donors, (order, counts) = np.array(self.rows, dtype=np.float64), self._nearest(x, is_missing)
        is_found, rows = is_missing & (counts > 0)[:, None], np.arange(len(x))
        places = [number % np.maximum(counts, 1) for number in range(order.shape[1])]
        found = np.stack([np.where(is_found, donors[order[rows, place]], x) for place in places])
        few = np.flatnonzero((counts < order.shape[1]) & (is_missing.sum(1) > 1))
        for column in np.flatnonzero(is_missing[few].any(0)):
            alone = few[is_missing[few, column]]
            own = np.zeros((len(alone), x.shape[1]), dtype=bool)
            own[:, column] = True
            order, counts = self._nearest(x[alone], own, is_missing[alone])
            for number in range(len(found)):
                nearest = donors[order[np.arange(len(alone)), number % np.maximum(counts, 1)], column]
                found[number, alone, column] = np.where(counts > 0, nearest, x[alone, column])
        return found

    def filled(self, x: Floats, is_missing: NDArray[np.bool_]) -> Floats:
        """The same with the means of the nearest donors, (N, d)."""
        counts, found = self._nearest(x, is_missing)[1], self.imputations(x, is_missing)
        counts = np.where(is_missing.sum(1) > 1, len(found), counts)
        is_new = np.arange(len(found))[:, None] < np.maximum(counts, 1)
        means: Floats = (found * is_new[..., None]).sum(0) / is_new.sum(0)[:, None]
        return np.where(is_missing, means, x)

    def _nearest(
        self, x: Floats, is_wanted: NDArray[np.bool_], is_missing: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the nearest donors (N, S), and how many of these have what is wanted, (N,).

        :param is_missing: which inputs do not count in distances, (N, d); default: those that are wanted.
        """
        donors, counts_for = np.array(self.rows, dtype=np.float64), np.isfinite(self.scales)
        scales = np.asarray(self.centers)[counts_for], np.asarray(self.scales)[counts_for]
        of_donors, lacks = _scaled(donors[:, counts_for], *scales), np.isnan(donors).T.astype(np.float64)
        orders, counts, is_unknown = [], [], is_wanted if is_missing is None else is_missing
        for start in range(0, len(x), _CHUNK):
            some = slice(start, start + _CHUNK)
            part, wanted, gaps = x[some], is_wanted[some], is_unknown[some]
            distances = np.full((len(part), len(donors)), _UNKNOWN)
            if counts_for.any():
                known = np.where(gaps[:, counts_for], np.nan, _scaled(part[:, counts_for], *scales))
                distances = np.nan_to_num(nan_euclidean_distances(known, of_donors), nan=_UNKNOWN)
            distances = np.round(distances, _DECIMALS)
            distances[wanted.astype(np.float64) @ lacks > 0.0] = np.inf
            order = np.argsort(distances, axis=1, kind="stable")[:, :NUM_IMPUTATIONS]
            orders.append(order)
            counts.append(np.isfinite(np.take_along_axis(distances, order, axis=1)).sum(1))
        return np.concatenate(orders), np.concatenate(counts)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Those of a dictionary of their fields, with lists in place of tuples."""
        rows = tuple(map(tuple, record["rows"]))
        return cls(rows, tuple(record["centers"]), tuple(record["scales"]))


def _scaled(x: Floats, center: Floats | float, scale: Floats | float) -> Floats:
    """Inputs in distances between rows."""
    scaled: Floats = np.clip((x - center) / scale, -_FARTHEST, _FARTHEST)
    return scaled

"""A table as inputs: the rules of its columns, which are learned from one table and hold for others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._support import checks
from ..._support.data_frames import Missing, as_pandas
from ...kernels.spherical_coordinates import SphericalCoordinates
from ..arrays import Floats, check_names
from .cells import MISSING_WORDS, Cells, decimal_of, read_as, recognized
from .columns import MOST_CATEGORIES, InputColumn
from .donors import Donors, Imputations
from .problems import bad_cells

if TYPE_CHECKING:
    import pandas


def cells_of(
    frame: pandas.DataFrame,
    name: str = "the table",
    decimal: str | None = None,
    words: Collection[str] = MISSING_WORDS,
    usual: str | None = None,
) -> tuple[dict[str, Cells], str | None]:
    """The cells of all columns of a table as what most of them are, and its decimal mark.

    :param decimal: the mark that is given; default: the one that its text tells, or else the usual one.
    """
    mark = decimal_of(frame, name, usual) if decimal is None else decimal
    return {column: recognized(frame[column], mark or ".", words) for column in frame.columns}, mark


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become inputs; it is learned by :func:`rfgp.study.tables.read` and by estimators.

    :param columns: the rules of the columns.
    :param missing: what is done about missing cells: "raise", "drop" or "impute".
    :param decimal: the decimal point or comma of text; None where the table had no numbers in text.
    :param words: those of cells without a value, in small letters.
    :param coordinates: pairs of columns of latitude and longitude, in degrees: their inputs are unit vectors.
    :param donors: rows whose cells take the place of missing ones; default: the fill of each column does.
    """

    columns: tuple[InputColumn, ...]
    missing: Missing = "impute"
    decimal: str | None = None
    words: tuple[str, ...] = MISSING_WORDS
    coordinates: tuple[tuple[str, str], ...] = ()
    donors: Donors | None = None

    @classmethod
    def learned(
        cls,
        cells: Mapping[str, Cells],
        y: NDArray[Any] | None,
        task: str,
        most_categories: int = MOST_CATEGORIES,
        **settings: Any,
    ) -> tuple[Self, Floats]:
        """The rules for columns, and the inputs (N, d) that they make of the rows that they are learned from.

        :param y: targets (N,) or (N, T), or class numbers; None for none.
        :param most_categories: the largest number of categories with an input each; more have means of targets.
        :param settings: the other fields.
        :raises ValueError: for columns of more categories without targets.
        """
        rules, parts = [], []
        impute = settings.get("missing", cls.missing) == "impute"
        longitudes = {longitude for _, longitude in settings.get("coordinates", ())}
        for name, column in cells.items():
            rule = InputColumn.learned(name, column, impute)
            if name in longitudes:
                rule = replace(rule, fill=_mean_angle(column))
            if len(rule.categories) <= max(2, most_categories):
                part = rule.encoded(column)
            elif y is None:
                raise ValueError(
                    f"expected at most {most_categories} different values in a column of text without a target, got "
                    f"{len(rule.categories):,} in {name!r}, such as {rule.categories[0]!r}; name the target, make "
                    "numbers of them, or leave the column out"
                )
            else:
                rule, part = rule.coded(column, y, task)
            rules.append(rule)
            parts.append(part)
        encoding = cls(tuple(rules), **settings)
        x = encoding._with_vectors(parts)
        encoding = replace(encoding, donors=encoding.donors_of(x, cells))
        return encoding, encoding._filled(x, encoding._missing(cells))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(name for _, name in self._inputs[0])

    @cached_property
    def _inputs(self) -> tuple[list[tuple[str, str]], list[SphericalCoordinates]]:
        """The column and the name of every input, and what makes unit vectors of degrees, one pair after the other."""
        inputs = [(column.name, name) for column in self.columns for name in column.names]
        transforms = []
        for latitude, longitude in self.coordinates:
            degrees = [(latitude, latitude), (longitude, longitude)]
            transforms.append(SphericalCoordinates(*map(inputs.index, degrees)))
            vector = [(latitude, f"{latitude}, {longitude}: {axis}") for axis in "xyz"]
            inputs = vector + [one for one in inputs if one not in degrees]
        return inputs, transforms

    def _with_vectors(self, parts: list[Floats]) -> Floats:
        """The inputs (N, d) that numbers of the columns become, where degrees are made unit vectors."""
        x = torch.from_numpy(np.concatenate(parts, axis=-1))
        for pair, transform in zip(self.coordinates, self._inputs[1], strict=True):
            try:
                x = transform(x)
            except ValueError as error:
                raise ValueError(f"columns {pair[0]!r} and {pair[1]!r}: {error}") from None
        return x.numpy()

    @cached_property
    def _positions(self) -> dict[str, list[int]]:
        """The inputs of every column, by its name."""
        found: dict[str, list[int]] = {column.name: [] for column in self.columns}
        for place, (name, _) in enumerate(self._inputs[0]):
            found[name].append(place)
        return found

    def positions(self, column: InputColumn) -> list[int]:
        """Which inputs are those of a column."""
        return self._positions[column.name]

    @cached_property
    def _groups(self) -> list[list[int]]:
        """The inputs of every column, without those that mark missing cells."""
        marks = set(self.marks.values())
        return [[place for place in self.positions(column) if place not in marks] for column in self.columns]

    def _missing(self, cells: Mapping[str, Cells]) -> NDArray[np.bool_]:
        """Which inputs (N, d) are those of missing cells; those that mark such cells are not."""
        gaps = [~cells[column.name].is_there for column in self.columns]
        found = np.zeros((len(gaps[0]), len(self._inputs[0])), dtype=bool)
        of_columns = {column.name: places for column, places in zip(self.columns, self._groups, strict=True)}
        vectors = {longitude: of_columns[latitude] for latitude, longitude in self.coordinates}
        for column, gap in zip(self.columns, gaps, strict=True):
            found[:, vectors.get(column.name, of_columns[column.name])] |= gap[:, None]
        return found

    def donors_of(self, x: Floats, cells: Mapping[str, Cells]) -> Donors:
        """The rows of a table, whose inputs are x (N, d), whose cells can take the place of missing ones."""
        return Donors.of(x, self._missing(cells), self._groups)

    def _filled(self, x: Floats, is_missing: NDArray[np.bool_]) -> Floats:
        """Inputs (N, d) with the means of the nearest donors in place of missing ones.

        Of text and of what is true or false, it is what most of them have; of coordinates, the direction of the mean.
        """
        rows = np.flatnonzero(is_missing.any(1))
        if self.donors is None or not len(rows):
            return x
        found = self.donors.filled(x[rows], is_missing[rows])
        for column, places in zip(self.columns, self._groups, strict=True):
            if column.kind == "boolean" or (column.kind == "text" and len(places) == 1):
                found[:, places] = np.round(found[:, places])
            elif column.kind == "text" and not column.codes:
                found[:, places] = np.arange(len(places)) == found[:, places].argmax(1)[:, None]
        for latitude, _ in self.coordinates:
            places = self._positions[latitude][:3]
            lengths = np.linalg.norm(found[:, places], axis=1, keepdims=True)
            found[:, places] /= np.where(lengths > 0.0, lengths, 1.0)
        x = x.copy()
        x[rows] = np.where(is_missing[rows], found, x[rows])
        return x

    @property
    def marks(self) -> dict[str, int]:
        """The places of the inputs that mark missing cells, by their names, such as "price is missing"."""
        marks = {rule.names[-1] for rule in self.columns if rule.marks_missing}
        return {name: place for place, name in enumerate(self.input_names) if name in marks}

    @property
    def levels(self) -> list[list[int]]:
        """The inputs of every column of text that has many of them."""
        chosen = [column for column in self.columns if column.has_levels]
        return [self.positions(column)[: len(column.names) - column.marks_missing] for column in chosen]

    @property
    def categorical(self) -> tuple[InputColumn, ...]:
        """The columns of text."""
        return tuple(column for column in self.columns if column.kind == "text")

    def encode(self, frame: Any, *, decimal: str | None = None, missing: Missing | None = None) -> Tensor:
        """The inputs (N, d), float64, of a table with the same columns, in any order; others are not looked at."""
        return torch.from_numpy(self.inputs(self.cells(frame, decimal=decimal), missing))

    def cells(self, frame: Any, *, decimal: str | None = None) -> dict[str, Cells]:
        """The cells of the columns of inputs, by name."""
        frame = named(as_pandas(frame, "frame"))
        there = set(frame.columns)
        absent = [column.name for column in self.columns if column.name not in there]
        if absent:
            raise ValueError(
                f"expected the columns of the table that was learned from, got none for "
                f"{', '.join(map(repr, absent))}; add {'it' if len(absent) == 1 else 'them'}"
            )
        if not self.columns:
            raise ValueError("expected columns of inputs, got none; learn from a table that has some")
        wanted = frame[[column.name for column in self.columns]]
        if decimal is None:
            mark = decimal_of(wanted, "the table", self.decimal) or "."
        else:
            mark = checks.choice("decimal", decimal, (".", ","))
        return {
            rule.name: read_as(wanted[rule.name], rule.kind, rule.date_format, rule.unit, mark, self.words)
            for rule in self.columns
        }

    def inputs(self, cells: Mapping[str, Cells], missing: Missing | None = None) -> Floats:
        """The inputs (N, d) of cells, with NaN in rows that have missing ones where these are dropped."""
        how = self.missing if missing is None else checks.choice("missing", missing, get_args(Missing))
        if how == "raise" and any(not found.is_there.all() for found in cells.values()):
            raise bad_cells(cells, "the table")
        x = self._with_vectors([column.encoded(cells[column.name]) for column in self.columns])
        if how == "impute":
            return self._filled(x, self._missing(cells))
        x[~np.all([held.is_there for held in cells.values()], axis=0)] = np.nan
        return x

    def imputations(self, x: Floats, cells: Mapping[str, Cells]) -> Imputations | None:
        """What may be in the missing cells of a table, whose inputs are x (N, d); None where none is missing."""
        is_missing = self._missing(cells)
        rows = np.flatnonzero(is_missing.any(1))
        if self.donors is None or not len(rows):
            return None
        marks, complete = list(self.marks.values()), self.donors.imputations(x[rows], is_missing[rows])
        complete[..., marks] = 0.0
        is_marked = (x[rows][:, marks] > 0.0).any(1)
        return Imputations(*(torch.from_numpy(part) for part in (rows, complete, is_marked)))

    def unseen(self, cells: Mapping[str, Cells]) -> list[str]:
        """The categories of every row that the table that was learned from did not have, such as "region=West"."""
        rows = [""] * max((len(held.values) for held in cells.values()), default=0)
        for column in self.categorical:
            held = cells[column.name]
            is_known = np.isin(held.values.astype(str), column.categories)
            for row in np.flatnonzero(held.is_there & ~is_known):
                rows[row] = ", ".join(filter(None, [rows[row], f"{column.name}={held.values[row]}"]))
        return rows

    def to_json(self) -> dict[str, Any]:
        """The rules as numbers, strings, lists and dictionaries."""
        record: dict[str, Any] = asdict(self)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The rules that :meth:`to_json` gave."""
        columns = tuple(InputColumn.from_json(column) for column in record["columns"])
        coordinates = tuple((latitude, longitude) for latitude, longitude in record["coordinates"])
        donors = Donors.from_json(record["donors"]) if record["donors"] else None
        return cls(columns, record["missing"], record["decimal"], tuple(record["words"]), coordinates, donors)


def _mean_angle(cells: Cells) -> float:
    """The direction of the mean of the unit vectors of angles, in degrees."""
    angles = np.radians(cells.values[cells.is_there].astype(np.float64))
    return float(np.degrees(np.angle(np.exp(1j * angles).mean())))


def named(frame: pandas.DataFrame) -> pandas.DataFrame:
    """A data frame with names of columns that are strings, and rows by their numbers."""
    renamed = frame.rename(columns=tidy)
    check_names(renamed)
    return renamed.reset_index(drop=True)


def tidy(name: Any) -> str:
    """The name of a column, with single blanks."""
    return " ".join(str(name).split())

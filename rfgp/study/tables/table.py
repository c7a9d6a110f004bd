"""A table as inputs and targets, with a report of its columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._support import checks
from ..._support.data_frames import Missing
from ...sklearn.frames.cells import WRONG, Cells, decimal_of, read_as, recognized
from ...sklearn.frames.donors import Imputations
from ...sklearn.frames.encoding import Encoding
from ...sklearn.frames.problems import bad_cells, check_numbers, several, shown
from ..datasets import Dataset
from ..datasets.base import Scaling, Task, split
from .exposure import exposure_rule, exposures
from .files import LearnedLayout, Raw, Reading, open_table
from .report import Column, column_of, report, same_columns, same_rows
from .roles import roles_of
from .targets import check_frequent, known_rows, targets_of

if TYPE_CHECKING:
    import pandas

_MOST_NAMED = 20


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs and targets of a table, and how they came about.

    :param name: the name of the file, or "the table".
    :param x: inputs (N, d), float64.
    :param y: targets (N,), or (N, T) for T of them, float64, with NaN where one of several is missing, or class numbers
        (N,), int64; None without a target.
    :param exposure: over what rows have collected their counts, (N,), float64; None for other targets.
    :param target_names: the names of the targets.
    :param task: "regression", "classification" or "counts"; None without a target.
    :param class_names: the names of the classes, in the order of their numbers.
    :param encoding: makes inputs of another table with the same columns.
    :param learned: how the file was read, and the row identifier.
    :param columns: what there is to say about every column of the table.
    :param notes: what there is to say about the whole of it.
    :param rows: the rows of the table that are in x and y, (N,), from 0.
    :param format: what kind of file it was.
    :param cells: the cells of the columns of inputs, by name.

    >>> import pandas, rfgp
    >>> frame = pandas.DataFrame({"size": [float(i * i) for i in range(20)], "price": [0.5 * i for i in range(20)]})
    >>> table = rfgp.study.tables.read(frame, target="price")
    >>> table.task, table.input_names, tuple(table.split().x_train.shape)
    ('regression', ('size',), (16, 1))
    """

    name: str
    x: Tensor
    y: Tensor | None
    target_names: tuple[str, ...]
    task: Task | None
    class_names: tuple[str, ...]
    encoding: Encoding
    learned: LearnedLayout
    columns: tuple[Column, ...]
    notes: tuple[str, ...]
    rows: NDArray[np.int64]
    format: str
    cells: Mapping[str, Cells]
    exposure: Tensor | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """The d names of the inputs; a category has that of its column, =, and its value."""
        return self.encoding.input_names

    def report(self) -> str:
        """What there is to say about the columns, in plain text."""
        task = f"; {self.task} of {', '.join(self.target_names)}" if self.task else ""
        if self.class_names:
            task += f", {len(self.class_names)} classes: {', '.join(self.class_names[:_MOST_NAMED])}"
            task += ", ..." if len(self.class_names) > _MOST_NAMED else ""
        size = f"{several(len(self.x), 'row')}, {several(self.x.shape[1], 'input')}"
        title = f"{self.name} ({self.format}): {size}{task}"
        return str(report(title, self.columns, self.notes))

    def split(self, test_share: float = 0.2, seed: int = 0, scaling: Scaling = "standardize") -> Dataset:
        """The table as a data set of which random rows, a share of ``test_share``, are kept for testing.

        The means of targets that are inputs know the other rows only.
        """
        if self.y is None or self.task is None:
            raise ValueError("expected a table with a target, got none; read it with target=")
        checks.share("test_share", test_share)
        train, y_train, test, y_test = self._split(test_share, seed)
        exposures = (None, None) if self.exposure is None else (self.exposure[train], self.exposure[test])
        x_train, x_test = self._inputs(train, test)
        return Dataset(
            Path(self.name).name.partition(".")[0],
            x_train,
            torch.from_numpy(y_train),
            x_test,
            torch.from_numpy(y_test),
            self.task,
            len(self.class_names) or None,
            self.name,
            "that of the file",
            scaling,
            self.target_names if self.y.dim() == 2 else (),
            *exposures,
        )

    def _split(self, test_share: float, seed: int) -> tuple[NDArray[Any], ...]:
        """The numbers of training and test rows, each with their targets."""
        if self.y is None:
            raise ValueError("expected a table with a target, got none; read it with target=")
        return split(self.name, np.arange(len(self.x)), self.y.numpy(), test_share, checks.seed(seed))

    def missing_of_test(self, test_share: float, seed: int) -> Imputations | None:
        """What may be in missing cells of the test rows of :meth:`split`, by its training rows; None without any."""
        train, _, test, _ = self._split(test_share, seed)
        x_train, x_test = (part.numpy() for part in self._inputs(train, test))
        of_train, of_test = ({name: held.taken(rows) for name, held in self.cells.items()} for rows in (train, test))
        encoding = replace(self.encoding, donors=self.encoding.donors_of(x_train, of_train))
        return encoding.imputations(x_test, of_test)

    def _inputs(self, train: NDArray[np.int64], test: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The inputs of training and test rows, where codes are learned from the training rows alone."""
        x = self.x.numpy().copy()
        for rule in self.encoding.columns:
            if rule.codes and self.y is not None and self.task is not None:
                cells, places = self.cells[rule.name], self.encoding.positions(rule)
                learned, of_train = rule.coded(cells.taken(train), self.y[train].numpy(), self.task)
                x[train[:, None], places], x[test[:, None], places] = of_train, learned.encoded(cells.taken(test))
        return torch.from_numpy(x[train]), torch.from_numpy(x[test])

    def with_categories(self, most: int) -> Table:
        """The table with an input for each of up to ``most`` categories of a column, and means of targets for more."""
        if self.y is None or self.task is None:
            raise ValueError("expected a table with a target, got none; read it with target=")
        known = self.encoding
        settings = {name: getattr(known, name) for name in ("missing", "decimal", "words", "coordinates")}
        encoding, x = Encoding.learned(self.cells, self.y.numpy(), self.task, most, **settings)
        return replace(self, x=torch.from_numpy(x), encoding=encoding)


def read(
    source: Any,
    target: str | int | Sequence[str | int] | None = None,
    *,
    task: Task | None = None,
    missing: Missing = "impute",
    exposure: str | int | None = None,
    drop: Sequence[str | int] = (),
    keep: Sequence[str | int] = (),
    coordinates: Sequence[str | int] = (),
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    sheet: str | int | None = None,
    missing_values: Sequence[str] | None = None,
) -> Table:
    """Read a table, and make numbers of it.

    *Files.* Text (.csv, .tsv, .txt, .dat), JSON lines (.jsonl, .ndjson), Parquet and workbooks (.xlsx), each also with
    .gz behind it. Of text, the encoding, the separator, the decimal comma, a header, and comments are recognized.

    *Inputs.* Numbers and booleans are inputs as they are, also with one unit such as "$69.44" or "12 %". Dates are days
    since 1970, and year, month, day, weekday and hour where these vary. Text of two values is one input, 0 or 1, and
    text of up to 50 values one input for each; of more values the input is the mean of the target in other rows with
    the same value, beside the number of these. Left out are columns with a single value, texts that most rows have for
    themselves, and a row identifier, such as 0, 1, 2, ..., or different values under a name such as "id".

    *Missing.* Empty cells, NA, NaN, null, none, ?, -, infinite numbers, and text in a column of numbers, but for ranges
    such as "2-10", which are names of groups: "impute" puts in the mean, or the most frequent text, of the ten rows
    that are nearest in the other columns, and marks ten such cells or more by one more input; "raise" counts them, and
    "drop" leaves their rows out. Rows without a target are left out, but text and infinite numbers in a target of
    numbers may say more than that, such as "> 100", and are a ValueError, but for "drop" and words of
    ``missing_values``. Where a tenth of a target of text is such a word, it may be a class, and ``missing_values`` has
    to say what is missing.

    :param source: a path, or a data frame of pandas, Polars or PyArrow.
    :param target: the name or the index of the column of the target, or several ones, also as "a,b"; default: none.
    :param task: "regression", "classification", or "counts" for whole numbers of events; default: classification for
        text, booleans and few integers.
    :param exposure: the column of what rows have collected their counts over, such as years, which is then no input;
        rows without one are left out, as those without a target. Default: ones.
    :param missing: "impute", "raise" or "drop".
    :param drop: columns that are not looked at.
    :param keep: columns that are inputs although they look like row identifiers.
    :param coordinates: a latitude and a longitude in degrees, or several such pairs, which become unit vectors, see
        :class:`rfgp.kernels.SphericalCoordinates`; default: none, as fields such as winds vary less along a latitude.
    :param decimal: the decimal point or comma of text.
    :param header: whether the first row has the names of the columns.
    :param sheet: the name or the index of the sheet of a workbook; default: the first one.
    :param missing_values: words of cells without a value, in any letters, beside empty cells; default: NA, N/A, NaN,
        null, none, nil, ?, -, --, and a point.
    :raises ValueError: for a bad file, column or cell, and for integers of many values as a target without a task.
    :raises ImportError: without pandas, or what the format needs: the extra ``study`` has it.

    >>> import pandas, rfgp
    >>> frame = pandas.DataFrame({"rooms": [2, 3, None], "heated": ["yes", "no", "yes"], "price": [1.5, 2.0, 2.5]})
    >>> table = rfgp.study.tables.read(frame, target="price", missing="impute")
    >>> table.x.tolist(), table.input_names
    ([[2.0, 1.0], [3.0, 0.0], [2.5, 1.0]], ('rooms', 'heated=yes'))
    """
    checks.choice("missing", missing, get_args(Missing))
    if task is not None:
        checks.choice("task", task, get_args(Task))
    given = None if missing_values is None else tuple(missing_values)
    wanted = Reading(separator, decimal, header, sheet, missing_values=given)
    raw, words = open_table(source, wanted), wanted.missing_words
    targets = _columns(raw, target, "the target") if target is not None else []
    of_exposure = [] if exposure is None else _exposure_columns(raw, exposure, task)
    dropped, kept = _columns(raw, drop, "a column to drop"), _columns(raw, keep, "a column to keep")
    no_inputs = dict.fromkeys(targets, "target") | dict.fromkeys(of_exposure, "exposure")
    for role, names in (("a target", targets), ("an exposure", of_exposure)):
        for name in names:
            if name in dropped:
                raise ValueError(f"expected {role} that is not dropped, got {shown(name)} as both; drop others")
            if no_inputs[name] not in role:
                raise ValueError(f"expected {role} that is no exposure, got {shown(name)} as both; name another")
    looked_at = raw.frame[[name for name in raw.frame.columns if name not in dropped]]
    usual = "." if raw.reading.separator == "," else None
    found_mark = decimal_of(looked_at, raw.name, usual) if decimal is None else decimal
    mark = found_mark or "."
    of_targets = {name: recognized(looked_at[name], mark, words) for name in targets}
    if task == "classification":
        of_targets = {name: _labels(looked_at[name], held, mark, words) for name, held in of_targets.items()}
    if missing_values is None:
        check_frequent(of_targets, raw.name)
    exposed = {name: recognized(looked_at[name], mark, words) for name in of_exposure}
    if missing == "impute":
        check_numbers(of_targets | exposed, raw.name)
    known, without = known_rows(of_targets, exposed, len(looked_at), missing, raw.name)
    looked_at = looked_at if not without else looked_at.iloc[known]
    cells = {
        name: of_targets[name].taken(known) if name in of_targets else recognized(looked_at[name], mark, words)
        for name in looked_at.columns
    }
    roles = roles_of(cells, no_inputs, kept, raw.index, known)
    inputs = [name for name in cells if name not in roles]
    rows, notes = _rows(cells, inputs, list(no_inputs), missing, raw.name)
    columns = {name: column_of(name, of_targets.get(name, cells[name]), roles.get(name, "input")) for name in cells}
    taken = {name: cells[name].taken(rows) for name in (*inputs, *no_inputs)}
    for name in inputs:
        if taken[name].is_constant:
            columns[name] = replace(columns[name], role="constant")
    chosen = {name: taken[name] for name in inputs if columns[name].role == "input"}
    if not chosen:
        named = ", ".join(f"{column.name!r} ({column.role})" for column in list(columns.values())[:_MOST_NAMED])
        raise ValueError(f"expected a column of {raw.name} that can be an input, got {named}; add one")
    y, found_task, classes = targets_of({name: taken[name] for name in targets}, task, raw.name)
    numbers = None if y is None else y.numpy()
    settings: dict[str, Any] = {"missing": missing, "decimal": found_mark, "words": words}
    settings["coordinates"] = _pairs(_columns(raw, coordinates, "a coordinate"), chosen, columns)
    encoding, x = Encoding.learned(chosen, numbers, found_task or "", **settings)
    rules = [exposure_rule(name, taken[name], decimal=found_mark, words=words) for name in of_exposure]
    index = "".join(name for name, role in roles.items() if role == "index")
    for name, other in same_columns({name: cells[name] for name in (*inputs, *targets)}).items():
        columns[name] = replace(columns[name], duplicate_of=other)
    again = same_rows(looked_at[[*inputs, *no_inputs]])
    text_format = raw.format + (", decimal comma" if mark == "," else "")
    return Table(
        raw.name,
        torch.from_numpy(x),
        y,
        tuple(targets),
        found_task,
        classes,
        encoding,
        LearnedLayout(raw.reading, (*chosen, *of_exposure), index, *rules),
        tuple(columns.get(name, Column(name, "", 0, 0, "", "dropped")) for name in raw.frame.columns),
        (
            *raw.notes,
            *without,
            *notes,
            *([again] if again else []),
            *_notes(list(columns.values())),
        ),
        known[rows],
        text_format,
        chosen,
        *(exposures(rule, {rule.columns[0].name: taken[rule.columns[0].name]}) for rule in rules),
    )


def _pairs(names: list[str], chosen: Mapping[str, Cells], columns: Mapping[str, Column]) -> tuple[tuple[str, str], ...]:
    """Pairs of columns of latitude and longitude."""
    if len(names) % 2:
        raise ValueError(f"expected pairs of a latitude and a longitude, got {', '.join(names)}; name both")
    for name in names:
        if name not in chosen:
            found = columns[name].role if name in columns else "dropped"
        elif (found := chosen[name].kind) in ("integer", "number"):
            continue
        raise ValueError(f"expected inputs of numbers as coordinates, got {shown(name)} ({found}); name others")
    return tuple(zip(names[::2], names[1::2], strict=True))


def _columns(raw: Raw, wanted: Any, what: str) -> list[str]:
    """The names of columns that are given by names or indices, one of them, several, or several in a string."""
    names = list(raw.frame.columns)
    if isinstance(wanted, str) and wanted not in names and "," in wanted:
        wanted = [part.strip() for part in wanted.split(",") if part.strip()]
    if isinstance(wanted, str | int):
        wanted = [wanted]
    if not isinstance(wanted, Sequence) or isinstance(wanted, bytes):
        raise ValueError(f"expected the name of a column as {what}, got {type(wanted).__name__}; pass a string")
    chosen = [_column(raw, names, one, what) for one in wanted]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"expected different columns as {what}, got {', '.join(map(shown, chosen))}; name each once")
    return chosen


def _exposure_columns(raw: Raw, exposure: str | int, task: Task | None) -> list[str]:
    """The name of the column of exposures, in a list."""
    if task != "counts":
        raise ValueError(
            f'expected task="counts" (--counts) beside an exposure, got {task!r}; pass it, or leave the exposure out'
        )
    found = _columns(raw, exposure, "the exposure")
    if len(found) > 1:
        raise ValueError(f"expected one column as the exposure, got {', '.join(map(shown, found))}; name one")
    return found


def _column(raw: Raw, names: list[str], wanted: Any, what: str) -> str:
    if isinstance(wanted, str) and wanted in names and wanted not in raw.repeated:
        return wanted
    is_index = re.fullmatch("[+-]?[0-9]{1,18}", str(wanted)) is not None and not isinstance(wanted, bool)
    if is_index and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    several = ", which several columns have" if isinstance(wanted, str) and wanted in raw.repeated else ""
    close = difflib.get_close_matches(str(wanted), names, n=1)
    meant = f"did you mean {shown(close[0])}?" if close and not several else "choose one of them"
    listed = ", ".join(shown(name)[1:-1] for name in names[:_MOST_NAMED]) + (
        ", ..." if len(names) > _MOST_NAMED else ""
    )
    raise ValueError(
        f"expected the name of one column of {raw.name} ({listed}) or its index as {what}, got "
        f"{shown(wanted)}{several}; {meant}"
    )


def _labels(column: pandas.Series, cells: Cells, decimal: str, words: tuple[str, ...]) -> Cells:
    """A column of labels, as text where some of them are no numbers."""
    return read_as(column, "text", decimal=decimal, words=words) if bool((cells.states == WRONG).any()) else cells


def _rows(
    cells: Mapping[str, Cells], inputs: list[str], targets: list[str], missing: Missing, name: str
) -> tuple[NDArray[np.int64], list[str]]:
    """The rows that are taken of those with a target, and what there is to say about missing cells."""
    wanted = {column: cells[column] for column in (*inputs, *targets)}
    bad = {column: column_cells for column, column_cells in wanted.items() if not column_cells.is_there.all()}
    if missing == "raise" and bad:
        raise bad_cells(bad, name)
    count = len(next(iter(cells.values())).values) if cells else 0
    has_inputs = np.ones(count, bool)
    for column in inputs:
        has_inputs &= cells[column].is_there
    rows = np.flatnonzero(has_inputs) if missing == "drop" else np.arange(count)
    if not len(rows):
        worst = max(bad, key=lambda column: int((~bad[column].is_there).sum()))
        raise ValueError(
            f"expected rows of {name} without missing cells, got none of {count:,}; {worst!r} has "
            f"{int((~bad[worst].is_there).sum()):,} missing: drop such columns (--drop), or impute (--missing impute)"
        )
    notes = []
    if len(rows) < count:
        notes.append(f"{several(count - len(rows), 'row')} with missing cells left out")
    filled = {column: int((~bad[column].is_there[rows]).sum()) for column in inputs if column in bad}
    if missing == "impute" and any(filled.values()):
        named = ", ".join(f"{number:,} in {column}" for column, number in filled.items() if number)
        notes.append(f"cells that are filled in by the rows nearest in the other columns: {named}")
    return rows, notes


def _notes(columns: list[Column]) -> list[str]:
    """What there is to say about columns that are left out, or are there twice."""
    notes = []
    for role, advice in (
        ("index", "is a row identifier and is left out; keep it as an input by keep= (--keep)"),
        ("names", "left out, since most rows have a text of their own; keep it by keep= (--keep)"),
        ("constant", "left out, since there is a single value"),
        ("empty", "left out, since no cell has a value"),
    ):
        named = [column.name for column in columns if column.role == role]
        if named:
            notes.append(f"{', '.join(named)}: {advice}")
    inputs = [column for column in columns if column.role == "input"]
    wrong = [f"{column.name} ({column.problems})" for column in inputs if "wrong" in column.problems]
    if wrong:
        notes.append(f"cells of other kinds than their column are taken as missing: {', '.join(wrong)}")
    twice = [f"{column.name} = {column.duplicate_of}" for column in columns if column.duplicate_of]
    if twice:
        notes.append(f"columns with the same values: {', '.join(twice)}; drop one of each (--drop)")
    return notes

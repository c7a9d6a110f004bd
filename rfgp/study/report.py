"""The parts of reports: tables, sections and pages, as plain text and as one HTML file that needs no network."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

from .._support import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUMBER = re.compile(r"\s*[-+−±(]?\s*[0-9.]|\s*$|[-+]?(inf|nan)\b")
"""How cells of numbers begin."""


@dataclass(frozen=True)
class ReportTable:
    """Cells in blocks of rows. Columns of numbers are aligned to the right, the first and those of words to the left.

    :param header: the titles of the columns.
    :param blocks: cells by block and row.

    >>> print(ReportTable(["method", "RMSE"], [[["landmarks", "0.25"]], [["exact", "0.2"]]]))
    method     RMSE
    ---------------
    landmarks  0.25
    ---------------
    exact       0.2
    """

    header: Sequence[str]
    blocks: Sequence[Sequence[Sequence[str]]]

    @cached_property
    def is_number(self) -> list[bool]:
        """Which columns have numbers; the first has names."""
        columns = zip(*(row for block in self.blocks for row in block), strict=True)
        return [place > 0 and all(map(_NUMBER.match, column)) for place, column in enumerate(columns)]

    def __str__(self) -> str:
        rows = [self.header, *(row for block in self.blocks for row in block)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))

        def line(row: Sequence[str]) -> str:
            places = zip(row, widths, self.is_number, strict=True)
            return "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in places).rstrip()

        lines = [line(self.header)]
        for block in self.blocks:
            lines += [rule, *map(line, block)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Section:
    """A part of a page: a title, sentences, a table, and what its columns mean.

    :param title: its title; none for the first.
    :param sentences: what there is to say.
    :param table: a table.
    :param note: what has to be known to read the table.
    :param figures: draws figures, with what they show; in HTML alone, as the rest.
    :param pairs: names and values.
    :param code: text of fixed width, such as a command.

    >>> print(Section("Errors", ["They are small."], note="In meters."))
    Errors
    They are small.
    In meters.
    """

    title: str = ""
    sentences: Sequence[str] = ()
    table: ReportTable | None = None
    note: str = ""
    figures: Callable[[], Iterable[tuple[str, Figure]]] | None = None
    pairs: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""

    def __str__(self) -> str:
        words = [*filter(None, [self.title]), *self.sentences]
        table = [*([""] if words else []), str(self.table)] if self.table else []
        return "\n".join([*words, *table, *filter(None, [self.note])])


@dataclass(frozen=True)
class Page:
    """A report.

    :param heading: what was measured.
    :param headline: what comes of it, in a sentence.
    :param reasons: what that rests on.
    :param sections: the rest.
    :param advice: what else there is to know.
    :param subject: the data, in a line.

    >>> print(Page("Study", "Use the exact model.", ["It is affordable."], [Section("Errors", ["They are small."])]))
    Study
    <BLANKLINE>
    Use the exact model.
    It is affordable.
    <BLANKLINE>
    Errors
    They are small.
    """

    heading: str
    headline: str
    reasons: Sequence[str]
    sections: Sequence[Section]
    advice: Sequence[str] = ()
    subject: str = ""

    def __str__(self) -> str:
        first = [self.heading, *([self.subject] if self.subject else [])]
        verdict = "\n".join([self.headline, *self.reasons, *self.advice])
        return "\n\n".join(["\n".join(first), verdict, *map(str, self.sections)])

    def html(self) -> str:
        """The page as one HTML file, with its figures inside.

        :raises ImportError: without Jinja or matplotlib.
        """
        jinja2 = optional.require("jinja2", "jinja2", "reports")
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        environment.filters |= {"png": _png, "listed": _listed}
        template = resources.files(__package__).joinpath("report.html.jinja").read_text(encoding="utf-8")
        text: str = environment.from_string(template).render(page=self)
        return text


def _png(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode()


def _listed(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

"""Numbers of pages that come from results: a role for one, and a directive for a table.

``:measured:`scale_rows > cells > rfgp, Parquet > 1000000 > seconds > .1f`` `` is the number at these keys of
``benchmarks/results/scale_rows.json``, in a format of Python. A table has a row for every key below a path::

    .. measured-table:: learned_noise > claims
       :header: parameters from, median, quartiles

       "{}", {median:.2f}, {quartiles[0]:.2f} to {quartiles[1]:.2f}

Its content is one line of CSV: ``{}`` is the key, and the other fields are what lies below it. What a result lacks is a
warning, which ends ``make docs``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst.directives.tables import CSVTable
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

if TYPE_CHECKING:
    from sphinx.application import Sphinx

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
LOGGER = logging.getLogger(__name__)


def file_of(path: str) -> Path:
    """The file of results that a path begins with."""
    return RESULTS / f"{path.partition('>')[0].strip()}.json"


def found(path: str) -> Any:
    """What lies at a path, such as ``saving > cells > kin8nm|0 > rows``.

    :raises ValueError: where there is no such file or key.
    """
    if not file_of(path).exists():
        raise ValueError(f"{path!r}: expected a file of results, got no {file_of(path).name}")
    value = json.loads(file_of(path).read_text(encoding="utf-8"))
    for key in map(str.strip, path.split(">")[1:]):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (LookupError, TypeError, ValueError):
            known = ", ".join(value) if isinstance(value, dict) else f"{value!r:.40}"
            raise ValueError(f"{path!r}: expected a key of the result, got {key!r} among {known}") from None
    return value


def written(text: str) -> str:
    """The number of a role: a path, and behind the last ">" its format."""
    path, _, form = text.rpartition(">")
    return format(found(path), form.strip())


def rows(path: str, template: str) -> list[str]:
    """A line of CSV for every key below a path."""
    try:
        return [template.format(name, **row) for name, row in found(path).items()]
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{path!r}: expected what {template!r} names in every row, got {error!r}") from None


class Measured(SphinxRole):
    """One number."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The number as text."""
        self.env.note_dependency(str(file_of(self.text)))
        try:
            return [nodes.Text(written(self.text))], []
        except ValueError as error:
            LOGGER.warning("%s", error, location=self.get_location())
            return [nodes.problematic(self.rawtext, self.rawtext)], []


class MeasuredTable(CSVTable, SphinxDirective):
    """A table, with the options of ``csv-table``."""

    required_arguments, optional_arguments = 1, 0

    def run(self) -> list[nodes.Node]:
        """The table, without a title."""
        path, self.arguments = self.arguments[0], []
        self.env.note_dependency(str(file_of(path)))
        try:
            self.content = rows(path, " ".join(self.content))
        except ValueError as error:
            LOGGER.warning("%s", error, location=self.get_location())
            return []
        return super().run()

    def get_csv_data(self) -> tuple[list[str], str]:
        """The lines of the table, and the page that they are on."""
        return list(self.content), self.get_source_info()[0]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("measured", Measured())
    app.add_directive("measured-table", MeasuredTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

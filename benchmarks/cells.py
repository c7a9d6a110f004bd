"""Numbers of pages that come from results: each is compared with its file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .common import read


@dataclass(frozen=True)
class Cell:
    """Numbers in a sentence or a row of a table.

    :param page: the page, from the root of the repository.
    :param words: a regular expression with a group for each number.
    :param result: the name of the file of results.
    :param values: the numbers by the content of the file.
    """

    page: str
    words: str
    result: str
    values: Callable[[Any], list[float]]

    def problems(self, root: Path, results: Path) -> list[str]:
        """Where the page has other numbers than the file, in words."""
        found = re.search(self.words, (root / self.page).read_text(encoding="utf-8"))
        content = read(results / f"{self.result}.json")
        if found is None or not content:
            missing = "words" if found is None else "results"
            return [f"{self.page}: no {missing} for {self.words!r} of {self.result}"]
        try:
            pairs = zip(found.groups(), self.values(content), strict=True)
        except LookupError as error:
            return [f"{self.page}: {self.result} has no {error}, of which {self.words!r} speaks"]
        return [
            f"{self.page}: {text} where {self.result} has {value:.6g}"
            for text, value in pairs
            if not agrees(text, value)
        ]

    def write(self, root: Path, results: Path) -> None:
        """Put the numbers of the file into the page, with the digits that it has."""
        path = root / self.page
        page = path.read_text(encoding="utf-8")
        found, content = re.search(self.words, page), read(results / f"{self.result}.json")
        if found is not None and content:
            values = self.values(content)
            for group in reversed(range(found.re.groups)):
                start, end = found.span(group + 1)
                page = replaced(page, start, end, like(page[start:end], values[group]))
            path.write_text(page, encoding="utf-8")


def agrees(text: str, value: float) -> bool:
    """Whether a number is what a text says, to the digits that it has.

    >>> agrees(".67", 0.6749), agrees("7.6", 7.66)
    (True, False)
    """
    digits = len(text.partition(".")[2])
    return abs(float(text.replace(",", "")) - value) <= 0.5 * 10.0**-digits * (1.0 + 1e-9)


def replaced(page: str, start: int, end: int, text: str) -> str:
    """A page with another text in a place; blanks after it in a table keep the columns where they are.

    >>> replaced("row  11.5    9", 5, 9, "5.4"), replaced("in 11.5 s", 3, 7, "5.4")
    ('row  5.4     9', 'in 5.4 s')
    """
    blanks = len(page[end:]) - len(page[end:].lstrip(" "))
    kept = max(1, blanks + end - start - len(text)) if blanks > 1 else blanks
    return page[:start] + text + " " * kept + page[end + blanks :]


def like(text: str, value: float) -> str:
    """A number with the digits of a text.

    >>> like(".67", 0.7049), like("7.6", 7.66), like("1,024", 2048.0)
    ('.70', '7.7', '2,048')
    """
    digits = len(text.partition(".")[2])
    written = f"{value:,.{digits}f}" if "," in text or abs(value) >= 1000.0 else f"{value:.{digits}f}"
    return re.sub(r"^(-?)0(?=\.)", r"\1", written) if re.match(r"-?\.", text) else written

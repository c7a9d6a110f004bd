"""The table of reproductions, from the stored results: as Markdown for the folder, and as CSV for the documentation."""

from __future__ import annotations

import csv
import importlib
import io
from typing import Any

from .inventory import ITEMS
from .item import HERE, Claim, Item, verdict

HEADER = ("item", "what it shows", "printed", "ours", "verdict", "data", "seconds", "commit")
README, PAGE = HERE / "README.md", HERE.parents[1] / "docs" / "reproductions.csv"
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def module(script: str) -> Any:
    """The module of a script of this folder."""
    return importlib.import_module(f"{__package__}.{script}")


def claims(item: Item, result: dict[str, Any]) -> list[Claim]:
    """What an item states, beside a result of its script."""
    found: list[Claim] = module(item.script).CLAIMS[item.name](result)
    return found


def row(item: Item) -> list[str]:
    """The line of an item; without a stored result it says what is missing."""
    result = item.stored() if item.script else None
    if result is None:
        reason = "full run still to be made; its quick form runs in the tests" if item.script else item.differs
        return [item.name, item.shows, "", "", reason, item.data, "", ""]
    found = claims(item, result)
    numbered = [f"({i}) " if len(found) > 1 else "" for i in range(1, len(found) + 1)]
    seconds = result.get("seconds")
    return [
        item.name,
        item.shows,
        "; ".join(number + claim.printed for number, claim in zip(numbered, found, strict=True)),
        "; ".join(number + claim.ours for number, claim in zip(numbered, found, strict=True)),
        verdict(found, item.differs, result.get("quick", False)),
        item.data,
        f"{seconds:.0f}" if isinstance(seconds, int | float) else "",
        result["environment"]["commit"][:7],
    ]


def rows() -> list[list[str]]:
    """The lines of all items."""
    return [row(item) for item in ITEMS]


def as_csv(lines: list[list[str]]) -> str:
    """The table for the documentation."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [HEADER, *([cell.replace("|", r"\|") for cell in line] for line in lines)]
    )
    return text.getvalue()


def as_readme(lines: list[list[str]]) -> str:
    """The page of this folder with the table in its place."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    table = "\n".join("| " + " | ".join(line) + " |" for line in [HEADER, ["---"] * len(HEADER), *escaped])
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"


def write_all() -> None:
    """Write both tables."""
    lines = rows()
    README.write_text(as_readme(lines), encoding="utf-8")
    PAGE.write_text(as_csv(lines), encoding="utf-8")

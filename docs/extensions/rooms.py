"""The rooms of the package, from its imports: a table and a picture for ``architecture.md``.

``python docs/extensions/rooms.py`` writes both; the documentation does so before it is built.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent / "rfgp"
PAGE, PICTURE = DOCS / "architecture.md", DOCS / "figures" / "rooms.svg"
BEGIN, END = "<!-- rooms: written by docs/extensions/rooms.py -->", "<!-- end of rooms -->"
DOORS = ("botorch", "dask", "sklearn")
WIDTH, HEIGHT, STEP = 118, 30, 62


def room_of(path: Path) -> str:
    """The room that a file is in; that of the top of the package is empty."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


def imported(path: Path) -> set[str]:
    """The rooms that a file imports where it runs, beside its own."""
    package = ["rfgp", *path.relative_to(ROOT).parts[:-1]]
    found = set()
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    checks = (node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for_types = {inner for node in checks for inner in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level and node not in for_types:
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            found |= {base[1]} if len(base) > 1 else {alias.name for alias in node.names}
    return found & set(names()) - {room_of(path)}


@functools.cache
def names() -> tuple[str, ...]:
    """The rooms by name."""
    return tuple(sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))


@functools.cache
def imports() -> dict[str, set[str]]:
    """The rooms that every room imports."""
    graph: dict[str, set[str]] = {name: set() for name in names()}
    for path in ROOT.rglob("*.py"):
        if room := room_of(path):
            graph[room] |= imported(path)
    return graph


def floors() -> list[list[str]]:
    """The rooms by floor: a room is one floor above the highest that it imports.

    :raises ValueError: where rooms import each other.
    """
    left, levels = dict(imports()), {}
    while left:
        free = [name for name, others in left.items() if others <= levels.keys()]
        if not free:
            raise ValueError(f"expected rooms that do not import each other, got a circle in {', '.join(left)}")
        levels |= {name: 1 + max((levels[other] for other in left[name]), default=-1) for name in free}
        left = {name: others for name, others in left.items() if name not in levels}
    return [[name for name in names() if levels[name] == level] for level in range(1 + max(levels.values()))]


def summary(name: str) -> str:
    """The first line of what a room says of itself."""
    text = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.sub(r":\w+:`~?(.+?)`", r"`\1`", text.splitlines()[0])


def table() -> str:
    """The table of rooms, the lowest floor first."""
    lines = ["| floor | room | what lives there | imports |", "| --- | --- | --- | --- |"]
    for level, rooms in enumerate(floors()):
        for name in rooms:
            others = ", ".join(f"`{other}`" for floor in floors() for other in floor if other in imports()[name])
            lines.append(f"| {level} | `{name}` | {summary(name)} | {others} |")
    return "\n".join(lines)


def picture() -> str:
    """The rooms as boxes, floor upon floor, and a line to every room that a room imports and no other of its brings."""
    levels = floors()
    width = max(map(len, levels)) * (WIDTH + 24) + 24
    places: dict[str, tuple[float, float]] = {}
    for level, rooms in enumerate(levels):
        for index, name in enumerate(rooms):
            x = (index + 0.5) * width / len(rooms)
            places[name] = x, (len(levels) - level) * STEP - STEP / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(levels) * STEP}" font-family="sans-serif" '
        'font-size="13">'
    ]
    for name, others in imports().items():
        indirect = set().union(*(below(other) for other in others))
        for other in sorted(others - indirect):
            (x, y), (u, v) = places[name], places[other]
            parts.append(f'<line x1="{x:g}" y1="{y + HEIGHT / 2:g}" x2="{u:g}" y2="{v - HEIGHT / 2:g}" stroke="#888"/>')
    for name, (x, y) in places.items():
        fill = "#fde9c8" if name in DOORS else "#dce9f7"
        parts.append(
            f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
            f'fill="{fill}" stroke="#456"/><text x="{x:g}" y="{y + 4:g}" text-anchor="middle">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


@functools.cache
def below(name: str) -> frozenset[str]:
    """All rooms that a room imports, directly or not."""
    return frozenset().union(imports()[name], *(below(other) for other in imports()[name]))


def with_table(page: str) -> str:
    """A page with the table of now between its marks."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def write(*_: Any) -> None:
    """Write the table into its page, and the picture beside it, where they have changed."""
    for path, text in ((PAGE, with_table(PAGE.read_text(encoding="utf-8"))), (PICTURE, picture())):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write both before the documentation is built."""
    app.connect("config-inited", write)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    write()

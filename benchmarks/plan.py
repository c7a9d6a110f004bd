"""Which script has which claim, and the command that measures it: the table of this folder's README."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_COMMAND = re.compile(r"`(?:OMP_NUM_THREADS=(\d+) )?python benchmarks/(\w+)\.py([^`]*)`")
_WANTED = re.compile(r" (--[\w-]+) ([A-Z]+)\b")


@dataclass(frozen=True)
class Script:
    """A script of this folder.

    :param name: its file without the suffix, and that of its result.
    :param threads: how many threads it is measured with.
    :param options: what follows it in the command.
    :param wanted: options whose value only the user knows, such as a checkout of another project.
    :param draws: whether its figure is drawn by the same command with ``--plot``.
    """

    name: str
    threads: int
    options: tuple[str, ...]
    wanted: tuple[str, ...]
    draws: bool


def scripts() -> list[Script]:
    """All scripts, in the order of the table."""
    rows = [line for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = []
    for row in rows:
        if match := _COMMAND.search(row):
            threads, name, options = match.groups()
            wanted = tuple(option for option, _ in _WANTED.findall(options) if option != "--data-dir")
            kept = tuple(_WANTED.sub("", options).split())
            found.append(Script(name, int(threads or 2), kept, wanted, "--plot`" in row))
    return found

"""Which script has which claim, and the command that measures it: the table of the README, then the papers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .papers.inventory import ITEMS

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
    threads: int = 1
    options: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    draws: bool = False
    has_full_size = False

    @property
    def file(self) -> Path:
        """Where it is."""
        return HERE / f"{self.name}.py"

    def result(self, results: Path) -> Path:
        """Where its result is stored, beside the others."""
        return results / f"{self.name}.json"

    def command(self, results: Path, size: str, given: Mapping[str, str]) -> list[str]:
        """The words that follow the interpreter.

        :param size: "quick", "default" or "full"; scripts that have no full size take the default one.
        :param given: values of options, such as ``--data-dir``, of which a script gets those that it knows.
        """
        shared = [*self.wanted, *(["--data-dir"] if self._has_data else [])]
        words = [word for option in shared if option in given for word in (option, given[option])]
        is_asked = size == "quick" or (size == "full" and self.has_full_size)
        return [*self._words(results), *words, *([f"--{size}"] if is_asked else [])]

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of its environment: threads, and the data directory of scripts without an option for it."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        return os.environ | threads | ({"RFGP_DATA": given["--data-dir"]} if "--data-dir" in given else {})

    @property
    def _has_data(self) -> bool:
        text = self.file.read_text(encoding="utf-8")
        return "add_data_dir" in text or "grid_arguments" in text

    def _words(self, results: Path) -> list[str]:
        return [str(self.file), *self.options, "--out", str(self.result(results).absolute())]


class Paper(Script):
    """A script of the folder of papers, whose results lie in a folder of their own."""

    @property
    def file(self) -> Path:
        """Where it is."""
        return HERE / "papers" / f"{self.name}.py"

    def result(self, results: Path) -> Path:
        """Where its result is stored."""
        return results.absolute().parent / "papers" / results.name / f"{self.name}.json"

    has_full_size = True
    _has_data = True

    def _words(self, results: Path) -> list[str]:
        return ["-m", "benchmarks.papers", self.name, "--out", str(self.result(results).parent)]


def scripts() -> list[Script]:
    """All scripts, in the order of the table, and those of the papers."""
    rows = [line for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = []
    for row in rows:
        if match := _COMMAND.search(row):
            threads, name, options = match.groups()
            wanted = tuple(option for option, _ in _WANTED.findall(options) if option != "--data-dir")
            kept = tuple(_WANTED.sub("", options).split())
            found.append(Script(name, int(threads or 2), kept, wanted, "--plot`" in row))
    papers = dict.fromkeys(item.script for item in ITEMS if item.script)
    return [*found, *(Paper(name) for name in papers)]

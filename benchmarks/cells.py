"""Numbers of pages that come from results: each is compared with its file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .runs import read


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
        pairs = zip(found.groups(), self.values(content), strict=True)
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
                page = page[:start] + like(page[start:end], values[group]) + page[end:]
            path.write_text(page, encoding="utf-8")


def agrees(text: str, value: float) -> bool:
    """Whether a number is what a text says, to the digits that it has.

    >>> agrees(".67", 0.6749), agrees("7.6", 7.66)
    (True, False)
    """
    digits = len(text.partition(".")[2])
    return abs(float(text.replace(",", "")) - value) <= 0.5 * 10.0**-digits * (1.0 + 1e-9)


def like(text: str, value: float) -> str:
    """A number with the digits of a text.

    >>> like(".67", 0.7049), like("7.6", 7.66), like("1,024", 2048.0)
    ('.70', '7.7', '2,048')
    """
    written = f"{value:,.{len(text.partition('.')[2])}f}" if "," in text else f"{value:.{len(text.partition('.')[2])}f}"
    return written.removeprefix("0") if text.startswith(".") else written


def _ratios(content: Any) -> list[float]:
    ratios = [row["error"] / row["boosting"] for row in content["rows"]]
    return [min(ratios), max(ratios)]


def _mean(content: Any, name: str, method: str, measure: str) -> float:
    """The mean over splits."""
    cells = [cell for key, cell in content["cells"].items() if key.rpartition("|")[0] == f"{name}|{method}"]
    return float(np.mean([point[measure] for cell in cells for point in cell.values()]))


def _tables(content: Any) -> list[float]:
    """Error and seconds on kin40k, and the error on rf1."""
    return [
        _mean(content, *cell)
        for cell in (("kin40k", "rfgp", "error"), ("kin40k", "rfgp", "seconds"), ("rf1", "rfgp", "error"))
    ]


def _boosting(content: Any) -> list[float]:
    """Errors of boosting on kin40k and rf1."""
    return [_mean(content, name, "boosting, up to 1,000 trees", "error") for name in ("kin40k", "rf1")]


def _grid(content: Any) -> list[float]:
    """Seconds of a fit with an open number of features, and of a map, with its memory in GB, for a Gaussian kernel."""
    cases = {case["method"]: case for case in content["cases"] if (case["kernel"], case["inputs"]) == ("Gaussian", 2)}
    whole, fit = cases["fourier_grid"], cases["fourier_grid, open"]
    return [fit["fit_seconds"], whole["map_seconds"], whole["peak_mb"] / 1000.0]


def _study(name: str) -> Callable[[Any], list[float]]:
    def values(content: Any) -> list[float]:
        cells = content["cells"][name]
        seconds = float(np.median([cell["seconds"] for cell in cells]))
        means = [[float(np.mean(cell[key])) for cell in cells] for key in ("coverage", "index_error", "indices_inside")]
        return [seconds, *(float(np.mean(column)) for column in means)]

    return values


def _row(name: str) -> str:
    return rf"(?m)^{name} +([\d.]+) +[\d.]+ +([\d.]+)[ ±.\d]*? {{2,}}([\d.]+) +([\d.]+)"


CELLS = [
    Cell("README.md", r"errors at (\.\d+) to (\.\d+) of boosting's", "messy_tables", _ratios),
    Cell("README.md", r"RMSE ([\d.]+) in ([\d.]+) s, .*; rf1.* lost: ([\d.]+) against", "accuracy_per_second", _tables),
    Cell("README.md", r"RMSE .* s, boosting ([\d.]+); rf1.* lost: .+ against ([\d.]+)\.", "accuracy_peers", _boosting),
    Cell("README.md", r"parameters in ([\d.]+) s, a map .* in ([\d.]+) s and ([\d.]+) GB", "fourier_grid", _grid),
    *(
        Cell("docs/uncertainty_studies.rst", _row(name), "uncertainty_study", _study(name))
        for name in (
            f"{simulator}, {runs} runs" for simulator in ("beam", "Ishigami", "g-function") for runs in (60, 150)
        )
    ),
]
"""The numbers that are checked."""

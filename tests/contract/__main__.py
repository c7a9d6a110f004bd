"""The table of the registry: which kernels, likelihoods, settings and rows make a model, and why others do not.

``python -m tests.contract``
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from contract import ALL, DATA, SETTINGS


def main() -> None:
    """Print a row for each kernel and likelihood, a column for each setting, and the refusals."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    notes: dict[str, str] = {}
    for model in ALL:
        mark = model.data[0] if model.refusal is None else notes.setdefault(model.refusal, str(len(notes) + 1))
        row = cells.setdefault((model.kernel, model.likelihood), {})
        before = row.get(model.settings, "")
        row[model.settings] = before if mark in before else before + mark
    print(f"{'kernel':28}{'likelihood':20}" + "".join(f"{name:10}" for name in SETTINGS))
    for (kernel, likelihood), row in cells.items():
        print(f"{kernel:28}{likelihood:20}" + "".join(f"{row.get(name, ''):10}" for name in SETTINGS))
    print(
        f"\nrows: {', '.join(f'{name[0]} {name}' for name in DATA)}; all checks of tests/contract hold for each letter"
    )
    for sentence, number in notes.items():
        print(f"{number}: refused, {sentence!r} ...")


if __name__ == "__main__":
    main()

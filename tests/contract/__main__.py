"""The tables of the registries: which parts make a model, what is tested of it, and why others do not or are not.

``python -m tests.contract``
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from contract import ALL, DATA, SETTINGS
from latent_contract import CONTRACTS, LATENT


def main() -> None:
    """Print both tables."""
    weight_space()
    print()
    latent()


def latent() -> None:
    """Print a row for each model of latent functions, a column for each contract, and the refusals."""
    notes: dict[str, str] = {}
    print(f"{'model':17}{'kernel':18}{'likelihood':18}{'settings':11}" + "".join(f"{name:10}" for name in CONTRACTS))
    for case in LATENT:
        marks = [
            notes.setdefault(case.refusals[name], str(len(notes) + 1)) if name in case.refusals else "x"
            for name in CONTRACTS
        ]
        row = f"{case.kind:17}{case.kernel:18}{case.likelihood:18}{case.settings:11}"
        print(row + "".join(f"{mark:10}" for mark in marks))
    print("\nx: tested")
    for name, words in CONTRACTS.items():
        print(f"{name}: {words}")
    for sentence, number in notes.items():
        print(f"{number}: refused, {sentence!r} ...")


def weight_space() -> None:
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
    rows = ", ".join(f"{name[0]} {name}" for name in DATA)
    print(f"\nrows: {rows}; all checks of tests/contract hold for each letter, and that of devices")
    for sentence, number in notes.items():
        print(f"{number}: refused, {sentence!r} ...")


if __name__ == "__main__":
    main()

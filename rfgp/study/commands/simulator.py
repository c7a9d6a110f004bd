"""``rfgp study runs.csv --inputs inputs.toml``: an uncertainty study of a simulator."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..._support import optional
from .options import check_existing, names, without_formulas

_FILES = ("study.html", "indices.csv", "next_runs.csv")


def is_simulator(options: argparse.Namespace) -> bool:
    """Whether the options describe runs of a simulator: inputs are a TOML file."""
    return options.inputs is not None and options.inputs.lower().endswith(".toml")


def run(options: argparse.Namespace) -> int:
    """Study the runs, print the page and write its files."""
    check_existing(options.data, options.inputs)
    from ..simulators.files import read
    from ..simulators.study import uncertainty

    optional.require("matplotlib", "matplotlib", "figures")
    out = Path(options.out)
    there = [name for name in _FILES if (out / name).exists()]
    if there and not options.force:
        raise ValueError(
            f"expected a directory without {there[0]} for --out, got {options.out!r}; pass --force to write over it"
        )
    files = read(options.data, options.inputs, names(options.target) if options.target else None)
    study = uncertainty(files.x, files.y, files.inputs, thresholds=files.thresholds)
    print(f"{study}\n")
    out.mkdir(parents=True, exist_ok=True)
    study.report(out / _FILES[0])
    for name, table in zip(_FILES[1:], (study.to_frame(), study.next_runs()), strict=True):
        without_formulas(table).to_csv(out / name, index=False)
    for name in _FILES:
        print(f"wrote {out / name}")
    return 0

"""Run scripts of this folder by name, or write the table: ``python -m benchmarks.papers --help``."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from ..common import add_data_dir, add_plot, environment, write
from . import table
from .inventory import ITEMS
from .item import HERE, Options, verdict

SCRIPTS = list(dict.fromkeys(item.script for item in ITEMS if item.script))


def run(script: str, options: Options) -> None:
    """Measure, and keep the result with the time it took and where."""
    start = time.process_time()
    measured = table.module(script).measure(options)
    seconds = {} if "seconds" in measured else {"seconds": time.process_time() - start}
    result = {"environment": environment(), "quick": options.quick} | measured | seconds
    write(options.out, result)


def show(script: str, path: Path) -> None:
    """Print what is printed and what we get."""
    result = json.loads(path.read_text())
    for item in ITEMS:
        if item.script == script:
            found = table.claims(item, result)
            is_quick = result.get("quick", False)
            print(f"\n{item.name}: {verdict(found, '' if is_quick else item.differs, is_quick)}")
            for claim in found:
                print(f"  {'?' if claim.holds is None else '+' if claim.holds else '-'} {claim.printed} | {claim.ours}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"one or more of {', '.join(SCRIPTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, on data of scikit-learn")
    parser.add_argument("--full", action="store_true", help="the largest sizes too, in hours")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="the folder of the results")
    parser.add_argument("--show", action="store_true", help="measure nothing: print what the stored results say")
    parser.add_argument("--table", action="store_true", help="write the table to this folder and to docs")
    add_data_dir(parser, required=False)
    add_plot(parser)
    options = parser.parse_args()
    unknown = set(options.scripts) - set(SCRIPTS)
    if unknown:
        parser.error(f"expected scripts among {', '.join(SCRIPTS)}, got {', '.join(unknown)}")
    for script in options.scripts:
        path = options.out / f"{script}.json"
        if options.plot:
            table.module(script).draw(json.loads(path.read_text()), path)
        elif not options.show:
            torch.set_default_dtype(torch.float32)
            run(script, Options(options.quick, options.data_dir, path, options.full))
            if hasattr(table.module(script), "draw") and not options.quick:
                table.module(script).draw(json.loads(path.read_text()), path)
        show(script, path)
    if options.table:
        table.write_all()


if __name__ == "__main__":
    main()

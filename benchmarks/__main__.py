"""Measure everything, or compare pages with what is stored: ``python -m benchmarks run`` and ``check``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from .check import labels, problems
from .pages import CELLS
from .plan import HERE, scripts
from .runs import run_all


def main() -> int:
    """Run the command; returns 1 where a script failed, or a page differs from its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run scripts in order, alone; results of this commit are kept")
    run.add_argument("names", nargs="*", metavar="SCRIPT", help="default: all scripts of the table in README.md")
    sizes = run.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="small sizes, to see that scripts run; give another --out")
    sizes.add_argument("--full", action="store_true", help="the largest sizes too, in a night; default: two hours")
    run.add_argument("--data-dir", help="the directory of the data sets; default: $RFGP_DATA")
    run.add_argument("--peers-python", help="an interpreter that has the peers; default: those scripts are not run")
    run.add_argument("--botorch", help="a checkout of BoTorch; default: its tests are not run")
    run.add_argument("--device", help="of a GPU; default: what needs one is not run")
    check = commands.add_parser("check", help="compare pages with their results, and list how old these are")
    check.add_argument("--write", action="store_true", help="put the numbers of results into the pages, and check then")
    for command in (run, check):
        command.add_argument("--out", type=Path, default=HERE / "results", help="the directory of the results")
    options = parser.parse_args()
    if options.command == "check":
        for cell in CELLS if options.write else ():
            with contextlib.suppress(LookupError):  # which the check names
                cell.write(HERE.parent, options.out)
        found = problems(options.out)
        for label, names in labels(options.out).items():
            print(f"{label}, {len(names)} results: {', '.join(names)}")
        print("\n".join(found) or "pages say what their results have")
        return int(bool(found))
    known = {script.name: script for script in scripts()}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"expected scripts of the table, got {unknown[0]!r}; among {', '.join(known)}")
    if options.quick and options.out == HERE / "results":
        parser.error("expected an --out of its own for --quick, which would replace results")
    named = ("data_dir", "peers_python", "botorch", "device")
    given = {f"--{name.replace('_', '-')}": getattr(options, name) for name in named if getattr(options, name)}
    size = "quick" if options.quick else "full" if options.full else "default"
    failed = run_all([known[name] for name in options.names or known], options.out, size, given)
    print(f"failed: {', '.join(failed)}" if failed else "all measured")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

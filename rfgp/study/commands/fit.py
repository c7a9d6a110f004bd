"""``rfgp fit``: learn a target of a table, measure on held-out rows, and write one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..._support import optional
from .. import tables
from .options import (
    FORMATS,
    add_missing_values,
    add_reading,
    check_existing,
    check_new_file,
    integer,
    names,
    number,
    reading,
)

DESCRIPTION = (
    "Report the columns of a table, learn its target from the others by a Gaussian process, measure it on held-out "
    "rows, and write one file with all that rfgp predict needs, among it training inputs."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("data", metavar="DATA", help=FORMATS)
    add("--target", required=True, help="name or index of the column to learn, or several, with commas between them")
    add("--out", required=True, help="the file to write, such as model.pt")
    add("--force", action="store_true", help="write over an existing file")
    task = parser.add_mutually_exclusive_group()
    task.add_argument(
        "--task", choices=("classification", "regression", "counts"), help="(default: as the target tells)"
    )
    task.add_argument(
        "--counts", dest="task", action="store_const", const="counts", help="numbers of events: --task counts"
    )
    add("--exposure", help="column of what the counts of rows are collected over, such as years, which is no input")
    add("--drop", type=names, default=[], help="columns that are left out, with commas between them")
    add("--keep", type=names, default=[], help="columns that are inputs although they look like row identifiers")
    add("--coordinates", type=names, default=[], help="latitude and longitude in degrees, which become a unit vector")
    add_reading(parser, "impute")
    add_missing_values(parser)
    add(
        "--kernel",
        default="auto",
        help="rbf, matern:0.5, matern:1.5, matern:2.5, rq, linear, polynomial, or auto, which held-out rows choose "
        "(default: %(default)s)",
    )
    add("--num-features", type=integer, help="number of features (default: by the number of rows)")
    add("--time-limit", type=number, help="seconds in which training is to end, about (default: none)")
    add("--test-share", type=number, default=0.2, help="share of the rows that is held out (default: %(default)s)")
    add("--seed", type=_seed, default=0, help="seed of the held-out rows and of the features (default: %(default)s)")


def _seed(text: str) -> int:
    return integer(text) if text != "0" else 0


def run(options: argparse.Namespace) -> int:
    """Read, report, learn, measure and write."""
    check_existing(options.data)
    optional.require("sklearn", "scikit-learn", "rfgp fit")
    from ...sklearn.fit_seconds import tell

    check_new_file(options.out, options.force, options.data)
    table = tables.read(
        options.data,
        options.target,
        task=options.task,
        exposure=options.exposure,
        drop=options.drop,
        keep=options.keep,
        coordinates=options.coordinates,
        **reading(options),
    )
    print(f"{table.report()}\n", flush=True)
    settings: dict[str, Any] = {
        "kernel": options.kernel,
        "num_features": options.num_features or "auto",
        "time_limit": options.time_limit,
        "test_share": options.test_share,
        "seed": options.seed,
    }
    seconds = tables.TableModel.estimated_seconds(table, **settings)
    tell(seconds, "--time-limit 60" if options.time_limit is None else None)
    model = tables.TableModel.fit(table, **settings, verbose=sys.stderr.isatty())
    model.save(options.out)
    size = Path(options.out).stat().st_size / 1e6
    print(f"{model.scores.num_rows:,} held-out rows, which are in the model now:\n{model.report()}\n")
    print(f"learned in {model.fit_seconds:.1f} s; wrote {options.out} ({size:.1f} MB, with training inputs)")
    return 0

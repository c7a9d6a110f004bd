"""``rfgp predict``: predictions with intervals for the rows of a table, by a model that ``rfgp fit`` wrote."""

from __future__ import annotations

import argparse
import sys
import warnings

from ..._support import files
from .. import tables
from ..tables.formats import SUFFIXES, TEXT
from .options import FORMATS, add_reading, check_existing, check_new_file, number, reading, without_formulas

DESCRIPTION = (
    "Predict the target for every row of a table, with an interval of new observations in its units, or with the "
    "probabilities of classes, as CSV."
)
_STANDARD = "-"
_DIGITS = "%.9g"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a file that rfgp fit wrote")
    add("data", metavar="NEW", help=f"the table, with the columns of inputs: {FORMATS}")
    add("--out", default=_STANDARD, help="the CSV file to write (default: %(default)s, the standard output)")
    add("--force", action="store_true", help="write over an existing file")
    add("--level", type=number, default=0.95, help="probability of the intervals (default: %(default)s)")
    add_reading(parser, "as in rfgp fit")


def run(options: argparse.Namespace) -> int:
    """Read, predict and write."""
    is_file = options.out != _STANDARD
    if is_file:
        if not options.out.lower().endswith(TEXT):
            raise ValueError(f"expected a file of text for --out, got {options.out!r}; use a name that ends in .csv")
        check_new_file(options.out, options.force, options.model, options.data)
    if options.model.lower().endswith(SUFFIXES) and not options.data.lower().endswith(SUFFIXES):
        raise ValueError(
            f"expected a model and then a table, got the table {options.model!r} first; write rfgp predict "
            f"{options.data} {options.model}"
        )
    check_existing(options.model, options.data)
    model = tables.TableModel.load(options.model)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        predictions = model.predict(options.data, level=options.level, **reading(options))
    for warning in told:
        print(f"rfgp: {warning.message}", file=sys.stderr)
    empty = int(predictions[model.target_names[0]].isna().sum())
    if empty:
        print(f"rfgp: {empty:,} of {len(predictions):,} rows have missing cells, and no prediction", file=sys.stderr)
    predictions = without_formulas(predictions)
    if not is_file:
        print(predictions.to_csv(index=False, float_format=_DIGITS), end="")
        return 0
    files.write_whole(options.out, lambda path: predictions.to_csv(path, index=False, float_format=_DIGITS))
    print(f"wrote {len(predictions):,} rows to {options.out}")
    return 0

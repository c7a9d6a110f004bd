"""The ``rfgp`` command."""

from __future__ import annotations

import argparse
import io
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import __version__, _optional, datasets, kernels, plots, study
from .datasets.sources import DATA_DIR_VARIABLE
from .datasets.table import SUFFIXES

_MOST_DIGITS = 18


class _Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong, so that every error looks the same."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    :param argv: the arguments; default: those of the process.
    :returns: 0, or 2 after a message on stderr that says what is wrong; 130 where the user interrupts.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the table has signs that ASCII lacks
    try:
        return _study(_parser().parse_args(argv))
    except BrokenPipeError:
        return _failed("expected to print to the end, got a closed pipe; read all of the output")
    except OSError as error:
        place = "" if error.filename is None else f" for {str(error.filename)!r}"
        return _failed(f"expected a path that can be used, got {error.strerror or error}{place}; check it")
    except (ValueError, ImportError) as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        print("rfgp: interrupted, nothing written", file=sys.stderr)
        return 130


def _failed(message: str) -> int:
    print(f"rfgp: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rfgp", description="Random features for Gaussian processes.", allow_abbrev=False)
    parser.add_argument(
        "--version", action="version", version=f"rfgp {__version__}", help="print the version, and exit"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "study",
        allow_abbrev=False,
        help="compare random features with the exact Gaussian process on a data set",
        description="Compare random features with the exact Gaussian process: divergence from it, error, and time. "
        "Prints a table, and writes results.json and study.png.",
    )
    add = command.add_argument
    add("data", metavar="DATA", help=f"one of {', '.join(datasets.LOADERS)}, or a CSV or NPZ file")
    add("--target", help="name or index of the target column of a CSV file, or name of the target array of an NPZ file")
    add("--inputs", help="name of the array of inputs of an NPZ file (default: x)")
    add("--task", choices=("classification", "regression"), help="(default: classification for integers and strings)")
    add("--scaling", choices=("standardize", "unit", "none"), help="(default: unit for images, standardize for others)")
    add("--data-dir", help=f"directory of the archives of built-in data sets (default: ${DATA_DIR_VARIABLE})")
    add("--kernel", default="polynomial:3", help="polynomial:p, linear, rbf, matern:nu or rq (default: %(default)s)")
    add(
        "--methods",
        type=_names,
        help=f"auto or among {', '.join(kernels.METHODS)}, each with an optional :real, :complex or :ctr, separated by "
        "commas (default: those that suit the kernel)",
    )
    widths = ",".join(map(str, study.NUM_FEATURES))
    add("--num-features", type=_integers, default=widths, help="numbers separated by commas (default: %(default)s)")
    add("--seeds", type=_integer, default=5, help="the number of seeds (default: %(default)s)")
    add(
        "--exact-limit",
        type=_integer,
        default=1000,
        help="the largest number of training rows of the exact model (default: %(default)s)",
    )
    add(
        "--alpha-epsilon",
        type=_number,
        default=0.01,
        help="concentration of the Dirichlet likelihood outside the class (default: %(default)s)",
    )
    add("--out", default="study-results", help="directory of the results (default: %(default)s)")
    return parser


def _study(arguments: argparse.Namespace) -> int:
    plots.check_installed()
    _optional.require("pandas", "pandas", "means over seeds")
    dataset = _dataset(arguments)
    out = _directory(arguments.out)
    print(
        f"{dataset.name}: {dataset.task}, {len(dataset.x_train):,} training rows, {len(dataset.x_test):,} test rows, "
        f"{dataset.x_train.shape[-1]} inputs" + (f", {dataset.num_classes} classes" if dataset.num_classes else ""),
        flush=True,
    )
    result = study.run(
        dataset,
        kernel=arguments.kernel,
        methods=arguments.methods,
        num_features=arguments.num_features,
        num_seeds=arguments.seeds,
        exact_limit=arguments.exact_limit,
        alpha_epsilon=arguments.alpha_epsilon,
        scaling=arguments.scaling,
        progress=True,
    )
    paths = result.save(out)
    print(f"exact model on {result.data['exact_rows']:,} rows: {result.training}\n\n{result.table()}\n")
    for path in paths:
        print(f"wrote {path}")
    return 0


def _dataset(arguments: argparse.Namespace) -> datasets.Dataset:
    data = arguments.data
    if not data.lower().endswith(SUFFIXES):
        if any(option is not None for option in (arguments.target, arguments.task, arguments.inputs)):
            raise ValueError(
                f"expected --target, --task and --inputs for CSV and NPZ files, got the name {data!r}; leave them out"
            )
        return datasets.load(data, arguments.data_dir)
    if arguments.target is None:
        raise ValueError(f"expected the name of the target in {data}, got none; pass --target")
    if arguments.inputs is not None and not data.lower().endswith(".npz"):
        raise ValueError(f"expected --inputs for NPZ files, got the file {data}; leave it out")
    return datasets.read_table(data, arguments.target, arguments.inputs or "x", arguments.task)


def _directory(name: str) -> Path:
    """The directory of the results, made where it does not exist, once a file has been written to it."""
    out = Path(name)
    if not name or (out.exists() and not out.is_dir()):
        got = f"the file {name!r}" if name else "an empty name"
        raise ValueError(f"expected a directory for --out, got {got}; choose another")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as probe:
            probe.write(b"probe")
    except OSError as error:
        raise ValueError(
            f"expected a directory that can be written to for --out, got {name!r} ({error.strerror}); choose another"
        ) from None
    for result in study.FILES:
        if (out / result).is_dir():
            raise ValueError(f"expected to write {result} to --out, got a directory {str(out / result)!r}; move it")
    return out


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _integers(text: str) -> list[int]:
    return [_integer(part) for part in _names(text)]


def _integer(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"expected a positive integer, got {text[:40]!r}; choose one of up to {_MOST_DIGITS} digits"
        )
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text[:40]!r}; choose another")
    return value


if __name__ == "__main__":
    sys.exit(main())

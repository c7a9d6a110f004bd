"""The ``rfgp`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import datasets, kernels, plots, study
from .datasets.sources import DATA_DIR_VARIABLE
from .datasets.table import SUFFIXES


class _Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong, so that every error looks the same."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    :param argv: the arguments; those of the process where it is None.
    :returns: 0, or 2 after a message on stderr that says what is wrong; 130 where the user interrupts.
    """
    try:
        return _study(_parser().parse_args(argv))
    except (ValueError, OSError, ImportError) as error:
        print(f"rfgp: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rfgp: interrupted, nothing written", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rfgp", description="Random features for Gaussian processes.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "study",
        allow_abbrev=False,
        help="compare random features with the exact Gaussian process on a data set",
        description="Compare random features with the exact Gaussian process: divergence from it, error, and time. "
        "Prints a table, and writes results.json and study.png.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = command.add_argument
    add("data", metavar="DATA", help=f"one of {', '.join(datasets.LOADERS)}, or a CSV or NPZ file")
    add("--target", help="name or index of the target column of a CSV file, or name of the target array of an NPZ file")
    add("--inputs", default="x", help="name of the array of inputs of an NPZ file")
    add("--task", choices=("classification", "regression"), help="default: classification for integers and strings")
    add("--scaling", choices=("standardize", "unit", "none"), help="default: unit for images, standardize for others")
    add("--data-dir", help=f"directory of the archives of built-in data sets (default: ${DATA_DIR_VARIABLE})")
    add("--kernel", default="polynomial:3", help="polynomial:p, linear, rbf, matern:nu or rq")
    add(
        "--methods",
        help=f"auto or among {', '.join(kernels.METHODS)}, each with an optional :real, :complex or :ctr, separated by "
        "commas (default: those that suit the kernel)",
    )
    add("--num-features", default=",".join(map(str, study.NUM_FEATURES)), help="numbers separated by commas")
    add("--seeds", default="5", help="the number of seeds")
    add("--exact-limit", default="1000", help="the largest number of training rows of the exact model")
    add("--alpha-epsilon", default="0.01", help="concentration of the Dirichlet likelihood outside the class")
    add("--out", default="study-results", help="directory of the results")
    return parser


def _study(arguments: argparse.Namespace) -> int:
    plots.check_installed()
    settings = {
        "kernel": arguments.kernel,
        "methods": None if arguments.methods is None else _list(arguments.methods),
        "num_features": [_integer("--num-features", part) for part in _list(arguments.num_features)],
        "num_seeds": _integer("--seeds", arguments.seeds),
        "exact_limit": _integer("--exact-limit", arguments.exact_limit),
        "alpha_epsilon": _number("--alpha-epsilon", arguments.alpha_epsilon),
        "scaling": arguments.scaling,
    }
    dataset = _dataset(arguments)
    out = Path(arguments.out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"expected a directory for --out, got the file {str(out)!r}; choose another")
    out.mkdir(parents=True, exist_ok=True)
    print(
        f"{dataset.name}: {dataset.task}, {len(dataset.x_train):,} training rows, {len(dataset.x_test):,} test rows, "
        f"{dataset.x_train.shape[-1]} inputs" + (f", {dataset.num_classes} classes" if dataset.num_classes else ""),
        flush=True,
    )
    result = study.run(dataset, **settings, progress=True)
    print(f"exact model on {result.data['exact_rows']:,} rows: {result.training}\n\n{result.table()}\n")
    for path in result.save(out):
        print(f"wrote {path}")
    return 0


def _dataset(arguments: argparse.Namespace) -> datasets.Dataset:
    data = arguments.data
    if not data.lower().endswith(SUFFIXES):
        if arguments.target is not None or arguments.task is not None:
            raise ValueError(
                f"expected --target and --task for CSV and NPZ files, got the name {data!r}; leave them out"
            )
        return datasets.load(data, arguments.data_dir)
    if arguments.target is None:
        raise ValueError(f"expected the name of the target in {data}, got none; pass --target")
    return datasets.read_table(data, arguments.target, arguments.inputs, arguments.task)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _integer(option: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"expected a positive integer for {option}, got {text!r}; choose another")
    return int(text)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number for {option}, got {text!r}; choose another") from None


if __name__ == "__main__":
    sys.exit(main())

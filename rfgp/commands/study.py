"""``rfgp study``: compare random features with the exact Gaussian process on a data set."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .. import _optional, datasets, kernels, plots, study, tables
from ..datasets.sources import DATA_DIR_VARIABLE
from ..tables.files import SUFFIXES
from .arguments import integer, integers, names, number

NAME = "study"
HELP = "compare random features with the exact Gaussian process on a data set"
DESCRIPTION = (
    "Compare random features with the exact Gaussian process: divergence from it, error, and time. Prints a table, and "
    "writes results.json and study.png."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command.

    :param parser: its parser.
    """
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        help=f"one of {', '.join(datasets.LOADERS)}, an NPZ file, or a table: CSV, Parquet, xlsx, JSON lines",
    )
    add("--target", help="name or index of the target column of a table, or name of the target array of an NPZ file")
    add("--inputs", help="name of the array of inputs of an NPZ file (default: x)")
    add("--task", choices=("classification", "regression"), help="(default: classification for integers and strings)")
    add("--scaling", choices=("standardize", "unit", "none"), help="(default: unit for images, standardize for others)")
    add("--data-dir", help=f"directory of the archives of built-in data sets (default: ${DATA_DIR_VARIABLE})")
    add("--kernel", default="polynomial:3", help="polynomial:p, linear, rbf, matern:nu or rq (default: %(default)s)")
    add(
        "--methods",
        type=names,
        help=f"auto or among {', '.join(kernels.METHODS)}, each with an optional :real, :complex or :ctr, separated by "
        "commas (default: those that suit the kernel)",
    )
    widths = ",".join(map(str, study.NUM_FEATURES))
    add("--num-features", type=integers, default=widths, help="numbers separated by commas (default: %(default)s)")
    add("--seeds", type=integer, default=5, help="the number of seeds (default: %(default)s)")
    add(
        "--exact-limit",
        type=integer,
        default=1000,
        help="the largest number of training rows of the exact model (default: %(default)s)",
    )
    add(
        "--alpha-epsilon",
        type=number,
        default=0.01,
        help="concentration of the Dirichlet likelihood outside the class (default: %(default)s)",
    )
    add("--out", default="study-results", help="directory of the results (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Run the study, write its files and print its table.

    :param options: what the parser made of the arguments.
    :returns: 0.
    :raises ValueError: for data or settings that do not fit together.
    """
    plots.check_installed()
    _optional.require("pandas", "pandas", "means over seeds")
    dataset = _dataset(options)
    out = _directory(options.out)
    print(
        f"{dataset.name}: {dataset.task}, {len(dataset.x_train):,} training rows, {len(dataset.x_test):,} test rows, "
        f"{dataset.x_train.shape[-1]} inputs" + (f", {dataset.num_classes} classes" if dataset.num_classes else ""),
        flush=True,
    )
    result = study.run(
        dataset,
        kernel=options.kernel,
        methods=options.methods,
        num_features=options.num_features,
        num_seeds=options.seeds,
        exact_limit=options.exact_limit,
        alpha_epsilon=options.alpha_epsilon,
        scaling=options.scaling,
        progress=True,
    )
    paths = result.save(out)
    print(f"exact model on {result.data['exact_rows']:,} rows: {result.training}\n\n{result.table()}\n")
    for path in paths:
        print(f"wrote {path}")
    return 0


def _dataset(options: argparse.Namespace) -> datasets.Dataset:
    data = options.data
    is_archive = data.lower().endswith(".npz")
    if not is_archive and not data.lower().removesuffix(".gz").endswith(SUFFIXES):
        if any(option is not None for option in (options.target, options.task, options.inputs)):
            raise ValueError(
                f"expected --target, --task and --inputs for tables and NPZ files, got {data!r}; leave them out"
            )
        return datasets.load(data, options.data_dir)
    if options.target is None:
        raise ValueError(f"expected the name of the target in {data}, got none; pass --target")
    if is_archive:
        return datasets.read_archive(data, options.target, options.inputs or "x", options.task)
    if options.inputs is not None:
        raise ValueError(f"expected --inputs for NPZ files, got the file {data}; leave it out")
    return tables.read(data, options.target, task=options.task).split()


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

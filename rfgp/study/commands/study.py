"""``rfgp study``: compare random features with the exact Gaussian process on a data set."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..._support import optional
from .. import tables
from ..tables.formats import SUFFIXES
from . import simulator
from .options import add_missing_values, add_reading, integer, integers, names, number, reading

if TYPE_CHECKING:
    from .. import datasets

DESCRIPTION = (
    "Compare random features with the exact Gaussian process: divergence from it, error, and time. Prints a table and "
    "a verdict, and writes report.html, results.json and study.png. With distributions of inputs in a TOML file: study "
    "the uncertainty of a simulator by its runs; prints a page, and writes study.html, indices.csv and next_runs.csv."
)

_TABLE_OPTIONS = ("missing", "separator", "decimal", "header", "sheet", "missing_values", "drop")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        help="a built-in data set such as digits or protein, an NPZ file, or a table: CSV, Parquet, xlsx, JSON lines",
    )
    add(
        "--target",
        help="name or index of the target column of a table, several with commas, or name of the array of an NPZ file",
    )
    add(
        "--inputs",
        help="a TOML file with distributions of the inputs of a simulator, or name of the array of inputs of an NPZ "
        "file (default: x)",
    )
    add("--task", choices=("classification", "regression"), help="(default: classification for integers and strings)")
    add_reading(parser, "impute")
    add_missing_values(parser)
    add("--drop", type=names, help="columns of a table that are not looked at, separated by commas")
    add("--output", help="which output of a built-in data set with several, or all (default: the first)")
    add("--scaling", choices=("standardize", "unit", "none"), help="(default: unit for images, standardize for others)")
    add("--data-dir", help="directory of the archives of built-in data sets (default: $RFGP_DATA)")
    add(
        "--kernel",
        default="auto",
        help="polynomial:p, linear, rbf, matern:nu or rq, a field (curl_free, divergence_free, helmholtz), or auto for "
        "the one that predicts left-out rows best (default: %(default)s)",
    )
    add(
        "--methods",
        type=names,
        help="auto, or methods of rfgp.approximate such as tensor_srht or landmarks, each with an optional :real, "
        ":complex or :ctr, separated by commas (default: those that suit the kernel)",
    )
    add(
        "--num-features",
        type=integers,
        default="128,256,512,1024",
        help="numbers separated by commas (default: %(default)s)",
    )
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
    add(
        "--resume",
        action="store_true",
        help="go on with the study in --out, which has kept every run that was measured",
    )
    add("--force", action="store_true", help="replace the results in --out, which are not overwritten otherwise")


def run(options: argparse.Namespace) -> int:
    """Run the study, write its files and print its table."""
    from ... import study
    from ..plots.base import check_installed
    from ..result import FILES

    if simulator.is_simulator(options):
        return simulator.run(options)
    check_installed()
    optional.require("pandas", "pandas", "means over seeds")
    data = _data(options)
    if isinstance(data, tables.Table):
        print(f"{data.report()}\n")
    dataset = data.split() if isinstance(data, tables.Table) else data
    print(_size(dataset), flush=True)
    result = study.run(
        data,
        origin=_origin(options),
        kernel=options.kernel,
        methods=options.methods,
        num_features=options.num_features,
        num_seeds=options.seeds,
        exact_limit=options.exact_limit,
        alpha_epsilon=options.alpha_epsilon,
        scaling=options.scaling,
        out=options.out,
        resume=options.resume,
        force=options.force,
        progress=True,
    )
    print(f"exact model on {result.data['exact_rows']:,} rows: {result.training}\n\n{result.table()}\n")
    print(f"{result.verdict()}\n")
    for name in FILES:
        print(f"wrote {Path(options.out) / name}")
    return 0


def _data(options: argparse.Namespace) -> datasets.Dataset | tables.Table:
    """The data set or the table that is named, or a ValueError where an option does not belong to it."""
    from .. import datasets

    data = options.data
    is_archive = data.lower().endswith(".npz")
    is_table = not is_archive and data.lower().removesuffix(".gz").endswith(SUFFIXES)
    if not is_archive and not is_table:
        if any(option is not None for option in (options.target, options.task, options.inputs)):
            raise ValueError(
                f"expected --target, --task and --inputs for tables and NPZ files, got {data!r}; leave them out"
            )
        _refuse_table_options(options)
        return datasets.load(data, options.data_dir, options.output)
    if options.output is not None:
        raise ValueError(f"expected --output for built-in data sets, got the file {data}; name outputs by --target")
    if options.target is None:
        raise ValueError(f"expected the name of the target in {data}, got none; pass --target")
    if is_archive:
        _refuse_table_options(options)
        return datasets.read_archive(data, options.target, options.inputs or "x", options.task)
    if options.inputs is not None:
        raise ValueError(f"expected --inputs for NPZ files, got the file {data}; leave it out")
    return tables.read(
        data,
        options.target,
        task=options.task,
        drop=options.drop or (),
        **reading(options),
    )


def _refuse_table_options(options: argparse.Namespace) -> None:
    for name in _TABLE_OPTIONS:
        if getattr(options, name) is not None:
            raise ValueError(f"expected --{name.replace('_', '-')} for tables, got {options.data!r}; leave it out")


def _origin(options: argparse.Namespace) -> str:
    """The words of the command that say where the data come from."""
    named = ("target", "inputs", "output", "task", *_TABLE_OPTIONS[:-1], "data_dir")
    words = [options.data]
    for name in named:
        if (value := getattr(options, name)) is not None:
            words += [f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words + (["--drop", ",".join(options.drop)] if options.drop else []))


def _size(data: datasets.Dataset) -> str:
    """The size of a data set in a line."""
    parts = [
        f"{len(data.x_train):,} training rows",
        f"{len(data.x_test):,} test rows",
        f"{data.x_train.shape[-1]} inputs",
    ]
    parts += [f"{data.num_classes} classes"] if data.num_classes else []
    parts += [f"{data.num_outputs} targets"] if data.num_outputs > 1 else []
    return f"{data.name}: {data.task}, {', '.join(parts)}"

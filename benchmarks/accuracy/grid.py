"""Cells of sets, methods and splits: each is measured in a process of its own, on one thread, and kept."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from common import HERE, add_data_dir, arguments, environment, in_process, resumed, write
from tqdm import tqdm

from . import cell
from .rows import CLASSES, SETS

PATIENCE = 20
"""Seconds by the clock for a second of the processor, which may have other work."""
LIMIT = 60
"""Processor seconds of a cell: a minute, which is what people give a table."""
REPEATED = 20
"""Processor seconds above which the first split of a peer stands for all."""


def grid_arguments(description: str, name: str, sets: Sequence[str] = SETS) -> argparse.ArgumentParser:
    """The options of a script that measures cells of some sets."""
    parser = arguments(description, name)
    add_data_dir(parser, required=False)
    parser.add_argument("--sets", nargs="+", default=list(sets), choices=sets, help="default: all")
    parser.add_argument("--methods", nargs="+", help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of the splits; default: 1 2 3")
    parser.add_argument("--limit", type=int, default=LIMIT, help="processor seconds of a cell; default: %(default)s")
    parser.add_argument("--rows", type=int, help="the largest number of training and of test rows; default: all")
    return parser


def add_peers_python(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The same with the option that names an interpreter of peers."""
    text = "an interpreter with lightgbm, gpboost, xrfm, pytabkit and MuyGPyS; default: this one"
    parser.add_argument("--peers-python", default=sys.executable, help=text)
    return parser


def measure(
    options: argparse.Namespace,
    modules: Sequence[tuple[ModuleType, str]],
    repeated: float = math.inf,
    is_of_commit: bool = True,
) -> None:
    """Measure the cells that are missing, the first split of all first.

    :param modules: of methods, each with its interpreter.
    :param repeated: processor seconds of the first split above which it stands for all.
    :param is_of_commit: whether cells of another commit are measured again.
    """
    result = resumed(options, is_of_commit)
    where = [] if options.data_dir is None else ["--data-dir", str(Path(options.data_dir).resolve())]
    where += [] if options.rows is None else ["--rows", str(options.rows)]
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent)])
    result["environment"] = environment() | {"threads": 1, "processor seconds of a cell": options.limit}
    for module, python, name, method, seed in tqdm(list(_cells(options, modules))):
        key = f"{name}|{method}|{seed}"
        first = result["cells"].get(f"{name}|{method}|{options.seeds[0]}")
        if key not in result["cells"] and (first is None or _seconds(first, options.limit) < repeated):
            command = [
                python,
                "-m",
                cell.__name__,
                module,
                name,
                method,
                str(seed),
                "--limit",
                str(options.limit),
                *where,
            ]
            result["cells"][key] = _ended(in_process(command, PATIENCE * options.limit), options.limit)
            write(options.out, result)


def _seconds(cell: dict[str, Any], limit: float) -> float:
    return limit if "status" in cell else max(point["seconds"] for point in cell.values())


def _ended(cell: dict[str, Any], limit: int) -> dict[str, Any]:
    """The limit, of what the system ended there."""
    ends = {f"exit status {-number}" for number in (signal.SIGKILL, signal.SIGXCPU)}
    return {"status": f"over {limit} s"} if cell.get("status") in ends else cell


def _cells(
    options: argparse.Namespace, modules: Sequence[tuple[ModuleType, str]]
) -> Iterator[tuple[str, str, str, str, int]]:
    most = 1 if options.quick else None
    for seed, name in itertools.product(options.seeds[:most], options.sets[:most]):
        for module, python in modules:
            for method in list(module.CLASSES if name in CLASSES else module.NUMBERS)[:most]:
                if options.methods is None or method in options.methods:
                    yield module.__name__.rpartition(".")[2], python, name, method, seed

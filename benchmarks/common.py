"""What the benchmarks share: arguments, the environment of a run, interleaved timing, and atomic JSON."""

from __future__ import annotations

import argparse
import datetime
import inspect
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gpytorch
import numpy as np
import scipy
import torch
from tqdm import tqdm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
CODE = (":(top)rfgp", ":(top,glob)benchmarks/**/*.py")
"""What is measured, and what measures it."""


def arguments(description: str, name: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=HERE / "results" / f"{name}.json", help="where to write the JSON")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    return parser


def add_data_dir(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """The option that names the directory of the data sets."""
    default = os.environ.get("RFGP_DATA")
    is_missing = required and default is None
    parser.add_argument("--data-dir", type=Path, default=default, required=is_missing, help="or set RFGP_DATA")


def add_plot(parser: argparse.ArgumentParser) -> None:
    """The option to draw the JSON of an earlier run instead of measuring."""
    parser.add_argument("--plot", action="store_true", help="measure nothing: draw the figure of the JSON at --out")


def mnist(data_dir: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """MNIST with unit-normalized float32 rows: training inputs and labels, test inputs and labels."""
    with np.load(data_dir / "mnist.npz") as archive:
        arrays = [archive[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    x_train, y_train, x_test, y_test = (torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    inputs = [torch.nn.functional.normalize(x.reshape(len(x), -1).float(), dim=-1) for x in (x_train, x_test)]
    return inputs[0], y_train.long(), inputs[1], y_test.long()


def environment() -> dict[str, Any]:
    """Versions, processor, threads and date of this run, and the last commit that changed its code."""
    command = ["git", "log", "-1", "--format=%H", "--", *CODE]
    commit = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpytorch": gpytorch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def write(path: Path, result: dict[str, Any]) -> None:
    """Write JSON under a temporary name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1))
    temporary.replace(path)


def resumed(options: argparse.Namespace, is_of_commit: bool = True) -> dict[str, Any]:
    """What an earlier run with the same output has measured, under "cells"; nothing for a quick one.

    :param is_of_commit: whether only a run of the present commit counts.
    """
    result: dict[str, Any] = {"cells": {}}
    if options.out.exists() and not options.quick:
        known = json.loads(options.out.read_text(encoding="utf-8"))
        is_same = known["environment"]["commit"] == environment()["commit"]
        result = known if is_same or not is_of_commit else result
    return result


def run_cells(
    options: argparse.Namespace,
    cells: Iterable[tuple[str, Callable[[], Any]]],
    claims: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """The result of a script: cells that a run of this commit has are kept, others measured and written at once.

    It is shown at the end.

    :param cells: their names, and functions that measure them.
    :param claims: what pages say of the result.
    :param about: what else the result has.
    """
    result = resumed(options) | {"environment": environment()} | about
    for name, function in tqdm([*cells], disable=options.quick):
        if name not in result["cells"]:
            result["cells"][name] = function()
            result |= {} if claims is None else {"claims": claims(result)}
            write(options.out, result)
    show(result)
    return result


def save_figure(figure: Figure, out: Path) -> None:
    """Write the figure that belongs to the JSON ``out``: in ``figures`` beside ``results``, or else beside the JSON."""
    folder = out.parents[1] / "figures" if out.parent.name == "results" else out.parent
    path = folder / f"{out.stem}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")


def add_grid(ax: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """A light grid behind the data, and no frame at the top and on the right."""
    ax.grid(True, axis=axis, color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and its standard error, NaN for a single seed."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), error


def plus_minus(values: Sequence[float]) -> str:
    """Mean and standard error over seeds, to be read."""
    mean, error = mean_and_error(values)
    return f"{mean:.4g}" + ("" if math.isnan(error) else f" ± {error:.2g}")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded to be readable as it stands."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def alone(function: Callable[..., dict[str, Any]], *arguments: Any, seconds: float) -> dict[str, Any]:
    """What a function of a script returns in a process of its own, for a limited time; else what stopped it.

    :param arguments: what JSON can hold.
    """
    script = Path(inspect.getfile(inspect.unwrap(function)))  # which a decorator has wrapped
    code = (
        f"import json, sys; sys.path.insert(0, {str(script.parent)!r}); from {script.stem} import {function.__name__};"
        f"print(json.dumps({function.__name__}(*json.loads(sys.argv[1]))))"
    )
    return in_process([sys.executable, "-W", "ignore", "-c", code, json.dumps(arguments)], seconds)


def is_value(thing: Any) -> bool:
    """Whether something stands in one cell of a table."""
    return isinstance(thing, str | int | float) or thing is None


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        name = f"{prefix}{key}".strip()
        if is_value(value):
            yield name, value
        elif isinstance(value, dict):
            yield from _flat(value, f"{name}, ")


def records(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a table: the innermost dictionaries that hold values, named by the keys that lead to them."""
    if isinstance(value, dict) and any(map(is_value, value.values())):
        yield ", ".join(part for part in path if part), dict(_flat(value))
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from records(member, (*path, key))
    elif isinstance(value, list):
        for member in value:
            if isinstance(member, dict):
                yield from records(member, path)


def show(result: dict[str, Any]) -> None:
    """Print a result as tables, one for each part."""
    for part, value in result.items():
        rows = [] if part == "environment" else list(records(value))
        columns = list(dict.fromkeys(column for _, row in rows for column in row))
        texts = [[name, *(_text(row.get(column)) for column in columns)] for name, row in rows]
        if texts:
            print(f"\n{part}\n\n{markdown(['', *columns], texts)}")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def in_process(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run a command that prints JSON as its last line, for a limited time; else "status" says what stopped it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"status": f"over {seconds:g} s"}
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    is_memory = any(sign in done.stderr for sign in ("alloc", "MemoryError"))
    return {"status": "out of memory" if is_memory else lines[-1]}


def interleaved(functions: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each function, run in turn after one warm-up each."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}

"""Processor seconds of ``import rfgp`` and its first use beyond ``import torch, gpytorch``, and of ``rfgp --help``."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

import common

STATEMENTS = {
    "torch and gpytorch": "import torch, gpytorch",
    "rfgp": "import torch, gpytorch, rfgp",
    "approximate and fit": "import torch, gpytorch, rfgp; rfgp.approximate, rfgp.fit",
    "rfgp --help": "import sys; sys.argv[1:] = ['--help']; import runpy; runpy.run_module('rfgp', run_name='__main__')",
}


def processor_seconds() -> float:
    """Those of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(statement: str) -> float:
    """The processor seconds that a new process takes for a statement; all but the first find compiled files."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = processor_seconds()
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment, stdout=subprocess.DEVNULL)
    return processor_seconds() - start


def main() -> None:
    options = common.arguments(__doc__ or "", "import_time").parse_args()
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(3 if options.quick else 7):
        for name, statement in STATEMENTS.items():
            times[name].append(seconds(statement))
    medians = {name: statistics.median(values) for name, values in times.items()}
    beyond = medians["rfgp"] - medians["torch and gpytorch"]
    result = {"environment": common.environment(), "medians": medians, "beyond": beyond}
    common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()

"""Seconds of ``import rfgp`` beyond those of ``import torch, gpytorch``, in fresh processes one after the other."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import common

STATEMENTS = {"torch and gpytorch": "import torch, gpytorch", "rfgp": "import torch, gpytorch, rfgp"}


def seconds(statement: str) -> float:
    """The seconds that a new process takes for a statement, by the clock."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def main() -> None:
    options = common.arguments(__doc__ or "", "import_time").parse_args()
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(3 if options.quick else 15):
        for name, statement in STATEMENTS.items():
            times[name].append(seconds(statement))
    medians = {name: statistics.median(values) for name, values in times.items()}
    beyond = medians["rfgp"] - medians["torch and gpytorch"]
    common.write(options.out, {"environment": common.environment(), "medians": medians, "beyond": beyond})
    print(f"{medians}; beyond torch and gpytorch: {beyond:.2f} s")


if __name__ == "__main__":
    main()

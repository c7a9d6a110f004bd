"""Which functions of this repository a script executes: those that its quick run calls, in all of its processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .common import write
from .plan import HERE, Script

NAME = "executed.json"


def functions_of(script: Script, results: Path) -> dict[str, list[str]] | None:
    """The names of functions by file, or None where the script was not followed."""
    return read(results / NAME).get(script.name)


def follow(script: Script, results: Path, given: Mapping[str, str]) -> None:
    """Follow the quick run of a script by ``sitecustomize.py``, and keep what it executes beside the results."""
    with tempfile.TemporaryDirectory() as folder:
        seen, out = Path(folder) / "seen", Path(folder) / "benchmarks" / "results"
        for path in (seen, out, script.result(out).parent):
            path.mkdir(parents=True, exist_ok=True)
        variables = script.variables(given) | {"RFGP_EXECUTED": str(seen), "PYTHONPATH": str(HERE)}
        command = [sys.executable, *script.command(out, "quick", given)]
        done = subprocess.run(command, env=variables, cwd=HERE.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"expected a quick run of {script.name} that ends well, got: {done.stderr[-2000:]}")
        found: dict[str, set[str]] = {}
        for path in seen.iterdir():
            for line in path.read_text(encoding="utf-8").splitlines():
                file, name = line.split("\t")
                found.setdefault(file, set()).add(name.partition(".<locals>")[0])
    own = {file: sorted(names) for file, names in sorted(found.items())}
    write(results / NAME, read(results / NAME) | {script.name: own})


def read(path: Path) -> dict[str, Any]:
    """A JSON file, or nothing where there is none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}

"""Run scripts one after the other, alone, each until it has a result of the present commit."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .common import environment, read, write
from .plan import HERE, Script

RECORD = "runs.json"
WRITTEN = (
    "benchmarks/results",
    "benchmarks/figures",
    "benchmarks/papers/results",
    "benchmarks/papers/figures",
    "docs/standard_splits.md",
)
"""What scripts write."""


def run_all(scripts: Sequence[Script], out: Path, size: str, given: Mapping[str, str]) -> list[str]:
    """Measure what has no result of the present commit yet; returns the names of scripts that failed.

    The commit is the last one that changed code. A run that is killed goes on where it was: what was begun on the
    same commit is kept, and others begin anew. A result of another commit is put aside, as ``NAME.before``, until
    there is a new one.

    :param size: "quick", "default" or "full"; scripts that have no full size take the default one.
    :param given: values of options, such as ``--data-dir``, for the scripts that know them.
    """
    if size != "quick" and _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN)):
        raise SystemExit("expected a work tree without changes, got some; commit them, or pass --quick")
    out.mkdir(parents=True, exist_ok=True)
    commit, failed = environment()["commit"], []
    for script in scripts:
        kept = read(out / RECORD).get(script.name, {})
        is_same = (kept.get("commit"), kept.get("size")) == (commit, size)
        if is_same and kept.get("code") == 0:
            print(f"{script.name}: measured, and nothing has changed")
            continue
        if missing := set(script.wanted) - set(given):
            print(f"{script.name}: not run, it needs {', '.join(sorted(missing))}")
            continue
        result = script.result(out)
        before = result.with_suffix(".before")
        if not is_same and result.exists():
            result.replace(before)
        _note(out, script.name, {"commit": commit, "size": size})
        print(f"{script.name}: ", end="", flush=True)
        measured = _run(script, out, size, given)
        _note(out, script.name, {"commit": commit, "size": size, "environment": environment()} | measured)
        print(f"{measured['wall_seconds']:.0f} s, {measured['processor_seconds']:.0f} s of the processor", flush=True)
        if not measured["code"]:
            before.unlink(missing_ok=True)
        else:
            failed.append(script.name)
            print(measured["error"], file=sys.stderr)
    return failed


def _note(out: Path, name: str, entry: dict[str, Any]) -> None:
    """Write down what is known of a run, beside the others."""
    write(out / RECORD, read(out / RECORD) | {name: entry})


def _run(script: Script, out: Path, size: str, given: Mapping[str, str]) -> dict[str, Any]:
    """One script, by its own interpreter."""
    command = [sys.executable, *script.command(out, size, given)]
    variables = script.variables(given)
    before, start = _processor_seconds(), time.perf_counter()
    done = subprocess.run(command, env=variables, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode == 0 and script.draws and size != "quick":
        subprocess.run([*command, "--plot"], env=variables, cwd=HERE.parent, check=False)
    return {
        "code": done.returncode,
        "wall_seconds": time.perf_counter() - start,
        "processor_seconds": _processor_seconds() - before,
        "threads": script.threads,
        "error": done.stderr[-2000:] if done.returncode else "",
    }


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, text=True, check=True).stdout

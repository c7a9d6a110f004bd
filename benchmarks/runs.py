"""Run scripts one after the other, alone, each until it has a result of this commit."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .common import environment, write
from .plan import HERE, Script

RECORD = "runs.json"


def run_all(scripts: Sequence[Script], out: Path, quick: bool, given: Sequence[str]) -> list[str]:
    """Measure what has no result of this commit yet; returns the names of scripts that failed.

    A run that is killed goes on where it was: what was begun on this commit is kept, and others begin anew. A result of
    another commit is put aside, as ``NAME.before``, until there is a new one.

    :param given: options for all scripts that know them, such as ``--data-dir``.
    """
    if not quick and _git("status", "--porcelain", "--", ".", ":!benchmarks/results", ":!benchmarks/figures"):
        raise SystemExit("expected a work tree without changes, got some; commit them, or pass --quick")
    out.mkdir(parents=True, exist_ok=True)
    commit, failed = environment()["commit"], []
    for script in scripts:
        record = read(out / RECORD)
        kept = record.get(script.name, {})
        if kept.get("commit") == commit and kept.get("code") == 0 and kept.get("quick") == quick:
            print(f"{script.name}: measured on this commit")
            continue
        if script.wanted:
            print(f"{script.name}: not run, it needs {', '.join(script.wanted)}; run it by hand")
            continue
        result, before = out / f"{script.name}.json", out / f"{script.name}.before"
        if kept.get("commit") != commit and result.exists():
            result.replace(before)
        record[script.name] = {"commit": commit, "quick": quick}
        write(out / RECORD, record)
        print(f"{script.name}: ", end="", flush=True)
        measured = _run(script, result, quick, given)
        record[script.name] = {"commit": commit, "quick": quick, "environment": environment()} | measured
        write(out / RECORD, record)
        print(f"{measured['wall_seconds']:.0f} s, {measured['processor_seconds']:.0f} s of the processor", flush=True)
        if not measured["code"]:
            before.unlink(missing_ok=True)
        else:
            failed.append(script.name)
            print(measured["error"], file=sys.stderr)
    return failed


def _run(script: Script, result: Path, quick: bool, given: Sequence[str]) -> dict[str, Any]:
    """One script, by its own interpreter."""
    path = HERE / f"{script.name}.py"
    known = path.read_text(encoding="utf-8")
    shared = [word for pair in zip(given[::2], given[1::2], strict=True) for word in pair if "add_data_dir" in known]
    command = [sys.executable, str(path), *script.options, *shared, "--out", str(result.absolute())]
    command += ["--quick"] if quick else []
    variables = os.environ | {"OMP_NUM_THREADS": str(script.threads), "MKL_NUM_THREADS": str(script.threads)}
    before, start = _processor_seconds(), time.perf_counter()
    done = subprocess.run(command, env=variables, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode == 0 and script.draws and not quick:
        subprocess.run([*command, "--plot"], env=variables, cwd=HERE.parent, check=False)
    return {
        "code": done.returncode,
        "wall_seconds": time.perf_counter() - start,
        "processor_seconds": _processor_seconds() - before,
        "threads": script.threads,
        "error": done.stderr[-2000:] if done.returncode else "",
    }


def read(path: Path) -> dict[str, Any]:
    """A JSON file, or nothing where there is none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, text=True, check=True).stdout

"""The benchmarks that compare commits can be run by ``asv``, and a ratio is that of two pieces of work."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from asv_runner.discovery import disc_benchmarks

from benchmarks.watched.ratio import ratio

ROOT = Path(__file__).parents[2]


def test_benchmarks_are_found_and_take_what_they_are_given(monkeypatch):
    """What ``asv check`` asks of them, in this process, which has imported the package."""
    folder = ROOT / json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))["benchmark_dir"]
    monkeypatch.syspath_prepend(folder.parent)
    found = list(disc_benchmarks(str(folder)))
    assert len(found) > 20
    assert [benchmark.name for benchmark in found if not benchmark.check(str(folder))] == []


@pytest.mark.long("asv starts Python anew three times; the test above asks the same")
def test_the_command_of_asv_finds_no_problems():
    command = [sys.executable, "-m", "asv", "check", "--python=same"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "No problems found" in done.stdout, done.stdout + done.stderr


def test_a_ratio_is_that_of_medians_after_a_warm_up(monkeypatch):
    clock, seconds = [0.0], iter([90.0, 90.0, 3.0, 1.0, 5.0, 2.0, 70.0, 4.0])

    def work():
        clock[0] += next(seconds)

    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    assert ratio(work, work, repeats=3) == pytest.approx(5.0 / 2.0)

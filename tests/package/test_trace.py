"""The report of what a step calls counts what it says."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location("trace_of_steps", Path(__file__).parents[1] / "trace.py")
trace = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trace)


def test_calls_of_steps_are_counted():
    found = trace.traces()
    assert found.keys() == {"fit", "posterior mean", "evidence"}
    assert all(step.calls >= step.functions >= step.files > 0 and step.changes < step.calls for step in found.values())


def test_lines_of_code_are_told_from_docstrings(tmp_path):
    path = tmp_path / "example.py"
    path.write_text('"""Two\nlines."""\n\n# none\nx = [\n    1,\n]\n')
    assert trace.lines(path) == (3, 2)

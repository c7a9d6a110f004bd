"""A fit, a posterior mean and an evidence stay readable: they take no more calls than now."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location("trace_of_steps", Path(__file__).parents[1] / "trace.py")
trace = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trace)

MOST_CALLS = {"fit": 150, "posterior mean": 180, "evidence": 100}


def test_steps_take_few_calls():
    found = trace.traces()
    assert found.keys() == MOST_CALLS.keys()
    for name, limit in MOST_CALLS.items():
        assert 0 < found[name].calls <= limit, (name, found[name])


def test_lines_of_code_are_told_from_docstrings(tmp_path):
    path = tmp_path / "example.py"
    path.write_text('"""Two\nlines."""\n\n# none\nx = [\n    1,\n]\n')
    assert trace.lines(path) == (3, 2)

"""Pages take numbers from results: by a role in both kinds of pages, and by a table; what is missing ends the build."""

from __future__ import annotations

import io
import json

import measured
import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

RESULT = {"cells": {"rfgp, 1|2": {"seconds": 25.64, "mb": [586.2, 9]}, "GPyTorch": {"seconds": 1234.5, "mb": [2.0, 3]}}}
TABLE = """
.. measured-table:: fit > cells
   :header: method, "seconds, MB"

   "{}", "{seconds:,.0f}, {mb[0]:.1f}"
"""
ROLE = ":measured:`fit > cells > rfgp, 1|2 > seconds > .1f`"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results with one file."""
    (tmp_path / "fit.json").write_text(json.dumps(RESULT))
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    return tmp_path


def built(folder, **pages):
    """The text of the pages of a site, and what its build warned of."""
    source, warnings = folder / "source", io.StringIO()
    source.mkdir()
    for name, text in pages.items():
        (source / name.replace("_", ".")).write_text(text)
    (source / "conf.py").write_text("extensions = ['myst_parser', 'measured']")
    out = folder / "out"
    with docutils_namespace():
        Sphinx(source, source, out, folder / "trees", "text", status=None, warning=warnings).build()
    return [(out / f"{name.partition('_')[0]}.txt").read_text() for name in pages], warnings.getvalue()


def test_pages_of_both_kinds_have_the_numbers_of_results(results):
    pages, warnings = built(
        results,
        index_rst=f"Fit\n===\nIt takes {ROLE} s.\n{TABLE}\n.. toctree::\n\n   a\n",
        a_md="# Fit\nIt takes {measured}`fit > cells > rfgp, 1|2 > mb > 1 > .2f` MB.\n",
    )
    assert warnings == "" and "It takes 25.6 s." in pages[0] and "It takes 9.00 MB." in pages[1]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in pages[0].splitlines() if "|" in line]
    assert lines[0] == ["method", "seconds, MB"] and lines[-1] == ["GPyTorch", "1,234, 2.0"]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (":measured:`fit > cells > rfgp > seconds > .1f`", "got 'rfgp' among rfgp, 1|2, GPyTorch"),
        (":measured:`fit > cells > GPyTorch > mb > 2 > .1f`", "got '2' among [2.0, 3]"),
        (":measured:`fits > cells > .1f`", "expected a file of results, got no fits.json"),
        (":measured:`fit > cells > GPyTorch > seconds > words`", "Invalid format specifier"),
        (TABLE.replace("seconds:", "minutes:"), "KeyError('minutes')"),
        (TABLE.replace("> cells", "> sells"), "got 'sells' among cells"),
    ],
)
def test_what_results_lack_is_a_warning_of_the_page(results, page, message):
    _, warnings = built(results, index_rst=f"Fit\n===\n{page}\n")
    assert message in warnings and "index.rst:" in warnings

"""Every script of the papers runs in its quick form, and the table says what the stored results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.papers import table
from benchmarks.papers.inventory import ITEMS
from benchmarks.papers.item import HERE, Claim, Options, verdict

PLUMBING = {"__init__", "__main__", "data", "inventory", "item", "table", "variance_ratios"}
SCRIPTS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in PLUMBING)
CLOSED_FORMS = ("thesis_2_01", "thesis_2_03", "thesis_5_07", "thesis_d_1")
"""Scripts whose statements have to hold in the quick form, too."""


@pytest.fixture(autouse=True)
def _dtype_stays():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.long("thirty scripts of benchmarks, each a small study")
def test_quick_form(script, tmp_path):
    module, path = table.module(script), tmp_path / f"{script}.json"
    result = json.loads(json.dumps(module.measure(Options(True, None, path))))
    for name, claims in module.CLAIMS.items():
        found = claims(result)
        assert found and all(claim.printed and claim.ours for claim in found), name
        assert all(claim.holds in (True, False, None) for claim in found)
        if script in CLOSED_FORMS:
            assert all(claim.holds for claim in found), found


def test_every_item_has_its_script_and_every_script_its_items():
    by_script = {script: {item.name for item in ITEMS if item.script == script} for script in SCRIPTS}
    assert by_script == {script: set(table.module(script).CLAIMS) for script in SCRIPTS}
    assert {item.script for item in ITEMS} - {""} == set(SCRIPTS)
    assert len({item.name for item in ITEMS}) == len(ITEMS)


def test_results_belong_to_scripts():
    assert {path.stem for path in (HERE / "results").glob("*.json")} <= set(SCRIPTS)


def test_tables_say_what_the_results_say():
    lines = table.rows()
    assert Path(table.README).read_text(encoding="utf-8") == table.as_readme(lines)
    assert Path(table.PAGE).read_text(encoding="utf-8") == table.as_csv(lines)


def test_verdicts():
    right, wrong, unknown = Claim("1", "1", True), Claim("1", "2", False), Claim("1", "", None)
    assert verdict([right, right]) == "reproduced"
    assert verdict([right, unknown]) == "1 of 1 of what can be compared reproduced"
    assert verdict([wrong, unknown]) == "not reproduced"
    assert verdict([unknown], "no data") == "not comparable: no data"
    assert verdict([right, wrong, wrong], "one seed", True) == "1 of 3 reproduced; not (2), (3); quick run: one seed"

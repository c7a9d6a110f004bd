"""The examples of the README and of all pages that are written by hand run as they stand, in order, page by page.

Defaults are smaller than those of users, since what the examples learn is not looked at.
"""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from rfgp import study
from rfgp.__main__ import main

ROOT = Path(__file__).parents[2]
MADE = {"_build", "performance.rst", "reference", "tutorials"}  # by the build, from what is tested elsewhere
WRITTEN = [path for path in (ROOT / "docs").rglob("*.*") if path.relative_to(ROOT / "docs").parts[0] not in MADE]
PAGES = [ROOT / "README.md", *sorted(path for path in WRITTEN if path.suffix in {".rst", ".md"})]
SMALL = ["--num-features", "8", "--seeds", "1", "--methods", "landmarks", "--exact-limit", "40"]
PYTHON = {"python", "py"}  # "py" is not run here: scripts of several processes
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LITERAL = re.compile(r"^(?:\.\. code-block:: (\w+)|(?!\.\.)[^\n]*::)\n((?:\n|[ ]+[^\n]*\n)+)", re.MULTILINE)


class Block(NamedTuple):
    language: str
    line: int
    text: str


def blocks(page):
    """The blocks of code of a page, with the language that it gives them."""
    text = page.read_text(encoding="utf-8")
    found = (FENCE if page.suffix == ".md" else LITERAL).finditer(text)
    return [Block(m[1] or "", text[: m.start(2)].count("\n"), textwrap.dedent(m[2])) for m in found]


def commands():
    """The lines of all blocks that are typed into a terminal."""
    others = [block for page in PAGES for block in blocks(page) if block.language in {"console", ""}]
    lines = [line.removeprefix("$ ") for block in others for line in block.text.splitlines() if line]
    return [shlex.split(line, comments=True) for line in lines]


RFGP = [command[1:] for command in commands() if command[0] == "rfgp"]
STUDIES = [list(unique) for unique in dict.fromkeys(tuple(a) for a in RFGP if a[0] == "study")]
TABLES = [arguments for arguments in RFGP if arguments[0] in ("fit", "predict")]
WITH_EXAMPLES = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
SLOW = {
    *("likelihoods", "choosing_features", "streams", "study", "big_tables", "variational", "many_outputs", "gpytorch"),
    *("estimators", "heteroscedastic", "feature_overview", "several_outputs_few_rows", "boosting"),
}
SIZED = pytest.mark.long("examples of the size that users have, which take seconds a page")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[SIZED] if page.stem in SLOW else []) for page in WITH_EXAMPLES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_examples_run(page, tmp_path, monkeypatch, small_defaults):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"__name__": page.stem}
    for block in blocks(page):
        if block.language == "python":
            names = {} if page.stem == "README" else names  # where each runs alone
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_are_found(page):
    text = page.read_text(encoding="utf-8")
    signs = "^```" if page.suffix == ".md" else r"^\.\. code-block::|^(?!\.\.).*::$"
    written = len(re.findall(signs, text, re.MULTILINE)) // (2 if page.suffix == ".md" else 1)
    assert len(blocks(page)) == written and ">>>" not in text
    assert {block.language for block in blocks(page)} <= PYTHON | {"console", "text", ""}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_nothing_is_said_twice(page):
    code = {line.strip() for block in blocks(page) for line in block.text.splitlines()}
    lines = [line.strip() for line in page.read_text(encoding="utf-8").splitlines()]
    prose = [line for line in lines if len(line) > 50 and not set(line) <= set("=- ") and line[0] != "|"]
    assert [line for line in prose if prose.count(line) > 1 and line not in code] == []


def test_pages_with_examples():
    assert len(WITH_EXAMPLES) >= 6


@pytest.mark.parametrize(
    "arguments", [pytest.param(a, marks=[SIZED] if "auto" in a else []) for a in STUDIES], ids=" ".join
)
def test_studies_run(arguments, tmp_path, monkeypatch, small_defaults):
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "compare":
        monkeypatch.setattr(study, "load", lambda path: path)
        monkeypatch.setattr(study, "compare", lambda first, second, names: (first, second) == names)
        assert main(arguments) == 0
        return
    monkeypatch.setattr(study.StudyResult, "save", lambda self, directory: [])
    if "--help" in arguments:
        with pytest.raises(SystemExit, match="0"):
            main(arguments)
        return
    x = np.random.default_rng(0).uniform(size=(60, 3))
    np.savetxt("houses.csv", np.column_stack([x, x.sum(-1)]), delimiter=",", header="rooms,area,age,price", comments="")
    np.savez("images.npz", pixels=x, labels=np.arange(60) % 2)
    if "inputs.toml" in arguments:
        write_simulator(x)
        assert main(arguments) == 0
        return
    assert main([*arguments, *SMALL]) == 0


def write_simulator(x):
    """Runs of a beam near what the page says of its inputs, and the file of the page."""
    (described,) = [b.text for b in blocks(ROOT / "docs" / "uncertainty_studies.rst") if "[inputs]" in b.text]
    Path("inputs.toml").write_text(textwrap.dedent(described))
    width, height, load = (np.array([0.046, 0.092, 600.0]) + np.array([0.008, 0.016, 1000.0]) * x).T
    runs = np.column_stack([width, height, np.linspace(1.9, 2.1, len(x)), load, 6e-6 * load / width / height**2])
    np.savetxt("runs.csv", runs, delimiter=",", header="width,height,length,load,stress", comments="")


def test_commands_of_tables_run_in_the_order_of_the_pages(tmp_path, monkeypatch, small_defaults):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).uniform(size=(30, 3))
    table = np.column_stack([x, x.sum(-1)])
    np.savetxt("houses.csv", table, delimiter=",", header="rooms,area,age,price", comments="")
    np.savetxt("new-houses.csv", table[:5, 2::-1], delimiter=",", header="age,area,rooms", comments="")
    claims = np.random.default_rng(1).poisson(2.0 * table[:, 0])
    policies = np.column_stack([x[:, 1:], 1.0 + table[:, 0], claims])
    np.savetxt("policies.csv", policies, delimiter=",", header="age,power,years,claims", comments="")
    np.savetxt("new-policies.csv", policies[:5, :3], delimiter=",", header="age,power,years", comments="")
    assert len(TABLES) > 3
    for arguments in TABLES:
        if "--help" in arguments:
            with pytest.raises(SystemExit, match="0"):
                main(arguments)
        else:
            assert main([*arguments, "--force"]) == 0
    assert np.loadtxt("predictions.csv", delimiter=",", skiprows=1).shape == (5, 4)


def test_commands_name_what_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for program, *arguments in commands():
        if program == "make":
            assert set(arguments) <= set(targets)
        elif program == "pip":
            assert arguments[0] == "install" and all((ROOT / a.partition("[")[0]).exists() for a in arguments[-1:])
            assert set(re.findall(r"\[(\w+)\]", arguments[-1])) <= set(extras)
        else:
            assert program == "rfgp"

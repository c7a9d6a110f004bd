"""The documentation site: every public name has a page and an example, every link leads somewhere."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import tomllib
from pathlib import Path

import llms_index
import mathml
import performance_page
import plain_words
import pytest
import reference_pages
import tutorial_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

PUBLIC = [(package, name) for package in reference_pages.packages() for name in reference_pages.public_names(package)]
PAGES = llms_index.written_pages()
NAMES = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES} | {
    "performance",
    "reference/index",
    "tutorials/index",
    *(f"reference/{package}" for package in ("rfgp", *reference_pages.packages())),
    *(f"tutorials/{script.stem}" for script in tutorial_pages.scripts()),
}


def has_example(thing):
    texts = [thing.__doc__, *(getattr(member, "__doc__", None) for member in vars(thing).values())]
    return any(">>>" in text for text in texts if isinstance(text, str))


RESULTS = {  # users read them, and do not make them; named tuples neither
    *(
        "Allocation",
        "CertifiedPosterior",
        "DerivativeSensitivities",
        "FitStage",
        "FitSummary",
        "MainEffects",
        "ModelSamples",
        "Training",
    ),
    *("Propagation", "SobolIndices", "SplitConformal"),
}


@pytest.mark.parametrize("package", reference_pages.packages())
def test_every_public_name_is_documented_with_an_example(package):
    module = importlib.import_module(package)
    for name in reference_pages.public_names(package):
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, f"{package}.{name} has no docstring"
            is_result = inspect.isclass(thing) and (issubclass(thing, tuple) or name in RESULTS)
            assert is_result or has_example(thing), f"{package}.{name} has no example"
        else:
            assert reference_pages.constant_summary(package, name), f"{package}.{name} has no line below it"


def test_every_public_name_has_a_place_in_the_reference():
    pages = "\n".join(reference_pages.pages().values())
    for package, name in PUBLIC:
        is_constant = f".. py:data:: {name}\n" in pages
        assert is_constant or re.search(rf"^\.\. auto\w+:: {re.escape(package)}\.{name}$", pages, re.M), name
    assert {name for names in reference_pages.EXTENDING.values() for name in names} <= {name for _, name in PUBLIC}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_files(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r":doc:`(?:[^`<]*<)?([^`>]+)>?`", text):
        assert ((page.parent / target).resolve().relative_to(DOCS)).as_posix() in NAMES, target
    for path in re.findall(r"^\.\. (?:image|include|figure):: (\S+)$", text, re.M):
        assert (page.parent / path).exists(), path
    for path in re.findall(r"``((?:tests|benchmarks|tutorials|rfgp|docs)/[\w/.]+\.(?:py|md|rst|png))``", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("folder", [".", "docs", "docs/coming_from", "tutorials", "rfgp"])
def test_no_page_and_no_docstring_needs_two_readings(folder):
    pattern = "**/*.py" if folder == "rfgp" else "*.*"
    paths = [path for path in (ROOT / folder).glob(pattern) if path.suffix in {".md", ".rst", ".py"}]
    found = {path.name: plain_words.refused(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 2 and {name: phrases for name, phrases in found.items() if phrases} == {}


def test_refused_words_are_found():
    assert plain_words.refused("Our intervals\nhold .94 of them.") == ['"intervals hold": say "intervals cover"']


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", "benchmarks/README.md"])
def test_links_of_markdown_lead_to_files(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or ((ROOT / path).parent / target).exists(), target


def test_every_page_is_in_the_contents():
    index = (DOCS / "index.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w/]+)$", index, re.M))
    single = {name for name in NAMES if not name.startswith(("reference/", "tutorials/"))}
    assert listed == (single - {"index"}) | {"reference/index", "tutorials/index"}


SEARCHES = {  # what users type, and the page that is to come first: a main entry of the index with no longer a phrase
    "multi output": "many_outputs",
    "multi-output": "many_outputs",
    "multitask": "many_outputs",
    "gradients": "many_outputs",
    "sobol": "sensitivity",
    "sensitivity analysis": "sensitivity",
    "gpu": "devices",
    "cuda": "devices",
    "class imbalance": "estimators",
    "confidence interval": "estimators",
    "prediction intervals": "estimators",
    "scikit-learn": "estimators",
    "missing values": "tables",
    "missing targets": "missing_outputs",
    "counts": "likelihoods",
    "poisson": "likelihoods",
    "classification": "dirichlet",
    "kl divergence": "checking",
    "calibration": "checking",
    "large dataset": "big_tables",
    "big data": "big_tables",
    "cross-validation": "leave_out",
    "online learning": "streams",
    "outliers": "heteroscedastic",
    "bayesian optimization": "botorch",
    "uncertainty quantification": "uncertainty_studies",
    "inducing points": "choosing_features",
    "minibatches": "variational",
}


@pytest.mark.parametrize(("query", "page"), SEARCHES.items())
def test_a_search_finds_the_page_that_users_want_first(query, page):
    found = {
        name: 100 * len(query) / len(entry)
        for name in NAMES
        if (DOCS / f"{name}.rst").exists()
        for line in re.findall(r"^\.\. index:: (.*)$", (DOCS / f"{name}.rst").read_text(encoding="utf-8"), re.M)
        for entry in re.findall("! ([^,]+)", line.lower())
        if query in entry and 2 * len(query) >= len(entry)
    }
    assert found and max(found, key=found.get) == page


def test_the_index_for_language_models_names_everything():
    text = llms_index.index()
    lines = text.splitlines()
    links = [re.fullmatch(r"- \[(.+)\]\((.+)\): (.+)", line) for line in lines if line.startswith("- ")]
    assert lines[0] == "# rfgp" and text.count("\n> ") >= 1 and all(links)
    targets = {link[2] for link in links}
    assert {f"reference/{package}.html" for package in reference_pages.packages()} <= targets
    assert {f"_sources/tutorials/{script.name}.txt" for script in tutorial_pages.scripts()} <= targets
    assert len(targets) == len(links) > len(PAGES)


def test_results_have_a_claim_and_an_origin():
    page = performance_page.page()
    scripts = [performance_page.BENCHMARKS / f"{path.stem}.py" for path in performance_page.results()]
    assert len(scripts) > 30 and all(performance_page.claim(script).endswith(".") for script in scripts)
    assert len(re.findall("^Commit ", page, re.M)) == len(performance_page.results())


def test_the_page_of_devices_counts_the_checks_that_there_are():
    checks = list(runpy.run_path(str(ROOT / "tests" / "on_device.py"))["checks"]())
    assert f" in {len(checks)} checks (" in (DOCS / "devices.rst").read_text(encoding="utf-8")


def test_records_are_the_innermost_values():
    content = {"a": {"b": {"x": 1, "y": {"z": 2.0}}, "c": {"x": 3}}}
    assert list(performance_page.records(content)) == [("a, b", {"x": 1, "y, z": 2.0}), ("a, c", {"x": 3})]


def test_tutorials_become_notebooks_that_say_how_they_were_run():
    for script in tutorial_pages.scripts():
        notebook = tutorial_pages.read(script.read_text(encoding="utf-8"))
        assert notebook.cells[0].source.startswith(f"# {tutorial_pages.title(script)}\n\n*Outputs ")
        assert any(cell.get("outputs") for cell in notebook.cells)
        assert len(tutorial_pages.question(script)) > 10


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        (r"\frac12 x", r"\frac{1}{2} x"),
        (r"\frac\pi 2", r"\frac{\pi}{2}"),
        (r"\tfrac{a}b", r"\tfrac{a}{b}"),
        (r"\Big(x\Big)", r"\Bigl(x\Bigr)"),
        (r"\bar\phi_i \dots", r"\bar\phi{}_i \ldots"),
    ],
)
def test_formulas_are_spelled_out(written, understood):
    assert mathml.spelled_out(written) == understood


def test_an_index_page_has_no_relative_links(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    links = importlib.import_module("index_links")
    text = links.absolute((ROOT / "README.md").read_text(encoding="utf-8"), "https://host/rfgp", "v1")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 20 and all(target.startswith("https://") for target in targets)
    assert "(https://host/rfgp/raw/v1/benchmarks/figures/random_features.png)" in text
    settings = tomllib.loads(links.with_addresses((ROOT / "pyproject.toml").read_text(), "https://host/rfgp", "v1"))
    assert settings["project"]["urls"]["Source"] == "https://host/rfgp"
    assert max(map(len, settings["project"]["urls"])) <= 32  # what PyPI takes

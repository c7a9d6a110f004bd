"""``llms.txt``: a short index of the site in plain text, with a line for every page (https://llmstxt.org)."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import tutorial_pages
from reference_pages import packages, summary

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parents[1]
GENERATED = ("_build", "reference", "tutorials", "extensions")
HEAD = """# rfgp

> Random features for Gaussian processes on GPyTorch: write an exact kernel, approximate it in one line, train and
> predict at a cost of N D^2 for N rows and D features, and measure how far from exact the result is.

Start with `rfgp.approximate(kernel, num_features, ...)` in a GPyTorch model, `rfgp.models.WeightSpaceGP` for many rows,
or `rfgp.sklearn.RandomFeatureGPRegressor` for a table. Links lead to the plain text of pages where there is one.
"""


def written_pages() -> list[Path]:
    """The pages of the site that are written by hand."""
    files = [*HERE.rglob("*.rst"), *HERE.rglob("*.md")]
    inside = [path for path in files if path.relative_to(HERE).parts[0] not in GENERATED]
    return sorted(path for path in inside if path.relative_to(HERE).as_posix() != "performance.rst")


def title_of(page: Path) -> str:
    """The heading of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    if page.suffix == ".md":
        return next(line[2:] for line in lines if line.startswith("# "))
    return next(above for above, below in pairwise(lines) if re.fullmatch(r"([=*])\1{2,}", below))


def sentence_of(page: Path) -> str:
    """The first sentence of the prose of a page."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^[=\-^#].*$|^\S.*\n[=\-^]{3,}$|^\.\..*$", "", text, flags=re.MULTILINE)
    first = next(part for part in re.split(r"\n\s*\n", prose) if part.strip() and not part.startswith((" ", "|", "*")))
    plain = re.sub(r":[\w:]+:`~?([^`<]+?)(?: <[^`]*>)?`|`{1,2}([^`]+)`{1,2}", lambda m: m[1] or m[2], first)
    return re.split(r"(?<=[.?])\s|:\s*$", " ".join(plain.split()))[0].rstrip(":")


def index() -> str:
    """The text of the index."""
    text = HEAD + "\n## Guide\n\n"
    for page in written_pages():
        name = page.relative_to(HERE).as_posix()
        if name not in {"index.rst", "contributing.rst", "changelog.rst"}:
            text += f"- [{title_of(page)}](_sources/{name}.txt): {sentence_of(page)}\n"
    text += (
        "- [Performance](_sources/performance.rst.txt): what the benchmarks have measured, with commit and machine.\n"
    )
    text += "\n## Tutorials\n\n"
    for script in tutorial_pages.scripts():
        address = f"_sources/tutorials/{script.name}.txt"
        text += f"- [{tutorial_pages.title(script)}]({address}): {tutorial_pages.question(script)}\n"
    text += "\n## Reference\n\n"
    for package in packages():
        text += f"- [{package}](reference/{package}.html): {summary(__import__(package, fromlist=['_']))}\n"
    return text


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        Path(app.outdir, "llms.txt").write_text(index(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Phrases that need two readings, and the words to use in their place: the build of the site refuses them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REFUSED = {
    r"intervals? (hold|held)s?\b": "intervals cover",
    r"\bfeatures? lacks?\b": "residual variance",
    r"\bfalls? silent\b": "vanish",
    r"\brows (that )?come again\b": "duplicate rows",
    r"\btells? rows apart\b": "row identifier",
    r"\bfiles? that (is|are) there\b": "existing file",
    r"\bsome (tens|hundred)\b": "a few dozen, a few hundred",
    r"\bwide models?\b": "feature model",
    r"\btakes kernels\b": "accepts kernels",
    r"\bis lost: ": "name the method that wins",
    r"\bby other hands\b": "by other code",
    r"\bfree of bias\b": "unbiased",
    r"\bwhat features lose\b": "the error of the features",
}
"""Patterns, in small letters, and what to say."""

logger = logging.getLogger(__name__)


def refused(text: str) -> list[str]:
    """The phrases of a text that are refused, each with what to say."""
    flat = " ".join(text.lower().split())
    return [
        f'"{match[0]}": say "{plain}"' for pattern, plain in REFUSED.items() for match in re.finditer(pattern, flat)
    ]


def _check_page(app: Sphinx, name: str, source: list[str]) -> None:
    for phrase in refused(source[0]):
        logger.warning("%s", phrase, location=name)


def _check_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    for phrase in refused("\n".join(lines)):
        logger.warning("docstring of %s: %s", name, phrase)


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at every page and docstring of the site."""
    app.connect("source-read", _check_page)
    app.connect("autodoc-process-docstring", _check_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, which browsers show without scripts and without a network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


BIG = r"\\([bB]igg?)"
ARGUMENT = r"(\\[A-Za-z]+|\w)"


def spelled_out(formula: str) -> str:
    r"""TeX as docutils understands it.

    It lacks ``\big`` without a side, ``\dots`` and ``\textstyle``, takes ``\frac12`` for a fraction of twelve, and puts
    indices behind an accent below it.
    """
    rules = (
        (BIG + r"(?=\s*(?:\)|\]|\\\}))", r"\\\1r"),
        (BIG + r"(?![A-Za-z])", r"\\\1l"),
        (r"\\dots(?![A-Za-z])", r"\\ldots"),
        (r"\\textstyle(?![A-Za-z])", ""),
        (r"\\([dt]?frac)\s*" + ARGUMENT, r"\\\1{\2}"),
        (r"\\([dt]?frac)(\{[^{}]*\})\s*" + ARGUMENT, r"\\\1\2{\3}"),
        (r"(\\(?:bar|hat|tilde|widehat|widetilde)\s*(?:\\[A-Za-z]+|\w|\{[^{}]*\}))(?=[_^])", r"\1{}"),
    )
    for pattern, replacement in rules:
        formula = re.sub(pattern, replacement, formula)
    return formula


def converted(node: nodes.math | nodes.math_block, as_block: bool) -> str:
    """The MathML of a formula; one that is not understood is a warning, and stays as it is written."""
    try:
        return latex2mathml.tex2mathml(spelled_out(node.astext()), as_block=as_block)
    except (MathError, AttributeError) as error:
        logger.warning("formula not understood: %s (%s)", node.astext(), error, location=node)
        return f"<code>{node.astext()}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(f'<span class="math notranslate nohighlight">{converted(node, as_block=False)}</span>')
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math notranslate nohighlight">{converted(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

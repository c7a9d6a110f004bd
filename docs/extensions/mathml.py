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


def spelled_out(formula: str) -> str:
    r"""What docutils lacks: ``\big`` without a side, ``\dots``, ``\textstyle``, and indices behind an accent."""
    closing = re.sub(r"\\([bB]igg?)(?=\s*(?:\)|\]|\\\}))", r"\\\1r", formula)
    sided = re.sub(r"\\([bB]igg?)(?![A-Za-z])", r"\\\1l", closing)
    known = re.sub(r"\\dots(?![A-Za-z])", r"\\ldots", sided).replace(r"\textstyle", "")
    return re.sub(r"(\\(?:bar|hat|tilde|widehat|widetilde)\s*(?:\\[A-Za-z]+|\w|\{[^{}]*\}))(?=[_^])", r"\1{}", known)


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

"""Configuration of the Sphinx documentation."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

import rfgp  # noqa: E402

project = "rfgp"
author = "the rfgp developers"
copyright = f"2026, {author}"
version = release = rfgp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "myst_nb",
    "mathml",
    "measured",
    "plain_words",
    "rooms",
    "reference_pages",
    "tutorial_pages",
    "performance_page",
    "llms_index",
]
exclude_patterns = ["_build", "conf.py", "extensions", "figures"]
math_renderer = html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!rfgp\.).*")]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_custom_formats = {".py": "tutorial_pages.read"}
nb_execution_mode = "off"
nb_mime_priority_overrides = [("dummy", "image/png", 1)]  # figures, where only links are checked

html_theme = "furo"
html_title = "rfgp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

"""Configuration of the Sphinx documentation."""

import rfgp

project = "rfgp"
author = "the rfgp developers"
copyright = f"2026, {author}"
version = release = rfgp.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_inherit_docstrings = False

html_theme = "alabaster"
html_theme_options = {
    "description": "Random features for Gaussian processes on GPyTorch",
    "fixed_sidebar": True,
    "page_width": "1080px",
}

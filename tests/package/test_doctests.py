"""The examples in the docstrings of every module run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import rfgp

NAMES = ["rfgp", *(m.name for m in pkgutil.walk_packages(rfgp.__path__, "rfgp.") if not m.name.endswith("__main__"))]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FINDER = doctest.DocTestFinder(exclude_empty=True)


def has_examples(name):
    return any(test.examples for test in FINDER.find(importlib.import_module(name)))


WITH_EXAMPLES = [name for name in NAMES if has_examples(name)]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name):
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.attempted > 0 and result.failed == 0


def test_most_of_the_package_has_examples():
    assert len(WITH_EXAMPLES) >= 20

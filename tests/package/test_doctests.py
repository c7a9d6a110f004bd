"""The examples in the docstrings of every module run and print what they say."""

import doctest
import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import rfgp

NAMES = ["rfgp", *(m.name for m in pkgutil.walk_packages(rfgp.__path__, "rfgp.") if not m.name.endswith("__main__"))]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FILES = {name: Path(find_spec(name).origin) for name in NAMES}
WITH_EXAMPLES = [
    name for name, file in FILES.items() if file.suffix == ".py" and ">>>" in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name, small_defaults):
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.attempted > 0 and result.failed == 0


def test_most_of_the_package_has_examples():
    assert len(WITH_EXAMPLES) >= 20

"""Fixtures of all tests, and which of them are smoke tests."""

import pytest
import torch

from rfgp.kernels.families import FAMILIES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Where a test is marked ``smoke_for_each("name")``, the first case of every value of ``name`` is a smoke test.

    An example of a class counts as its class.
    """
    seen = set()
    for item in items:
        marker = item.get_closest_marker("smoke_for_each")
        if marker is not None:
            value = item.callspec.params[marker.args[0]]
            key = item.path, item.originalname, getattr(value, "cls", value)
            if key not in seen:
                seen.add(key)
                item.add_marker(pytest.mark.smoke)


@pytest.fixture(autouse=True)
def _families_stay():
    """What a test registers, it registers for itself."""
    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)


@pytest.fixture(autouse=True)
def _default_dtype_stays():
    """What a test, a page or a benchmark takes for its dtype is not that of the next one."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def float64_default():
    """Float64 as the default dtype, and a fixed seed."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)

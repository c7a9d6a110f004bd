"""Fixtures of all tests."""

import pytest
import torch

from rfgp.kernels.families import FAMILIES


@pytest.fixture(autouse=True)
def _families_stay():
    """What a test registers, it registers for itself."""
    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)


@pytest.fixture
def float64_default():
    """Float64 as the default dtype, and a fixed seed."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)

"""Fixtures of all tests."""

import pytest
import torch


@pytest.fixture
def float64_default():
    """Float64 as the default dtype, and a fixed seed."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)

"""What several threads do at a time: GPyTorch's settings, which are those of the process, are back at the end."""

import threading
from pathlib import Path

import gpytorch
import pytest
import torch

import rfgp
from rfgp import _gpytorch

SHARED = {
    "EVALUATED_KERNELS": gpytorch.settings.lazily_evaluate_kernels.on,
    "CHOLESKY_ALWAYS": gpytorch.settings.max_cholesky_size.value,
    "TRUE_VARIANCES": lambda: gpytorch.settings.min_variance.value(torch.float32),
    "OPERATOR_DENSITIES": gpytorch.settings.fast_computations.log_prob.on,
}


@pytest.fixture
def dense_densities():
    with gpytorch.settings.fast_computations(log_prob=False):
        yield


@pytest.mark.usefixtures("dense_densities")
@pytest.mark.parametrize("name", SHARED)
def test_settings_are_restored_after_overlapping_threads(name):
    """The first thread to come is the first to go, which leaves GPyTorch's own contexts changed for good."""
    shared, value = getattr(_gpytorch, name), SHARED[name]
    before, inside = value(), []
    arrived, may_go = threading.Event(), threading.Event()

    def first():
        with shared:
            arrived.set()
            may_go.wait(10.0)

    thread = threading.Thread(target=first)
    thread.start()
    arrived.wait(10.0)
    with shared:
        may_go.set()
        thread.join(10.0)
        inside.append(value())
    assert inside[0] != before
    assert value() == before


def test_settings_are_restored_after_an_error():
    before = gpytorch.settings.max_cholesky_size.value()
    with pytest.raises(ZeroDivisionError), _gpytorch.CHOLESKY_ALWAYS, _gpytorch.CHOLESKY_ALWAYS:
        raise ZeroDivisionError
    assert gpytorch.settings.max_cholesky_size.value() == before


def test_no_setting_of_the_process_is_changed_elsewhere():
    """Contexts of GPyTorch are entered in one place, behind a lock."""
    changed = ("max_cholesky_size(", "min_variance(", "lazily_evaluate_kernels(", "log_prob(True", "max_tries(")
    found = [
        (path.name, word)
        for path in Path(rfgp.__file__).parent.rglob("*.py")
        if path.name != "_gpytorch.py"
        for word in changed
        if f"settings.{word}" in path.read_text() or f"settings.fast_computations.{word}" in path.read_text()
    ]
    assert not found

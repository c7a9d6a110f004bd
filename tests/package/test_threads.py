"""What several threads do at a time: GPyTorch's settings, which are those of the process, are back at the end."""

import copy
import pickle
import threading
from pathlib import Path

import gpytorch
import pytest
import torch

import rfgp
from rfgp._support import gpytorch_names
from rfgp.models import WeightSpaceGP
from rfgp.models.model_lock import ModelLock
from rfgp.models.weight_space import conditioned

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
    shared, value = getattr(gpytorch_names, name), SHARED[name]
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
    with pytest.raises(ZeroDivisionError), gpytorch_names.CHOLESKY_ALWAYS, gpytorch_names.CHOLESKY_ALWAYS:
        raise ZeroDivisionError
    assert gpytorch.settings.max_cholesky_size.value() == before


def test_no_setting_of_the_process_is_changed_elsewhere():
    """Contexts of GPyTorch are entered in one place, behind a lock."""
    changed = ("max_cholesky_size(", "min_variance(", "lazily_evaluate_kernels(", "log_prob(True", "max_tries(")
    found = [
        (path.name, word)
        for path in Path(rfgp.__file__).parent.rglob("*.py")
        if path.name != "gpytorch_names.py"
        for word in changed
        if f"settings.{word}" in path.read_text() or f"settings.fast_computations.{word}" in path.read_text()
    ]
    assert not found


@pytest.mark.parametrize("read", ["posterior", "log_marginal_likelihood", "draw_statistics"])
def test_a_reader_sees_a_model_before_or_after_an_update(read, monkeypatch):
    """A reader comes when the sums of further draws are new, and those of the first are not yet."""
    x = torch.rand(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.sin(6 * x[:, 0])
    model = WeightSpaceGP(
        rfgp.approximate(gpytorch.kernels.RBFKernel().double(), 8, input_dim=1, seed=0),
        gpytorch.likelihoods.GaussianLikelihood().double(),
        num_draws=2,
    )

    def value():
        if read == "posterior":
            return model.posterior(x[:3]).mean
        if read == "log_marginal_likelihood":
            return model.log_marginal_likelihood()
        return torch.stack([sums.count.sum() for sums in model.draw_statistics])

    found, keep, has_read = [], conditioned.take, threading.Event()
    reader = threading.Thread(target=lambda: (found.append(value().detach()), has_read.set()))

    def slowly(self, *args, **options):
        if self is model:
            reader.start()
            has_read.wait(0.1)
        keep(self, *args, **options)

    model.condition(x[:10], y[:10])
    before = value().detach()
    monkeypatch.setattr(conditioned, "take", slowly)
    model.update(x[10:], y[10:])
    reader.join(10.0)
    assert torch.equal(found[0], before) or torch.equal(found[0], value())
    assert not torch.equal(before, value())


def test_copies_of_a_model_have_locks_of_their_own():
    lock = ModelLock()
    assert copy.deepcopy(lock) is not lock and pickle.loads(pickle.dumps(lock)) is not lock


def test_merges_in_both_directions_take_the_locks_in_one_order():
    """Where each thread had taken the lock of its own model first, both would wait for ever."""
    x, y = torch.rand(12, 2, generator=torch.Generator().manual_seed(0)), torch.linspace(0.0, 1.0, 12)
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 4, input_dim=2, seed=0)
    one = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    two, taken = copy.deepcopy(one), []

    class Known(ModelLock):
        def __enter__(self):
            taken.append(self)
            return super().__enter__()

    one.lock, two.lock = Known(), Known()
    orders = []
    for model, other in ((one, two), (two, one)):
        taken.clear()
        model.merge(other)
        orders.append([id(lock) for lock in dict.fromkeys(taken)])
    assert orders[0] == orders[1] and len(orders[0]) == 2

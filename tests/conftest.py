"""Fixtures of all tests, and which of them run when: ``make smoke``, ``make test`` and ``make test-long``."""

import gc
import itertools

import pytest
import torch
from covering import covering

from rfgp.approximation.families import FAMILIES, Family, approximates


def pytest_addoption(parser):
    parser.addoption(
        "--cases",
        choices=("covering", "rest", "all"),
        default="covering",
        help="of a parametrized test: cases that have every value of every argument, the others with the tests marked "
        "long, or all (default: %(default)s)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file run in one process, where what they share is made once; long files come first."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # files of many tests are not the long ones
    return LoadFileScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What collection makes stays to the end: the garbage collector need not look through it, and starts rarely."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark smoke tests, and keep the cases that are asked for."""
    mark_smoke(items)
    wanted = config.getoption("cases")
    if wanted == "all":
        return
    kept = set()
    for _, cases in itertools.groupby(
        items, key=lambda item: (item.path, item.cls, getattr(item, "originalname", None))
    ):
        kept.update(covering([item for item in cases if item.get_closest_marker("long") is None]))
    chosen = [item for item in items if (item in kept) == (wanted == "covering")]
    config.hook.pytest_deselected(items=[item for item in items if (item in kept) != (wanted == "covering")])
    items[:] = sorted(chosen, key=lambda item: item.path.parent.name != "package")  # pages and tutorials take long


def mark_smoke(items):
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
    if before != FAMILIES:
        FAMILIES.clear()
        FAMILIES.update(before)
        approximates()(Family)  # nothing, after which classes are looked up anew


@pytest.fixture(autouse=True)
def _default_dtype_stays():
    """What a test, a page or a benchmark takes for its dtype is not that of the next one."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def small_defaults(monkeypatch):
    """Few evaluations, draws and choosing rows where none are given, for tests that do not look at what is learned."""
    from rfgp.averaging import averaged_classifier, mixture, one_target, several_targets, table_member
    from rfgp.diagnostics.sensitivity import main_effects
    from rfgp.sklearn import (
        RandomFeatureGPClassifier,
        RandomFeatureGPCountRegressor,
        RandomFeatureGPRegressor,
        forest,
    )
    from rfgp.study.simulators import one_output, study
    from rfgp.training import fit

    estimators = RandomFeatureGPClassifier, RandomFeatureGPCountRegressor, RandomFeatureGPRegressor
    for function in (fit, *(estimator.__init__ for estimator in estimators)):
        monkeypatch.setitem(function.__kwdefaults__, "max_evaluations", 12)
    for name, count in (("_NUM_FUNCTIONS", 32), ("_NUM_POINTS", 128), ("_NUM_DRAWS", 512)):
        monkeypatch.setattr(study, name, count)
    few = {"num_functions": 32, "num_points": 16}
    monkeypatch.setattr(study, "main_effects", lambda model, inputs, *_, **__: main_effects(model, inputs, 5, **few))
    for name, count in (("_NUM_PARAMETERS", 3), ("_NUM_FOLDS", 4)):
        monkeypatch.setattr(one_output, name, count)
    for learner in (one_target, several_targets, averaged_classifier):
        monkeypatch.setattr(learner, "_DRAWS", 8)
        monkeypatch.setattr(learner, "_PROPOSALS", 32)
    for learner in (one_target, several_targets):
        monkeypatch.setattr(learner, "CHOOSING", 100)
    monkeypatch.setattr(one_target.chosen_rows, "__defaults__", (60,))
    monkeypatch.setattr(one_target, "_LEARNING", 100)
    monkeypatch.setattr(table_member, "_STEPS", 12)
    nodes = mixture._NODES[::3]
    monkeypatch.setattr(mixture, "_NODES", nodes)
    monkeypatch.setattr(mixture, "_NODE_WEIGHTS", torch.softmax(-0.5 * nodes.square(), 0))
    monkeypatch.setattr(forest, "_TREES", 30)
    monkeypatch.setattr("rfgp.training.average._PROPOSALS", (32, 32, 0))


@pytest.fixture
def float64_default():
    """Float64 as the default dtype, and a fixed seed."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)

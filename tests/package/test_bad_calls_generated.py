"""Bad calls that are made of good ones: every public function, class and method, with one argument replaced.

The good calls are those of the docstrings, which every public class and function has, so that new ones are met by
themselves. A bad call raises an error of rfgp's own, or gives a result without NaN.
"""

from __future__ import annotations

import copy
import dataclasses
import doctest
import functools
import importlib
import inspect
import math
import pkgutil
import re
import resource
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from reference_pages import EXTENDING, INTERNAL

import rfgp

pytestmark = pytest.mark.long("thousands of calls")

ROOT = rfgp.__path__[0]
SECONDS = 10
"""Of the processor, for a call."""
MEMORY = 3 * 2**30
"""Bytes that a call may take beyond those of the process."""

BAD: dict[str, Any] = {
    "None": None,
    "text": "a",
    "no text": "",
    "bytes": b"a",
    "True": True,
    "zero": 0,
    "minus one": -1,
    "a half": 0.5,
    "NaN": math.nan,
    "infinite": math.inf,
    "complex": 1j,
    "2^70": 2**70,
    "a list": [1.0],
    "no list": [],
    "lists of other lengths": [[1.0], [2.0, 3.0]],
    "a mapping": {},
    "an object": object(),
    "a class": dict,
    "a scalar tensor": torch.tensor(1.0),
    "no rows": torch.ones(0, 3),
    "no columns": torch.ones(12, 0),
    "three dimensions": torch.ones(2, 3, 2),
    "integers": torch.ones(12, 3, dtype=torch.long),
    "uint64": torch.ones(12, 3, dtype=torch.uint64),
    "booleans": torch.ones(12, 3, dtype=torch.bool),
    "complex tensor": torch.ones(12, 3, dtype=torch.complex64),
    "huge numbers": torch.full((12, 3), 1e200, dtype=torch.float64),
    "NaN tensor": torch.full((12, 3), math.nan),
    "sparse": torch.ones(12, 3).to_sparse(),
    "meta": torch.ones(12, 3, device="meta"),
    "with gradient": torch.ones(12, 3, requires_grad=True),
}
NOT_FINITE = {"NaN", "infinite", "NaN tensor"}

NO_EXAMPLE = {
    "rfgp.likelihoods.MultitaskMultivariateNormal": "GPyTorch's, with GPyTorch's checks; models make it",
    "rfgp.likelihoods.MultivariateNormal": "GPyTorch's, with GPyTorch's checks; models make it",
    "rfgp.kernels.ExponentialDotProductKernel": "has no arguments",
    "rfgp.kernels.LaplaceKernel": "has GPyTorch's arguments alone, with GPyTorch's checks",
    "rfgp.likelihoods.PoissonLikelihood": "has no arguments",
    "rfgp.training.LeaveOneOutPseudoLikelihood": "has GPyTorch's arguments alone, with GPyTorch's checks",
}
"""Public callables that are met in no other way than by the docstrings of others, and why."""
OF_GPYTORCH = ("forward", "num_outputs_per_input", "marginal", "expected_log_prob", "log_marginal", "matvec", "rmatvec")
"""Methods that GPyTorch calls, with what it has made."""
REPEATED = {
    "rfgp.data.ArrowSource": "its docstring has removed the file",
    "rfgp.data.CsvSource": "its docstring has removed the file",
    "rfgp.data.ParquetSource": "its docstring has removed the file",
    "rfgp.study.datasets.read_archive": "its docstring has removed the file",
    "rfgp.passes.Shard": "needs processes of torch.distributed",
    "rfgp.passes.broadcast": "needs processes of torch.distributed",
    "rfgp.saving.load": "its docstring has removed the file",
    "rfgp.saving.save": "its docstring has removed the folder",
    "rfgp.study.load": "its docstring shows the error",
    "rfgp.training.LeaveOneOutPseudoLikelihood.forward": "holds a graph, which cannot be copied",
}
"""Good calls that cannot be repeated, and why: their bad ones stand in tests/package/test_bad_calls.py."""


@dataclasses.dataclass(frozen=True)
class Good:
    """A call that works: what is called, on what, with which arguments."""

    function: Any
    arguments: dict[str, Any]
    owner: Any = None

    def run(self, **changes: Any) -> Any:
        arguments, owner = copy.deepcopy(({**self.arguments, **changes}, self.owner))
        signature = inspect.signature(self.function)
        given = {name: arguments[name] for name in signature.parameters if name in arguments}
        bound = signature.bind_partial() if owner is None else signature.bind_partial(owner)
        bound.arguments.update(given)
        return self.function(*bound.args, **bound.kwargs)


def public() -> dict[str, Any]:
    """What users call of what the subpackages export, by name; what is for extensions checks less."""
    found = {}
    for module in pkgutil.iter_modules(rfgp.__path__, "rfgp."):
        if module.ispkg and module.name.rpartition(".")[2] not in INTERNAL:
            package = importlib.import_module(module.name)
            for name in set(getattr(package, "__all__", ())).difference(EXTENDING.get(module.name, ())):
                value = getattr(package, name)
                if callable(value) and not inspect.isabstract(value) and inspect.getdoc(value):
                    found[f"{module.name}.{name}"] = value
    return dict(sorted(found.items()))


def is_result(value: Any) -> bool:
    """Whether a class holds what other functions return, and so checks nothing."""
    return isinstance(value, type) and (issubclass(value, tuple) or dataclasses.is_dataclass(value))


def codes(name: str, value: Any) -> dict[types.CodeType, tuple[str, Any, type | None]]:
    """The code of a function, or of the constructor and the methods of a class, with the name of each."""
    if not isinstance(value, type):
        function = inspect.unwrap(value)
        return {function.__code__: (name, value, None)} if isinstance(function, types.FunctionType) else {}
    found = {}
    for method, _ in inspect.getmembers(value, callable):
        if (method.startswith("_") and method not in ("__init__", "__call__")) or method in OF_GPYTORCH:
            continue
        function = inspect.unwrap(inspect.getattr_static(value, method))
        if isinstance(function, types.FunctionType) and str(function.__module__).startswith("rfgp"):
            own = value if method == "__init__" else getattr(value, method)
            found[function.__code__] = (name if method == "__init__" else f"{name}.{method}", own, value)
    return found


def in_docstring(frame: Any) -> bool:
    """Whether an example of a docstring made a call, perhaps by way of other packages."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith((ROOT, "<doctest")):
        caller = caller.f_back
    return caller is not None and caller.f_code.co_filename.startswith("<doctest")


def recorded(name: str, value: Any) -> dict[str, Good]:
    """The good calls in the docstring of a public function or class."""
    known, found = METHODS | codes(name, value), {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event != "call" or frame.f_code not in known or not in_docstring(frame):
            return
        label, function, kind = known[frame.f_code]
        places = {key: place for key, place in frame.f_locals.items() if not key.startswith("__")}
        owner = next(iter(places.values())) if kind is not None and places else None
        if label in found or (kind is not None and not isinstance(owner, kind)):
            return
        arguments = dict(list(places.items())[kind is not None :])
        found[label] = Good(function, arguments, None if isinstance(function, type) else owner)

    tests = doctest.DocTestFinder(recurse=isinstance(value, type)).find(value, name, globs={})
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    globs = dict(vars(sys.modules[value.__module__]))
    before = sys.getprofile()
    for test in tests:
        test.globs = dict(globs)
        sys.setprofile(note)
        try:
            runner.run(test, out=lambda text: None, clear_globs=False)
        finally:
            sys.setprofile(before)
    return found


@functools.cache
def good_calls(name: str) -> dict[str, Good]:
    """The good calls of a public name, with the same random numbers every time."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return recorded(name, PUBLIC[name])


PUBLIC = public()
METHODS = {
    code: found
    for name, value in PUBLIC.items()
    for code, found in codes(name, value).items()
    if isinstance(value, type) and not isinstance(found[1], type)
}


class HangError(Exception):
    """A call that took too long."""


def stop(*_: Any) -> None:
    raise HangError


def bad_calls(good: Good) -> list[tuple[str, str]]:
    """The arguments of a good call, with names of bad values for them."""
    parameters, calls = inspect.signature(good.function).parameters, []
    for name in good.arguments:
        parameter = parameters.get(name)
        if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        calls += [(name, kind) for kind in BAD]
    return calls


def is_own(error: Exception) -> bool:
    """Whether an error is one of rfgp's, or of scikit-learn's checks of the arrays that its estimators get."""
    if isinstance(error, ImportError):
        return True
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_sklearn = "/sklearn/" in frames[-1] and any("rfgp/sklearn" in name for name in frames)
    has_words = re.match(r"(?:rows \d|partition|batch).*: expected |expected ", str(error)) is not None
    return isinstance(error, ValueError | TypeError) and (has_words or is_sklearn)


def has_nan(result: Any) -> bool:
    """Whether a result of finite arguments has a NaN."""
    if isinstance(result, float):
        return math.isnan(result)
    if isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex()):
        return not result.is_meta and result.layout is torch.strided and bool(result.isnan().any())
    return isinstance(result, tuple | list) and any(map(has_nan, result))


def verdict(good: Good, name: str, kind: str) -> str:
    """What is wrong with the way in which a bad call ends; nothing where it is refused, or makes sense."""
    value = BAD[kind]
    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        result = good.run(**{name: value})
        is_wrong = kind not in NOT_FINITE and has_nan(result)
        return "gives NaN" if is_wrong else ""
    except HangError:
        return f"takes more than {SECONDS} s"
    except Exception as error:
        return "" if is_own(error) else f"raises {type(error).__name__}: {str(error)[:90]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@pytest.fixture
def confined(tmp_path, monkeypatch) -> Iterator[None]:
    """A folder for the files of calls, and no more than ``MEMORY`` bytes beside those that the process has."""
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as pages:
        taken = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("name", PUBLIC)
def test_bad_calls_are_refused(name):
    wrong = []
    for label, good in good_calls(name).items():
        if label in REPEATED:
            continue
        good.run()
        for argument, kind in bad_calls(good):
            said = verdict(good, argument, kind)
            if said:
                wrong.append(f"{label}({argument} is {kind}) {said}")
    assert not wrong, f"{len(wrong)} bad calls:\n" + "\n".join(wrong)


def test_every_public_name_is_called():
    silent = [name for name, value in PUBLIC.items() if not good_calls(name) and not is_result(value)]
    assert sorted(set(silent) - NO_EXAMPLE.keys()) == []
    assert sum(len(bad_calls(good)) for name in PUBLIC for good in good_calls(name).values()) >= 2000

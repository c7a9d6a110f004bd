"""Test suites of other libraries on what rfgp has for them: how many checks pass, and why each of the others does not.

- scikit-learn: every check of ``check_estimator``, for each estimator.
- skpro and sktime: their ``check_estimator``, for the regressor in skpro's adapter and in sktime's reductions.
- MAPIE: its conformal methods on 400 new rows, of which they have to cover as many as they say, but for four standard
  errors.
- GPyTorch: its test cases of kernels, likelihoods and models, as the tests of rfgp fill them.
- BoTorch: its own tests, with the kernel that SingleTaskGP takes by default, with the one that rfgp.approximate makes
  of it, with the same features in a plain GPyTorch kernel, whose matrices are dense, and with a WeightSpaceModel in
  place of a SingleTaskGP. Where they ask for an RBFKernel, a kernel that approximates one is let through, so that they
  go on to what they test. The wheel of BoTorch has no tests: --botorch is a checkout of its repository, whose tests run
  against the BoTorch that is installed.
- BoTorch's fit_gpytorch_mll on 10 d values of its test functions in d inputs, for --seeds designs: how many fits fail
  or warn.

Every object is checked in a process of its own. --peers-path is a folder with packages that are not installed here; of
a suite that is not there, the result says so.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import common

SECONDS = 3600.0
TESTS = Path(__file__).parents[1] / "tests"
SMALL: dict[str, Any] = {"kernel": "matern32", "num_features": 16, "random_state": 0}
"""Parameters of estimators whose fits take a moment."""
ESTIMATORS = {
    "RandomFeatureGPRegressor": SMALL | {"max_evaluations": 1, "num_neighbors": 8},
    "RandomFeatureGPClassifier": SMALL | {"max_evaluations": 1, "num_neighbors": 8},
    "RandomFeatureGPCountRegressor": SMALL | {"max_evaluations": 12},
    "RandomFeatures": {"num_features": 16},
    "TableEncoder": {},
}
REDUCTIONS = ("recursive", "multioutput")
CONFORMAL = ("SplitConformalRegressor", "CrossConformalRegressor", "JackknifeAfterBootstrapRegressor")
CONFORMAL += ("SplitConformalClassifier", "CrossConformalClassifier")
GPYTORCH = {
    "kernels": ("base_kernel_test_case", "kernel_suite"),
    "likelihoods": ("base_likelihood_test_case", "BaseLikelihoodTestCase"),
    "models": ("model_test_case", "ModelTestCase"),
}
"""Modules of GPyTorch's test cases, and what the files of rfgp's tests name that fill them."""
MODELS = ("exact", "dense", "rfgp", "WeightSpaceModel")
"""BoTorch's SingleTaskGP with three kernels, and what stands for it."""
FILES = ("test_end_to_end.py", "models/test_gp_regression.py", "models/test_model_list_gp_regression.py")
FILES_OF_MODELS = (
    *FILES[:2],
    "acquisition/test_cached_cholesky.py",
    "acquisition/test_integration.py",
    "acquisition/test_knowledge_gradient.py",
    "acquisition/test_logei.py",
    "acquisition/test_proximal.py",
    "generation/test_sampling.py",
    "optim/test_initializers.py",
    "optim/utils/test_acquisition_utils.py",
    "sampling/pathwise/test_posterior_samplers.py",
)
"""Files of BoTorch's tests in which a WeightSpaceModel stands for a SingleTaskGP."""
FUNCTIONS = (("Branin", 2), ("StyblinskiTang", 3), ("Levy", 4), ("Hartmann", 6))

REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "scikit-learn",
        "check_sample_weight_equivalence",
        "a weight divides the noise of a row; the evidence, which teaches parameters, is not that of equal rows",
    ),
    ("skpro", "docstring has no doctest", "the docstring of skpro's adapter has no example, whatever it wraps"),
    ("sktime", "docstring has no doctest", "the docstring of sktime's forecaster has no example, whatever it wraps"),
    (
        "MAPIE",
        "JackknifeAfterBootstrapRegressor.*covers",
        "without a seed MAPIE draws the resamples anew for residuals, which are then those of rows already seen",
    ),
    ("BoTorch", "task_feature", "the installed BoTorch no longer takes the deprecated argument that is tested"),
    ("BoTorch", "require JAX", "JAX and NumPyro are not installed"),
    (
        "BoTorch",
        "expected the state of RandomFourier",
        "the test takes the batch dimension from a state, in which features have none",
    ),
    ("BoTorch", "'DenseFeatureKernel' object has no", "a plain kernel of features has no lengthscale of its own"),
    ("BoTorch", r"expected at least one row in x", "features of no rows are refused"),
    (
        "BoTorch",
        r"expected train_X of shape \(N, d\)",
        "a WeightSpaceModel takes no batches of training data",
    ),
    ("BoTorch", "test_custom_init", "a WeightSpaceModel has features of the kernel that is passed, not this kernel"),
    ("BoTorch", "MultitaskFixedNoise", "known noise of several outputs has a likelihood of rfgp"),
    ("BoTorch", "test_fantasized_noise", "fantasies do not add their noise to the likelihood of the model"),
    ("BoTorch", "Model is not a `SingleTaskGP`", "BoTorch asks for a SingleTaskGP by name"),
    (
        "BoTorch",
        "test_proximal:",
        "train_inputs of a WeightSpaceModel are as passed, where BoTorch takes transformed ones in evaluation mode",
    ),
    ("BoTorch", "_transform_tensor_args", "the test calls a private method of BoTorch's batched models"),
    ("BoTorch", "FunctionPath", "paths of a WeightSpaceModel are exact functions of weights, no MatheronPath"),
    ("BoTorch", r"expected train_Y of shape \(20", "the test has 20 inputs and two observations"),
)
"""Why checks fail: the suite, a pattern in the object, the check and what it says, and the reason."""

Checks = dict[str, tuple[str, str]]
"""Whether each check has passed, failed or been skipped, and what it says."""


def counted(checks: Checks) -> dict[str, Any]:
    """What is written of checks: how many there are of each kind, and what the ones say that have not passed."""
    numbers = collections.Counter(status for status, _ in checks.values())
    says = [
        [name, status, next(iter(message.strip().splitlines()), "")]
        for name, (status, message) in checks.items()
        if status != "passed"
    ]
    return {status: numbers[status] for status in ("passed", "failed", "skipped")} | {"not passed": says}


def said(error: BaseException) -> str:
    """The kind of an error, and what it says."""
    return f"{type(error).__name__}: {error}"


def estimator(name: str, **changes: Any) -> Any:
    """An estimator of rfgp.sklearn; that of counts rounds its targets."""
    import rfgp.sklearn

    sys.path.insert(0, str(TESTS / "support"))
    from rounded_counts import RoundedCounts

    classes = vars(rfgp.sklearn) | {"RandomFeatureGPCountRegressor": RoundedCounts}
    return classes[name](**ESTIMATORS[name] | changes)


def scikit_learn(name: str) -> dict[str, Any]:
    """The checks of scikit-learn."""
    from sklearn.utils.estimator_checks import check_estimator

    found = check_estimator(estimator(name), on_fail=None, on_skip=None)
    return counted({check["check_name"]: (check["status"], said(check["exception"])) for check in found})


def skpro(name: str, tests: list[str] | None) -> dict[str, Any]:
    """The checks of skpro for its adapter of regressors with standard deviations."""
    from skpro.regression.adapters.sklearn import SklearnProbaReg
    from skpro.utils.estimator_checks import check_estimator

    return of_results(check_estimator(SklearnProbaReg(estimator(name)), tests_to_run=tests, verbose=False))


def sktime(strategy: str, tests: list[str] | None) -> dict[str, Any]:
    """The checks of sktime for forecasts by regression on the values before."""
    from sktime.forecasting.compose import make_reduction
    from sktime.utils.estimator_checks import check_estimator

    forecaster = make_reduction(estimator("RandomFeatureGPRegressor"), strategy=strategy, window_length=3)
    return of_results(check_estimator(forecaster, tests_to_run=tests, verbose=False))


def of_results(results: dict[str, Any]) -> dict[str, Any]:
    """Checks of skpro and of sktime, which are skipped where they raise what pytest raises then."""
    kinds = {str: "passed", "Skipped": "skipped"}
    found = {
        name: (kinds.get(type(result), kinds.get(type(result).__name__, "failed")), said(result))
        for name, result in results.items()
    }
    return counted(found)


class Reports:
    """A plugin of pytest that keeps what the tests report."""

    def __init__(self) -> None:
        self.checks: Checks = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test fails where one of its parts does."""
        path, _, test = report.nodeid.partition("::")
        name = f"{Path(path).stem}::{test}"
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.checks[name] = ("failed", str(report.longrepr) if crash is None else crash.message)
        elif report.skipped:
            place_and_reason = report.longrepr if isinstance(report.longrepr, tuple) else [report.longrepr]
            self.checks.setdefault(name, ("skipped", str(place_and_reason[-1])))
        elif report.when == "call":
            self.checks.setdefault(name, ("passed", ""))

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be read fails as a whole."""
        if report.failed:
            self.checks[Path(report.nodeid).stem] = ("failed", str(report.longrepr).splitlines()[-1])


def tested(paths: list[Path], *plugins: Any, options: tuple[str, ...] = ()) -> Checks:
    """What tests in files report, run in this process."""
    import pytest

    reports = Reports()
    pytest.main([*map(str, paths), "-q", "--continue-on-collection-errors", *options], plugins=[reports, *plugins])
    return reports.checks


def foreign(paths: list[Path], *plugins: Any) -> Checks:
    """What tests of others report, run outside their checkout, whose package would hide the installed one."""
    root = os.path.commonpath([path.parent for path in paths])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        options = ("--import-mode=importlib", "-c", os.devnull, f"--rootdir={root}", "-p", "no:cacheprovider")
        return tested(paths, *plugins, options=options)


def mapie_coverage(name: str) -> dict[str, Any]:
    """Whether a conformal method of MAPIE covers new rows as often as it says."""
    import mapie.classification
    import mapie.regression
    import numpy as np
    from mapie.conformity_scores import StdConformityScore
    from sklearn.datasets import make_classification, make_friedman1

    is_regression = name.endswith("Regressor")
    if is_regression:
        x, y = make_friedman1(1000, noise=1.0, random_state=0)
        scores = {"absolute": "absolute", "of standard deviations": StdConformityScore()}
    else:
        x, y = make_classification(1000, n_informative=4, n_classes=3, random_state=0)
        scores = {score: score for score in ("lac", "aps")}
    model = estimator("RandomFeatureGPRegressor" if is_regression else "RandomFeatureGPClassifier")
    method = getattr(mapie.regression if is_regression else mapie.classification, name)
    new, checks = slice(600, None), {}
    for label, score in scores.items():
        try:
            options = {"conformity_score": score, "confidence_level": 0.9}
            if name.startswith("Split"):
                conformal = (
                    method(model, prefit=False, **options).fit(x[:300], y[:300]).conformalize(x[300:600], y[300:600])
                )
            else:
                conformal = method(model, **options).fit_conformalize(x[:600], y[:600])
            found = (conformal.predict_interval if is_regression else conformal.predict_set)(x[new])[1][..., 0]
            is_in = (found[:, 0] <= y[new]) & (y[new] <= found[:, 1]) if is_regression else found[range(400), y[new]]
            error = np.sqrt(0.09 / 300 + 0.09 / 400)  # of the rows that calibrate, and of the new ones
            is_right = bool(np.mean(is_in) >= 0.9 - 4.0 * error)
            checks[label] = ("passed" if is_right else "failed", f"covers {np.mean(is_in):.3f} of the rows")
        except Exception as error:
            checks[label] = ("failed", said(error))
    return counted(checks)


class CasesOf:
    """A plugin of pytest that keeps tests of a test case of GPyTorch, and knows which of them a class leaves out."""

    def __init__(self, part: str) -> None:
        module = importlib.import_module(f"gpytorch.test.{GPYTORCH[part][0]}")
        self.bases = tuple(
            cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == module.__name__
        )
        self.left_out: Checks = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the tests that a test case has."""
        items[:] = [
            item
            for item in items
            if item.cls is not None
            and issubclass(item.cls, self.bases)
            and any(hasattr(base, item.originalname) for base in self.bases)
        ]
        for item in items:
            path, _, test_case = item.nodeid.rpartition("::")[0].rpartition("::")
            for name in dir(item.cls):
                if name.startswith("test_") and getattr(item.cls, name) is None:
                    self.left_out[f"{Path(path).stem}::{test_case}::{name}"] = ("skipped", "left out by the class")


def gpytorch_cases(part: str, files: int | None) -> dict[str, Any]:
    """GPyTorch's test cases of kernels, likelihoods or models, as rfgp's tests fill them."""
    sign, cases = GPYTORCH[part][1], CasesOf(part)
    paths = sorted(path for path in TESTS.rglob("test_*.py") if sign in path.read_text(encoding="utf-8"))
    options = ("-c", str(TESTS.parent / "pyproject.toml"))
    return counted(tested(paths[:files], cases, options=options) | cases.left_out)


class InPlace:
    """A plugin of pytest that puts kernels of features, or a model of weights, in the place of BoTorch's own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def pytest_configure(self, config: Any) -> None:
        """BoTorch's default kernel becomes that of the kind."""
        import botorch.models.gp_regression as regression

        default = regression.get_covar_module_with_dim_scaled_prior
        regression.get_covar_module_with_dim_scaled_prior = functools.partial(kernel_of, default, self.kind)
        make = regression.SingleTaskGP.__init__

        @functools.wraps(make)
        def make_and_name(self: Any, *args: Any, **options: Any) -> None:
            make(self, *args, **options)
            if hasattr(self, "_subset_batch_dict"):  # BoTorch lists the names of its own default kernel
                names = [name for name, _ in self.named_parameters() if name.endswith("raw_lengthscale")]
                self._subset_batch_dict.update(dict.fromkeys(names, -3))

        regression.SingleTaskGP.__init__ = make_and_name

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Tests take kernels that approximate an RBFKernel for one, and make models of weights."""
        for module in {item.module for item in items}:
            if hasattr(module, "RBFKernel"):
                module.RBFKernel = _OrApproximated("RBFKernel", (module.RBFKernel,), {})
            if hasattr(module, "SingleTaskGP") and self.kind == "WeightSpaceModel":
                module.SingleTaskGP = weight_space_class()


class _OrApproximated(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1]) or hasattr(instance, "exact_kernel") or hasattr(instance, "inner")


def kernel_of(default: Callable[..., Any], kind: str, **options: Any) -> Any:
    """The kernel of a kind that stands for BoTorch's default."""
    sys.path.insert(0, str(TESTS / "support"))
    from dense_features import DenseFeatureKernel

    import rfgp

    exact = default(**options)
    if kind == "exact":
        return exact
    dims = options.get("active_dims")
    approximated = rfgp.approximate(exact, 8, input_dim=options["ard_num_dims"] if dims is None else None, seed=0)
    return DenseFeatureKernel(approximated) if kind == "dense" else approximated


def weight_space_class() -> type:
    """A WeightSpaceModel whose parts are named as those of a SingleTaskGP."""
    from rfgp.botorch import WeightSpaceModel

    class Model(WeightSpaceModel):
        def __init__(self, *data: Any, covar_module: Any = None, mean_module: Any = None, **options: Any) -> None:
            super().__init__(*data, kernel=covar_module, mean=mean_module, num_features=8, seed=0, **options)

    return Model


def botorch_tests(kind: str, checkout: str, files: Sequence[str]) -> dict[str, Any]:
    """BoTorch's own tests with a kernel of a kind."""
    return counted(foreign([Path(checkout) / "test" / file for file in files], InPlace(kind)))


def botorch_fits(kind: str, seeds: int) -> dict[str, Any]:
    """Fits by fit_gpytorch_mll on values of BoTorch's test functions: which raise, and how many warn."""
    import botorch.test_functions
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    import rfgp
    from rfgp.botorch import WeightSpaceModel

    checks: Checks = {}
    messages: collections.Counter[str] = collections.Counter()
    warned = 0
    for seed in range(seeds):
        name, dim = FUNCTIONS[seed % len(FUNCTIONS)]
        function = getattr(botorch.test_functions, name)(**({} if name == "Branin" else {"dim": dim}))
        low, high = function.bounds.double()
        x = torch.quasirandom.SobolEngine(dim, scramble=True, seed=seed).draw(10 * dim).double()
        y = function(low + x * (high - low)).unsqueeze(-1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                if kind == "WeightSpaceModel":
                    model = WeightSpaceModel(x, y, num_features=256, seed=seed)
                else:
                    model = SingleTaskGP(x, y)
                if kind == "rfgp":
                    model.covar_module = rfgp.approximate(model.covar_module, 256, input_dim=dim, seed=seed)
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
                checks[f"{name}, design {seed}"] = ("passed", "")
            except Exception as error:
                checks[f"{name}, design {seed}"] = ("failed", said(error))
        warned += bool(caught)
        messages.update({f"{each.category.__name__}: {each.message}".splitlines()[0] for each in caught})
    return counted(checks) | {"warned": warned, "warnings": [*messages.items()]}


def suites(options: argparse.Namespace) -> Iterator[tuple[str, str, str, tuple[Any, ...]]]:
    """Suites, objects, and the functions of this script that check them."""
    quick = options.quick
    for name in ["RandomFeatures"] if quick else ESTIMATORS:
        yield "scikit-learn", name, "scikit_learn", (name,)
    for name in [*ESTIMATORS][:1] if quick else ("RandomFeatureGPRegressor", "RandomFeatureGPCountRegressor"):
        yield "skpro", name, "skpro", (name, ["test_clone"] if quick else None)
    for strategy in REDUCTIONS[:1] if quick else REDUCTIONS:
        yield "sktime", f"{strategy} reduction", "sktime", (strategy, ["test_clone"] if quick else None)
    for name in CONFORMAL[:1] if quick else CONFORMAL:
        yield "MAPIE", name, "mapie_coverage", (name,)
    for part in ["likelihoods"] if quick else GPYTORCH:
        yield "GPyTorch", part, "gpytorch_cases", (part, 1 if quick else None)
    if options.botorch is not None:
        for kind in MODELS[2:3] if quick else MODELS:
            files = FILES_OF_MODELS if kind == "WeightSpaceModel" else FILES
            arguments = (kind, str(options.botorch.resolve()), files[:1] if quick else files)
            yield "BoTorch", kind, "botorch_tests", arguments
    for kind in ("exact", "rfgp", "WeightSpaceModel"):
        yield "BoTorch", f"fits, {kind}", "botorch_fits", (kind, 1 if quick else options.seeds)


def cell(suite: str, label: str, function: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """What the checks of an object find in a process of their own."""
    found = common.alone(globals()[function], *arguments, seconds=SECONDS)
    if "status" in found:
        found = counted({"the whole suite": ("failed", found["status"])})
    return {"suite": suite, "version": importlib.metadata.version(suite), "object": label} | found


def reason(suite: str, said_of: str) -> str:
    """Why a check fails, as far as it is known."""
    return next((why for of, pattern, why in REASONS if of == suite and re.search(pattern, said_of)), "")


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """The checks that fail, with the objects that they fail for and reasons; and BoTorch's with rfgp's kernel alone."""
    rows: dict[str, dict[str, str]] = {}
    failed = collections.defaultdict(set)
    for found in result["cells"].values():
        suite, label = found["suite"], found["object"]
        for check, status, message in found["not passed"]:
            if status == "failed":
                failed[suite, label].add(check)
                why = reason(suite, f"{label}: {check}: {message}")
                row = rows.setdefault(f"{suite}: {check}: {why}", {"suite": suite, "check": check, "objects": ""})
                row |= {"objects": f"{row['objects']}, {label}".removeprefix(", "), "reason": why}
    return {
        "failures": rows,
        "of BoTorch with rfgp and not with dense": sorted(failed["BoTorch", "rfgp"] - failed["BoTorch", "dense"]),
    }


def is_here(suite: str) -> bool:
    """Whether the package of a suite is installed."""
    return any(importlib.metadata.distributions(name=suite))


def main() -> None:
    """Run the suites, and print a table of the objects, and the failures with their reasons."""
    parser = common.arguments(__doc__, "public_suites")
    parser.add_argument("--peers-path", type=Path, nargs="+", default=[], help="folders of packages not installed here")
    parser.add_argument("--botorch", type=Path, help="a checkout of BoTorch's repository")
    parser.add_argument("--seeds", type=int, default=20, help="designs of BoTorch's test functions, in turn")
    options = parser.parse_args()
    peers = [str(path.resolve()) for path in options.peers_path]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS.parent), *peers])
    sys.path += peers
    every = list(suites(options))
    missing = {suite: "not installed" for suite, *_ in every if not is_here(suite)}
    if options.botorch is None:
        missing["BoTorch's own tests"] = "expected --botorch PATH, a checkout of its repository"
    cells = [(f"{each[0]}: {each[1]}", functools.partial(cell, *each)) for each in every if each[0] not in missing]
    common.run_cells(options, cells, claims, missing=missing)


if __name__ == "__main__":
    main()

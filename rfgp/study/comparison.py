"""The comparison of methods with the exact Gaussian process, from settings to measurements."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, get_args

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm.auto import tqdm

from .. import _checks
from ..datasets import Dataset
from ..datasets.base import Scaling
from ..kernels import FeatureKernel, LandmarkKernel
from .bench import DRAWS, Bench
from .names import default_methods, exact_kernel
from .result import StudyResult

NUM_FEATURES = (128, 256, 512, 1024)
"""The numbers of features that a study tries by default."""

_MOST_SEEDS = 1000


def run(
    dataset: Dataset,
    *,
    kernel: str = "polynomial:3",
    methods: Sequence[str] | None = None,
    num_features: Sequence[int] = NUM_FEATURES,
    num_seeds: int = 5,
    exact_limit: int = 1000,
    alpha_epsilon: float = 0.01,
    scaling: Scaling | None = None,
    progress: bool | None = None,
) -> StudyResult:
    """Compare methods with the exact Gaussian process.

    The parameters are learned with the exact model on at most ``exact_limit`` training rows, and shared by all methods.
    Divergences compare both models on these rows, at up to 1,000 test rows; error, MNLL and times are those of a fit to
    all training rows, on all test rows. Labels are classified with a Dirichlet likelihood, numbers have a Gaussian one.
    Everything is computed in float64.

    :param dataset: the data.
    :param kernel: "polynomial:p", "linear", "rbf", "matern:nu" or "rq", see :func:`exact_kernel`.
    :param methods: names of methods, see :data:`rfgp.kernels.METHODS`, or "auto"; default: those
        of :func:`default_methods`.
    :param num_features: the numbers of features.
    :param num_seeds: the number of seeds, 0, 1, ...
    :param exact_limit: the largest number of training rows of the exact model.
    :param alpha_epsilon: the concentration of the Dirichlet likelihood outside the class.
    :param scaling: "standardize", "unit" or "none"; default: that of the data set.
    :param progress: whether to show progress bars; default: on terminals only.
    :returns: the measurements.
    :raises ValueError: for settings or data that do not fit together, before anything long has begun.

    >>> import rfgp
    >>> diabetes = rfgp.datasets.load("diabetes")
    >>> result = run(diabetes, methods=["rademacher:real"], num_features=[8], num_seeds=1, exact_limit=50)
    >>> len(result.runs)
    1
    """
    _checks.instance("dataset", dataset, Dataset, "a Dataset", "such as rfgp.datasets.load(...)")
    if dataset.num_outputs > 1:
        raise ValueError(f"expected a data set of one output, got {dataset.num_outputs}; load one of them by output=")
    base = exact_kernel(kernel)
    widths = [_checks.positive_integer("num_features", width) for width in _unique("num_features", num_features)]
    names = _unique("methods", default_methods(kernel) if methods is None else methods)
    if scaling is not None:
        _checks.choice("scaling", scaling, get_args(Scaling))
    if progress is not None:
        _checks.flag("progress", progress)
    seeds = range(_checks.positive_integer("num_seeds", num_seeds, largest=_MOST_SEEDS))
    _checks.positive_integer("exact_limit", exact_limit)
    bench = Bench(dataset, base, exact_limit, alpha_epsilon, scaling or dataset.scaling)
    bench.check_memory(max(widths))
    for method in names:
        for width in widths:
            bench.approximation(method, width, seed=0)
    training = bench.learn(progress)
    exact = bench.measure_exact()
    jobs = [(method, width, seed) for seed in seeds for width in widths for method in names]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", message=".*features(=\\d+)? exceed.*")
        bench.fitted(jobs[0], bench.some)  # not measured: the first call of everything is slower
        bar = tqdm(jobs, desc="study", unit="run", disable=None if progress is None else not progress)
        runs = tuple(bench.measure(job) for job in bar)
    settings = {
        "kernel": kernel,
        "methods": names,
        "num_features": widths,
        "seeds": list(seeds),
        "exact_limit": exact_limit,
        "alpha_epsilon": alpha_epsilon if dataset.num_classes else None,
        "scaling": scaling or dataset.scaling,
        "dtype": "float64",
        "kl_rows": len(bench.points),
        "class_probability_draws": DRAWS if dataset.num_classes else None,
    }
    if "auto" in names:
        settings["auto"] = {width: _methods(bench.approximation("auto", width, seed=0)) for width in widths}
    return StudyResult(settings, bench.description(), training, environment(), exact, runs)


def environment() -> dict[str, Any]:
    """Versions, machine and number of threads.

    >>> sorted(environment()["versions"])[:3]
    ['gpytorch', 'linear_operator', 'numpy']
    """
    packages = ("rfgp", "torch", "gpytorch", "linear_operator", "numpy", "scipy")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _methods(kernel: Kernel) -> str:
    """The methods by which the features of a kernel were made."""
    if any(isinstance(part, LandmarkKernel) for part in kernel.modules()):
        return "landmarks"
    recipes = [part.recipe for part in kernel.modules() if isinstance(part, FeatureKernel)]
    return ", ".join(dict.fromkeys(str(recipe.method) for recipe in recipes if recipe is not None))


def _unique(name: str, values: Iterable[Any]) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str | Tensor):
        raise ValueError(f"expected a list of values for {name}, got {values!r}; put it in brackets")
    result = list(dict.fromkeys(values))
    if not result:
        raise ValueError(f"expected at least one value for {name}, got none; name one")
    return result

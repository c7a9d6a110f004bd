"""The comparison of methods with the exact Gaussian process, from settings to measurements."""

from __future__ import annotations

import dataclasses
import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm.auto import tqdm

from .._support import checks
from .._support.data_frames import Missing
from ..approximation import approximate
from ..approximation.landmarks import Landmarks
from ..approximation.maps import drawn_maps
from ..training import FitSummary
from .bench import DRAWS, Bench
from .checkpoint import StudyCheckpoint, check_same, fingerprint
from .datasets import Dataset
from .datasets.base import Scaling, Task
from .kernel_choice import rank_kernels
from .names import CANDIDATES, FIELD_KERNELS, default_methods, exact_kernel
from .result import FILES, StudyResult, load, open_directory, training_summary
from .runs import KernelScore
from .tables import Table, read

NUM_FEATURES = (128, 256, 512, 1024)
"""The numbers of features that a study tries by default."""

_MOST_SEEDS = 1000
_CHOICE_ROWS = 500
"""The largest number of rows, times outputs, from which a kernel is chosen."""
_FOR_ANY_KERNEL = ("auto", "landmarks")


def run(
    data: Any,
    target: str | int | Sequence[str | int] | None = None,
    *,
    task: Task | None = None,
    missing: Missing = "raise",
    drop: Sequence[str | int] = (),
    kernel: str = "auto",
    methods: Sequence[str] | None = None,
    num_features: Sequence[int] = NUM_FEATURES,
    num_seeds: int = 5,
    exact_limit: int = 1000,
    alpha_epsilon: float = 0.01,
    scaling: Scaling | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    origin: str | None = None,
    progress: bool | None = None,
) -> StudyResult:
    """Compare methods with the exact Gaussian process, and with a linear and a trivial model.

    The parameters are learned with the exact model on at most ``exact_limit`` training rows, and shared by all methods.
    Divergences compare both models on these rows, at up to 1,000 test rows; error, MNLL and times are those of a fit to
    all training rows. Everything is computed in float64.

    :param data: a data set, a table of :func:`rfgp.study.tables.read`, or what that reads: a data frame, or a path.
    :param target: the name or the index of the column of the target, or several ones, of a data frame or file.
    :param task: "regression" or "classification", of a data frame or file; default: as the targets tell.
    :param missing: what becomes of missing cells of a data frame or file: "raise", "drop" or "impute".
    :param drop: columns of a data frame or file that are not looked at.
    :param kernel: a name that :func:`exact_kernel` knows; "auto" takes the one of :data:`CANDIDATES` that predicts
        left-out rows best, of those that have all methods that are named.
    :param methods: names of :data:`rfgp.approximation.METHODS`, or "auto"; default: :func:`default_methods`.
    :param num_features: the numbers of features; landmarks take those that are at most the number of training rows.
    :param num_seeds: the number of seeds, 0, 1, ...
    :param exact_limit: the largest number of training rows of the exact model, times the number of targets.
    :param alpha_epsilon: the concentration of the Dirichlet likelihood outside the class.
    :param scaling: "standardize", "unit" or "none"; default: that of the data set.
    :param out: a directory for the results, every run as soon as it is measured; default: nothing is written.
    :param resume: whether to go on with a study of these settings in ``out`` that has stopped.
    :param force: whether results in ``out`` are replaced.
    :param origin: the words after ``rfgp study`` by which the command reads the data, for the report.
    :param progress: whether to show progress bars; default: on terminals only.
    :raises ValueError: for settings or data that do not fit together, before anything long has begun.

    >>> import rfgp
    >>> data = rfgp.study.datasets.load("diabetes")
    >>> result = run(data, methods=["landmarks"], num_features=[8], num_seeds=1, exact_limit=20, progress=False)
    >>> result.verdict().method
    'landmarks'
    """
    dataset, columns = _read(data, target, task, missing, drop)
    _check_outputs(dataset, kernel)
    widths = [checks.positive_integer("num_features", width) for width in _unique("num_features", num_features)]
    asked = None if methods is None else _unique("methods", methods)
    if kernel != "auto":
        exact_kernel(kernel, dataset.num_outputs)
    if scaling is not None:
        checks.choice("scaling", scaling, get_args(Scaling))
    for name, flag in (("progress", progress), ("resume", resume), ("force", force)):
        if flag is not None:
            checks.flag(name, flag)
    checks.path("out", out)
    seeds = range(checks.positive_integer("num_seeds", num_seeds, largest=_MOST_SEEDS))
    exact_limit = checks.positive_integer("exact_limit", exact_limit)
    study = _Study(dataset, exact_limit, alpha_epsilon, scaling or dataset.scaling, progress)
    request = {
        "kernel": kernel,
        "methods": asked,
        "num_features": widths,
        "num_seeds": num_seeds,
        "exact_limit": exact_limit,
        "alpha_epsilon": alpha_epsilon,
        "scaling": study.scaling,
    }
    notes = {"columns": columns, "origin": origin}
    if kernel == "auto":
        study.candidates = _with_methods(asked or (), dataset, widths[0])
        study.check(study.candidates[0], asked, widths)
    else:
        study.ready = study.check(kernel, asked, widths)
    if out is None:
        return study.measure(request, seeds, None, notes)
    folder = open_directory(out, resume, force)
    request |= {"data": dataset.name, "rows": fingerprint(dataset), "versions": environment()["versions"]}
    if resume and (folder / FILES[0]).is_file():
        finished = load(folder)
        check_same(finished.request, request, folder)
        return finished
    checkpoint = StudyCheckpoint(folder, request, resume)
    try:
        result = study.measure(request, seeds, checkpoint, notes)
    except KeyboardInterrupt:
        count = len(checkpoint.runs)
        kept = f"{count} run{'s are' if count > 1 else ' is'} kept" if count else "no run is kept yet"
        raise KeyboardInterrupt(f"{kept} in {str(out)!r}; --resume goes on with it") from None
    result.save(folder)
    checkpoint.remove()
    return result


class _Study:
    """Benches of one data set, and the order of what is measured with them."""

    def __init__(
        self, dataset: Dataset, exact_limit: int, alpha_epsilon: float, scaling: Scaling, progress: bool | None
    ) -> None:
        self.dataset, self.exact_limit, self.alpha_epsilon = dataset, exact_limit, alpha_epsilon
        self.scaling, self.progress = scaling, progress
        self.ready: Bench | None = None
        self.candidates: tuple[str, ...] = CANDIDATES

    def bench(self, kernel: str, limit: int) -> Bench:
        """A bench of a kernel by its name, with at most so many rows times outputs in the exact model."""
        exact, is_field = exact_kernel(kernel, self.dataset.num_outputs), kernel in FIELD_KERNELS
        return Bench(self.dataset, exact, limit, self.alpha_epsilon, self.scaling, is_field)

    def check(self, kernel: str, methods: list[str] | None, widths: list[int]) -> Bench:
        """A bench of a kernel, once every method has made features for it."""
        bench = self.bench(kernel, self.exact_limit)
        bench.check_memory(max(widths))
        for method, width in self.pairs(default_methods(kernel) if methods is None else methods, widths):
            bench.approximation(method, width, seed=0)
        return bench

    def pairs(self, methods: Iterable[str], widths: list[int]) -> list[tuple[str, int]]:
        """Methods and numbers of features, without more landmarks than rows."""
        most = len(self.dataset.x_train)
        pairs = [(method, width) for width in widths for method in methods if method != "landmarks" or width <= most]
        if not pairs:
            raise ValueError(f"expected at most {most} landmarks, one per row, got {min(widths)}; lower num_features")
        return pairs

    def measure(
        self, request: dict[str, Any], seeds: range, checkpoint: StudyCheckpoint | None, notes: dict[str, Any]
    ) -> StudyResult:
        """Everything that is not in the checkpoint yet."""
        bench, kernel, training, candidates = self._learned(request, checkpoint)
        names = list(default_methods(kernel)) if request["methods"] is None else request["methods"]
        pairs = self.pairs(names, request["num_features"])
        baselines = bench.measure_baselines()
        exact = bench.measure_exact()
        runs_by_job = (
            {} if checkpoint is None else {(run.method, run.num_features, run.seed): run for run in checkpoint.runs}
        )
        jobs = [(method, width, seed) for seed in seeds for method, width in pairs]
        with warnings.catch_warnings(), torch.no_grad():
            warnings.filterwarnings("ignore", message=".*features(=\\d+)? exceed.*")
            bench.fitted(jobs[0], bench.some)  # not measured: the first call of everything is slower
            left = [job for job in jobs if job not in runs_by_job]
            silent = None if self.progress is None else not self.progress
            for job in tqdm(left, desc="study", unit="run", disable=silent, initial=len(runs_by_job), total=len(jobs)):
                runs_by_job[job] = bench.measure(job)
                if checkpoint is not None:
                    checkpoint.keep(runs_by_job[job])
        is_classes = self.dataset.num_classes is not None
        settings = {
            "kernel": kernel,
            "kernel_asked": request["kernel"],
            "methods": names,
            "num_features": request["num_features"],
            "seeds": list(seeds),
            "exact_limit": self.exact_limit,
            "alpha_epsilon": self.alpha_epsilon if is_classes else None,
            "scaling": self.scaling,
            "dtype": "float64",
            "kl_rows": len(bench.points),
            "class_probability_draws": DRAWS if is_classes else None,
        }
        if "auto" in names:
            widths = request["num_features"]
            settings["auto"] = {width: _methods(bench.approximation("auto", width, seed=0)) for width in widths}
        description = {**bench.description(), **notes}
        runs = tuple(runs_by_job[job] for job in jobs)
        return StudyResult(
            settings, description, training, environment(), exact, runs, baselines, tuple(candidates), request
        )

    def _learned(
        self, request: dict[str, Any], checkpoint: StudyCheckpoint | None
    ) -> tuple[Bench, str, FitSummary, list[KernelScore]]:
        """A bench with parameters, learned now or before, its kernel, and the kernels that were tried for it."""
        kept = None if checkpoint is None else checkpoint.exact()
        if kept is not None:
            bench = self.ready or self.bench(kept["kernel"], self.exact_limit)
            bench.load_state(kept["state"])
            candidates = [KernelScore(**record) for record in kept["candidates"]]
            return bench, kept["kernel"], training_summary(kept["training"]), candidates
        kernel, candidates = request["kernel"], []
        if kernel == "auto":
            limit = min(self.exact_limit, _CHOICE_ROWS)
            candidates = rank_kernels(lambda name: self.bench(name, limit), self.candidates, self.progress)
            kernel = candidates[0].kernel
        bench = self.ready or self.check(kernel, request["methods"], request["num_features"])
        training = bench.learn(self.progress)
        if checkpoint is not None:
            records = [dataclasses.asdict(candidate) for candidate in candidates]
            state = {"kernel": kernel, "candidates": records, "training": dataclasses.asdict(training)}
            checkpoint.keep_exact({**state, "state": bench.state()})
        return bench, kernel, training, candidates


def environment() -> dict[str, Any]:
    """Versions, machine and number of threads."""
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
    if any(isinstance(part, Landmarks) for part in kernel.modules()):
        return "landmarks"
    recipes = [drawn.recipe for drawn in drawn_maps(kernel)]
    return ", ".join(dict.fromkeys(str(recipe.method) for recipe in recipes if recipe is not None))


def _read(
    data: Any, target: Any, task: Task | None, missing: Missing, drop: Sequence[str | int]
) -> tuple[Dataset, str | None]:
    """The data set, and what there is to say about its columns."""
    checks.instance("drop", drop, Sequence, "a list of columns", "put them in brackets")
    if isinstance(data, Dataset | Table):
        if target is not None or task is not None or missing != "raise" or len(drop) > 0:
            raise ValueError(
                f"expected target, task, missing and drop for a data frame or file, got a {type(data).__name__}, which "
                "is read already; leave them out"
            )
        return (data, None) if isinstance(data, Dataset) else (data.split(), data.report())
    if target is None:
        raise ValueError(
            f"expected a Dataset or a Table, or the target of a data frame or file, got {type(data).__name__} without "
            "one; pass target="
        )
    table = read(data, target, task=task, missing=missing, drop=drop)
    return table.split(), table.report()


def _with_methods(methods: Sequence[str], dataset: Dataset, num_features: int) -> tuple[str, ...]:
    """The candidates that have features by all methods, or a ValueError where there is none."""
    suited, refusal = [], None
    for name in CANDIDATES:
        kernel = exact_kernel(name, dataset.num_outputs)
        try:
            for method in methods:
                if method not in _FOR_ANY_KERNEL:
                    approximate(kernel, num_features, method=method, input_dim=dataset.x_train.shape[-1])
        except ValueError as error:
            refusal = refusal or error
            continue
        suited.append(name)
    if not suited and refusal is not None:
        raise ValueError(f"expected methods that one of the kernels {', '.join(CANDIDATES)} has: {refusal}") from None
    return tuple(suited)


def _check_outputs(dataset: Dataset, kernel: Any) -> None:
    """Raise where a data set has more outputs than its task or kernel can have."""
    if dataset.task == "counts":
        raise ValueError(
            "expected classes or numbers to study, got counts; learn them by rfgp.study.tables.TableModel (rfgp fit "
            '--counts), or pass task="regression"'
        )
    outputs, inputs = dataset.num_outputs, dataset.x_train.shape[-1]
    if outputs > 1 and dataset.num_classes is not None:
        raise ValueError(f"expected one column of class labels, got {outputs}; study one at a time")
    if kernel in FIELD_KERNELS and outputs != inputs:
        raise ValueError(
            f"expected as many targets as inputs for the field {kernel}, got {outputs} targets of {inputs} inputs; "
            "choose another kernel"
        )


def _unique(name: str, values: Iterable[Any]) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str | Tensor):
        raise ValueError(f"expected a list of values for {name}, got {values!r}; put it in brackets")
    result = list(values)
    if any(isinstance(value, Tensor | list | dict | set) for value in result):
        raise ValueError(f"expected single values for {name}, got {result!r}; take them out of their brackets")
    result = list(dict.fromkeys(result))
    if not result:
        raise ValueError(f"expected at least one value for {name}, got none; name one")
    return result

"""The study: random features against the exact Gaussian process, in agreement, accuracy and time."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import gpytorch
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.distributions import Normal
from tqdm.auto import tqdm

from . import _checks, _files, _report, diagnostics, plots
from .approximation import approximate
from .datasets import Dataset
from .datasets.base import Scaling
from .kernels import FeatureKernel
from .likelihoods import DirichletClassificationLikelihood
from .models import WeightSpaceGP
from .training import FitSummary, fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = (
    "rademacher:real",
    "rademacher:ctr",
    "tensor_srht:real",
    "tensor_srht:ctr",
    "tensor_sketch:real",
    "gaussian:real",
)
"""The methods that a study of a polynomial or linear kernel compares where none are named."""

FOURIER_METHODS = ("fourier", "fourier_orthogonal", "fourier_hadamard")
"""Those of a shift-invariant kernel; "rbf" has optimized_maclaurin:real and :ctr besides."""

NUM_FEATURES = (128, 256, 512, 1024)
FILES = ("results.json", "study.png")
"""The files that a study writes."""

MEASURES = (
    "kl",
    "kl_reverse",
    "kl_noisy",
    "error",
    "mnll",
    "kernel_error",
    "fit_seconds",
    "predict_seconds",
    "seconds",
)
_KL_ROWS = 1000
_MOST_SEEDS = 1000
_DRAWS = 512


@dataclass(frozen=True)
class Run:
    """What was measured with one method, one number of features and one seed.

    :param method: the name of the method, or "exact".
    :param num_features: the number of features, None for the exact model.
    :param seed: the seed of the weights, None for the exact model.
    :param kl: KL(approximate, exact) of the latent marginals, summed over test points, averaged over classes.
    :param kl_reverse: the same for KL(exact, approximate).
    :param kl_noisy: KL(approximate, exact) of the noisy predictions; None for classification.
    :param error: the error rate, or the root mean squared error in units of the target.
    :param mnll: the mean negative log likelihood of the test targets.
    :param kernel_error: the relative Frobenius error of the kernel matrix of test points.
    :param fit_seconds: the time for weights, features, statistics and factorisation.
    :param predict_seconds: the time for latent means and variances of all test rows.
    """

    method: str
    num_features: int | None
    seed: int | None
    kl: float
    kl_reverse: float
    kl_noisy: float | None
    error: float
    mnll: float
    kernel_error: float
    fit_seconds: float
    predict_seconds: float

    @property
    def seconds(self) -> float:
        """The time to fit and to predict."""
        return self.fit_seconds + self.predict_seconds


@dataclass(frozen=True)
class Summary:
    """Means and standard errors over seeds of every measure; NaN where a measure or its error does not exist."""

    method: str
    num_features: int | None
    mean: dict[str, float]
    standard_error: dict[str, float]


@dataclass(frozen=True)
class StudyResult:
    """All that a study measured, and under which circumstances.

    :param settings: every setting of the study; where "auto" was among the methods, ``settings["auto"]`` has the method
        that it took, by number of features.
    :param data: the data set, its size, origin and scaling.
    :param training: how the parameters of the exact model were learnt, and their values.
    :param environment: versions and machine.
    :param exact: the measurements of the exact model.
    :param runs: those of every approximation.
    """

    settings: dict[str, Any]
    data: dict[str, Any]
    training: FitSummary
    environment: dict[str, Any]
    exact: Run
    runs: tuple[Run, ...]

    @property
    def error_name(self) -> str:
        """What ``error`` stands for."""
        return "error rate" if self.data["task"] == "classification" else "RMSE"

    @property
    def exact_name(self) -> str:
        """The exact model and its number of rows."""
        return f"exact, {self.data['exact_rows']:,} rows"

    def summaries(self) -> list[Summary]:
        """Means and standard errors over seeds, by number of features, then by method."""
        return [
            _summary([run for run in self.runs if (run.method, run.num_features) == (method, width)])
            for width in self.settings["num_features"]
            for method in self.settings["methods"]
        ]

    def table(self) -> str:
        """A table for terminals: means and standard errors by method and number of features, the exact model last."""
        measures = {
            "kl": "KL to exact",
            "error": self.error_name,
            "mnll": "MNLL",
            "kernel_error": "kernel error",
            "fit_seconds": "fit (s)",
            "predict_seconds": "predict (s)",
        }
        blocks: dict[int | None, list[list[str]]] = {}
        for row in [*self.summaries(), dataclasses.replace(_summary([self.exact]), method=self.exact_name)]:
            cells = [_report.plus_minus(row.mean[m], row.standard_error[m]) for m in measures]
            width = "" if row.num_features is None else str(row.num_features)
            blocks.setdefault(row.num_features, []).append([self._label(row), width, *cells])
        table = _report.table(["method", "features", *measures.values()], list(blocks.values()))
        rows, count = self.data["exact_rows"], len(self.settings["seeds"])
        notes = ["± standard error over seeds" if count > 1 else "one seed"]
        if rows < self.data["num_train"]:
            notes.append(f"divergences between fits to {rows:,} rows, the rest for fits to {self.data['num_train']:,}")
        return f"{table}\n{'; '.join(notes)}"

    def _label(self, row: Summary) -> str:
        """The method of a row, with the one that "auto" took in brackets."""
        is_auto = row.method == "auto" and row.num_features is not None
        return f"auto ({self.settings['auto'][row.num_features]})" if is_auto else row.method

    def figure(self) -> Figure:
        """KL, error and MNLL against the number of features (top) and against time (bottom).

        :raises ImportError: without matplotlib.
        """
        rows, exact = self.summaries(), self.exact
        columns = (
            ("kl", "KL(approximate, exact)", None),
            ("error", f"test {self.error_name}", exact.error),
            ("mnll", "test MNLL", exact.mnll),
        )
        figure, axes = plots.figure(2, len(columns))
        for column, (measure, label, level) in enumerate(columns):
            is_positive = min(row.mean[measure] for row in rows) > 0 and (level is None or level > 0)
            is_density = measure == "mnll" and self.data["task"] == "regression"
            for ax, by_time in zip(axes[:, column], (False, True), strict=True):
                curves = {method: _curve(rows, method, measure, by_time) for method in self.settings["methods"]}
                plots.comparison(
                    curves,
                    exact=level,
                    exact_x=exact.seconds if by_time else None,
                    exact_name=self.exact_name,
                    xlabel="time to fit and predict (s)" if by_time else "number of features",
                    ylabel=label,
                    log_x=10 if by_time else 2,
                    log_y=is_positive and not is_density,
                    ax=ax,
                )
        plots.legend(figure, list(axes.flat))
        count = len(self.settings["seeds"])
        figure.suptitle(
            f"{self.data['name']}, {self.settings['kernel']} kernel, {self.data['num_train']:,} training rows: "
            + (f"mean and standard error over {count} seeds" if count > 1 else "one seed"),
            fontsize="medium",
        )
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON has it: numbers that are not finite become None."""
        summaries = [dataclasses.asdict(summary) for summary in self.summaries()]
        return _report.plain({**dataclasses.asdict(self), "summaries": summaries})

    def save(self, directory: str | Path) -> list[Path]:
        """Write ``results.json`` and ``study.png``; each appears whole or not at all.

        :param directory: where to; it is made where it does not exist.
        :returns: the paths of the files.
        :raises ImportError: without matplotlib.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        figure = self.figure()
        return [
            _files.write_whole(folder / FILES[0], lambda path: path.write_text(text, encoding="utf-8")),
            _files.write_whole(folder / FILES[1], lambda path: figure.savefig(path, format="png", dpi=200)),
        ]


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

    The parameters are learnt with the exact model on at most ``exact_limit`` training rows, and shared by all methods.
    Divergences compare both models on these rows, at up to 1,000 test rows; error, MNLL and times are those of a fit to
    all training rows, on all test rows. Labels are classified with a Dirichlet likelihood, numbers have a Gaussian one.
    Everything is computed in float64.

    :param dataset: the data.
    :param kernel: "polynomial:p", "linear", "rbf", "matern:nu" or "rq", see :func:`exact_kernel`.
    :param methods: names of methods, see :data:`rfgp.kernels.METHODS`, or "auto"; where it is None, those of
        :func:`default_methods`.
    :param num_features: the numbers of features.
    :param num_seeds: the number of seeds, 0, 1, ...
    :param exact_limit: the largest number of training rows of the exact model.
    :param alpha_epsilon: the concentration of the Dirichlet likelihood outside the class.
    :param scaling: "standardize", "unit" or "none"; that of the data set where it is None.
    :param progress: whether to show progress bars; where it is None, on terminals only.
    :returns: the measurements.
    :raises ValueError: for settings or data that do not fit together, before anything long has begun.
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
    bench = _Bench(dataset, base, exact_limit, alpha_epsilon, scaling or dataset.scaling)
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
        "class_probability_draws": _DRAWS if dataset.num_classes else None,
    }
    if "auto" in names:
        settings["auto"] = {width: _methods(bench.approximation("auto", width, seed=0)) for width in widths}
    return StudyResult(settings, bench.description(), training, environment(), exact, runs)


def exact_kernel(name: str) -> Kernel:
    """The exact kernel of a name, in float64.

    :param name: "polynomial:p" for (x . y + offset)^p, "rbf", "matern:nu" with nu 0.5, 1.5 or 2.5, or "rq", with an
        output scale; or "linear".
    :raises ValueError: for another name, degree or nu.

    >>> exact_kernel("polynomial:3").base_kernel.power
    3
    """
    _checks.instance("kernel", name, str, "the name of a kernel", 'such as "polynomial:3"')
    family, _, argument = name.partition(":")
    if family == "polynomial" and re.fullmatch("[1-9][0-9]{0,9}", argument):
        return ScaleKernel(PolynomialKernel(power=int(argument))).double()
    if family == "matern" and argument in ("0.5", "1.5", "2.5"):
        return ScaleKernel(MaternKernel(nu=float(argument))).double()
    if name in ("rbf", "rq"):
        return ScaleKernel(RBFKernel() if name == "rbf" else RQKernel()).double()
    if name == "linear":
        return LinearKernel().double()
    raise ValueError(
        "expected polynomial:p with a degree p, linear, rbf, rq, or matern:nu with nu 0.5, 1.5 or 2.5 as the kernel, "
        f"got {name!r}; choose one of these"
    )


def default_methods(kernel: str) -> tuple[str, ...]:
    """The methods that a study of a kernel compares where none are named.

    :param kernel: the name of a kernel, see :func:`exact_kernel`.
    :raises ValueError: for another name.
    """
    exact_kernel(kernel)
    if kernel.startswith(("polynomial", "linear")):
        return METHODS
    return FOURIER_METHODS + (("optimized_maclaurin:real", "optimized_maclaurin:ctr") if kernel == "rbf" else ())


def scale_inputs(train: Tensor, test: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor, str]:
    """Scaled inputs, and in words what was done to them.

    :param train: training inputs (N, d).
    :param test: test inputs (M, d).
    :param scaling: "standardize": columns of zero mean and variance 1/d, so that rows have a mean squared norm of one;
        "unit": rows of unit norm; "none".
    :raises ValueError: for another scaling.
    """
    _checks.choice("scaling", scaling, get_args(Scaling))
    _checks.finite(_checks.inputs(train, name="train"), "train")
    _checks.finite(_checks.inputs(test, train.shape[-1], "test"), "test")
    if scaling == "none":
        return train, test, "inputs as they are"
    if scaling == "unit":
        train, test = (
            x / _divisor(x.norm(dim=-1, keepdim=True), (x != 0).any(-1, keepdim=True), "inputs") for x in (train, test)
        )
        return train, test, "rows of the inputs divided by their norms"
    mean = train.mean(0)
    std = _divisor(train.std(0, correction=0), (train != train[:1]).any(0), "inputs") * train.shape[-1] ** 0.5
    return (train - mean) / std, (test - mean) / std, "columns of the inputs standardised, and divided by sqrt(d)"


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


class _Exact(gpytorch.models.ExactGP):
    """The exact model, from parts that the approximations share."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, mean: gpytorch.means.Mean, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _Bench:
    """One scaled data set and one exact model, against which approximations are measured."""

    def __init__(
        self, dataset: Dataset, kernel: Kernel, exact_limit: int, alpha_epsilon: float, scaling: Scaling
    ) -> None:
        self.dataset, self.kernel = dataset, kernel
        self.x, self.x_test, self.scaling = scale_inputs(dataset.x_train, dataset.x_test, scaling)
        self.some = _some_rows(len(self.x), exact_limit)
        self.points = _some_rows(len(self.x_test), _KL_ROWS)
        self.classes = dataset.num_classes
        if self.classes is None:
            std = dataset.y_train.std(correction=0)
            self.shift, self.unit = (
                float(dataset.y_train.mean()),
                float(_divisor(std, std.new_ones(()).bool(), "targets")),
            )
            self.y = (dataset.y_train - self.shift) / self.unit
            self.likelihood: Any = gpytorch.likelihoods.GaussianLikelihood().double()
            self.targets = self.y[self.some]
            batch = torch.Size()
        else:
            self.y = dataset.y_train
            self.likelihood = DirichletClassificationLikelihood(
                self.y[self.some], alpha_epsilon, num_classes=self.classes, dtype=torch.float64
            )
            self.targets = self.likelihood.transformed_targets
            batch = torch.Size([self.classes])
        self.mean = gpytorch.means.ConstantMean(batch_shape=batch).double()
        needed = 64.0 * (self.classes or 1) * len(self.some) ** 2
        what = f"the training of an exact model of {len(self.some)} rows"
        _checks.fits_in_memory(needed, what, "lower --exact-limit (exact_limit)")

    def check_memory(self, num_features: int) -> None:
        """Raise where sums, factors and test features of so many features do not fit in memory."""
        needed = 8.0 * num_features * (3 * (self.classes or 1) * num_features + 2 * len(self.x_test))
        _checks.fits_in_memory(needed, f"models of {num_features:,} features", "lower --num-features (num_features)")

    def description(self) -> dict[str, Any]:
        """The data set, without its rows."""
        data = self.dataset
        target = "class labels" if self.classes else "target standardised; error and MNLL in its own units"
        return {
            "name": data.name,
            "task": data.task,
            "num_train": len(data.x_train),
            "num_test": len(data.x_test),
            "input_dim": data.x_train.shape[-1],
            "num_classes": self.classes,
            "exact_rows": len(self.some),
            "preprocessing": f"{self.scaling}; {target}",
            "provenance": data.provenance,
            "licence": data.licence,
        }

    def learn(self, progress: bool | None) -> FitSummary:
        """Learn the parameters with the exact model, and freeze them."""
        model = _Exact(self.x[self.some], self.targets, self.likelihood, self.mean, self.kernel)
        try:
            summary = fit(model, progress=progress)
        except (NotPSDError, NanError) as error:
            raise ValueError(
                f"expected an exact model with a Cholesky factor in float64, got none ({error}); choose another "
                "scaling of the inputs (--scaling) or another kernel"
            ) from None
        model.requires_grad_(False)
        return summary

    def measure_exact(self) -> Run:
        """The exact model on its rows; its time to fit is that of a posterior at a single point."""
        x, y = self.x[self.some], self.y[self.some]

        def posterior(points: Tensor) -> Any:
            return diagnostics.exact_posterior(self.kernel, self.likelihood, x, y, points, self.mean)

        posterior(self.x_test[:1])
        _, fit_seconds = _timed(lambda: posterior(self.x_test[:1]))
        latent, seconds = _timed(lambda: posterior(self.x_test))
        self.reference = self._at_points(latent)
        error, mnll = self._scores(latent)
        noisy = None if self.classes else 0.0
        return Run("exact", None, None, 0.0, 0.0, noisy, error, mnll, 0.0, fit_seconds, max(seconds - fit_seconds, 0.0))

    def approximation(self, method: str, num_features: int, seed: int) -> Kernel:
        """The approximated kernel, which shares the parameters of the exact one."""
        return approximate(self.kernel, num_features, method=method, train_inputs=self.x, seed=seed)

    def fitted(self, job: tuple[str, int, int], rows: Tensor | slice) -> WeightSpaceGP:
        """A model with random features, fitted to some training rows and factorised."""
        model = WeightSpaceGP(self.approximation(*job), self.likelihood, self.mean)
        model.fit(self.x[rows], self.y[rows]).weight_posterior()
        return model

    def measure(self, job: tuple[str, int, int]) -> Run:
        """Everything about one method, number of features and seed."""
        model, fit_seconds = _timed(lambda: self.fitted(job, slice(None)))
        latent, predict_seconds = _timed(lambda: _marginals(model.posterior(self.x_test)))
        error, mnll = self._scores(latent)
        if len(self.some) == len(self.x):
            near = self._at_points(latent)
        else:
            near = _marginals(self.fitted(job, self.some).posterior(self.x_test[self.points]))
        return Run(
            *job,
            _divergence(near, self.reference),
            _divergence(self.reference, near),
            None if self.classes else _divergence(self._noisy(near), self._noisy(self.reference)),
            error,
            mnll,
            float(diagnostics.relative_frobenius_error(model.covar_module, self.x_test[self.points])),
            fit_seconds,
            predict_seconds,
        )

    def _at_points(self, latent: Normal) -> Normal:
        return Normal(latent.mean[..., self.points], latent.stddev[..., self.points], validate_args=False)

    def _noisy(self, latent: Normal) -> Normal:
        return Normal(latent.mean, (latent.variance + self.likelihood.noise).sqrt(), validate_args=False)

    def _scores(self, latent: Normal) -> tuple[float, float]:
        """Error and MNLL on the test rows, in units of the target."""
        y = self.dataset.y_test
        if self.classes is None:
            predictive = self._noisy(latent)
            predictive = Normal(predictive.mean * self.unit + self.shift, predictive.stddev * self.unit)
            return float(diagnostics.rmse(predictive.mean, y)), float(diagnostics.regression_mnll(predictive, y))
        generator = torch.Generator().manual_seed(0)
        probabilities = self.likelihood.class_probabilities(latent, _DRAWS, generator)
        return (
            float(diagnostics.error_rate(probabilities, y)),
            float(diagnostics.classification_mnll(probabilities, y)),
        )


def _methods(kernel: Kernel) -> str:
    """The methods by which the features of a kernel were made."""
    recipes = [part.recipe for part in kernel.modules() if isinstance(part, FeatureKernel)]
    return ", ".join(dict.fromkeys(str(recipe.method) for recipe in recipes if recipe is not None))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def _marginals(distribution: Any) -> Normal:
    return Normal(distribution.mean, distribution.variance.clamp_min(0.0).sqrt(), validate_args=False)


def _divergence(p: Normal, q: Normal) -> float:
    """KL(p, q), averaged over classes; infinite where a variance has vanished."""
    if not bool((p.stddev > 0).all() and (q.stddev > 0).all()):
        return math.inf
    return float(diagnostics.kl_divergence(p, q).mean())


def _some_rows(total: int, limit: int) -> Tensor:
    """The indices of all rows, or of a random choice of them (seed 0), in order."""
    if total <= limit:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:limit].sort().values


def _divisor(scale: Tensor, varies: Tensor, name: str) -> Tensor:
    """Scales to divide by, 1 where nothing varies, or a ValueError where squares leave the range of float64."""
    bad = ~torch.isfinite(scale) | (varies & (scale == 0))
    if bool(bad.any()):
        raise ValueError(
            f"expected {name} whose squares are within the range of float64, got a scale of {float(scale[bad][0]):g}; "
            "multiply them by a constant"
        )
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def _unique(name: str, values: Iterable[Any]) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str | Tensor):
        raise ValueError(f"expected a list of values for {name}, got {values!r}; put it in brackets")
    result = list(dict.fromkeys(values))
    if not result:
        raise ValueError(f"expected at least one value for {name}, got none; name one")
    return result


def _summary(runs: list[Run]) -> Summary:
    mean, standard_error = {}, {}
    for measure in MEASURES:
        values = [math.nan if value is None else value for value in (getattr(run, measure) for run in runs)]
        mean[measure] = sum(values) / len(values)
        finite = len(values) > 1 and all(map(math.isfinite, values))
        standard_error[measure] = statistics.stdev(values) / len(values) ** 0.5 if finite else math.nan
    return Summary(runs[0].method, runs[0].num_features, mean, standard_error)


def _curve(rows: list[Summary], method: str, measure: str, by_time: bool) -> plots.Curve:
    mine = [row for row in rows if row.method == method]
    return plots.Curve(
        [row.mean["seconds"] if by_time else row.num_features for row in mine],
        [row.mean[measure] for row in mine],
        [row.standard_error[measure] for row in mine],
    )

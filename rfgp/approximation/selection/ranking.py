"""Which method, for this kernel and these inputs: where the posterior loses least, or nearly that at a lower cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm.auto import tqdm

from ..._support import checks
from ...kernels.checked import check_columns
from ..approximated import approximated
from ..families.grid import MOST_COLUMNS, GridFamily, spectral_weights
from ..family import family
from ..feature_kernel import FeatureKernel
from ..landmarks import Landmarks, check_scalar
from ..maps import DrawnMap
from ..method import FeatureMethod
from ..registry import is_approximated
from .errors import PredictedError, predict, sampled_inputs
from .posterior import PosteriorTest, draws_of

_SIMILAR, _NOTHING = 1.1, 1e-3  # what few draws do not tell apart, and a divergence that no interval shows
LANDMARKS, GRID = "landmarks", "fourier_grid"
_UNKNOWN = PredictedError(math.nan, math.nan, 0.0)


@dataclass(frozen=True)
class Candidate:
    """A feature method with what it loses and costs.

    :param method: the name of the method, for :func:`rfgp.approximate`.
    :param num_features: the number of columns that come out.
    :param error: the predicted error of the kernel matrix; for landmarks that at held-out rows.
    :param operations: multiplications for the features of one input, to leading order.
    :param is_truncated: whether it leaves out the tail of an infinite series, as Maclaurin features of the Gaussian
        kernel do; function samples and evidence then lack variance off the data.
    :param kl_per_point: the 90% quantile of :func:`posterior_loss` over eight draws, at rows that did not choose them.
    :param coverage: the coverage of 95% intervals, the 10% quantile likewise.

    >>> import gpytorch
    >>> names = ["fourier", "fourier_orthogonal"]
    >>> best = rank_methods(gpytorch.kernels.RBFKernel(), 64, torch.randn(50, 2), methods=names)[0]
    >>> best.method in names, best.num_features
    (True, 64)
    """

    method: str
    num_features: int
    error: PredictedError
    operations: float
    is_truncated: bool = False
    kl_per_point: float = math.nan
    coverage: float = math.nan


def rank_methods(
    kernel: Kernel,
    num_features: int,
    train_inputs: Tensor,
    *,
    methods: Sequence[str] | None = None,
    noise: float | None = None,
    seed: int = 0,
    time_limit: float = 60.0,
    progress: bool | None = None,
) -> list[Candidate]:
    """Every method that suits a kernel, in the order of ``kl_per_point``: the 90% quantile of :func:`posterior_loss`.

    :param kernel: an exact kernel, with the parameters that count.
    :param num_features: the number of columns that come out.
    :param train_inputs: (N, d); a sample of 512 of them is looked at.
    :param methods: the names of methods; default: all real and complex-to-real ones that suit the kernel, and
        "landmarks" for kernels of one output. Of sums and products, those that suit every part which is not exact.
    :param noise: the variance of the noise; default: a hundredth of the mean prior variance.
    :param seed: the seed of the sample, and of draws.
    :param time_limit: no method is begun after so many seconds, with a warning that names those left out.
    :param progress: whether to show a progress bar; default: on terminals only.
    :raises ValueError: where no method suits the kernel and the number of features.

    >>> import gpytorch
    >>> x = torch.rand(200, 3)
    >>> ranking = rank_methods(gpytorch.kernels.RBFKernel(), 64, x)
    >>> ranking[0].kl_per_point <= ranking[-1].kl_per_point
    True
    """
    train_inputs = checks.columns(train_inputs)
    seed = checks.seed(seed)
    sample = sampled_inputs(train_inputs, seed)
    check_columns(kernel, sample)
    width = checks.positive_integer("num_features", num_features)
    checks.fits_in_memory(8.0 * width * len(sample), f"{width:,} features of {len(sample):,} rows", "take fewer")
    limit = check_time_limit(time_limit)
    if methods is not None and (not isinstance(methods, Sequence) or isinstance(methods, str) or not len(methods)):
        raise ValueError(f'expected the names of methods for methods, got {methods!r}; such as ["fourier"]')
    names = applicable(kernel, sample) if methods is None else tuple(methods)
    for name in names:
        if name != "auto":
            FeatureMethod.parse(name)
    test = PosteriorTest(train_inputs, seed, noise)
    return _ranked(kernel, width, names, sample, test, seed, limit, progress)


def _ranked(
    kernel: Kernel,
    num_features: int,
    names: Sequence[str],
    x: Tensor,
    test: PosteriorTest,
    seed: int,
    time_limit: float = 60.0,
    progress: bool | None = None,
    has_error: bool = True,
) -> list[Candidate]:
    """The candidates of some names that suit a kernel, that with the smallest loss first."""
    start = perf_counter()
    candidates: list[Candidate] = []
    reasons: list[str] = []
    with tqdm(names, desc="rank", unit="method", disable=checks.no_bar(progress), leave=False) as bar:
        for i, name in enumerate(bar):
            if candidates and perf_counter() - start > time_limit:
                left_out = ", ".join(names[i:])
                warnings.warn(f"time_limit={time_limit:g} seconds ended the ranking before {left_out}", stacklevel=3)
                break
            bar.set_postfix(method=name)
            try:
                limit = math.inf if has_error else _limit(candidates)
                candidates.append(candidate_of(kernel, num_features, name, x, test, seed, has_error, limit))
            except ValueError as reason:
                reasons.append(f"{name}: {reason}")
    if not candidates:
        raise ValueError(f"expected a method that suits the kernel, got none; {'; '.join(reasons)}")
    return sorted(candidates, key=lambda candidate: candidate.kl_per_point)


def best_method(kernel: Kernel, num_features: int, train_inputs: Tensor, *, seed: int = 0) -> str:
    """The name of the cheapest method whose posterior loses at most a tenth more than the least, or 0.001 per point.

    Random Maclaurin degrees and, if there are others, truncated methods are left out. Arguments and errors are those of
    :func:`rank_methods`.

    >>> import gpytorch
    >>> best_method(gpytorch.kernels.LinearKernel(), 3, torch.rand(50, 3))
    'linear'
    """
    return _best(kernel, num_features, train_inputs, checks.seed(seed))


def best_whole(kernel: Kernel, num_features: int, train_inputs: Tensor) -> str:
    """The best method of a kernel that is approximated as a whole by landmarks; "auto" where its parts choose."""
    checks.finite(checks.inputs(train_inputs, name="train_inputs"), "train_inputs")
    rows = train_inputs.reshape(-1, train_inputs.shape[-1])
    try:
        return best_method(kernel, num_features, train_inputs) if _has_landmarks(kernel, rows[:1]) else "auto"
    except (ValueError, RuntimeError):  # also what GPyTorch raises for inputs of another number of columns
        return "auto"


def best_of_part(kernel: Kernel, num_features: int, train_inputs: Tensor) -> str:
    """The best method for a part of a kernel, whose landmarks would be those of the whole: among random features."""
    return _best(kernel, num_features, train_inputs, seed=0, is_part=True)


def _best(kernel: Kernel, num_features: int, train_inputs: Tensor, seed: int, is_part: bool = False) -> str:
    check_kernel(kernel)
    sample, width = sampled_inputs(train_inputs, seed), checks.positive_integer("num_features", num_features)
    check_columns(kernel, sample)
    names = methods_for_auto(kernel, sample)
    if is_part:
        names = [name for name in names if name != LANDMARKS] or names
    ranking = _ranked(kernel, width, names, sample, PosteriorTest(train_inputs, seed), seed, has_error=False)
    if len(names) > 1 and len(ranking) == 1 and ranking[0].method == LANDMARKS:
        rank_methods(kernel, width, sample, methods=[name for name in names if name != LANDMARKS])  # says why
    limit = _limit(ranking)
    similar = [candidate for candidate in ranking if candidate.kl_per_point <= limit]
    return min(similar, key=lambda candidate: candidate.operations).method


def _limit(candidates: Sequence[Candidate]) -> float:
    """The largest loss that is as small as the smallest one."""
    return max(_SIMILAR * min((candidate.kl_per_point for candidate in candidates), default=math.inf), _NOTHING)


def check_time_limit(time_limit: float) -> float:
    """A positive number of seconds."""
    if not checks.number(time_limit) > 0.0:
        raise ValueError(f"expected a positive time_limit, got {time_limit!r}; 60 is usual")
    return checks.number(time_limit)


def check_kernel(kernel: Kernel) -> None:
    """Raise a ValueError where a kernel is none."""
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as gpytorch.kernels.RBFKernel()")


def applicable(kernel: Kernel, x: Tensor) -> tuple[str, ...]:
    """The names of the methods that suit a kernel on inputs (N, d), "auto" where its parts may have their own."""
    of_kernel, has_landmarks = family(kernel), _has_landmarks(kernel, x)
    try:
        mixed = ("auto",) if of_kernel.mixes_methods else ()
        methods = of_kernel.applicable(x.shape[-1])
    except ValueError:
        if not has_landmarks:
            raise
        return (LANDMARKS,)
    if methods is None:
        return mixed
    of_whole = [*([GRID] if has_landmarks and _has_grid(kernel, x) else []), *([LANDMARKS] if has_landmarks else [])]
    return (*mixed, *map(str, methods), *of_whole)


@torch.no_grad()
def _has_grid(kernel: Kernel, x: Tensor) -> bool:
    """Whether a kernel has a spectral density in few dimensions."""
    columns = x.shape[-1] if kernel.active_dims is None else kernel.active_dims.numel()
    if columns > MOST_COLUMNS:
        return False
    orders = torch.eye(columns, dtype=torch.long, device=x.device)
    try:
        spectral_weights(kernel, orders, orders.diagonal().double())
    except ValueError:
        return False
    return True


def _has_landmarks(kernel: Kernel, x: Tensor) -> bool:
    """Whether a kernel has one output and no part that is approximated already."""
    if not isinstance(kernel, Kernel) or any(is_approximated(part) for part in kernel.modules()):
        return False
    try:
        for part in kernel.modules():
            if isinstance(part, Kernel):
                check_scalar(part, x)
    except ValueError:
        return False
    return True


def methods_for_auto(kernel: Kernel, x: Tensor) -> list[str]:
    """The methods among which :func:`best_method` chooses: those that take rows from anywhere."""
    names = [name for name in applicable(kernel, x) if name != GRID and not name.startswith("random_maclaurin")]
    lasting = [name for name in names if not _is_truncated(kernel, name)]
    return lasting if any(name != LANDMARKS for name in lasting) else names


def _is_truncated(kernel: Kernel, method: str) -> bool:
    """Whether a method leaves out the tail of the series of a part of the kernel."""
    return method != "auto" and family(kernel).truncates(FeatureMethod.parse(method))


def candidate_of(
    kernel: Kernel,
    num_features: int,
    method: str,
    x: Tensor,
    test: PosteriorTest,
    seed: int,
    has_error: bool = True,
    limit: float = math.inf,
) -> Candidate:
    """A method with its loss and, where asked for, its error, from a sample x (n, d); draws end above the limit."""
    is_landmarks = method != "auto" and FeatureMethod.parse(method).is_landmarks
    rows = test.others if num_features < test.num_rows else test.all_rows

    def make(seed: int) -> Kernel:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return approximated(kernel, num_features, method=method, train_inputs=rows, seed=seed, choose=best_of_part)

    made, error = make(seed), _UNKNOWN
    if has_error:
        error = predict(made, test.held_out if is_landmarks else x, test.num_rows, seed)
        if method.startswith("random_maclaurin"):
            error = _mean([error, *[predict(make(seed + i), x, test.num_rows, seed) for i in range(1, 8)]])
        if not math.isfinite(error.mean_squared_error):
            raise ValueError("its predicted error is not finite; scale the inputs down")
    loss = test.upper_loss(draws_of(make, seed), limit)
    if not math.isfinite(loss.kl_per_point):
        raise ValueError("the loss of its posterior is not finite; scale the inputs down")
    truncated = _is_truncated(kernel, method)
    return Candidate(method, num_features, error, _operations(made), truncated, loss.kl_per_point, loss.coverage)


def _mean(errors: list[PredictedError]) -> PredictedError:
    """The mean over draws of the degrees."""
    squares = torch.tensor([error.relative_error**2 for error in errors], dtype=torch.float64)
    relative = float(squares.mean().sqrt())
    deviation = float(squares.std()) / math.sqrt(len(errors)) / (2.0 * relative) if relative > 0.0 else 0.0
    return PredictedError(sum(error.mean_squared_error for error in errors) / len(errors), relative, deviation)


def _operations(kernel: FeatureKernel) -> float:
    """Multiplications for the features of one input: those of the maps, M d for a grid, M d + M^2 for M landmarks."""
    solves, maps = 0, set()
    for leaf, _ in kernel.family.leaves():
        if isinstance(leaf.maps, Landmarks):
            solves += leaf.num_scalar_features * (leaf.input_dim + leaf.num_scalar_features)
        elif isinstance(leaf, GridFamily):
            solves += leaf.num_scalar_features * leaf.input_dim
        elif isinstance(leaf.maps, DrawnMap):
            maps.add(leaf.maps.feature_map)
    return solves + sum(part.operations for part in maps if part is not None)

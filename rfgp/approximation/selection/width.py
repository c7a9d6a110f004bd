"""How many features, for this kernel and these inputs: as few as meet a tolerance."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from time import perf_counter

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm.auto import tqdm

from ..._support import checks
from ..._support.gpytorch_names import EVALUATED_KERNELS
from ...kernels.checked import check_columns
from . import ranking
from .errors import columns_drawn, mean_over_pairs, num_rows_of, output_blocks, sampled_inputs
from .posterior import NUM_DRAWS, PosteriorTest
from .ranking import Candidate, applicable, best_method, check_kernel, check_time_limit

_MOST_FEATURES = 2**17
_KL_PER_POINT = 0.05
_NEARLY_DIAGONAL = 0.1  # root mean square of correlations
_FIRST = 64  # features, with which a search begins
_FEW_DRAWS = 2  # which a search looks at
_STEP = 16  # the largest factor between numbers of features in a search


def suggest_num_features(
    kernel: Kernel,
    train_inputs: Tensor,
    tolerance: float | None = None,
    *,
    kl_per_point: float | None = None,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    progress: bool | None = None,
) -> int:
    """The smallest even number of features, to about two percent, whose posterior is near enough to the exact one.

    The 90% quantile of :func:`posterior_loss` over eight draws is to be met, checked with other draws at held-out rows;
    with ``tolerance``, the error of the kernel matrix instead.

    :param kernel: an exact kernel, with the parameters that count.
    :param train_inputs: (N, d).
    :param tolerance: the relative Frobenius error of the kernel matrix to be met, between 0 and 1.
    :param kl_per_point: the loss of the posterior to be met in its place, a positive number; default: 0.05.
    :param method: the name of a method, or "auto": that of :func:`best_method` for each number.
    :param seed: as for :func:`rank_methods`.
    :param time_limit: no prediction is begun that would end after so many seconds. A number that meets the tolerance by
        then is returned with a warning that it is not the smallest.
    :param progress: whether to show a progress bar; default: on terminals only.
    :raises ValueError: where the kernel is nearly diagonal on these inputs, so that the exact one costs less; where
        131,072 features do not suffice, and where the time does not.

    >>> import gpytorch
    >>> x = torch.rand(200, 3)
    >>> suggest_num_features(gpytorch.kernels.RBFKernel(), x, tolerance=0.1, method="fourier") % 2
    0
    """
    train_inputs = checks.columns(train_inputs)
    if tolerance is not None and kl_per_point is not None:
        raise ValueError("expected tolerance or kl_per_point, got both; leave one out")
    goal = _Goal.of_kernel(tolerance) if tolerance is not None else _Goal.of_posterior(kl_per_point)
    seed, time_limit = checks.seed(seed), check_time_limit(time_limit)
    check_kernel(kernel)
    sample, num_rows = sampled_inputs(train_inputs, seed), num_rows_of(train_inputs)
    check_columns(kernel, sample)
    applicable(kernel, sample)  # which raises where there are no features
    tests = PosteriorTest(train_inputs, seed, num_draws=_FEW_DRAWS), PosteriorTest(train_inputs, seed + NUM_DRAWS)
    correlation = _correlation(kernel, sample)
    is_diagonal = correlation < _NEARLY_DIAGONAL
    ends_at_rows = is_diagonal or goal.is_posterior
    most = min(num_rows + num_rows % 2, _MOST_FEATURES) if ends_at_rows else _MOST_FEATURES
    start, low, high, error, seconds = perf_counter(), 0, min(_FIRST, most), math.inf, 0.0
    with tqdm(desc="suggest", unit="step", disable=checks.no_bar(progress), leave=False) as bar:

        def predicted(width: int, is_check: bool = False) -> float:
            nonlocal seconds
            begin = perf_counter()
            try:
                name = best_method(kernel, width, train_inputs, seed=seed) if method == "auto" else method
                parts = tests[is_check], seed + NUM_DRAWS * is_check, not goal.is_posterior
                error = goal.error(ranking.candidate_of(kernel, width, name, sample, *parts))
            except ValueError:
                if width >= most:
                    raise
                error = math.inf
            seconds = (perf_counter() - begin) / columns_drawn(width)
            bar.update()
            bar.set_postfix(features=width, error=goal.shown(error))
            return error

        def has_time(width: int) -> bool:
            return perf_counter() - start + seconds * columns_drawn(width) <= time_limit

        while (now := predicted(high)) > goal.limit:
            needed = high * (now / goal.limit) ** 2
            follows_law = low > 0 and low * error**2 <= 1.05 * high * now**2
            loss = f"with {high:,} features the predicted {goal.what} is {goal.shown(now)}"
            if high >= most or (follows_law and needed > 1.5 * most):
                if is_diagonal:
                    raise ValueError(
                        f"expected a {goal.name} that fewer features than the {num_rows:,} rows reach, got "
                        f"{goal.asked}: this kernel is nearly diagonal on these inputs (correlations of "
                        f"{correlation:.2g} in root mean square), and {loss}; use the exact one, or a larger "
                        f"{goal.name}"
                    )
                if ends_at_rows:
                    raise ValueError(
                        f"expected a {goal.name} that fewer features than the {num_rows:,} rows reach, got "
                        f"{goal.asked}: the exact kernel costs less, since {loss}; use it, a larger {goal.name}, or "
                        "landmarks"
                    )
                raise ValueError(
                    f"expected a {goal.name} that {_MOST_FEATURES} features reach, got {goal.asked}; use a larger one, "
                    f"or the exact kernel: {loss}"
                )
            low, error = high, now
            high = min(max(2 * math.ceil(min(0.505 * needed, _STEP * high)), high + 2), _STEP * high, most)
            if not has_time(high):
                raise ValueError(
                    f"expected a number of features that is found in {time_limit:g} seconds, got none: {loss}, and "
                    f"about {needed:,.0f} are needed; use a larger {goal.name} or time_limit, or another method"
                )
        guess = high * (now / goal.limit) ** 2
        guesses = [0.99 * guess, 1.01 * guess]
        while high - low > max(2, 0.02 * high):
            middle = 2 * round(0.5 * guesses.pop()) if guesses else 2 * ((low + high) // 4)
            if not low < middle < high:
                continue
            if not has_time(middle):
                warnings.warn(
                    f"{high} features meet the {goal.name}, and {low} do not: time_limit={time_limit:g} seconds ended "
                    "the search in between",
                    stacklevel=2,
                )
                break
            low, high = (low, middle) if predicted(middle) <= goal.limit else (middle, high)
        while goal.is_posterior and high < most and (now := predicted(high, is_check=True)) > goal.limit:
            needed = high * min(max((now / goal.limit) ** 2, 1.02), 2.0)
            high = min(max(2 * math.ceil(0.5 * needed), high + 2), most)
    return high


@dataclass(frozen=True)
class _Goal:
    """What a number of features has to reach, as an error that falls as the root of that number."""

    asked: float
    is_posterior: bool

    @classmethod
    def of_kernel(cls, tolerance: float) -> _Goal:
        asked = checks.positive("tolerance", tolerance, "0.1 is ten percent")
        if asked >= 1.0:
            raise ValueError(f"expected a relative error below 1 for tolerance, got {tolerance!r}; 0.1 is ten percent")
        return cls(asked, False)

    @classmethod
    def of_posterior(cls, kl_per_point: float | None) -> _Goal:
        asked = _KL_PER_POINT if kl_per_point is None else kl_per_point
        return cls(checks.positive("kl_per_point", asked, f"{_KL_PER_POINT} is usual"), True)

    @property
    def name(self) -> str:
        return "kl_per_point" if self.is_posterior else "tolerance"

    @property
    def what(self) -> str:
        return "loss of the posterior" if self.is_posterior else "error"

    @property
    def limit(self) -> float:
        return math.sqrt(self.asked) if self.is_posterior else self.asked

    def error(self, candidate: Candidate) -> float:
        return math.sqrt(candidate.kl_per_point) if self.is_posterior else candidate.error.relative_error

    def shown(self, error: float) -> str:
        return f"{error**2 if self.is_posterior else error:.3g}"


def _correlation(kernel: Kernel, x: Tensor) -> float:
    """The root mean square of what lies beside the diagonal of a kernel matrix, relative to that of the diagonal."""
    data = x.double()
    with torch.no_grad(), EVALUATED_KERNELS:
        blocks = output_blocks(copy.deepcopy(kernel).double()(data, data).to_dense().square(), len(data))
    diagonal, whole = float(blocks.diagonal(dim1=-1, dim2=-2).mean()), mean_over_pairs(blocks, len(data))
    if len(data) == 1 or diagonal == 0.0:
        return math.inf
    return math.sqrt(max(whole * len(data) - diagonal, 0.0) / (len(data) - 1) / diagonal)

"""How many features, for this kernel and these inputs: as few as meet a tolerance."""

from __future__ import annotations

import copy
import math
import warnings
from time import perf_counter

import gpytorch
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm.auto import tqdm

from .. import _checks
from . import ranking
from .errors import columns_drawn, mean_over_pairs, num_rows_of, output_blocks, sample_rows
from .ranking import applicable, check_kernel

_MOST_FEATURES = 2**17
_NEARLY_DIAGONAL = 0.1  # root mean square of correlations
_FIRST = 64  # features, with which a search begins
_STEP = 16  # the largest factor between numbers of features in a search


def suggest_num_features(
    kernel: Kernel,
    train_inputs: Tensor,
    tolerance: float,
    *,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    progress: bool | None = None,
) -> int:
    """The smallest even number of features, to about two percent, whose predicted relative error meets a tolerance.

    Variances fall as 1/D, so that the number is solved for, and then checked.

    :param kernel: an exact kernel, with the parameters that count.
    :param train_inputs: (N, d).
    :param tolerance: the relative Frobenius error to be met, a positive number.
    :param method: the name of a method, or "auto".
    :param seed: as for :func:`rank_methods`.
    :param time_limit: no prediction is begun that would end after so many seconds. A number that meets the tolerance by
        then is returned with a warning that it is not the smallest.
    :param progress: whether to show a progress bar; default: on terminals only.
    :raises ValueError: where the kernel is nearly diagonal on these inputs, so that the exact one costs less; where
        131,072 features do not suffice, and where the time does not.

    >>> x = torch.rand(200, 3)
    >>> suggest_num_features(gpytorch.kernels.RBFKernel(), x, 0.1, method="fourier") % 2
    0
    """
    tolerance, seed = _checks.positive("tolerance", tolerance, "0.1 is ten percent"), _checks.seed(seed)
    if not _checks.number(time_limit) > 0.0:
        raise ValueError(f"expected a positive time_limit, got {time_limit!r}; 60 is usual")
    check_kernel(kernel)
    sample, num_rows = sample_rows(train_inputs, seed), num_rows_of(train_inputs)
    applicable(kernel, sample.shape[-1])  # which raises where there are no features
    correlation = _correlation(kernel, sample)
    is_diagonal = correlation < _NEARLY_DIAGONAL
    most = min(num_rows + num_rows % 2, _MOST_FEATURES) if is_diagonal else _MOST_FEATURES
    start, low, high, error, seconds = perf_counter(), 0, min(_FIRST, most), math.inf, 0.0
    with tqdm(desc="suggest", unit="step", disable=None if progress is None else not progress, leave=False) as bar:

        def predicted(width: int) -> float:
            nonlocal seconds
            begin = perf_counter()
            try:
                error = ranking.candidate_of(kernel, width, method, sample, num_rows, seed).error.relative_error
            except ValueError:
                if width >= most:
                    raise
                error = math.inf
            seconds = (perf_counter() - begin) / columns_drawn(width)
            bar.update()
            bar.set_postfix(features=width, error=f"{error:.3g}")
            return error

        def has_time(width: int) -> bool:
            return perf_counter() - start + seconds * columns_drawn(width) <= time_limit

        while (now := predicted(high)) > tolerance:
            needed = high * (now / tolerance) ** 2
            follows_law = low > 0 and low * error**2 <= 1.05 * high * now**2
            found = f"with {high:,} features the predicted error is {now:.3g}"
            if high >= most or (follows_law and needed > 1.5 * most):
                if is_diagonal:
                    raise ValueError(
                        f"expected a tolerance that fewer features than the {num_rows:,} rows reach, got {tolerance}: "
                        f"this kernel is nearly diagonal on these inputs (correlations of {correlation:.2g} in root "
                        f"mean square), and {found}; use the exact one, or a larger tolerance"
                    )
                raise ValueError(
                    f"expected a tolerance that {_MOST_FEATURES} features reach, got {tolerance}; use a larger one, or "
                    f"the exact kernel: {found}"
                )
            low, error = high, now
            high = min(max(2 * math.ceil(min(0.505 * needed, _STEP * high)), high + 2), _STEP * high, most)
            if not has_time(high):
                raise ValueError(
                    f"expected a number of features that is found in {time_limit:g} seconds, got none: {found}, and "
                    f"about {needed:,.0f} are needed; use a larger tolerance or time_limit, or another method"
                )
        guess = high * (now / tolerance) ** 2
        guesses = [0.99 * guess, 1.01 * guess]
        while high - low > max(2, 0.02 * high):
            middle = 2 * round(0.5 * guesses.pop()) if guesses else 2 * ((low + high) // 4)
            if not low < middle < high:
                continue
            if not has_time(middle):
                warnings.warn(
                    f"{high} features meet the tolerance, and {low} do not: time_limit={time_limit:g} seconds ended "
                    "the search in between",
                    stacklevel=2,
                )
                break
            low, high = (low, middle) if predicted(middle) <= tolerance else (middle, high)
    return high


def _correlation(kernel: Kernel, x: Tensor) -> float:
    """The root mean square of what lies beside the diagonal of a kernel matrix, relative to that of the diagonal."""
    data = x.double()
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        blocks = output_blocks(copy.deepcopy(kernel).double()(data, data).to_dense().square(), len(data))
    diagonal, whole = float(blocks.diagonal(dim1=-1, dim2=-2).mean()), mean_over_pairs(blocks, len(data))
    if len(data) == 1 or diagonal == 0.0:
        return math.inf
    return math.sqrt(max(whole * len(data) - diagonal, 0.0) / (len(data) - 1) / diagonal)

"""Which feature map, and how many features, for this kernel and these inputs: predicted errors and costs."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import gpytorch
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm.auto import tqdm

from . import _checks
from .kernels import Method, RandomFeatureKernel, family
from .kernels.approximated import approximated
from .kernels.map_holder import map_holders
from .kernels.shared_weights import tied_maps

_SAMPLE = 512
_DRAWS = 32
_MOST_DRAWS = 512
_COLUMNS_DRAWN = 32768
_SIMILAR = 1.01
_ROUNDING = 1e-7  # the root of that of a variance
_MOST_FEATURES = 2**17
_NEARLY_DIAGONAL = 0.1  # root mean square of correlations
_FIRST = 64  # features, with which a search begins
_STEP = 16  # the largest factor between numbers of features in a search


@dataclass(frozen=True)
class PredictedError:
    r"""The error that a kernel's features will have on the kernel matrix of N inputs, over the draw of the weights.

    :param mean_squared_error: :math:`E \|\hat K - K\|_F^2 / N^2`, the diagonal included; of T outputs, whose matrices
        have N T rows, it is summed over the blocks (T, T).
    :param relative_error: :math:`(E \|\hat K - K\|_F^2)^{1/2} / \|K\|_F`.
    :param standard_error: the standard error of ``relative_error`` where draws were simulated; 0 for closed forms.

    Both errors are infinite where the variance is: that of derivatives of a rough process by plain frequencies.
    """

    mean_squared_error: float
    relative_error: float
    standard_error: float

    @property
    def is_closed_form(self) -> bool:
        """Whether the error comes from closed-form variances."""
        return self.standard_error == 0.0


@dataclass(frozen=True)
class Candidate:
    """A method with what it is predicted to achieve.

    :param method: the name of the method, for :func:`rfgp.approximate`.
    :param num_features: the number of columns that come out.
    :param error: the predicted error.
    :param operations: multiplications for the features of one input, to leading order.
    :param is_truncated: whether it leaves out the tail of a series that does not end, as Maclaurin features of the
        Gaussian kernel do. The error on the data may be small; off the data the features vanish, and the posterior
        variance with them. :func:`best_method` passes over it.
    """

    method: str
    num_features: int
    error: PredictedError
    operations: float
    is_truncated: bool = False


def rank_methods(
    kernel: Kernel,
    num_features: int,
    train_inputs: Tensor,
    *,
    methods: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Candidate]:
    """Every method that suits a kernel, the smallest predicted error first.

    Errors are means over draws of the weights. For plain sketches of high degree rare draws make up most of that mean:
    almost every draw is then better than predicted. They are errors on the inputs: see ``Candidate.is_truncated``.

    :param kernel: an exact kernel, with the parameters that count.
    :param num_features: the number of columns that come out.
    :param train_inputs: (N, d); errors are predicted from a sample of 512 of them.
    :param methods: the names of methods; all real and complex-to-real ones that suit the kernel where it is None. Of
        sums and products, those that suit every part which is not exact.
    :param seed: the seed of the sample, and of draws where there is no closed form.
    :raises ValueError: where no method suits the kernel and the number of features.

    >>> x = torch.rand(200, 3)
    >>> ranking = rank_methods(gpytorch.kernels.RBFKernel(), 64, x)
    >>> ranking[0].error.relative_error <= ranking[-1].error.relative_error
    True
    """
    seed = _checks.seed(seed)
    sample = _sample(train_inputs, seed)
    width = _checks.positive_integer("num_features", num_features)
    if methods is not None and (not isinstance(methods, Sequence) or isinstance(methods, str) or not len(methods)):
        raise ValueError(f'expected the names of methods for methods, got {methods!r}; such as ["fourier"]')
    names = _applicable(kernel, sample.shape[-1]) if methods is None else tuple(methods)
    for name in names:
        if name != "auto":
            Method.parse(name)
    found, reasons = [], []
    for name in names:
        try:
            candidate = _candidate(kernel, width, name, sample, _num_rows(train_inputs), seed)
            if not math.isfinite(candidate.error.mean_squared_error):
                raise ValueError("its predicted error is not finite; scale the inputs down")
            found.append(candidate)
        except ValueError as reason:
            reasons.append(f"{name}: {reason}")
    if not found:
        raise ValueError(f"expected a method that suits the kernel, got none; {'; '.join(reasons)}")
    return sorted(found, key=lambda candidate: candidate.error.mean_squared_error)


def best_method(kernel: Kernel, num_features: int, train_inputs: Tensor, *, seed: int = 0) -> str:
    """The method with the smallest predicted error, or a cheaper one within one per cent of it.

    Random Maclaurin degrees, which the optimised ones improve on, are left out. So are truncated methods, unless the
    kernel has no others: trained on [-1, 1], Maclaurin features of a Gaussian kernel claim at 3 to know the function.

    :param kernel: an exact kernel, with the parameters that count.
    :param num_features: the number of columns that come out.
    :param train_inputs: (N, d).
    :param seed: as for :func:`rank_methods`.
    """
    seed = _checks.seed(seed)
    _check_kernel(kernel)
    _checks.inputs(train_inputs, name="train_inputs")
    names = _for_auto(kernel, train_inputs.shape[-1])
    ranking = rank_methods(kernel, num_features, train_inputs, methods=names, seed=seed)
    limit = max(_SIMILAR * ranking[0].error.relative_error, _ROUNDING)
    similar = [candidate for candidate in ranking if candidate.error.relative_error <= limit]
    return min(similar, key=lambda candidate: candidate.operations).method


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
    """The smallest even number of features, to about two per cent, whose predicted relative error meets a tolerance.

    Variances fall as 1/D, so that the number is solved for, and then checked.

    :param kernel: an exact kernel, with the parameters that count.
    :param train_inputs: (N, d).
    :param tolerance: the relative Frobenius error to be met, a positive number.
    :param method: the name of a method, or "auto".
    :param seed: as for :func:`rank_methods`.
    :param time_limit: no prediction is begun that would end after so many seconds. A number that meets the tolerance by
        then is returned with a warning that it is not the smallest.
    :param progress: whether to show a progress bar; where it is None, on terminals only.
    :raises ValueError: where the kernel is nearly diagonal on these inputs, so that the exact one costs less; where
        131,072 features do not suffice, and where the time does not.

    >>> x = torch.rand(200, 3)
    >>> suggest_num_features(gpytorch.kernels.RBFKernel(), x, 0.1, method="fourier") % 2
    0
    """
    tolerance, seed = _checks.positive("tolerance", tolerance, "0.1 is ten per cent"), _checks.seed(seed)
    if not _checks.number(time_limit) > 0.0:
        raise ValueError(f"expected a positive time_limit, got {time_limit!r}; 60 is usual")
    _check_kernel(kernel)
    sample, num_rows = _sample(train_inputs, seed), _num_rows(train_inputs)
    _applicable(kernel, sample.shape[-1])  # which raises where there are no features
    correlation = _correlation(kernel, sample)
    is_diagonal = correlation < _NEARLY_DIAGONAL
    most = min(num_rows + num_rows % 2, _MOST_FEATURES) if is_diagonal else _MOST_FEATURES
    start, low, high, error, seconds = perf_counter(), 0, min(_FIRST, most), math.inf, 0.0
    with tqdm(desc="suggest", unit="step", disable=None if progress is None else not progress, leave=False) as bar:

        def predicted(width: int) -> float:
            nonlocal seconds
            begin = perf_counter()
            try:
                error = _candidate(kernel, width, method, sample, num_rows, seed).error.relative_error
            except ValueError:
                if width >= most:
                    raise
                error = math.inf
            seconds = (perf_counter() - begin) / max(width, _COLUMNS_DRAWN // _DRAWS)
            bar.update()
            bar.set_postfix(features=width, error=f"{error:.3g}")
            return error

        def has_time(width: int) -> bool:
            return perf_counter() - start + seconds * max(width, _COLUMNS_DRAWN // _DRAWS) <= time_limit

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
        blocks = _blocks(copy.deepcopy(kernel).double()(data, data).to_dense().square(), len(data))
    diagonal, whole = float(blocks.diagonal(dim1=-1, dim2=-2).mean()), _mean(blocks, len(data))
    if len(data) == 1 or diagonal == 0.0:
        return math.inf
    return math.sqrt(max(whole * len(data) - diagonal, 0.0) / (len(data) - 1) / diagonal)


def predicted_error(kernel: Kernel, x: Tensor, *, seed: int = 0) -> PredictedError:
    """The error of the kernel matrix of x that an approximated kernel will have, over the draw of its weights.

    By closed-form variances where every part has them, else by 32 draws of the weights, or more of few columns: the
    standard error tells which. Parts that share weights share their draws.

    :param kernel: a kernel made by :func:`rfgp.approximate`, of one or many outputs.
    :param x: inputs (N, d); a sample of 512 of them is looked at.
    :param seed: the seed of the sample and of the draws.
    :raises ValueError: for a kernel without features, or bad inputs.

    Source: T 2.1, Table 4.1, 5.3 and 6.2, with the diagonal.
    """
    if not isinstance(kernel, RandomFeatureKernel):
        raise ValueError(
            f"expected a kernel made by rfgp.approximate, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )
    seed = _checks.seed(seed)
    return _predict(kernel, _sample(x, seed), _num_rows(x), seed)


def _check_kernel(kernel: Kernel) -> None:
    _checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as gpytorch.kernels.RBFKernel()")


def _sample(x: Tensor, seed: int) -> Tensor:
    _checks.finite(_checks.inputs(x, name="train_inputs"), "train_inputs")
    rows = x.detach().reshape(-1, x.shape[-1])
    if len(rows) <= _SAMPLE:
        return rows
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:_SAMPLE]]


def _num_rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _applicable(kernel: Kernel, input_dim: int) -> tuple[str, ...]:
    """The names of the methods that suit a kernel; "auto", where its parts may have methods of their own, is one."""
    known = family(kernel)
    mixed = ("auto",) if known.mixes_methods else ()
    return (*mixed, *(str(method) for method in known.applicable(input_dim) or ()))


def _for_auto(kernel: Kernel, input_dim: int) -> list[str]:
    """The methods among which :func:`best_method` chooses."""
    names = [name for name in _applicable(kernel, input_dim) if not name.startswith("random_maclaurin")]
    return [name for name in names if not _is_truncated(kernel, name)] or names


def _is_truncated(kernel: Kernel, method: str) -> bool:
    """Whether a method leaves out the tail of the series of a part of the kernel."""
    return method != "auto" and family(kernel).truncates(Method.parse(method))


def _candidate(kernel: Kernel, num_features: int, method: str, x: Tensor, num_rows: int, seed: int) -> Candidate:
    def make(seed: int) -> Kernel:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return approximated(kernel, num_features, method=method, train_inputs=x, seed=seed, choose=best_method)

    made = make(seed)
    error = _predict(made, x, num_rows, seed)
    if method.startswith("random_maclaurin"):
        errors = [error, *[_predict(make(seed + i), x, num_rows, seed) for i in range(1, 8)]]
        squares = torch.tensor([e.relative_error**2 for e in errors], dtype=torch.float64)
        relative = float(squares.mean().sqrt())
        deviation = float(squares.std()) / math.sqrt(len(errors)) / (2.0 * relative) if relative > 0.0 else 0.0
        error = PredictedError(sum(e.mean_squared_error for e in errors) / len(errors), relative, deviation)
    maps = {part.feature_map for part in map_holders(made)}
    operations = sum(part.operations for part in maps if part is not None)
    return Candidate(method, num_features, error, operations, _is_truncated(kernel, method))


def _predict(kernel: Kernel, x: Tensor, num_rows: int, seed: int) -> PredictedError:
    made = copy.deepcopy(kernel).double()
    data = x.double()
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        exact = made.exact_kernel(data, data).to_dense()
        size = _mean(_blocks(exact.square(), len(data)), num_rows)
        closed = made.moments(data, data)
        if closed is not None:
            mean, variance = closed
            error = _mean(variance + _blocks((mean - exact).square(), len(data)), num_rows)
            return PredictedError(error, _relative(error, size), 0.0)
        generator = torch.Generator().manual_seed(seed)
        width = made.features(data[:1]).shape[-1]
        draws = min(max(_DRAWS, _COLUMNS_DRAWN * len(data) // (width * len(exact))), _MOST_DRAWS)
        errors, tied = torch.empty(draws, dtype=torch.float64), tied_maps(made)
        for i in range(draws):
            for maps in tied:
                shared = int(torch.randint(2**63 - 1, (), generator=generator))
                for feature_map in maps:
                    feature_map.resample(torch.Generator().manual_seed(shared))
            features = made.features(data)
            estimate = features @ features.mH
            estimate = estimate.real if estimate.is_complex() else estimate
            errors[i] = _mean(_blocks((estimate - exact).square(), len(data)), num_rows)
    relative = _relative(float(errors.mean()), size)
    deviation = float(errors.std()) / math.sqrt(draws) / (2.0 * relative * size) if relative * size > 0.0 else 0.0
    return PredictedError(float(errors.mean()), relative, deviation)


def _relative(error: float, size: float) -> float:
    """The root of a squared error relative to a squared size; infinite where an error is left of nothing."""
    if size == 0.0:
        return math.inf if error > 0.0 else 0.0
    return math.sqrt(max(error, 0.0) / size)


def _blocks(values: Tensor, num_rows: int) -> Tensor:
    """The sums over the outputs of every pair of inputs, (..., N T, N T) to (..., N, N)."""
    if values.shape[-1] == num_rows:
        return values
    return values.unflatten(-1, (num_rows, -1)).unflatten(-3, (num_rows, -1)).sum((-3, -1))


def _mean(values: Tensor, num_rows: int) -> float:
    """The mean over all pairs of ``num_rows`` inputs, the diagonal included, from the matrix of a sample of them."""
    if bool(values.isinf().any()):
        return math.inf
    diagonal = float(values.diagonal(dim1=-1, dim2=-2).mean())
    size = values.shape[-1]
    if size == 1:
        return diagonal
    others = (float(values.mean()) * size - diagonal) / (size - 1)
    return others + (diagonal - others) / num_rows

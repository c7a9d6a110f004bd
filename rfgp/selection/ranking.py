"""Which method, for this kernel and these inputs: the smallest predicted error, or nearly that at a lower cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .. import _checks
from ..kernels import Method, family
from ..kernels.approximated import approximated
from ..kernels.map_holder import map_holders
from .errors import PredictedError, num_rows_of, predict, sample_rows

_SIMILAR = 1.01
_ROUNDING = 1e-7  # the root of that of a variance


@dataclass(frozen=True)
class Candidate:
    """A feature method with its predicted error and cost.

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
    :param methods: the names of methods; default: all real and complex-to-real ones that suit the kernel. Of
        sums and products, those that suit every part which is not exact.
    :param seed: the seed of the sample, and of draws where there is no closed form.
    :raises ValueError: where no method suits the kernel and the number of features.

    >>> import gpytorch
    >>> x = torch.rand(200, 3)
    >>> ranking = rank_methods(gpytorch.kernels.RBFKernel(), 64, x)
    >>> ranking[0].error.relative_error <= ranking[-1].error.relative_error
    True
    """
    seed = _checks.seed(seed)
    sample = sample_rows(train_inputs, seed)
    width = _checks.positive_integer("num_features", num_features)
    if methods is not None and (not isinstance(methods, Sequence) or isinstance(methods, str) or not len(methods)):
        raise ValueError(f'expected the names of methods for methods, got {methods!r}; such as ["fourier"]')
    names = applicable(kernel, sample.shape[-1]) if methods is None else tuple(methods)
    for name in names:
        if name != "auto":
            Method.parse(name)
    found, reasons = [], []
    for name in names:
        try:
            candidate = candidate_of(kernel, width, name, sample, num_rows_of(train_inputs), seed)
            if not math.isfinite(candidate.error.mean_squared_error):
                raise ValueError("its predicted error is not finite; scale the inputs down")
            found.append(candidate)
        except ValueError as reason:
            reasons.append(f"{name}: {reason}")
    if not found:
        raise ValueError(f"expected a method that suits the kernel, got none; {'; '.join(reasons)}")
    return sorted(found, key=lambda candidate: candidate.error.mean_squared_error)


def best_method(kernel: Kernel, num_features: int, train_inputs: Tensor, *, seed: int = 0) -> str:
    """The name of the method with the smallest predicted error, or of a cheaper one within one percent of it.

    Random Maclaurin degrees, which the optimized ones improve on, are left out. So are truncated methods, unless the
    kernel has no others: trained on [-1, 1], Maclaurin features of a Gaussian kernel claim at 3 to know the function.

    :param kernel: an exact kernel, with the parameters that count.
    :param num_features: the number of columns that come out.
    :param train_inputs: (N, d).
    :param seed: as for :func:`rank_methods`.
    :raises ValueError: where no method suits the kernel and the number of features.

    >>> import gpytorch
    >>> best_method(gpytorch.kernels.LinearKernel(), 3, torch.rand(50, 3))
    'linear'
    """
    seed = _checks.seed(seed)
    check_kernel(kernel)
    _checks.inputs(train_inputs, name="train_inputs")
    names = methods_for_auto(kernel, train_inputs.shape[-1])
    ranking = rank_methods(kernel, num_features, train_inputs, methods=names, seed=seed)
    limit = max(_SIMILAR * ranking[0].error.relative_error, _ROUNDING)
    similar = [candidate for candidate in ranking if candidate.error.relative_error <= limit]
    return min(similar, key=lambda candidate: candidate.operations).method


def check_kernel(kernel: Kernel) -> None:
    """Raise a ValueError where a kernel is none."""
    _checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as gpytorch.kernels.RBFKernel()")


def applicable(kernel: Kernel, input_dim: int) -> tuple[str, ...]:
    """The names of the methods that suit a kernel; "auto", where its parts may have methods of their own, is one."""
    known = family(kernel)
    mixed = ("auto",) if known.mixes_methods else ()
    return (*mixed, *(str(method) for method in known.applicable(input_dim) or ()))


def methods_for_auto(kernel: Kernel, input_dim: int) -> list[str]:
    """The methods among which :func:`best_method` chooses."""
    names = [name for name in applicable(kernel, input_dim) if not name.startswith("random_maclaurin")]
    return [name for name in names if not _is_truncated(kernel, name)] or names


def _is_truncated(kernel: Kernel, method: str) -> bool:
    """Whether a method leaves out the tail of the series of a part of the kernel."""
    return method != "auto" and family(kernel).truncates(Method.parse(method))


def candidate_of(kernel: Kernel, num_features: int, method: str, x: Tensor, num_rows: int, seed: int) -> Candidate:
    """A method, given by name, with its error on ``num_rows`` inputs, of which x (n, d) is a sample."""

    def make(seed: int) -> Kernel:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return approximated(kernel, num_features, method=method, train_inputs=x, seed=seed, choose=best_method)

    made = make(seed)
    error = predict(made, x, num_rows, seed)
    if method.startswith("random_maclaurin"):
        errors = [error, *[predict(make(seed + i), x, num_rows, seed) for i in range(1, 8)]]
        squares = torch.tensor([e.relative_error**2 for e in errors], dtype=torch.float64)
        relative = float(squares.mean().sqrt())
        deviation = float(squares.std()) / math.sqrt(len(errors)) / (2.0 * relative) if relative > 0.0 else 0.0
        error = PredictedError(sum(e.mean_squared_error for e in errors) / len(errors), relative, deviation)
    maps = {part.feature_map for part in map_holders(made)}
    operations = sum(part.operations for part in maps if part is not None)
    return Candidate(method, num_features, error, operations, _is_truncated(kernel, method))

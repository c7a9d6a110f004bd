"""The error that features will have on the kernel matrix, in closed form or by draws of their weights."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ..._support.gpytorch_names import EVALUATED_KERNELS
from ..feature_kernel import FeatureKernel
from ..shared_weights import tied_maps

_SAMPLE = 512
_DRAWS = 32
_MOST_DRAWS = 512
_COLUMNS_DRAWN = 32768


@dataclass(frozen=True)
class PredictedError:
    r"""The error of a kernel's features on the kernel matrix of N inputs, over the draw of the weights.

    :param mean_squared_error: :math:`E \|\hat K - K\|_F^2 / N^2` with the diagonal, summed over output blocks.
    :param relative_error: :math:`(E \|\hat K - K\|_F^2)^{1/2} / \|K\|_F`; infinite where the variance is.
    :param standard_error: the standard error of ``relative_error`` where draws were simulated; 0 for closed forms.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 64, input_dim=2)
    >>> error = rfgp.approximation.selection.predicted_error(kernel, torch.randn(50, 2))
    >>> 0.0 < error.relative_error < 1.0, error.is_closed_form
    (True, True)
    """

    mean_squared_error: float
    relative_error: float
    standard_error: float

    @property
    def is_closed_form(self) -> bool:
        """Whether the error comes from closed-form variances."""
        return self.standard_error == 0.0


def predicted_error(kernel: Kernel, x: Tensor, *, seed: int = 0) -> PredictedError:
    """The error of the kernel matrix of x that an approximated kernel will have, over the draw of its weights.

    It is a closed form where every part has one, else a mean over 32 draws of the weights or more.

    :param kernel: a kernel made by :func:`rfgp.approximate`, of one or many outputs.
    :param x: inputs (N, d); a sample of 512 of them is looked at.
    :param seed: the seed of the sample and of the draws.
    :raises ValueError: for a kernel without features, or bad inputs.

    Source: T 2.1, Table 4.1, 5.3 and 6.2, with the diagonal.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=64, input_dim=3, method="fourier")
    >>> predicted_error(kernel, torch.rand(100, 3)).is_closed_form
    True
    """
    require_features(kernel)
    seed = checks.seed(seed)
    return predict(kernel, sampled_inputs(x, seed), num_rows_of(x), seed)


def require_features(kernel: Kernel) -> None:
    """Raise a ValueError where a kernel has no features."""
    if not isinstance(kernel, FeatureKernel):
        raise ValueError(
            f"expected a kernel made by rfgp.approximate, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )


def redraw(kernel: FeatureKernel, generator: torch.Generator) -> bool:
    """Draw new weights, the same ones in maps that share theirs; whether there are any."""
    tied = tied_maps(kernel)
    for maps in tied:
        shared = int(torch.randint(2**63 - 1, (), generator=generator))
        for feature_map in maps:
            feature_map.resample(torch.Generator().manual_seed(shared))
    return bool(tied)


def sampled_inputs(x: Tensor, seed: int) -> Tensor:
    """At most 512 rows of inputs (..., N, d), (n, d)."""
    checks.finite(checks.inputs(x, name="train_inputs"), "train_inputs")
    rows = x.detach().reshape(-1, x.shape[-1])
    if len(rows) <= _SAMPLE:
        return rows
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:_SAMPLE]]


def num_rows_of(x: Tensor) -> int:
    """The number of rows of inputs (..., N, d), those of a batch together."""
    return x.numel() // x.shape[-1]


def predict(kernel: Kernel, x: Tensor, num_rows: int, seed: int) -> PredictedError:
    """The error on ``num_rows`` inputs, of which x (n, d) is a sample, with draws of the weights by a seed."""
    made = copy.deepcopy(kernel).double()
    data = x.double()
    with torch.no_grad(), EVALUATED_KERNELS:
        exact = made.exact_kernel(data, data).to_dense()
        size = mean_over_pairs(output_blocks(exact.square(), len(data)), num_rows)
        closed = made.moments(data, data)
        if closed is not None:
            mean, variance = closed
            error = mean_over_pairs(variance + output_blocks((mean - exact).square(), len(data)), num_rows)
            return PredictedError(error, _relative(error, size), 0.0)
        generator = torch.Generator().manual_seed(seed)
        width = made.features(data[:1]).shape[-1]
        draws = min(max(_DRAWS, _COLUMNS_DRAWN * len(data) // (width * len(exact))), _MOST_DRAWS)
        errors = torch.empty(draws, dtype=torch.float64)
        for i in range(draws):
            redraw(made, generator)
            features = made.features(data)
            estimate = features @ features.mH
            estimate = estimate.real if estimate.is_complex() else estimate
            errors[i] = mean_over_pairs(output_blocks((estimate - exact).square(), len(data)), num_rows)
    relative = _relative(float(errors.mean()), size)
    deviation = float(errors.std()) / math.sqrt(draws) / (2.0 * relative * size) if relative * size > 0.0 else 0.0
    return PredictedError(float(errors.mean()), relative, deviation)


def _relative(error: float, size: float) -> float:
    """The root of a squared error relative to a squared size; infinite where an error is left of nothing."""
    if size == 0.0:
        return math.inf if error > 0.0 else 0.0
    return math.sqrt(max(error, 0.0) / size)


def output_blocks(values: Tensor, num_rows: int) -> Tensor:
    """The sums over the outputs of every pair of inputs, (..., N T, N T) to (..., N, N)."""
    if values.shape[-1] == num_rows:
        return values
    return values.unflatten(-1, (num_rows, -1)).unflatten(-3, (num_rows, -1)).sum((-3, -1))


def mean_over_pairs(values: Tensor, num_rows: int) -> float:
    """The mean over all pairs of ``num_rows`` inputs, the diagonal included, from the matrix of a sample of them."""
    if bool(values.isinf().any()):
        return math.inf
    diagonal = float(values.diagonal(dim1=-1, dim2=-2).mean())
    size = values.shape[-1]
    if size == 1:
        return diagonal
    others = (float(values.mean()) * size - diagonal) / (size - 1)
    return others + (diagonal - others) / num_rows


def columns_drawn(width: int) -> int:
    """In how many columns every draw costs as much as in ``width``, of which few are drawn more often."""
    return max(width, _COLUMNS_DRAWN // _DRAWS)

"""Which feature map, and how many features, for this kernel and these inputs: predicted errors and costs."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import gpytorch
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MultitaskKernel, ProductKernel, ScaleKernel
from torch import Tensor

from . import _checks
from .features import FeatureMap
from .kernels.approximate import approximate
from .kernels.composition import FeatureScaleKernel, FeatureSumKernel
from .kernels.families import family
from .kernels.feature_kernel import FeatureKernel, FeatureStructure
from .kernels.recipe import MapRecipe

_SAMPLE = 512
_DRAWS = 32
_MOST_DRAWS = 512
_COLUMNS_DRAWN = 32768
_SIMILAR = 1.01
_ROUNDING = 1e-7  # the root of that of a variance
_MOST_FEATURES = 2**17


@dataclass(frozen=True)
class PredictedError:
    r"""The error that a kernel's features will have on the kernel matrix of N inputs, over the draw of the weights.

    :param mean_squared_error: :math:`E \|\hat K - K\|_F^2 / N^2`, the diagonal included.
    :param relative_error: :math:`(E \|\hat K - K\|_F^2)^{1/2} / \|K\|_F`.
    :param standard_error: the standard error of ``relative_error`` where draws were simulated; 0 for closed forms.
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
    """

    method: str
    num_features: int
    error: PredictedError
    operations: float


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
    almost every draw is then better than predicted.

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
            MapRecipe(name, 2, seed)
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

    Random Maclaurin degrees, which the optimised ones improve on, are left out.

    :param kernel: an exact kernel, with the parameters that count.
    :param num_features: the number of columns that come out.
    :param train_inputs: (N, d).
    :param seed: as for :func:`rank_methods`.
    """
    seed = _checks.seed(seed)
    _checks.inputs(train_inputs, name="train_inputs")
    names = [name for name in _applicable(kernel, train_inputs.shape[-1]) if not name.startswith("random_maclaurin")]
    ranking = rank_methods(kernel, num_features, train_inputs, methods=names, seed=seed)
    limit = max(_SIMILAR * ranking[0].error.relative_error, _ROUNDING)
    similar = [candidate for candidate in ranking if candidate.error.relative_error <= limit]
    return min(similar, key=lambda candidate: candidate.operations).method


def suggest_num_features(
    kernel: Kernel, train_inputs: Tensor, tolerance: float, *, method: str = "auto", seed: int = 0
) -> int:
    """The smallest even number of features, to about two per cent, whose predicted relative error meets a tolerance.

    :param kernel: an exact kernel, with the parameters that count.
    :param train_inputs: (N, d).
    :param tolerance: the relative Frobenius error to be met, a positive number.
    :param method: the name of a method, or "auto".
    :param seed: as for :func:`rank_methods`.
    :raises ValueError: where 131,072 features do not suffice.

    >>> x = torch.rand(200, 3)
    >>> suggest_num_features(gpytorch.kernels.RBFKernel(), x, 0.1, method="fourier") % 2
    0
    """
    tolerance, seed = _checks.positive("tolerance", tolerance, "0.1 is ten per cent"), _checks.seed(seed)
    sample = _sample(train_inputs, seed)

    def meets(width: int) -> bool:
        try:
            candidate = _candidate(kernel, width, method, sample, _num_rows(train_inputs), seed)
        except ValueError:
            if width >= _MOST_FEATURES:
                raise
            return False
        return candidate.error.relative_error <= tolerance

    high = 2
    while not meets(high):
        high *= 2
        if high > _MOST_FEATURES:
            raise ValueError(
                f"expected a tolerance that {_MOST_FEATURES} features reach, got {tolerance}; use a larger one, or the "
                "exact kernel"
            )
    low = high // 2
    while high - low > max(2, 0.02 * high):
        middle = 2 * ((low + high) // 4)
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def predicted_error(kernel: Kernel, x: Tensor, *, seed: int = 0) -> PredictedError:
    """The error of the kernel matrix of x that an approximated kernel will have, over the draw of its weights.

    By closed-form variances where every part has them, else by 32 draws of the weights, or more of few columns.

    :param kernel: a kernel made by :func:`rfgp.approximate`.
    :param x: inputs (N, d); a sample of 512 of them is looked at.
    :param seed: the seed of the sample and of the draws.
    :raises ValueError: for a kernel without features, or bad inputs.

    Source: T 2.1, Table 4.1, 5.3 and 6.2, with the diagonal.
    """
    if not isinstance(kernel, FeatureStructure):
        raise ValueError(
            f"expected a kernel made by rfgp.approximate, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )
    seed = _checks.seed(seed)
    return _predict(kernel, _sample(x, seed), _num_rows(x), seed)


def _sample(x: Tensor, seed: int) -> Tensor:
    _checks.finite(_checks.inputs(x, name="train_inputs"), "train_inputs")
    rows = x.detach().reshape(-1, x.shape[-1])
    if len(rows) <= _SAMPLE:
        return rows
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:_SAMPLE]]


def _num_rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _applicable(kernel: Kernel, input_dim: int) -> tuple[str, ...]:
    """The methods that suit a kernel, or every part of it that is not exact."""
    if isinstance(kernel, ScaleKernel):
        return _applicable(kernel.base_kernel, input_dim)
    if isinstance(kernel, MultitaskKernel):
        return _applicable(kernel.data_covar_module, input_dim)
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        parts = [_applicable(part, input_dim) for part in kernel.kernels]
        open_ended = [part for part in parts if part[0] not in ("linear", "series")] or parts[:1]
        common = [name for name in open_ended[0] if name != "auto" and all(name in other for other in open_ended)]
        return ("auto", *common)
    return family(kernel).applicable(input_dim if kernel.active_dims is None else kernel.active_dims.numel())


def _candidate(kernel: Kernel, num_features: int, method: str, x: Tensor, num_rows: int, seed: int) -> Candidate:
    def make(seed: int) -> Kernel:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return approximate(kernel, num_features, method=method, train_inputs=x, seed=seed)

    made = make(seed)
    error = _predict(made, x, num_rows, seed)
    if method.startswith("random_maclaurin"):
        errors = [error, *[_predict(make(seed + i), x, num_rows, seed) for i in range(1, 8)]]
        squares = torch.tensor([e.relative_error**2 for e in errors], dtype=torch.float64)
        relative = float(squares.mean().sqrt())
        deviation = float(squares.std()) / math.sqrt(len(errors)) / (2.0 * relative) if relative > 0.0 else 0.0
        error = PredictedError(sum(e.mean_squared_error for e in errors) / len(errors), relative, deviation)
    maps = [part for part in made.modules() if isinstance(part, FeatureKernel) and part.feature_map is not None]
    operations = sum(part.feature_map.operations for part in maps if isinstance(part.feature_map, FeatureMap))
    return Candidate(method, num_features, error, operations)


def _predict(kernel: Kernel, x: Tensor, num_rows: int, seed: int) -> PredictedError:
    made = copy.deepcopy(kernel).double()
    data = x.double()
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        exact = made.exact_kernel(data, data).to_dense()
        size = _mean(exact.square(), num_rows)
        closed = _mean_and_variance(made, data)
        if closed is not None:
            mean, variance = closed
            error = _mean(variance + (mean - exact).square(), num_rows)
            return PredictedError(error, _relative(error, size), 0.0)
        generator = torch.Generator().manual_seed(seed)
        width = made.features(data[:1]).shape[-1]
        draws = min(max(_DRAWS, _COLUMNS_DRAWN // width), _MOST_DRAWS)
        errors = torch.empty(draws, dtype=torch.float64)
        for i in range(draws):
            features = made.resample(generator).features(data)
            estimate = features @ features.mH
            estimate = estimate.real if estimate.is_complex() else estimate
            errors[i] = _mean((estimate - exact).square(), num_rows)
    relative = _relative(float(errors.mean()), size)
    deviation = float(errors.std()) / math.sqrt(draws) / (2.0 * relative * size) if relative * size > 0.0 else 0.0
    return PredictedError(float(errors.mean()), relative, deviation)


def _relative(error: float, size: float) -> float:
    """The root of a squared error relative to a squared size; infinite where an error is left of nothing."""
    if size == 0.0:
        return math.inf if error > 0.0 else 0.0
    return math.sqrt(max(error, 0.0) / size)


def _mean(values: Tensor, num_rows: int) -> float:
    """The mean over all pairs of ``num_rows`` inputs, the diagonal included, from the matrix of a sample of them."""
    diagonal = float(values.diagonal(dim1=-1, dim2=-2).mean())
    size = values.shape[-1]
    if size == 1:
        return diagonal
    others = (float(values.mean()) * size - diagonal) / (size - 1)
    return others + (diagonal - others) / num_rows


def _mean_and_variance(kernel: Kernel, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of the kernel estimate, (..., N, N), or None where there is no closed form."""
    if isinstance(kernel, FeatureKernel):
        feature_map, law = kernel.bound_map(x)
        inputs = kernel.map_inputs(_selected(kernel, x))
        moments = feature_map.moments(inputs, inputs, **law)
        if moments is None:
            return None
        variance = 0.5 * (moments.variance + moments.pseudo_variance) if feature_map.is_complex else moments.variance
        scale = kernel.family.scale(feature_map) ** 2
        return scale * feature_map.target(inputs, inputs, **law), scale**2 * variance
    if isinstance(kernel, FeatureScaleKernel):
        inner_x = x if kernel.base_kernel.active_dims is not None else _selected(kernel, x)
        inner = _mean_and_variance(kernel.base_kernel, inner_x)
        scale = kernel.outputscale[..., None, None]
        return None if inner is None else (scale * inner[0], scale.square() * inner[1])
    if isinstance(kernel, FeatureSumKernel):
        parts = [_mean_and_variance(part, x) for part in kernel.kernels]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return sum((m for m, _ in known), torch.zeros(())), sum((v for _, v in known), torch.zeros(()))
    return None


def _selected(kernel: Kernel, x: Tensor) -> Tensor:
    return x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)

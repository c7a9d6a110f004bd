"""Means and variances of a model at as many points as a map has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor
from tqdm.auto import tqdm

from ..._support import checks
from ...likelihoods import MultitaskMultivariateNormal
from ..posterior_points import PosteriorPoints
from ..weight_space.model import WeightSpaceGP
from .engine import Progress, by_executor, one_after_the_other
from .evaluation import Evaluator
from .points import Points
from .summary import MapSummary
from .writers import Layout, opened


def predict_map(
    model: Any,
    points: Any,
    out: Any = None,
    *,
    variance: bool = True,
    noise: bool = False,
    dtype: torch.dtype | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> MapSummary:
    r"""Means and variances of a model at the points of a map, in memory that does not grow with their number.

    .. math:: m_t(x) = E f_t(x), \qquad v_t(x) = \mathrm{Var} f_t(x)

    They have the same bits whatever the number of workers. A batch whose float32 values are off by more than a
    thousandth of a prior standard deviation is computed in float64. A file or folder appears when the map is whole.

    :param model: a fitted :class:`rfgp.WeightSpaceGP`, or any model with ``posterior(x)``.
    :param points: inputs (N, d) as a tensor or array, a :class:`rfgp.data.Source` of inputs, or re-iterable batches,
        which an executor cannot part.
    :param out: a path ending in ``.zarr`` or ``.parquet``, a folder for ``mean.npy`` and ``variance.npy``, or a mapping
        with arrays of these names; default: tensors in the summary. Arrays are (N,), (N, T) for several outputs or
        (N, C) for classes; Parquet columns then ``mean_0`` and so on.
    :param variance: whether there are variances; means alone take less than half of the time.
    :param noise: whether variances include that of observations, for likelihoods with one noise for all points.
    :param dtype: torch.float32 or torch.float64, of features, products and values; default: that of the model.
    :param executor: whose workers take parts, such as a ProcessPoolExecutor; default: this process.
    :param progress: whether a bar counts rows; default: on a terminal.
    :raises ValueError: for a model that is not fitted, or stale, points that are not finite, or a bad ``out``.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> rfgp.predict_map(model, torch.rand(1000, 2)).variance.shape
    torch.Size([1000])
    """
    checks.flag("variance", variance)
    start = time.perf_counter()
    every = Points(points)
    evaluation = _evaluation(model, variance, checks.flag("noise", noise), dtype)
    example = evaluation.at(every.first())
    layout = Layout.of(every.num_rows, example.arrays)
    num_outputs = example.arrays["mean"][0].size
    parts = every.parts(num_outputs, executor is not None)
    destination = layout.empty() if out is None else out
    if executor is not None and not hasattr(executor, "submit"):
        raise ValueError(f"expected an executor, got {type(executor).__name__}; such as a ProcessPoolExecutor")
    with opened(destination, layout, [part.start for part in parts]) as opened_out:
        if executor is None:
            work = one_after_the_other(evaluation, parts, opened_out)
        else:
            work = by_executor(evaluation, parts, opened_out, executor)
        done = _all(work, every.num_rows, progress)
    return MapSummary(
        num_rows=done.num_rows,
        num_outputs=num_outputs,
        seconds=time.perf_counter() - start,
        dtype=evaluation.predictor.dtype,
        float32_error=done.error,
        float64_rows=done.float64_rows,
        path=Path(out) if isinstance(out, str | os.PathLike) else None,
        **({name: torch.from_numpy(values) for name, values in destination.items()} if out is None else {}),
    )


def _all(work: Iterator[Progress], num_rows: int, progress: bool | None) -> Progress:
    """Have all work done, with a bar."""
    done = Progress(0, None, 0)
    silent = checks.no_bar(progress)
    with tqdm(total=num_rows, desc="map", unit="row", unit_scale=True, disable=silent, leave=False) as bar:
        for more in work:
            done = done.plus(more)
            bar.update(more.num_rows)
    return done


def _evaluation(model: Any, has_variance: bool, has_noise: bool, dtype: torch.dtype | None) -> Evaluator:
    """What evaluates a model, with what checks its float32 values."""
    if isinstance(model, WeightSpaceGP):
        predictor: Any = model.point_predictor(dtype)
    elif not hasattr(model, "posterior"):
        raise ValueError(f"expected a model with posterior(x), got {type(model).__name__}; such as a WeightSpaceGP")
    else:
        predictor = PosteriorPoints(model)
        if dtype not in (None, predictor.dtype):
            raise ValueError(f"expected {predictor.dtype}, the dtype of the model, got {dtype}; convert the model")
    is_checked = predictor.dtype == torch.float32 and not isinstance(predictor, PosteriorPoints)
    exact = model.point_predictor(torch.float64) if is_checked else None
    return Evaluator(predictor, exact, _noise_variance(model.likelihood) if has_noise else None, has_variance)


@torch.no_grad()
def _noise_variance(likelihood: Any) -> Tensor:
    """The noise variances (1,) or (T,) of a likelihood that has the same at all points."""
    if isinstance(likelihood, MultitaskGaussianLikelihood):
        zero = next(likelihood.parameters()).new_zeros(1, likelihood.num_tasks)
        latent = MultitaskMultivariateNormal(zero, DiagLinearOperator(zero.flatten()))
        noisy: Tensor = likelihood(latent).variance
        return noisy.squeeze(0)
    if isinstance(likelihood, GaussianLikelihood):
        return likelihood.noise.detach()
    raise ValueError(
        f"expected a likelihood with one noise for all points beside noise=True, got {type(likelihood).__name__}; map "
        "the function, and add the noise of its points"
    )

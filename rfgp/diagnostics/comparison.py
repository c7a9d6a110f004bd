"""A report of how far a model is from the exact one."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch
from gpytorch.likelihoods import DirichletClassificationLikelihood
from torch import Tensor

from .._support import checks
from ..approximation.selection.coverage import kl_reading
from ..likelihoods.noise import has_fixed_noise
from .kl import kl_per_point, latent_marginals, training_data
from .measurement import Measurement


@dataclass(frozen=True)
class ExactComparison:
    """How far the posterior of a model is from the exact one, of the latent function at some points.

    :param kl_per_point: KL(exact, approximate), which grows where error bars are too narrow.
    :param reverse_kl_per_point: KL(approximate, exact).
    :param mean_shift: the root mean square of the difference of the means in exact standard deviations.
    :param std_ratio: the geometric mean of approximate over exact standard deviations; below 1 is too sure.
    :param coverage: the share of the exact posterior inside of the 95 % intervals of the model, 0.95 at best.
    :param num_rows: the training rows of a comparison.
    :param num_training_rows: all training rows.
    :param num_subsets: the number of random subsets of the rows, 1 where all were taken.
    :param num_points: the number of points.

    >>> import rfgp
    >>> x, likelihood = torch.rand(50, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> kernel = rfgp.approximate(gpytorch.kernels.LinearKernel(), num_features=2, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, likelihood, keep_data=True).condition(x, x.sum(-1))
    >>> compare_to_exact(model, x).num_rows
    50
    """

    kl_per_point: Measurement
    reverse_kl_per_point: Measurement
    mean_shift: Measurement
    std_ratio: Measurement
    coverage: Measurement
    num_rows: int
    num_training_rows: int
    num_subsets: int
    num_points: int

    def __str__(self) -> str:
        rows = f"all {self.num_rows:,} training rows"
        if self.num_subsets > 1:
            rows = f"{self.num_subsets} subsets of {self.num_rows:,} of {self.num_training_rows:,} training rows"
        lines = [
            f"compared with the exact posterior at {self.num_points:,} points, given {rows}",
            kl_reading(max(self.kl_per_point.mean, 0.0)),
            f"KL(exact, model) per point      {self.kl_per_point}",
            f"KL(model, exact) per point      {self.reverse_kl_per_point}",
            f"means apart, in exact std       {self.mean_shift}",
            f"std over exact std              {self.std_ratio}",
            f"coverage of 95% intervals       {self.coverage}",
        ]
        if self.num_subsets > 1:
            lines.append("more rows make an exact posterior sharper: given all of them the model is further from it")
        return "\n".join(lines)


@torch.no_grad()
def compare_to_exact(
    model: Any,
    x: Tensor,
    *,
    train_inputs: Tensor | None = None,
    train_targets: Tensor | None = None,
    train_noise: Tensor | None = None,
    max_rows: int = 2000,
    num_subsets: int = 4,
    seed: int = 0,
) -> ExactComparison:
    """How far the posterior of a model is from the exact one with the same parameters: print the result.

    Beyond ``max_rows`` training rows both models are given the same random subsets of them, and results have a standard
    error over these. :func:`rfgp.diagnostics.certificates.certify` compares means given all rows.

    :param model: a fitted :class:`rfgp.models.WeightSpaceGP`, or an ExactGP with an approximated kernel.
    :param x: the points at which posteriors are compared, (M, d).
    :param train_inputs: the training inputs, where the model does not keep them (``keep_data=True`` does).
    :param train_targets: the training targets, likewise.
    :param train_noise: their noise variances, for a fixed-noise likelihood that does not know these rows.
    :param num_subsets: the number of random subsets where there are more, at least 2.
    :raises ValueError: for models without training data, complex targets, or arguments out of range.

    >>> import rfgp
    >>> x, likelihood = torch.rand(50, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> kernel = rfgp.approximate(gpytorch.kernels.LinearKernel(), num_features=2, input_dim=2)
    >>> model = rfgp.models.WeightSpaceGP(kernel, likelihood, keep_data=True).condition(x, x.sum(-1))
    >>> abs(compare_to_exact(model, x).std_ratio.mean - 1.0) < 1e-3  # linear features are exact
    True
    """
    x, train_inputs = checks.columns(x), checks.columns(train_inputs)
    most = checks.positive_integer("max_rows", max_rows)
    generator = torch.Generator().manual_seed(checks.seed(seed))
    if checks.positive_integer("num_subsets", num_subsets) < 2:
        raise ValueError("expected num_subsets of at least 2, got 1; a single subset has no standard error")
    inputs, targets, noise = training_data(model, train_inputs, train_targets, train_noise)
    if targets.is_complex():
        raise ValueError("expected real targets, got complex ones; kl_to_exact compares complex posteriors")
    num_rows = len(inputs)
    is_all = num_rows <= most
    has_classes = isinstance(model.likelihood, DirichletClassificationLikelihood)
    if noise is None and not has_classes and has_fixed_noise(model.likelihood):
        noise = model.likelihood.noise_covar.noise
    if is_all:
        by_subset = [_measures(*latent_marginals(model, x, inputs, targets, noise))]
    else:
        by_subset = []
        for _ in range(num_subsets):
            rows = torch.randperm(num_rows, generator=generator)[:most].sort().values.to(inputs.device)
            some = inputs[rows], targets[rows], None if noise is None else noise[rows]
            refitted = _refitted(model, rows, *some)
            by_subset.append(_measures(*latent_marginals(refitted, x, *some)))
    measurements = [Measurement(v[0], math.nan) if is_all else Measurement.of(v) for v in zip(*by_subset, strict=True)]
    divergence, reverse, shift, ratio, inside = measurements
    return ExactComparison(
        divergence, reverse, shift, ratio, inside, min(num_rows, most), num_rows, len(by_subset), len(x)
    )


def _measures(approximate: Any, exact: Any) -> tuple[float, float, float, float, float]:
    std, exact_std = approximate.stddev, exact.stddev
    shift, ratio = (approximate.mean - exact.mean) / exact_std, std / exact_std
    half = ratio * torch.special.ndtri(torch.tensor(0.975, dtype=torch.float64))
    inside = torch.special.ndtr(shift + half) - torch.special.ndtr(shift - half)
    apart, ratio_of_std = float(shift.square().mean().sqrt()), float(ratio.log().mean().exp())
    divergences = kl_per_point(exact, approximate), kl_per_point(approximate, exact)
    return *divergences, apart, ratio_of_std, float(inside.mean())


def _refitted(model: Any, rows: Tensor, x: Tensor, y: Tensor, noise: Tensor | None) -> Any:
    """The model given other rows, with the same parameters and features."""
    if not isinstance(model, gpytorch.models.ExactGP):
        return copy.deepcopy(model, {id(model.training_data): []}).condition(x, y, *(() if noise is None else (noise,)))
    if isinstance(model.likelihood, DirichletClassificationLikelihood):
        raise ValueError(
            f"expected at most max_rows training rows of an ExactGP of classes, got {len(model.train_inputs[0])}; "
            "raise max_rows, or compare a WeightSpaceGP with the same kernel and likelihood"
        )
    other = copy.deepcopy(model)
    if has_fixed_noise(other.likelihood):
        other.likelihood.noise_covar.noise = other.likelihood.noise_covar.noise[rows]
    other.set_train_data(x, y, strict=False)
    return other.eval()
